"""`arena problems`, through the real command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from foundation.errors import ArenaError
from neurons.cli.bank import app
from problems.formats import read_problems, write_problems
from problems.model import Product
from tests.problems.stand import PROBLEMS, PRODUCTS, make_catalogue

CASE = {
    "case_id": "c1",
    "category": "shop",
    "reward": [{"product_id": "101", "title": ["Brass Desk Lamp"]}, {"product_id": "103", "title": ["Steel Kettle"]}],
    "product_ids": "102, 103",
}


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_documents(path: Path, products: tuple[Product, ...] = tuple(PRODUCTS.values())) -> Path:
    rows = [{"id": p.product_id, "contents": p.title, "product": msgspec.to_builtins(p)} for p in products]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def documents(tmp_path) -> Path:
    return write_documents(tmp_path / "documents.jsonl")


@pytest.fixture
def problem_file(tmp_path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("\n".join(write_problems(PROBLEMS)))
    return path


def test_score_prints_one_line_per_case_with_the_reference_keys(tmp_path, documents):
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(CASE) + "\n\n" + json.dumps({**CASE, "case_id": "c2", "product_ids": ["101"]}) + "\n")
    result = run("score", "--cases", cases, "--documents", documents)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [line["case_id"] for line in lines] == ["c1", "c2"]
    keys = ["case_id", "gt", "rule", "product", "title", "price", "service", "sku & attrs", "shop", "success"]
    assert list(lines[0]) == keys
    assert (lines[0]["gt"], lines[0]["rule"], lines[0]["shop"], lines[0]["success"]) == (0.5, 0.5, 0.0, False)
    assert not any(lines[1][key] for key in keys[1:])


def test_a_title_release_may_stand_in_a_file(tmp_path, documents):
    cases, release = tmp_path / "cases.jsonl", tmp_path / "release.json"
    cases.write_text(json.dumps(CASE))
    release.write_text(json.dumps({"name": "r/1", "accepted": {"Brass Desk Lamp": ["102"], "Steel Kettle": []}}))
    result = run("score", "--cases", cases, "--documents", documents, "--titles", release)
    assert json.loads(result.stdout)["success"] is True


def test_a_malformed_case_is_unscored_and_leaves_the_others_alone(tmp_path, documents):
    cases = tmp_path / "cases.jsonl"
    bad = ["{", "[]", json.dumps({**CASE, "reward": {}}), json.dumps({**CASE, "category": "web"})]
    cases.write_text("\n".join([*bad, json.dumps(CASE)]))
    result = run("score", "--cases", cases, "--documents", documents)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [line.get("unscored", {}).get("code") for line in lines] == ["P4001", "P4009", "P4003", "P4008", None]
    assert [line["case_id"] for line in lines] == ["line 1", "line 2", "c1", "c1", "c1"]


def test_a_malformed_document_leaves_the_cases_that_look_at_it_unscored(tmp_path, documents):
    cases = tmp_path / "cases.jsonl"
    other = {"id": "106", "product": msgspec.to_builtins(PRODUCTS["101"])}
    with documents.open("a") as file:
        file.writelines(["\n", '{"id": "105", "product": {"price": null}}\n', json.dumps(other) + "\n"])
    cases.write_text("\n".join(json.dumps({**CASE, "product_ids": ids}) for ids in ("105, 103", "106", "102")))
    result = run("score", "--cases", cases, "--documents", documents)
    codes = [json.loads(line).get("unscored", {}).get("code") for line in result.stdout.splitlines()]
    assert (result.exit_code, codes) == (1, ["P4005", "P4005", None])
    text = documents.read_text()
    for line, words in (("{", "line 8: "), ('{"id": 1}', "line 8: a document is an object")):
        documents.write_text(text + line)
        broken = run("score", "--cases", cases, "--documents", documents).exception
        assert isinstance(broken, ArenaError) and broken.failure.code == "P4005" and words in broken.failure.detail


def test_list_shows_what_an_agent_may_see_and_no_answer(problem_file):
    result = run("list", problem_file, "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"problem_id": p.problem_id, "category": p.bucket, "query": p.query} for p in PROBLEMS
    ]
    plain = run("list", problem_file).stdout
    assert "a lamp, a kettle" in plain and "101" not in plain


def test_check_names_the_problem_that_cannot_be_solved(tmp_path, documents, problem_file):
    assert run("check", problem_file).exit_code == 0
    assert run("check", problem_file, "--catalogue", documents).exit_code == 0
    fewer = write_documents(tmp_path / "fewer.jsonl", tuple(p for p in PRODUCTS.values() if p.product_id != "103"))
    result = run("check", problem_file, "--catalogue", fewer)
    assert result.exit_code == 1
    assert "p2: P4006" in result.stdout and "p3: P4006" in result.stdout and "p1" not in result.stdout
    lines = [
        json.loads(line) for line in run("check", problem_file, "--catalogue", fewer, "--json").stdout.splitlines()
    ]
    assert [line["oracle_reward_e4"] for line in lines] == [10_000, None, None]


def test_synthesize_writes_a_set_that_check_accepts(tmp_path):
    documents = write_documents(tmp_path / "documents.jsonl", make_catalogue(200))
    out = tmp_path / "made.jsonl"
    options = ["--catalogue", documents, "--count", 9]
    assert run("synthesize", "--out", out, *options, "--seed", 5).exit_code == 0
    assert len(read_problems(out.read_bytes().splitlines())) == 9
    assert run("check", out, "--catalogue", documents).exit_code == 0
    again, unseeded = tmp_path / "again.jsonl", tmp_path / "unseeded.jsonl"
    assert run("synthesize", "--out", again, *options, "--seed", 5).exit_code == 0
    assert run("synthesize", "--out", unseeded, *options).exit_code == 0
    assert again.read_bytes() == out.read_bytes() != unseeded.read_bytes()


def test_wrong_usage_has_exit_code_two(tmp_path, documents):
    out = tmp_path / "there.jsonl"
    assert run("synthesize", "--out", out).exit_code == 2
    out.touch()
    assert run("synthesize", "--out", out, "--catalogue", documents).exit_code == 2
    assert isinstance(run("list", tmp_path / "absent.jsonl").exception, FileNotFoundError)  # which `arena` ends with 2

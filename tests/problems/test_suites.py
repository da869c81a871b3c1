"""Problem files: three formats in, one out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import problems
from arena.bank.suite_signature import check_suite, sign_suite
from arena.chain.keys import keypair_signer, verify
from arena.chain.opening import OWNER_URI
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from harness.catalogue.synthetic import generate
from neurons.cli.problems import app
from neurons.settings.inputs import SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED
from problems import suites as shipped
from problems.formats import count_web, problem_bytes, read_problems, write_problems
from problems.model import BUCKETS, Bucket, PriceRule, Product
from problems.synthesis import ProblemMaker, measure_ambiguity
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles, encode_accepted
from problems.wording import reads_back
from tests.keys import generate_signer
from tests.problems.stand import PROBLEMS, PRODUCT_PROBLEM, PRODUCTS, check_problem_set, make_catalogue

ITEM = {
    "product_id": "1",
    "title": ["Lamp"],
    "sku_options": [{"color": "red", "size": "xl"}],
    "attributes": [{"material": ["brass"]}, {"style": ["plain"]}],
    "service": ["COD"],
    "price": [{"greater than": [10, None]}],
}
VOUCHER = {
    "voucher_type": "shop",
    "threshold": 50,
    "discount_type": "fixed",
    "face_value": 9,
    "discount": None,
    "cap": None,
    "price_after_voucher": 41.5,
    "budget": 45,
}
UPSTREAM = [
    {"query": "a lamp", "reward": ITEM},
    {"query": "two lamps", "reward": [ITEM, ITEM]},
    {"query": "cheap lamps", "reward": [ITEM], "voucher": VOUCHER},
]


def refused(*rows, code: str) -> str:
    with pytest.raises(ArenaError) as caught:
        read_problems(rows)
    assert caught.value.failure.code == code, caught.value
    return caught.value.failure.detail


def test_the_upstream_format_tells_its_bucket_by_its_shape():
    problems = read_problems(map(json.dumps, UPSTREAM))
    assert [problem.bucket for problem in problems] == ["product", "shop", "voucher"]
    item = problems[0].rewards[0]
    assert item.price == (PriceRule(mode="greater than", low=10.0),)
    assert item.attributes == ({"material": ("brass",)}, {"style": ("plain",)})
    assert problems[2].voucher is not None and problems[2].voucher.budget == 45.0


def test_the_sn15_format_names_its_bucket_in_title_case():
    more = {"difficulty": "easy", "title": "A Lamp 1", "reward_title_embeddings": {"Lamp": [0.1]}}
    named = zip(UPSTREAM, ("Product", "Shop", "Voucher"), strict=True)
    rows = [{**row, "category": name, **more} for row, name in named]
    plain = [{**row, "category": name} for row, name in zip(UPSTREAM, ("product", "shop", "voucher"), strict=True)]
    assert read_problems(map(json.dumps, rows)) == read_problems(plain)


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"suite": 1, "problems": rows}])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_or_an_envelope_reads_like_lines(wrap, indent):
    text = json.dumps(wrap(UPSTREAM), indent=indent)
    assert read_problems([*text.splitlines(), ""]) == read_problems(UPSTREAM)


def test_our_own_format_is_read_back_equal():
    assert read_problems(write_problems(PROBLEMS)) == PROBLEMS


def test_two_problems_with_one_query_keep_their_own_rewards():
    first, second = read_problems([UPSTREAM[0], {**UPSTREAM[0], "reward": {**ITEM, "product_id": "2"}}])
    assert first.problem_id != second.problem_id
    assert (first.rewards[0].product_id, second.rewards[0].product_id) == ("1", "2")


def test_two_problems_with_one_id_are_refused():
    detail = refused({**UPSTREAM[0], "id": "x"}, {**UPSTREAM[1], "id": "x"}, code="P4009")
    assert "line 1" in detail and "line 2" in detail


def test_a_broken_line_is_named():
    assert "line 2" in refused(json.dumps(UPSTREAM[0]), '{"query": ', code="P4001")
    assert "line 2" in refused(json.dumps(UPSTREAM[0]), '{"price": NaN}', code="P4001")
    refused(b"\xff\xfe", code="P4001")
    refused("[" * 100_000, code="P4001")


def test_web_problems_are_counted_and_left_out_where_that_is_asked_for():
    rows = [UPSTREAM[0], {**UPSTREAM[0], "category": "Web"}, {**UPSTREAM[0], "knowledge_attribute": "Violin"}]
    assert read_problems(rows, is_web_skipped=True) == read_problems(rows[:1])
    assert count_web(rows) == 2


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        ({"query": "q", "reward": ITEM, "category": "web"}, "P4008", "web"),
        ({"query": "q", "reward": ITEM, "Knowledge_Attribute": "Violin"}, "P4008", "web"),
        ({"query": "q", "reward": ITEM, "category": "grocery"}, "P4003", "grocery"),
        ({"query": "q", "reward": ITEM, "category": 3}, "P4003", "3"),
        ({"query": 5, "reward": ITEM}, "P4009", "query"),
        ({"query": "q", "reward": ITEM, "id": 7}, "P4009", "problem_id"),
        ({"query": "q", "reward": [ITEM, "lamp"]}, "P4003", "reward[1] is not an object"),
        ({"query": "q", "reward": {**ITEM, "price": {}}}, "P4003", "price is not a list of objects"),
        ({"query": "q", "reward": {**ITEM, "price": [{"between": [1]}]}}, "P4003", "'between' needs two bounds"),
        ({"query": "q", "reward": {**ITEM, "price": [{"less than": [None, math.inf]}]}}, "P4003", "high is not finite"),
        ({"query": "q", "reward": {**ITEM, "product_id": ""}}, "P4003", "product_id is empty"),
        ({"query": "q", "reward": {"product_id": "1", "title": []}}, "P4003", "asks nothing"),
        ({"query": "\ud800", "reward": ITEM}, "P4009", ""),
    ],
)
def test_malformed_rows_name_line_and_field(row, code, words):
    detail = refused(row, code=code)
    assert "line 1" in detail and words in detail


def test_hashes_do_not_depend_on_key_order_or_on_integers_for_floats():
    item = PRODUCT_PROBLEM.rewards[0]
    turned = msgspec.structs.replace(
        item,
        sku_options=tuple(dict(reversed(option.items())) for option in item.sku_options),
        price=(PriceRule(mode="between", low=200.0, high=300.0),),
    )
    same = msgspec.structs.replace(PRODUCT_PROBLEM, rewards=(turned,))
    assert problem_bytes(same) == problem_bytes(PRODUCT_PROBLEM)
    other = msgspec.structs.replace(PRODUCT_PROBLEM, query="a lamp!")
    assert problem_bytes(other) != problem_bytes(PRODUCT_PROBLEM)


# -- `arena problems`, through the real command


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
    assert json.loads(result.stdout) == [
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
    lines = json.loads(run("check", problem_file, "--catalogue", fewer, "--json").stdout)["checks"]
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


# -- shipped suites: pinned by hash, remade byte for byte, disjoint, and asked of the catalogue the demo makes


FOLDER = Path(problems.__file__).parent / "shipped"


def make_suites(products: Sequence[Product], *, documents: int, seed: int) -> dict[str, bytes]:
    """The bytes of every shipped file but the signatures, by name, from `generate(documents, seed)`.

    Byte for byte the same wherever it runs. Raises ArenaError P4011 when the catalogue yields too few problems.
    """
    index = TitleIndex(products)
    maker = ProblemMaker(index)
    recipe = shipped.CatalogueRecipe(
        documents=documents, seed=seed, products_sha256=shipped.products_sha256(index.products)
    )
    suites = {name: maker.make(seed=suite_seed(name), counts=_counts()) for name in shipped.SUITES}
    release = shipped.accept_lexically(
        (problem for made in suites.values() for problem in made), index, f"synthetic-{documents}-{seed}"
    )
    title_file = encode_accepted(release)
    files = {shipped.TITLES_FILE: title_file}
    for place, (name, made) in enumerate(suites.items()):
        problem_file = "".join(f"{line}\n" for line in write_problems(made)).encode()
        manifest = shipped.SuiteManifest(
            name=name,
            version=shipped.SUITE_VERSION,
            catalogue=recipe,
            seed=str(suite_seed(name)),
            after=shipped.SUITES[:place],
            counts={str(bucket): count for bucket, count in _counts().items()},
            problems_sha256=hashlib.sha256(problem_file).hexdigest(),
            titles=release.name,
            titles_sha256=hashlib.sha256(title_file).hexdigest(),
        )
        files[f"{name}.jsonl"] = problem_file
        files[f"{name}.manifest.json"] = canonical_bytes(manifest)
    return files


def suite_seed(name: str) -> int:
    """The seed of a suite: public, since the suite is."""
    return int(hashlib.sha256(f"agent-arena/suite/{name}".encode()).hexdigest()[:15], 16)


def _counts() -> dict[Bucket, int]:
    return dict.fromkeys(BUCKETS, 10)


def main() -> None:
    products = tuple(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))
    made = make_suites(products, documents=SYNTHETIC_DOCUMENTS, seed=SYNTHETIC_SEED)
    signer = keypair_signer(OWNER_URI)
    FOLDER.mkdir(exist_ok=True)
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    for name in shipped.SUITES:
        signature = sign_suite(shipped.decode_manifest(made[f"{name}.manifest.json"]), signer)
        (FOLDER / f"{name}.signature.json").write_bytes(msgspec.json.encode(signature))


replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def shelf() -> TitleIndex:
    return TitleIndex(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))


def test_the_suites_are_remade_byte_for_byte_from_their_recipe(shelf):
    made = make_suites(shelf.products, documents=SYNTHETIC_DOCUMENTS, seed=SYNTHETIC_SEED)
    assert set(made) == {
        shipped.TITLES_FILE,
        *(f"{name}.{kind}" for name in shipped.SUITES for kind in ("jsonl", "manifest.json")),
    }
    for name, content in made.items():
        assert content == shipped.shipped_bytes(name), f"{name}: run python -m tests.problems.test_suites"
    problems = [problem for name in shipped.SUITES for problem in shipped.load_shipped(name).problems]
    assert len(shipped.shipped_answers()) == sum(len(problem.rewards) for problem in problems)


@pytest.mark.parametrize("name", shipped.SUITES)
def test_a_suite_holds_ten_of_each_bucket_and_every_one_is_usable(name, shelf):
    suite = shipped.load_shipped(name)
    assert [problem.bucket for problem in suite.problems] == [bucket for bucket in BUCKETS for _ in range(10)]
    for titles in (suite.titles, LexicalTitles()):
        checks = check_problem_set(suite.problems, shelf.products, shelf.product, titles, seed=5)
        assert all(check.is_usable and not check.warnings and check.random_reward_e4 != 10_000 for check in checks)
    for problem in suite.problems:
        assert reads_back(problem)
        assert measure_ambiguity(problem, shelf, suite.titles) == measure_ambiguity(problem, shelf)


def test_a_file_that_was_edited_is_refused():
    manifest = shipped.load_shipped("s1").manifest
    problems, titles = shipped.shipped_bytes("s1.jsonl"), shipped.shipped_bytes(shipped.TITLES_FILE)
    assert len(shipped.open_suite(manifest, problems, titles).problems) == 30
    for edited in ((problems.replace(b"PHP", b"PHp", 1), titles), (problems, titles + b" "), (titles, problems)):
        with pytest.raises(ArenaError, match="P4010"):
            shipped.open_suite(manifest, *edited)
    renamed = replace(manifest, titles="another")
    with pytest.raises(ArenaError, match=r"P4010.*another"):
        shipped.open_suite(renamed, problems, titles)


def test_another_version_or_an_unknown_suite_is_refused():
    newer = replace(shipped.load_shipped("s1").manifest, version=2)
    with pytest.raises(ArenaError, match=r"P4010.*version 2"):
        shipped.decode_manifest(canonical_bytes(newer))
    with pytest.raises(ArenaError, match="P4010"):
        shipped.decode_manifest(b'{"name": "s1"}')
    with pytest.raises(ArenaError, match="P4010"):
        shipped.load_shipped("s4")
    with pytest.raises(ArenaError, match="P4010"):
        shipped.shipped_bytes("s4.jsonl")


def test_a_signature_holds_for_one_manifest_and_one_operator():
    operator, stranger = generate_signer(), generate_signer()
    manifest = shipped.load_shipped("s2").manifest
    signature = sign_suite(manifest, operator)
    check_suite(manifest, signature, verify, operator.hotkey)
    fields = [name for name in manifest.__struct_fields__ if isinstance(getattr(manifest, name), str)]
    assert {"name", "problems_sha256", "titles_sha256", "seed"} <= set(fields)
    for field in fields:
        with pytest.raises(ArenaError, match="P4010"):
            check_suite(replace(manifest, **{field: "0" * 64}), signature, verify, operator.hotkey)
    for bad in (
        replace(signature, hotkey=stranger.hotkey),
        replace(sign_suite(manifest, stranger), hotkey=operator.hotkey),
        replace(signature, signature="no hex"),
        replace(signature, signature="00" * 64),
    ):
        with pytest.raises(ArenaError, match="P4010"):
            check_suite(manifest, bad, verify, operator.hotkey)


if __name__ == "__main__":
    main()

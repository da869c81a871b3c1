"""`arena problems` for a bank's operator: from a catalogue to sealed batches, through the real commands."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.bank.batches.sealed_file import SignedNotice, open_batch, read_sealed
from arena.bank.partition_file import read_partition
from arena.bank.suite_signature import read_suite
from arena.chain.beacon import local_round
from arena.chain.keys import keypair_signer, verify
from arena.chain.timelock import LocalTimelock
from foundation.errors import ArenaError
from neurons.cli.bank import app
from problems.scoring.title_matching import cut_titles, decode_accepted, reward_titles
from problems.suites.formats import read_problems, write_problems
from problems.suites.shipped import load_shipped
from problems.synthesis.phrasing import say_voucher
from tests.arena.scripted_embeddings import HashedWords, ScriptedEmbeddings
from tests.arena.test_bank_rephrasing import other_words
from tests.harness.inference_stand import OtherServer, answer
from tests.problems.stand import LAMP, PROBLEMS, PRODUCT_PROBLEM, make_catalogue
from tests.problems.test_cases_cli import write_documents

OPERATOR = keypair_signer("//Operator")
KEY = ["--wallet.hotkey", "//Operator"]


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows(result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    return write_documents(tmp_path_factory.mktemp("catalogue") / "documents.jsonl", make_catalogue(900))


@pytest.fixture(scope="module")
def bank(tmp_path_factory, documents) -> Path:
    path = tmp_path_factory.mktemp("problems") / "bank.jsonl"
    assert run("synthesize", "--documents", documents, "--count", 60, "--out", path).exit_code == 0
    return path


def test_the_shipped_suites_are_listed_and_read_by_name():
    listed = rows(run("list", "--json"))
    assert [row["suite"] for row in listed] == ["s1", "s2", "s3"]
    assert {row["problems"] for row in listed} == {30}
    assert len(run("list", "s2").stdout.splitlines()) == 30
    assert run("list", "s9").exit_code == 2


def test_count_bucket_and_difficulty_shape_what_is_made(tmp_path, documents):
    out = tmp_path / "hard.jsonl"
    asked = ["--count", 7, "--bucket", "shop", "--bucket", "voucher", "--difficulty", "easy=1,medium=1"]
    assert run("synthesize", "--documents", documents, "--out", out, *asked).exit_code == 0
    made = read_problems(out.read_bytes().splitlines())
    assert [problem.bucket for problem in made] == ["shop"] * 4 + ["voucher"] * 3


@pytest.mark.parametrize("wrong", [["--bucket", "web"], ["--difficulty", "easier"], ["--difficulty", "easy=0"]])
def test_a_wrong_bucket_or_level_is_usage(tmp_path, documents, wrong):
    result = run("synthesize", "--documents", documents, "--out", tmp_path / "x.jsonl", "--count", 1, *wrong)
    assert result.exit_code == 2 and not (tmp_path / "x.jsonl").exists()


def test_what_was_made_is_solvable_clear_and_apart(documents, bank):
    checked = rows(run("check", bank, "--documents", documents, "--json"))
    assert len(checked) == 60
    assert all(row["failure"] is None and max(row["accepted"]) <= 3 and not row["crowded"] for row in checked)
    *_, totals = rows(run("check", bank, "--documents", documents, "--clusters", "--json"))[:-60]
    assert totals["clusters"] == totals["problems"] == 60


def test_a_problem_that_too_many_products_satisfy_fails_the_check(documents, bank):
    result = run("check", bank, "--documents", documents, "--accepted-max", 1)
    accepted = [max(row["accepted"]) for row in rows(run("check", bank, "--documents", documents, "--json"))]
    assert result.exit_code == (1 if max(accepted) > 1 else 0)
    assert result.stdout.count("P4019") == sum(count > 1 for count in accepted)


def test_problems_with_one_answer_share_a_cluster_and_are_shown(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text("\n".join(write_problems(PROBLEMS)))
    shown = run("check", path, "--clusters")
    assert shown.exit_code == 0 and "p1 p2 p3" in shown.stdout
    assert rows(run("check", path, "--clusters", "--json"))[-2] == {"problems": 3, "clusters": 1, "review": 0}


def partition(tmp_path: Path, bank: Path, *more: object):
    out = tmp_path / "bank" / "partition.json"
    return out, run("partition", bank, "--out", out, "--eval", "2,2,2", "--dev", "1,1,1", *KEY, *more)


def test_a_bank_is_partitioned_sealed_stocked_and_opens_round_by_round(tmp_path, bank, documents):
    manifest_file, made = partition(tmp_path, bank, "--documents", documents, "--json")
    (row,) = rows(made)
    assert row["pools"] == {"never_touch": 90, "eval": 6, "dev": 3, "train": 51}
    assert stat.S_IMODE(manifest_file.stat().st_mode) == 0o600

    folder = tmp_path / "state" / "bank"
    asked = ["--races", 4, "--size", 10, "--policy", "paper", "--partition", manifest_file, *KEY]
    sealed = run("seal", bank, "--out", folder, *asked, "--json")
    assert sealed.exit_code == 0
    partition_sha256 = read_partition(manifest_file, verify).manifest.sha256
    pools, ids = set(), set()
    for shown in rows(sealed):
        file = read_sealed(folder / f"{shown['race_id']}.sealed.json", OPERATOR.hotkey, verify)
        with pytest.raises(ArenaError, match=f"V2085.*{shown['opens'][:10]}"):
            open_batch(file, None, timelock=LocalTimelock())
        batch = open_batch(file, local_round(shown["round"]), timelock=LocalTimelock())
        assert (batch.partition_sha256, len(batch.problems)) == (partition_sha256, 10)
        assert not ids & set(batch.problem_ids)
        ids |= set(batch.problem_ids)
        pools |= set(batch.pools)
        notice = (folder / f"{shown['race_id']}.notice.json").read_bytes()
        assert msgspec.json.decode(notice, type=SignedNotice) == file.signed
    assert "never_touch" not in pools

    more = run("seal", bank, "--out", folder, "--races", 2, *asked[2:])
    assert more.exit_code == 0  # it goes on where the folder ends, with problems that were not sealed
    none_left = run("seal", bank, "--out", folder, "--races", 1, *asked[2:])
    assert isinstance(none_left.exception, ArenaError) and none_left.exception.failure.code == "P4015"


def test_a_partition_is_frozen_once_and_only_added_to(tmp_path, bank, documents):
    out, made = partition(tmp_path, bank)
    assert made.exit_code == 0
    assert partition(tmp_path, bank)[1].exit_code == 2
    again = tmp_path / "again.jsonl"
    first = read_problems(bank.read_bytes().splitlines())[0]
    again.write_text("\n".join(write_problems([first])))
    same = run("partition", again, "--out", out, "--extend", *KEY, "--json")
    assert same.exit_code == 0 and rows(same)[0]["refused"] == []
    suite = run("partition", "s1", "--out", out, "--extend", *KEY)
    assert suite.exit_code == 1 and suite.stdout.count("refused: ") == 30


def test_closes_that_nobody_can_know_ahead_are_not_sealed_to(tmp_path, bank):
    result = run("seal", bank, "--out", tmp_path / "out", "--policy", "demo", *KEY)
    assert result.exit_code == 2 and not (tmp_path / "out").exists()


# -- stats
def test_sets_stand_side_by_side_in_the_table(bank):
    result = run("stats", bank, "s1")
    header, *_ = result.stdout.splitlines()
    assert header.split() == ["bank.jsonl", "s1"]
    for label in ("shop problems", "  items with sku "):
        assert label in result.stdout
    assert [row["shape"]["problems"] for row in rows(run("stats", bank, "s1", "--json"))] == [60, 30]


def test_a_file_without_a_problem_is_usage_and_no_success(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert run("check", empty).exit_code == 2


def test_what_was_made_is_its_owners_alone_and_a_wrong_place_is_named_before_the_work(tmp_path, documents, bank):
    assert stat.S_IMODE(bank.stat().st_mode) == 0o600
    nowhere = run("synthesize", "--documents", documents, "--count", 1, "--out", tmp_path / "no" / "x.jsonl")
    assert nowhere.exit_code == 2 and "there is no folder" in " ".join(nowhere.output.split())
    again = run("synthesize", "--documents", documents, "--count", 1, "--out", bank)
    assert again.exit_code == 2


def test_a_real_networks_batches_are_sealed_under_a_partition_or_not_at_all(tmp_path, bank):
    wanted = ["--races", 1, "--size", 3, "--policy", "paper", "--subtensor.network", "finney", *KEY]
    result = run("seal", bank, "--out", tmp_path / "sealed", *wanted)
    assert result.exit_code == 2 and "--partition" in result.output
    assert not (tmp_path / "sealed").exists()


def test_sealing_says_what_goes_where_and_what_near_identical_products_need(tmp_path, bank, documents):
    manifest_file, _ = partition(tmp_path, bank)
    more = tmp_path / "more.jsonl"
    made = run("synthesize", "--documents", documents, "--count", 6, "--exclude", bank, "--out", more)
    assert made.exit_code == 0
    asked = ["--races", 1, "--size", 3, "--policy", "paper", "--partition", manifest_file, *KEY]
    bare = run("seal", more, "--out", tmp_path / "a", *asked)
    assert bare.exit_code == 0 and "near-identical" in bare.output
    assert f"operator_hotkey = {OPERATOR.hotkey}" in bare.output and "notice.json for everybody" in bare.output
    entered = run("seal", bank, "--out", tmp_path / "b", *asked)
    assert entered.exit_code == 0 and "near-identical" not in entered.output


def test_a_title_release_names_the_banks_answers_for_its_owner_alone_and_scores_it(tmp_path, bank, documents):
    out = tmp_path / "titles.json"
    made = run("titles", bank, "s1", "--documents", documents, "--name", "test", "--out", out)
    assert made.exit_code == 0 and "lexical/1@test" in made.stdout and "0.70" in made.stdout
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    problems = read_problems(bank.read_bytes().splitlines())
    assert decode_accepted(out.read_bytes()).accepted.keys() == reward_titles((*problems, *load_shipped("s1").problems))
    assert run("check", bank, "--documents", documents, "--titles", out).exit_code == 0
    assert run("titles", bank, "--documents", documents, "--name", "again", "--out", out).exit_code == 2


def test_a_title_release_comes_from_an_embeddings_endpoint_as_well(tmp_path, bank, documents):
    with ScriptedEmbeddings() as server:
        asked = ["--embeddings", server.base_url, "--model", HashedWords.name, "--json"]
        made = run("titles", bank, "--documents", documents, "--name", "test", "--out", tmp_path / "t.json", *asked)
    assert made.exit_code == 0, made.output
    (row,) = rows(made)
    assert row["report"]["name"] == f"{HashedWords.name}@test" and row["report"]["products"] == 900


def test_sealed_batches_take_their_own_part_of_the_accepted_titles_inside(tmp_path, bank, documents):
    titles, folder = tmp_path / "titles.json", tmp_path / "bank"
    assert run("titles", bank, "--documents", documents, "--name", "test", "--out", titles).exit_code == 0
    asked = ["--races", 2, "--size", 10, "--policy", "paper", "--titles", titles, "--json", *KEY]
    sealed = run("seal", bank, "--out", folder, *asked)
    assert sealed.exit_code == 0, sealed.output
    release = decode_accepted(titles.read_bytes())
    for shown in rows(sealed):
        file = read_sealed(folder / f"{shown['race_id']}.sealed.json", OPERATOR.hotkey, verify)
        batch = open_batch(file, local_round(shown["round"]), timelock=LocalTimelock())
        assert file.notice.titles == "lexical/1@test"
        assert batch.titles == cut_titles(release, batch.problems)
    short = tmp_path / "short.json"
    assert run("titles", "s1", "--documents", documents, "--name", "short", "--out", short).exit_code == 0
    refused = run("seal", bank, "--out", tmp_path / "no", "--races", 1, "--size", 3, "--titles", short, *KEY)
    assert isinstance(refused.exception, ArenaError) and refused.exception.failure.code == "P4012"


def test_batches_of_a_real_network_are_not_sealed_without_their_titles(tmp_path, bank):
    partition_file, _ = partition(tmp_path, bank)
    asked = ["--policy", "paper", "--partition", partition_file, "--subtensor.network", "finney", *KEY]
    refused = run("seal", bank, "--out", tmp_path / "out", *asked)
    assert refused.exit_code == 2 and "titles" in refused.output and not (tmp_path / "out").exists()


def test_a_suite_is_signed_with_its_titles_and_one_that_cannot_be_solved_is_not(tmp_path, bank, documents):
    titles, folder = tmp_path / "titles.json", tmp_path / "suites"
    assert run("titles", bank, "--documents", documents, "--name", "test", "--out", titles).exit_code == 0
    asked = ["--titles", titles, "--documents", documents, "--out", folder, *KEY]
    signed = run("sign-suite", bank, *asked, "--name", "s7", "--json")
    assert signed.exit_code == 0, signed.output
    (row,) = rows(signed)
    suite = read_suite(folder, "s7", verify, OPERATOR.hotkey)
    assert row["signer"] == OPERATOR.hotkey and suite.manifest.catalogue.documents == 900
    assert suite.problems == read_problems(bank.read_bytes().splitlines())
    assert suite.titles.accepted.keys() == reward_titles(suite.problems)
    assert run("sign-suite", bank, *asked, "--name", "s7").exit_code == 2  # it is there already
    elsewhere = write_documents(tmp_path / "few.jsonl", make_catalogue(5))
    unsolvable = run("sign-suite", bank, *asked[:2], "--documents", elsewhere, *asked[4:], "--name", "s8")
    assert unsolvable.exit_code == 1 and "P4006" in unsolvable.output
    assert not list(folder.glob("s8*"))


def test_a_model_rewords_problems_and_what_it_loses_keeps_its_words(bank, tmp_path):
    problems, loses = read_problems(bank.read_bytes().splitlines())[:12], "red lamp"
    some, out = tmp_path / "some.jsonl", tmp_path / "worded.jsonl"
    some.write_text("".join(f"{line}\n" for line in write_problems(problems)))
    faithful = {}
    for problem in problems:
        shown = problem.query.removesuffix(say_voucher(problem.voucher)) if problem.voucher else problem.query
        faithful[shown] = other_words(problem)

    def writer(body):
        asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
        goods = asked.removeprefix("Request:\n").partition("\n\nName words to keep")[0]
        return answer(loses if goods == next(iter(faithful)) else faithful[goods])(body)

    with OtherServer(then=writer) as server:
        asked = ("reword", some, "--out", out, "--base-url", server.base_url, "--model", "wordy")
        done = run(*asked, "--json")
        assert run(*asked).exit_code == 2  # what stands at OUT stays
    assert done.exit_code == 0, done.output
    (told,) = rows(done)
    assert (told["problems"], told["reworded"], told["replies"]) == (12, 11, 14)
    assert [one["problem_id"] for one in told["kept"]] == [problems[0].problem_id]
    assert told["kept"][0]["code"] == "P4016" and stat.S_IMODE(out.stat().st_mode) == 0o600
    worded = read_problems(out.read_bytes().splitlines())
    pairs = list(zip(worded, problems, strict=True))
    assert all(msgspec.structs.replace(new, query=old.query) == old for new, old in pairs)
    assert [new.query == old.query for new, old in pairs] == [True, *[False] * 11]
    down = run("reword", some, "--out", tmp_path / "b", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    assert isinstance(down.exception, ArenaError) and not (tmp_path / "b").exists()


def test_a_problem_that_random_products_satisfy_is_named_as_free(tmp_path):
    copies = [msgspec.structs.replace(LAMP, product_id=str(number)) for number in range(250)]
    shelf = write_documents(tmp_path / "documents.jsonl", [LAMP, *copies])
    path = tmp_path / "free.jsonl"
    path.write_text("".join(f"{line}\n" for line in write_problems([PRODUCT_PROBLEM])))
    checked = run("check", path, "--documents", shelf, "--accepted-max", 300)
    assert checked.exit_code == 1 and "P4013 random products satisfy it" in checked.stdout
    assert "earns 1.0000 on average" in checked.stdout

"""`arena problems` for a bank's operator: from a catalogue to sealed batches, through the real commands."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from arena.bank.partition_file import read_partition
from arena.bank.sealing import SignedNotice, open_batch, read_sealed
from arena.bank.suite_signature import read_suite
from arena.chain.beacon import LocalTimelock, local_round
from arena.chain.keys import keypair_signer, verify
from foundation.errors import ArenaError
from neurons.cli.options import classes_in
from neurons.cli.problems import app
from problems.clusters import find_clusters
from problems.formats import read_problems
from problems.titles import reward_titles
from tests.problems.stand import make_catalogue
from tests.problems.test_suites import write_documents

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
    asked = ("--catalogue", documents, "--count", 60, "--seed", 40)
    assert run("synthesize", *asked, "--out", path).exit_code == 0
    return path


def test_what_was_made_is_solvable_clear_and_apart(documents, bank):
    (checked,) = rows(run("check", bank, "--catalogue", documents, "--json"))
    assert checked["problems"] == len(checked["checks"]) == 60
    assert len(find_clusters(tuple(read_problems(bank.read_text().splitlines())), classes_in(documents))) == 60
    assert all(not row["failure"] and max(row["accepted"]) <= 3 and not row["crowded"] for row in checked["checks"])


def partition(tmp_path: Path, bank: Path, *more: object):
    out = tmp_path / "bank" / "partition.json"
    return out, run("partition", bank, "--out", out, "--eval", 2, 2, 2, "--dev", 1, 1, 1, *KEY, *more)


def test_a_bank_is_partitioned_sealed_stocked_and_opens_round_by_round(tmp_path, bank, documents):
    manifest_file, made = partition(tmp_path, bank, "--catalogue", documents, "--json")
    (row,) = rows(made)
    assert row["pools"] == {"never_touch": 90, "eval": 6, "dev": 3, "train": 51}
    assert stat.S_IMODE(manifest_file.stat().st_mode) == 0o600

    folder = tmp_path / "state" / "bank"
    asked = ["--races", 4, "--size", 10, "--policy", "paper", "--partition", manifest_file, *KEY]
    sealed = run("seal", bank, "--out", folder, *asked, "--json")
    assert sealed.exit_code == 0
    partition_sha256 = read_partition(manifest_file, verify).manifest.sha256
    pools, ids = set(), set()
    for shown in json.loads(sealed.stdout):
        file = read_sealed(folder / f"{shown['race_id']}.sealed.json", OPERATOR.hotkey, verify)
        with pytest.raises(ArenaError, match=f"V2085.*{shown['opens'][:10]}"):
            open_batch(file, None, timelock=LocalTimelock())
        batch = open_batch(file, local_round(shown["round"]), timelock=LocalTimelock())
        assert (batch.partition_sha256, len(batch.problems)) == (partition_sha256, 10)
        held = {problem.problem_id for problem in batch.problems}
        assert not ids & held
        ids |= held
        pools |= set(batch.pools)
        notice = (folder / f"{shown['race_id']}.notice.json").read_bytes()
        assert msgspec.json.decode(notice, type=SignedNotice) == file.signed
    assert "never_touch" not in pools

    more = run("seal", bank, "--out", folder, "--races", 2, *asked[2:])
    assert more.exit_code == 0  # it goes on where the folder ends, with problems that were not sealed
    none_left = run("seal", bank, "--out", folder, "--races", 1, *asked[2:])
    assert isinstance(none_left.exception, ArenaError) and none_left.exception.failure.code == "P4014"


def test_a_real_networks_batches_are_sealed_under_a_partition_or_not_at_all(tmp_path, bank):
    wanted = ["--races", 1, "--size", 3, "--policy", "paper", "--subtensor.network", "finney", *KEY]
    result = run("seal", bank, "--out", tmp_path / "sealed", *wanted)
    assert result.exit_code == 2 and "--partition" in result.output
    assert not (tmp_path / "sealed").exists()


def test_a_suite_is_signed_with_its_titles_and_one_that_cannot_be_solved_is_not(tmp_path, bank, documents):
    titles, folder = tmp_path / "titles.json", tmp_path / "suites"
    assert run("titles", bank, "--catalogue", documents, "--name", "test", "--out", titles).exit_code == 0
    asked = ["--titles", titles, "--catalogue", documents, "--out", folder, *KEY]
    signed = run("sign-suite", bank, *asked, "--name", "s7", "--json")
    assert signed.exit_code == 0, signed.output
    (row,) = rows(signed)
    suite = read_suite(folder, "s7", verify, OPERATOR.hotkey)
    assert row["signer"] == OPERATOR.hotkey and suite.manifest.catalogue.documents == 900
    assert suite.problems == read_problems(bank.read_bytes().splitlines())
    assert suite.titles.accepted.keys() == reward_titles(suite.problems)
    assert run("sign-suite", bank, *asked, "--name", "s7").exit_code == 2  # it is there already
    elsewhere = write_documents(tmp_path / "few.jsonl", make_catalogue(5))
    unsolvable = run("sign-suite", bank, *asked[:2], "--catalogue", elsewhere, *asked[4:], "--name", "s8")
    assert unsolvable.exit_code == 1 and "P4006" in unsolvable.output
    assert not list(folder.glob("s8*"))

"""`arena problems` for a bank's operator: from a catalogue to sealed batches, through the real commands."""

from __future__ import annotations

import json
import random
import stat
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from typer.testing import CliRunner

from arena.bank.partition_file import read_partition
from arena.bank.sealing import SignedNotice, open_batch, read_sealed
from arena.bank.suite_signature import read_suite, write_suite
from arena.chain.beacon import LocalBeacon, LocalTimelock, local_round
from arena.chain.keys import keypair_signer, verify
from arena.policies import DEMO
from foundation.errors import ArenaError
from harness.catalogue.native import open_catalogue
from neurons.cli.bank import app
from neurons.cli.presenter import exit_code
from neurons.node.opening import Replenisher, open_bank
from neurons.settings.inputs import open_titles, prepare_suite, titles_file
from neurons.settings.settings import Settings, resolve
from problems.clusters import find_clusters
from problems.formats import read_problems
from problems.model import BUCKETS, Problem
from problems.suites import CatalogueRecipe, accept_lexically, products_sha256
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
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
    (checked,) = rows(run("check", bank, "--catalogue", documents, "--clusters", "--json"))
    assert checked["clusters"] == checked["problems"] == len(checked["checks"]) == 60
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


# -- what a node prepares: the suite everybody has, and a bank that makes batches or waits for the operator's


NODE, OWNER = keypair_signer("//Validator"), keypair_signer("//Operator")
BEACON, TIMELOCK = LocalBeacon(lambda: 10**12), LocalTimelock()
FOREIGN = "ws://127.0.0.1:9"  # any network that is not the local twin; nothing here connects


def settings_of(folder: Path, **flags: object) -> Settings:
    return resolve({"state_dir": folder, "wallet_hotkey": "//Validator", **flags}).settings


def bank_of(settings: Settings, *, signer=NODE):
    return open_bank(settings, DEMO, (), BEACON, TIMELOCK, signer)


def signed_suite(settings: Settings, catalogue: Path, signer=OWNER, documents: int = 0) -> tuple[Problem, ...]:
    """A suite of the operator over that catalogue, in the node's folder."""
    products = tuple(open_catalogue(catalogue).products())
    problems = synthesize(products, seed=5, counts=dict.fromkeys(BUCKETS, 4))
    recipe = CatalogueRecipe(
        generator="given", documents=documents or len(products), seed=0, products_sha256=products_sha256(products)
    )
    titles = accept_lexically(problems, TitleIndex(products), "operator")
    write_suite(settings.state_dir / "suites", "s1", problems, titles, recipe, signer)
    return problems


def test_a_real_network_qualifies_on_the_suite_that_the_operator_signed_with_its_own_titles(tmp_path, small_catalogue):
    flags = {"catalogue_dir": small_catalogue, "network": FOREIGN, "policy": "demo"}
    settings = settings_of(tmp_path, bank_hotkey=OWNER.hotkey, **flags)
    problems = signed_suite(settings, small_catalogue)
    assert prepare_suite(settings, DEMO) == problems
    assert open_titles(titles_file(settings)).name == "lexical/1@operator"
    signed_suite(settings, small_catalogue, signer=NODE)
    with pytest.raises(ArenaError, match=rf"P4010.*signed by {NODE.hotkey}, not by {OWNER.hotkey}") as caught:
        prepare_suite(settings, DEMO, NODE.hotkey)
    assert exit_code(caught.value) == 4
    alone = settings_of(tmp_path, **flags)  # its own operator
    assert prepare_suite(alone, DEMO, NODE.hotkey) == problems
    with pytest.raises(ArenaError, match=r"P4010.*set bank_hotkey"):
        prepare_suite(alone, DEMO)


@pytest.mark.parametrize("kind", ["jsonl", "titles.json", "manifest.json", "signature.json"])
def test_a_signed_suite_with_any_file_changed_or_missing_stops_the_start(tmp_path, small_catalogue, kind):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN, bank_hotkey=OWNER.hotkey)
    signed_suite(settings, small_catalogue)
    path = tmp_path / "suites" / f"s1.{kind}"
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ArenaError, match="P4010"):
            prepare_suite(settings, DEMO)
    path.unlink()
    with pytest.raises(ArenaError, match=rf"P4001.*s1\.{kind}"):
        prepare_suite(settings, DEMO)


# -- the bank
def test_race_after_race_is_made_over_one_reading_of_the_catalogue_and_shares_no_answer(monkeypatch):
    dice = random.Random(3)
    drawn = SimpleNamespace(randbits=dice.getrandbits, token_bytes=dice.randbytes)
    monkeypatch.setattr("neurons.node.opening.secrets", drawn)
    catalogue, readings = make_catalogue(600), []

    def read():
        readings.append(1)
        return catalogue

    public = {catalogue[0].product_id}
    made = Replenisher(read, public, 9, TIMELOCK, NODE)
    answers: list[str] = []
    problems: list[Problem] = []
    made.prepare()
    for number in range(4):
        sealed = made.make(f"race-{number}", 101, frozenset(answers))
        assert sealed.notice.signer == NODE.hotkey
        batch = open_batch(sealed, local_round(101), timelock=TIMELOCK).problems
        answers += [reward.product_id for problem in batch for reward in problem.rewards]
        problems += batch
    assert readings == [1] and len(set(answers)) == len(answers) == len({*answers} - public)
    assert len(find_clusters(problems, TitleIndex(catalogue).classes)) == len(problems) == 36


def test_only_a_local_network_without_an_operators_key_makes_its_own_batches(tmp_path):
    closes = (10**12,)
    assert not bank_of(settings_of(tmp_path)).level(closes, 0).is_low(30)
    for flags in ({"network": FOREIGN}, {"bank_hotkey": OWNER.hotkey}):
        bank = bank_of(settings_of(tmp_path, **flags))
        assert bank.level(closes, 0).is_low(30)
        with pytest.raises(ArenaError, match="P4014"):
            bank.seal_for("race-1", 3, round_number=5)

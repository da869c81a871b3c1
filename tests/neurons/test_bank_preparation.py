"""What a node prepares: the suite everybody has, and a bank that makes batches or waits for the operator's."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from arena.bank.sealing import open_batch
from arena.bank.suite_signature import write_suite
from arena.chain.beacon import LocalBeacon, LocalTimelock, local_round
from arena.chain.keys import keypair_signer
from arena.policies import DEMO
from foundation.errors import ArenaError
from harness.catalogue.native import open_catalogue
from neurons.cli.presenter import exit_code
from neurons.node.opening import open_bank
from neurons.settings.inputs import open_titles, prepare_suite, titles_file
from neurons.settings.settings import Settings, resolve
from problems.clusters import find_clusters
from problems.model import BUCKETS, Problem
from problems.suites import CatalogueRecipe, accept_lexically, products_sha256
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from tests.problems.stand import make_catalogue

NODE, OPERATOR = keypair_signer("//Validator"), keypair_signer("//Operator")
BEACON, TIMELOCK = LocalBeacon(lambda: 10**12), LocalTimelock()
FOREIGN = "ws://127.0.0.1:9"  # any network that is not the local twin; nothing here connects


def settings_of(folder: Path, **flags: object) -> Settings:
    return resolve({"state_dir": folder, "wallet_hotkey": "//Validator", **flags}).settings


def bank_of(settings: Settings, *, signer=NODE):
    return open_bank(settings, DEMO, (), BEACON, TIMELOCK, signer)


def signed_suite(settings: Settings, catalogue: Path, signer=OPERATOR, documents: int = 0) -> tuple[Problem, ...]:
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
    settings = settings_of(tmp_path, bank_hotkey=OPERATOR.hotkey, **flags)
    problems = signed_suite(settings, small_catalogue)
    assert prepare_suite(settings, DEMO) == problems
    assert open_titles(titles_file(settings)).name == "lexical/1@operator"
    signed_suite(settings, small_catalogue, signer=NODE)
    with pytest.raises(ArenaError, match=rf"P4010.*signed by {NODE.hotkey}, not by {OPERATOR.hotkey}") as caught:
        prepare_suite(settings, DEMO, NODE.hotkey)
    assert exit_code(caught.value) == 4
    alone = settings_of(tmp_path, **flags)  # its own operator
    assert prepare_suite(alone, DEMO, NODE.hotkey) == problems
    with pytest.raises(ArenaError, match=r"P4010.*set bank_hotkey"):
        prepare_suite(alone, DEMO)


@pytest.mark.parametrize("kind", ["jsonl", "titles.json", "manifest.json", "signature.json"])
def test_a_signed_suite_with_any_file_changed_or_missing_stops_the_start(tmp_path, small_catalogue, kind):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN, bank_hotkey=OPERATOR.hotkey)
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
def test_race_after_race_is_made_over_one_reading_of_the_catalogue_and_shares_no_answer(tmp_path, monkeypatch):
    dice = random.Random(3)
    drawn = SimpleNamespace(randbits=dice.getrandbits, token_bytes=dice.randbytes)
    monkeypatch.setattr("neurons.node.opening.secrets", drawn)
    catalogue, readings = make_catalogue(600), []

    def read():
        readings.append(1)
        return catalogue

    public = {catalogue[0].product_id}
    monkeypatch.setattr("neurons.node.opening.shipped_answers", lambda: public)
    monkeypatch.setattr("neurons.settings.inputs.catalogue_products", lambda _: read())
    policy = replace(DEMO, race=replace(DEMO.race, batch_problems=9))
    bank = open_bank(settings_of(tmp_path), policy, (), BEACON, TIMELOCK, NODE)
    answers: list[str] = []
    problems: list[Problem] = []
    bank.prepare()
    for number in range(4):
        sealed = bank.make(f"race-{number}", 101, frozenset(answers))
        assert sealed.notice.signer == NODE.hotkey
        batch = open_batch(sealed, local_round(101), timelock=TIMELOCK).problems
        answers += [reward.product_id for problem in batch for reward in problem.rewards]
        problems += batch
    assert readings == [1] and len(set(answers)) == len(answers) == len({*answers} - public)
    assert len(find_clusters(problems, TitleIndex(catalogue).classes)) == len(problems) == 36


def test_only_a_local_network_without_an_operators_key_makes_its_own_batches(tmp_path):
    assert bank_of(settings_of(tmp_path)).level((), 0).is_made_here
    for flags in ({"network": FOREIGN}, {"bank_hotkey": OPERATOR.hotkey}):
        bank = bank_of(settings_of(tmp_path, **flags))
        assert not bank.level((), 0).is_made_here
        with pytest.raises(ArenaError, match="P4014"):
            bank.notice_for("race-1", 3, round_number=5)

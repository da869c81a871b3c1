"""What a node prepares: the suite everybody has, and a bank whose batches stand under a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.bank.partition_file import PARTITION_FILE, write_partition
from arena.bank.stock import BatchStock, SealedStock
from arena.bank.suite_signature import write_suite
from arena.chain.beacon import LocalBeacon, LocalTimelock
from arena.chain.keys import keypair_signer
from arena.policies import DEMO
from foundation.errors import ArenaError
from harness.catalogue.native import open_catalogue
from neurons.cli.exit_codes import exit_code
from neurons.node.bank import BANK_TITLES, Replenisher, open_bank
from neurons.settings.inputs import open_titles, prepare_suite, titles_file
from neurons.settings.settings import Settings, resolve
from problems.clusters import find_clusters
from problems.model import BUCKETS, Problem
from problems.partition import freeze
from problems.suites import CatalogueRecipe, accept_lexically, products_sha256
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from problems.titles import AcceptedTitles, encode_accepted, reward_titles
from tests.problems.leak_stand import problem_of
from tests.problems.stand import make_catalogue

NODE, OPERATOR = keypair_signer("//Validator"), keypair_signer("//Operator")
BEACON, TIMELOCK = LocalBeacon(lambda: 10**12), LocalTimelock()
KEY = bytes(range(32))
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
    with pytest.raises(ArenaError, match=rf"P4018.*signed by {NODE.hotkey}, not by {OPERATOR.hotkey}") as caught:
        prepare_suite(settings, DEMO, NODE.hotkey)
    assert exit_code(caught.value) == 4
    alone = settings_of(tmp_path, **flags)  # its own operator
    assert prepare_suite(alone, DEMO, NODE.hotkey) == problems
    with pytest.raises(ArenaError, match=r"P4018.*set bank_hotkey"):
        prepare_suite(alone, DEMO)


@pytest.mark.parametrize("kind", ["jsonl", "titles.json", "manifest.json", "signature.json"])
def test_a_signed_suite_with_any_file_changed_or_missing_stops_the_start(tmp_path, small_catalogue, kind):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN, bank_hotkey=OPERATOR.hotkey)
    signed_suite(settings, small_catalogue)
    path = tmp_path / "suites" / f"s1.{kind}"
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ArenaError, match="P4018"):
            prepare_suite(settings, DEMO)
    path.unlink()
    with pytest.raises(ArenaError, match=rf"P4001.*s1\.{kind}"):
        prepare_suite(settings, DEMO)


# -- the bank
def test_a_real_network_races_no_problem_of_ones_own_without_a_partition_and_titles(tmp_path, small_catalogue):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN)
    stock, problem = bank_of(settings), problem_of("p_1", "product", make_catalogue(3)[:1])
    assert isinstance(stock, BatchStock)
    stock.add("1", [problem])
    with pytest.raises(ArenaError, match=r"P4030.*partition\.json"):
        stock.seal_for("race-1", 1)
    manifest = freeze([problem], (), seed=1, key=KEY, eval_counts={"product": 1}, dev_counts={})
    write_partition(tmp_path / "bank" / PARTITION_FILE, manifest, KEY, NODE)
    with pytest.raises(ArenaError, match=r"P4030.*titles\.json"):
        stock.seal_for("race-1", 1)
    titles = {title: frozenset({"101"}) for title in (*reward_titles([problem]), "a title of a later batch")}
    (tmp_path / "bank" / BANK_TITLES).write_bytes(encode_accepted(AcceptedTitles(name="qwen@mine", accepted=titles)))
    batch = stock.seal_for("race-1", 1)  # they came while the node ran
    assert batch.partition_sha256 == manifest.sha256
    assert batch.titles is not None and batch.titles.accepted.keys() == reward_titles([problem])
    sealed = settings.model_copy(update={"bank_hotkey": NODE.hotkey})
    assert isinstance(bank_of(sealed), SealedStock)


def test_race_after_race_is_made_over_one_reading_of_the_catalogue_and_shares_no_answer():
    catalogue, readings = make_catalogue(600), []

    def read():
        readings.append(1)
        return catalogue

    public = {catalogue[0].product_id}
    made = Replenisher(read, public, batch_problems=9)
    answers: list[str] = []
    problems: list[Problem] = []
    for _ in range(4):
        batch = made(frozenset(answers))
        answers += [reward.product_id for problem in batch for reward in problem.rewards]
        problems += batch
    assert readings == [1] and len(set(answers)) == len(answers) and not public & set(answers)
    assert len(find_clusters(problems, made.classes()).problems_of) == len(problems) == 36

"""What a node prepares: the suite everybody has, and a bank whose batches stand under a partition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.bank.partition_file import PARTITION_FILE, write_partition
from arena.bank.sealed_stock import SealedStock
from arena.bank.stock import BatchStock
from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer
from arena.chain.timelock import LocalTimelock
from arena.policies import DEMO, PAPER
from harness.catalogue.engine import open_catalogue
from neurons.bank_preparation import Replenisher, open_bank, prepare_suite
from neurons.settings import Settings, resolve
from neurons.wiring import prepare_catalogue
from problems.clusters import find_clusters
from problems.errors import ArenaError
from problems.model import Problem
from problems.partition import OpenPartition, freeze, pool_of
from problems.product_classes import find_classes
from problems.shipped_suites import load_shipped
from problems.title_keys import title_key
from tests.problems.leak_stand import problem_of
from tests.problems.stand import make_catalogue

NODE = keypair_signer("//Validator")
BEACON, TIMELOCK = LocalBeacon(lambda: 10**12), LocalTimelock()
KEY = bytes(range(32))
FOREIGN = "ws://127.0.0.1:9"  # any network that is not the local twin; nothing here connects


def settings_of(folder: Path, **flags: object) -> Settings:
    return resolve({"state_dir": folder, "wallet_hotkey": "//Validator", **flags}).settings


def bank_of(settings: Settings, *, signer=NODE):
    return open_bank(settings, DEMO, (), BEACON, TIMELOCK, signer)


# -- the suite
def test_the_synthetic_catalogue_is_qualified_on_with_the_shipped_suite_in_equal_shares(tmp_path):
    settings = settings_of(tmp_path)
    prepare_catalogue(settings)
    shipped = load_shipped("s1").problems
    assert prepare_suite(settings, PAPER) == shipped
    twelve = prepare_suite(settings, DEMO)
    assert all(problem in shipped for problem in twelve)
    assert Counter(problem.bucket for problem in twelve) == {"product": 4, "shop": 4, "voucher": 4}
    assert not (tmp_path / "suites").exists()  # nothing that could grow old
    with pytest.raises(ArenaError, match=r"P4015.*holds 30 problems"):
        prepare_suite(settings, replace(PAPER, qualifying=replace(PAPER.qualifying, problems=31)))


def test_over_another_catalogue_the_suite_is_made_once_and_is_the_same_on_every_desk(tmp_path, small_catalogue):
    suites = []
    for desk in ("one", "two", "one"):
        settings = settings_of(tmp_path / desk, catalogue_dir=small_catalogue)
        suites.append(prepare_suite(settings, DEMO))
    assert suites[0] == suites[1] == suites[2] and len(suites[0]) == 12
    catalogue = open_catalogue(small_catalogue)
    answers = [reward.product_id for problem in suites[0] for reward in problem.rewards]
    assert all(catalogue.product(product_id) for product_id in answers)
    assert not {problem.problem_id for problem in load_shipped("s1").problems if problem in suites[0]}


def test_a_real_network_gets_its_suite_from_the_operator_and_makes_none(tmp_path, small_catalogue):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN)
    with pytest.raises(ArenaError, match=r"P4001.*s1-12\.jsonl"):
        prepare_suite(settings, DEMO)


# -- the bank
def test_a_real_network_races_no_problem_of_ones_own_without_a_partition(tmp_path, small_catalogue):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN)
    stock, problem = bank_of(settings), problem_of("p_1", "product", make_catalogue(3)[:1])
    assert isinstance(stock, BatchStock)
    stock.add("1", [problem])
    with pytest.raises(ArenaError, match=r"P4030.*partition\.json"):
        stock.seal_for("race-1", 1)
    manifest = freeze([problem], (), seed=1, key=KEY, eval_counts={"product": 1}, dev_counts={})
    write_partition(tmp_path / "bank" / PARTITION_FILE, manifest, KEY, NODE)
    assert stock.seal_for("race-1", 1).partition_sha256 == manifest.sha256  # it came while the node ran
    sealed = settings.model_copy(update={"bank_hotkey": NODE.hotkey})
    assert isinstance(bank_of(sealed), SealedStock)


def test_near_identical_products_of_a_nodes_batch_stay_in_the_pool_of_their_twins(tmp_path, small_catalogue):
    """The partition was frozen without a catalogue: only the node's own classes can tell the twins."""
    products = tuple(open_catalogue(small_catalogue).products())
    classes = find_classes(products)
    by_class: dict[str, list] = {}
    for product in products:
        by_class.setdefault(min(classes.keys_of(product.product_id, (product.title,))), []).append(product)
    twins = next(held for held in by_class.values() if len({title_key(one.title) for one in held}) > 1)
    twin = next(one for one in twins if title_key(one.title) != title_key(twins[0].title))
    singles = [held[0] for held in by_class.values() if len(held) == 1]
    frozen = [problem_of("p_eval", "product", [twins[0]]), problem_of("p_train", "product", [singles[0]])]
    frozen += [problem_of(f"p_{number}", "product", [singles[number]]) for number in (1, 2)]
    bank = tmp_path / "bank"
    manifest = _frozen_with_eval(frozen, "p_eval")
    bank.mkdir()
    write_partition(bank / PARTITION_FILE, manifest, KEY, NODE)
    stock = bank_of(settings_of(tmp_path, catalogue_dir=small_catalogue))
    assert isinstance(stock, BatchStock)
    fresh = problem_of("q_fresh", "product", [singles[3]])
    bridge = problem_of("q_bridge", "shop", [twin, singles[0]])
    stock.add("1", [problem_of("q_twin", "product", [twin]), fresh, bridge])
    batch = stock.seal_for("race-1", 2)
    assert dict(zip(batch.problem_ids, batch.pools, strict=True)) == {"q_fresh": "train", "q_twin": "eval"}
    assert batch.partition_sha256 != manifest.sha256 and len(set(batch.cluster_ids)) == 2
    assert len(find_clusters([*frozen, *batch.problems], classes).problems_of) == 5  # and the bridge joined nothing


def _frozen_with_eval(problems: list[Problem], wanted: str):
    """A manifest whose one evaluation problem is `wanted`: seeds are tried until one draws it."""
    for seed in range(100):
        manifest = freeze(problems, (), seed=seed, key=KEY, eval_counts={"product": 1}, dev_counts={})
        partition = OpenPartition(manifest, KEY)
        if [one.problem_id for one in problems if pool_of(one, partition) == "eval"] == [wanted]:
            return manifest
    raise AssertionError("no seed draws it")


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

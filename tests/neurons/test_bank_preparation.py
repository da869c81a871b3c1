"""What a node prepares: the suite everybody has, and a bank whose batches stand under a partition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.bank.partition_file import PARTITION_FILE, write_partition
from arena.bank.stock.own_stock import BatchStock
from arena.bank.stock.sealed_stock import SealedStock
from arena.bank.suite_signature import write_suite
from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer
from arena.chain.timelock import LocalTimelock
from arena.policies import DEMO, PAPER
from foundation.errors import ArenaError
from harness.catalogue.engines.native import open_catalogue
from neurons.cli.exit_codes import exit_code
from neurons.node.bank import BANK_TITLES, Replenisher, open_bank
from neurons.settings.inputs import open_released_titles, open_titles, prepare_catalogue, prepare_suite, titles_file
from neurons.settings.settings import Settings, resolve
from problems.model import BUCKETS, Problem
from problems.pools.clusters import find_clusters
from problems.pools.partition import OpenPartition, freeze, pool_of
from problems.pools.product_classes import find_classes
from problems.pools.title_keys import title_key
from problems.scoring.title_index import TitleIndex
from problems.scoring.title_matching import AcceptedTitles, encode_accepted, reward_titles
from problems.suites.shipped import CatalogueRecipe, accept_lexically, load_shipped, products_sha256
from problems.synthesis.generator import synthesize
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
    with pytest.raises(ArenaError, match=r"P4001.*s1\.manifest\.json"):
        prepare_suite(settings, DEMO, NODE.hotkey)
    with pytest.raises(ArenaError, match=r"V2040.*s1\.titles\.json"):
        titles_file(settings)


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


def test_a_signed_suite_of_another_catalogue_stops_the_start(tmp_path, small_catalogue):
    settings = settings_of(tmp_path, catalogue_dir=small_catalogue, network=FOREIGN, bank_hotkey=OPERATOR.hotkey)
    signed_suite(settings, small_catalogue, documents=17)
    with pytest.raises(ArenaError, match=r"P4018.*asked of 17 documents"):
        prepare_suite(settings, DEMO)
    products = tuple(open_catalogue(small_catalogue).products())
    elsewhere = problem_of("p_1", "product", [replace(products[0], product_id="999999999")])
    recipe = CatalogueRecipe(generator="given", documents=len(products), seed=0, products_sha256="")
    titles = AcceptedTitles(name="t/1", accepted={title: frozenset() for title in reward_titles([elsewhere])})
    write_suite(tmp_path / "suites", "s1", [elsewhere], titles, recipe, OPERATOR)
    with pytest.raises(ArenaError, match=r"P4006.*p_1 of suite s1: 999999999"):
        prepare_suite(settings, DEMO)


def test_training_takes_every_published_release_beside_the_index(tmp_path):
    settings = settings_of(tmp_path)
    assert open_released_titles(settings).name == "lexical/1"
    folder = prepare_catalogue(settings)
    for name in ("titles", "titles-race-000001", "titles-race-000002"):
        release = AcceptedTitles(name=name.replace("titles", "t"), accepted={name: frozenset({"1"})})
        (folder / f"{name}.json").write_bytes(encode_accepted(release))
    assert open_released_titles(settings).name == "t-race-000001 + t-race-000002 + t"
    open_catalogue(folder)  # which they don't disturb


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
    with pytest.raises(ArenaError, match=r"P4031.*titles\.json"):
        stock.seal_for("race-1", 1)
    titles = {title: frozenset({"101"}) for title in (*reward_titles([problem]), "a title of a later batch")}
    (tmp_path / "bank" / BANK_TITLES).write_bytes(encode_accepted(AcceptedTitles(name="qwen@mine", accepted=titles)))
    batch = stock.seal_for("race-1", 1)  # they came while the node ran
    assert batch.partition_sha256 == manifest.sha256
    assert batch.titles is not None and batch.titles.accepted.keys() == reward_titles([problem])
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

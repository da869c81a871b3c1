"""Leak clusters: what belongs together stays together, whatever order it comes in and however it is written."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from problems import partition as partitions
from problems.clusters import NO_CATALOGUE, answer_marks, cluster_id, find_classes, find_clusters, title_key
from problems.model import POOLS, Product
from problems.synthesis import synthesize
from tests.problems.disguises import DISGUISES, count_in_cluster, falsely_merged
from tests.problems.leak_stand import cheap_problems, problem_of, real_problems, real_suites
from tests.problems.stand import make_catalogue, synthetic_shelf

SHELF = [
    Product(product_id=str(100 + number), shop_id="s", title=f"Vermo Steel Kettle VX-{number} two litres", price=10.0)
    for number in range(12)
]


def ask(problem_id: str, *numbers: int):
    return problem_of(problem_id, "product" if len(numbers) == 1 else "shop", [SHELF[number] for number in numbers])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Vermo Kettle VX-20 500ml", "500 ML kettle, VX20 (Vermo)"),
        ("Water Bottle 0.5 L", "water bottle 500ml [COD] - Official Store"),
        ("Lamp 12 inch", '12" LAMP'),
        ("Rope 1.5m", "150 cm rope"),
        ("Set of 4 Mugs", "Mugs 4pcs Ready Stock, Free Shipping"),
        ("Box 90x97cm", "BOX 900 × 970 mm 50% OFF"),
        ("Rice 1,000g", "100% Authentic Rice 1 kg"),
        ("Trays 40/60/80cm", "trays 400mm / 600mm / 800mm"),
        ("Hose 3L-15L", "hose 3000ml-15 litres"),
        ("Tape-4.8cm*16m", "tape 48mm * 16 m"),
        ("Pipe 1/2 inch", "pipe 0.5 inch"),
        ("Café Crème", "cafe creme"),
    ],
)
def test_one_product_written_twice_is_one_class(left: str, right: str):
    assert title_key(left) == title_key(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Vermo Kettle VX-20 500ml", "Vermo Kettle VX-20 750ml"),
        ("Vermo Kettle", "Marpo Kettle"),
        ("Phone 8gb 128gb", "Phone 8gb 256gb"),
        ("Phone X", "Phone X Pro"),
        ("Trays 40/60cm", "Trays 40/80cm"),
        ("Pipe 1/2 inch", "Pipe 1 inch 2"),
        ("10 in 1 adapter", "10 inch adapter 1"),
        ("!!!", "???"),
    ],
)
def test_variants_are_classes_of_their_own(left: str, right: str):
    assert title_key(left) != title_key(right)


@given(st.text(max_size=60))
def test_any_text_has_a_class_and_repeating_it_changes_nothing(title: str):
    once = title_key(title)
    assert once
    if not once.startswith("="):
        assert title_key(f"{title} | {title}") == once


def test_problems_that_share_one_answer_share_a_cluster_and_chains_join():
    bank = [ask("a", 0, 1), ask("b", 1, 2), ask("c", 2, 3), ask("d", 4)]
    assert sorted(find_clusters(bank).values()) == [("a", "b", "c"), ("d",)]


@given(st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3, unique=True), max_size=10), st.randoms())
def test_clusters_and_their_names_do_not_depend_on_order(asked: list[list[int]], rng: random.Random):
    bank = [ask(f"p{number}", *numbers) for number, numbers in enumerate(asked)]
    clusters = find_clusters(bank)
    rng.shuffle(bank)
    assert find_clusters(bank) == clusters
    by_id = {problem.problem_id: problem for problem in bank}
    for name, ids in clusters.items():
        assert name == min(cluster_id(by_id[one]) for one in ids)


def test_a_listing_of_the_same_class_joins_through_the_catalogue_even_under_a_new_title():
    shelf = [*SHELF, Product(product_id="900", shop_id="t", title="VX-0 KETTLE STEEL, Vermo 2 litres", price=11.0)]
    far = problem_of(
        "far", "product", [Product(product_id="900", shop_id="t", title="Tea boiler of Mr Ven", price=1.0)]
    )
    assert len(find_clusters([ask("a", 0), far], NO_CATALOGUE)) == 2
    renamed = [*shelf[:-1], Product(product_id="900", shop_id="t", title=SHELF[0].title.upper(), price=11.0)]
    assert len(find_clusters([ask("a", 0), far], find_classes(renamed))) == 1


def test_two_problems_of_one_id_are_refused():
    with pytest.raises(ArenaError, match="P4009"):
        find_clusters([ask("a", 0), ask("a", 1)])


def test_an_often_seen_brand_or_colour_still_parts():
    def listed(number: int, title: str, brand: str = "") -> Product:
        category = f"Floor {number % 6} > Shelf"
        return Product(product_id=str(number), shop_id="s", title=title, price=9.0, category=category, brand=brand)

    shelf = [listed(number, f"Item tool part k{number} sturdy", "") for number in range(200)]
    shelf += [listed(200 + number, f"Marpo gadget thing q{number}", "Marpo") for number in range(200)]
    shelf += [listed(400 + number, f"blue gadget thing z{number}") for number in range(200)]
    pairs = {"sturdy": True, "Marpo": False, "blue": False}
    shelf += [listed(900, "Long iron handle fork")]
    shelf += [listed(901 + place, f"Long iron handle fork {word}", "") for place, word in enumerate(pairs)]
    classes = find_classes(shelf)
    (joined,) = classes.keys_of_class.values()
    assert {word: title_key(f"Long iron handle fork {word}") in joined for word in pairs} == pairs


def test_every_disguise_falls_in_its_sources_cluster_by_answers_alone_and_unrelated_problems_are_not_merged() -> None:
    shelf = synthetic_shelf(5_000, 11)
    bank = synthesize(shelf, seed=8, counts={"product": 20, "shop": 20, "voucher": 20})
    assert count_in_cluster(bank, seed=1, classes=shelf.classes) == dict.fromkeys(DISGUISES, 60)
    drawn = cheap_problems(shelf.products, 1_500)
    assert 100 * len(falsely_merged(drawn, shelf.classes)) <= len(drawn)


def test_the_public_problems_stay_in_their_clusters_without_any_catalogue() -> None:
    problems = real_problems()
    assert sum(count_in_cluster(problems, seed=1).values()) >= 0.998 * len(DISGUISES) * len(problems)
    assert falsely_merged(problems) == frozenset()


# -- the partition: pools that can't share an answer, frozen once, only ever added to, unreadable without the key


KEY = bytes(range(32))
OTHER_KEY = bytes(32)
CATALOGUE = make_catalogue(900)
SMALL = {"product": 1, "shop": 1, "voucher": 1}
NONE = dict.fromkeys(SMALL, 0)
replace = msgspec.structs.replace


def asking(problem_id: str, *numbers: int):
    bucket = "product" if len(numbers) == 1 else "shop"
    return problem_of(problem_id, bucket, [CATALOGUE[number] for number in numbers])


def small_freeze(problems, suites=(), seed: int = 1, eval_counts=NONE, dev_counts=NONE) -> partitions.PartitionManifest:
    return partitions.freeze(problems, suites, seed=seed, key=KEY, eval_counts=eval_counts, dev_counts=dev_counts)


def pools_by_id(manifest: partitions.PartitionManifest, problems) -> dict[str, str]:
    partition = partitions.OpenPartition(manifest, KEY)
    found = {one.problem_id: partition.row_of(partition.token(f"problem {one.problem_id}")) for one in problems}
    return {name: row.pool for name, row in found.items() if row is not None}


BANK = cheap_problems(CATALOGUE[:600], 60, seed=1) + tuple(
    problem_of(f"u{number}", bucket, [CATALOGUE[600 + number]])
    for number, bucket in enumerate(itertools.islice(itertools.cycle(("product", "shop", "voucher")), 280))
)
SUITE = BANK[:6]
FROZEN = partitions.freeze(BANK, SUITE, seed=42, key=KEY)


def test_the_pools_have_the_sizes_asked_for_and_suites_are_never_touched():
    pools = pools_by_id(FROZEN, BANK)
    buckets = {one.problem_id: one.bucket for one in BANK}
    for pool, wanted in (("eval", partitions.EVAL_COUNTS), ("dev", partitions.DEV_COUNTS)):
        assert Counter(buckets[name] for name, held in pools.items() if held == pool) == wanted
    assert sum(partitions.EVAL_COUNTS.values()) == len(FROZEN.headline) == 75
    assert {pools[one.problem_id] for one in SUITE} == {"never_touch"}
    assert FROZEN.problem_counts == {pool: sum(held == pool for held in pools.values()) for pool in POOLS}


def test_the_deal_follows_from_seed_and_key_whatever_the_order():
    shuffled = random.Random(3).sample(BANK, len(BANK))
    assert canonical_bytes(partitions.freeze(shuffled, SUITE[::-1], seed=42, key=KEY)) == canonical_bytes(FROZEN)
    assert pools_by_id(partitions.freeze(BANK, SUITE, seed=43, key=KEY), BANK) != pools_by_id(FROZEN, BANK)
    assert partitions.freeze(BANK, SUITE, seed=42, key=OTHER_KEY).sha256 != FROZEN.sha256


def assert_follows(before: partitions.PartitionManifest, after: partitions.PartitionManifest) -> None:
    """Every frozen cluster stands in the later manifest, in its pool and with all that it held."""
    now = {name: row for row in after.rows for name in (row.cluster, *row.absorbed)}
    for row in before.rows:
        assert now[row.cluster].pool == row.pool
        for held in ("answers", "problems", "queries"):
            assert set(getattr(row, held)) <= set(getattr(now[row.cluster], held))


@settings(max_examples=60)
@given(
    asked=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=3, unique=True), min_size=8, max_size=24),
    suites=st.integers(0, 3),
    later=st.integers(1, 12),
    rng=st.randoms(),
)
def test_pools_share_no_answer_and_what_is_frozen_never_moves(asked, suites, later, rng: random.Random):
    problems = [asking(f"p{number:02}", *numbers) for number, numbers in enumerate(asked)]
    known, new = problems[:-later] or problems[:1], problems[-later:]
    try:
        first = small_freeze(known, known[:suites], eval_counts={"product": 1, "shop": 1})
    except ArenaError as error:
        assert error.failure.code == "P4011"
        first = small_freeze(known, known[:suites])
    before = pools_by_id(first, known)
    assert len(before) == len(known)
    added = partitions.extend(partitions.OpenPartition(first, KEY), new)
    again = partitions.extend(partitions.OpenPartition(first, KEY), rng.sample(new, len(new)))
    assert again == added
    after = pools_by_id(added.manifest, problems)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() <= added.pools.keys()
    assert {name: after[name] for name in added.pools} == added.pools
    answers: dict[str, set[str]] = {}
    for problem in problems:
        if problem.problem_id in after:
            answers.setdefault(after[problem.problem_id], set()).update(answer_marks(problem))
    for left, right in itertools.combinations(answers.values(), 2):
        assert left.isdisjoint(right)
    if added.manifest != first:
        assert_follows(first, added.manifest)


def test_a_problem_that_joins_two_pools_is_refused_and_both_are_named():
    manifest = small_freeze([asking("a", 1), asking("b", 2)], [asking("a", 1)])
    partition = partitions.OpenPartition(manifest, KEY)
    bridge = asking("c", 1, 2)
    assert partitions.touched_pools(bridge, partition) == ("never_touch", "train")
    added = partitions.extend(partition, [bridge, asking("d", 2, 7), asking("e", 8)])
    assert added.pools == {"d": "train", "e": "train"}


def test_clusters_of_one_pool_may_join_and_keep_a_frozen_name():
    first = small_freeze([asking("a", 1), asking("b", 2), asking("c", 3)])
    names = {row.cluster for row in first.rows}
    assert partitions.extend(partitions.OpenPartition(first, KEY), [asking("a", 1)]).manifest is first
    added = partitions.extend(partitions.OpenPartition(first, KEY), [asking("d", 1, 2)]).manifest
    joined = next(row for row in added.rows if len(row.problems) == 3)
    assert {joined.cluster, *joined.absorbed} < names and len(added.rows) == 2
    assert_follows(first, added)


def test_another_partitions_key_and_two_problems_of_one_id_are_refused():
    with pytest.raises(ArenaError, match=f"P4026.*{FROZEN.sha256[:12]}"):
        partitions.OpenPartition(FROZEN, OTHER_KEY)
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        partitions.OpenPartition(FROZEN, KEY[:-1])
    with pytest.raises(ArenaError, match=r"P4009.*one"):
        partitions.extend(partitions.OpenPartition(FROZEN, KEY), [asking("one", 1), asking("one", 2)])


def first_row(**fields: object) -> dict[str, object]:
    return {"rows": (replace(FROZEN.rows[0], **fields), *FROZEN.rows[1:])}


FIRST, SECOND = FROZEN.rows[:2]
SPOILED: dict[str, dict[str, object]] = {
    "answer in two rows": first_row(answers=tuple(sorted({*FIRST.answers, SECOND.answers[0]}))),
    "problem in two rows": first_row(problems=tuple(sorted({*FIRST.problems, SECOND.problems[0]}))),
    "row twice": {"rows": (FIRST, *FROZEN.rows)},
    "rows out of order": {"rows": FROZEN.rows[::-1]},
    "plain text for a token": first_row(answers=("title kettle",)),
    "empty row": first_row(answers=()),
    "headline problem of another pool": {
        "headline": next(row for row in FROZEN.rows if row.pool == "train").problems[:1]
    },
    "absorbed cluster that stands elsewhere": first_row(absorbed=(SECOND.cluster,)),
    "serial": {"serial": 0},
    "second without a first": {"serial": 2},
    "seed": {"seed": 2**60},
    "another rule": {"rules": "title-key/9"},
}


@pytest.mark.parametrize("fault", SPOILED)
def test_a_manifest_that_is_not_sound_can_not_be_made_or_decoded(fault: str):
    with pytest.raises(ArenaError, match="P4010"):
        replace(FROZEN, **SPOILED[fault])
    fields = {name: getattr(FROZEN, name) for name in FROZEN.__struct_fields__} | SPOILED[fault]
    with pytest.raises(ArenaError, match="P4010"):
        msgspec.json.decode(msgspec.json.encode(fields), type=partitions.PartitionManifest)


def test_whoever_has_catalogue_and_problems_but_no_key_recognises_nothing():
    content = canonical_bytes(FROZEN).decode()
    guesses = set()
    for problem in BANK:
        for text in (problem.problem_id, cluster_id(problem), *answer_marks(problem)):
            guesses |= {text, hashlib.sha256(text.encode()).hexdigest()}
    assert not [guess for guess in guesses if guess in content]


def test_a_training_row_is_recognised_by_query_title_or_product():
    partition = partitions.OpenPartition(
        small_freeze([asking("a", 1), asking("b", 2), asking("c", 3)], [asking("a", 1)]), KEY
    )
    title, words = CATALOGUE[1].title, asking("a", 1).query.split()
    assert partition.query_pools(" ".join(reversed(words)).upper()) == {"never_touch"}
    assert partitions.pools_of_answers(partition, [f"[COD] {title.upper()}"], []) == ("never_touch",)
    assert partitions.pools_of_answers(partition, [], [CATALOGUE[1].product_id]) == ("never_touch",)
    assert partitions.pools_of_answers(partition, [title, CATALOGUE[2].title], []) == ("never_touch", "train")
    assert partitions.pools_of_answers(partition, ["Nothing of the kind", ""], ["1"]) == ()
    assert partition.query_pools("nothing of the kind") == partition.query_pools("I want") == frozenset()


def test_the_public_problems_are_dealt_and_twins_of_suite_problems_are_not_trained_on():
    problems = real_problems()
    suites = real_suites(problems)
    manifest = partitions.freeze(problems, suites, seed=2_026, key=KEY)
    assert manifest.problem_counts == {"never_touch": 95, "eval": 75, "dev": 60, "train": 520}
    pools = pools_by_id(manifest, problems)
    for ids in find_clusters(problems).values():
        assert len({pools[one] for one in ids}) == 1

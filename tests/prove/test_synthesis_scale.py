"""3,000 problems over a catalogue of 100,000 in at most five minutes, every one usable; then a year of batches, dealt
to the pools of a partition. And the leak guard: 500 problems in two disguises over 100,000 products.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from harness.catalogue.synthetic import generate
from problems.clusters import find_classes
from problems.model import BUCKETS, Problem
from problems.partition import OpenPartition, extend, freeze
from problems.synthesis import ACCEPTED_MAX, ProblemMaker, measure_ambiguity, synthesize
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from problems.wording import reads_back
from tests.problems.disguises import DISGUISES, count_in_cluster, falsely_merged
from tests.problems.stand import check_problem_set

pytestmark = pytest.mark.prove

SEED = 7
BATCH = 40  # of each bucket: about 120 problems a race
YEAR = 367  # batches: a year of daily races is 44,000 problems
KEY = bytes(range(32))
FROZEN_BATCHES = 3  # what a bank begins with: enough for its evaluation and development pools


def run(documents: int, per_bucket: int, batches: int = 0) -> dict[str, Any]:
    """Synthesise `per_bucket` of each bucket, check every one, then go on with `batches` of 120."""
    started = time.perf_counter()
    products = list(generate(documents, SEED))
    shelf = TitleIndex(products)
    maker = ProblemMaker(shelf)
    problems = maker.make(seed=1 << 200, counts=dict.fromkeys(BUCKETS, per_bucket))
    checks = check_problem_set(problems, shelf.products, shelf.product, LexicalTitles(), seed=3)
    counts_of = [measure_ambiguity(problem, shelf) for problem in problems]
    found = {
        "problems": len(problems),
        "usable": sum(check.is_usable for check in checks),
        "random_successes": sum(check.random_reward_e4 == 10_000 for check in checks),
        "accepted_max": max(max(accepted) for accepted, _ in counts_of),
        "fitting_max": max(max(fitting) for _, fitting in counts_of),
        "flaws": sum(not reads_back(problem) for problem in problems),
        "seconds": time.perf_counter() - started,
    }
    return found | (run_year(maker, shelf, problems, batches) if batches else {})


def run_year(maker: ProblemMaker, shelf: TitleIndex, suite: Sequence[Problem], batches: int) -> dict[str, Any]:
    """`batches` of 120 problems: synthesised one by one, then partitioned; the last one enters alone."""
    pace: list[float] = []
    year: list[tuple[Problem, ...]] = []
    for number in range(batches):
        started = time.process_time()  # so that what else the machine does changes no ratio
        year.append(maker.make(seed=(1 << 200) + 1 + number, counts=dict.fromkeys(BUCKETS, BATCH)))
        pace.append(time.process_time() - started)
    drawn = [problem for batch in year for problem in batch]
    places = [shelf.place(item.product_id) for problem in drawn for item in problem.rewards]
    answer_classes = {-1 if place is None else int(shelf.class_numbers[place]) for place in places}
    first, later = drawn[: 3 * BATCH * FROZEN_BATCHES], drawn[3 * BATCH * FROZEN_BATCHES : -3 * BATCH]
    frozen = freeze(first, suite, seed=7, key=KEY, classes=shelf.classes)
    grown = extend(OpenPartition(frozen, KEY), later, shelf.classes)
    full = extend(OpenPartition(grown.manifest, KEY), year[-1], shelf.classes)
    tenth = max(1, batches // 10)
    return {
        "year_problems": len(drawn),
        "answers": len(places),
        "answer_classes": len(answer_classes),
        "pools": full.manifest.problem_counts,
        "clusters": len(full.manifest.rows),
        "refused": len(later) - len(grown.pools) + len(year[-1]) - len(full.pools),
        "slower": sum(pace[-tenth:]) / sum(pace[:tenth]),
    }


def test_three_thousand_problems_over_a_hundred_thousand_products_are_all_usable() -> None:
    found = run(100_000, 1_000)
    print(found)
    assert found["problems"] == found["usable"] == 3_000
    assert found["flaws"] == 0 and found["random_successes"] <= 3
    assert found["accepted_max"] <= ACCEPTED_MAX and found["fitting_max"] <= ACCEPTED_MAX
    assert found["seconds"] <= 300


def test_a_year_of_batches_is_dealt_whole_and_costs_the_same_at_its_end_as_at_its_beginning() -> None:
    found = run(300_000, 10, YEAR)
    print(found)
    assert found["year_problems"] == 120 * YEAR >= 44_000
    assert sum(found["pools"].values()) == found["year_problems"] + found["problems"] and found["refused"] == 0
    assert found["answer_classes"] == found["answers"]  # no class answers twice, so no two share a leak cluster
    assert found["slower"] <= 3


@pytest.fixture(scope="module")
def catalogue():
    return tuple(generate(100_000, 7))


@pytest.fixture(scope="module")
def classes(catalogue):
    return find_classes(catalogue)


def test_every_disguise_of_500_problems_stays_in_its_cluster(catalogue, classes):
    bank = synthesize(catalogue, seed=5, counts={"product": 168, "shop": 166, "voucher": 166})
    counts = count_in_cluster(bank, seed=1, classes=classes)
    print(counts)
    assert counts == dict.fromkeys(DISGUISES, 500)
    assert 100 * len(falsely_merged(bank, classes)) <= len(bank)

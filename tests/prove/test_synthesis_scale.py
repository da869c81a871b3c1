"""3,000 problems over a catalogue of 100,000 in at most five minutes, every one usable; then a year of batches, dealt
to the pools of a partition.

`python -m tests.prove.test_synthesis_scale 100000 1000 [367]` prints one JSON object: seconds of each part, and counts.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from harness.catalogue.synthetic import generate
from problems.model import BUCKETS, Problem
from problems.partition import OpenPartition, extend, freeze, manifest_bytes
from problems.synthesis import ACCEPTED_MAX, ProblemMaker, difficulty_of, measure_ambiguity
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from problems.wording import check_wording
from tests.problems.problem_checks import check_problem_set

pytestmark = pytest.mark.prove

SEED = 7
BATCH = 40  # of each bucket: about 120 problems a race
YEAR = 367  # batches: a year of daily races is 44,000 problems
KEY = bytes(range(32))
FROZEN_BATCHES = 3  # what a bank begins with: enough for its evaluation and development pools


def run(documents: int, per_bucket: int, batches: int = 0) -> dict[str, Any]:
    """Synthesise `per_bucket` of each bucket, check every one, then go on with `batches` of 120."""
    seconds: dict[str, float] = {}
    products = list(timed(seconds, "catalogue", lambda: list(generate(documents, SEED))))
    shelf = timed(seconds, "index", lambda: TitleIndex(products))
    timed(seconds, "classes", lambda: shelf.class_numbers)
    maker = ProblemMaker(shelf)
    counts = dict.fromkeys(BUCKETS, per_bucket)
    problems = timed(seconds, "synthesis", lambda: maker.make(seed=1 << 200, counts=counts))
    checks = timed(
        seconds,
        "selfcheck",
        lambda: check_problem_set(problems, shelf.products, shelf.product, LexicalTitles(), seed=3),
    )
    counts_of = timed(seconds, "ambiguity", lambda: [measure_ambiguity(problem, shelf) for problem in problems])
    flaws = timed(seconds, "wording", lambda: [flaw for problem in problems for flaw in check_wording(problem)])
    levels = Counter(difficulty_of(problem, shelf) for problem in problems)
    found = {
        "problems": len(problems),
        "usable": sum(check.is_usable for check in checks),
        "random_successes": sum(check.is_random_success for check in checks),
        "accepted": dict(sorted(Counter(count for one in counts_of for count in one.accepted).items())),
        "fitting": dict(sorted(Counter(count for one in counts_of for count in one.fitting).items())),
        "flaws": len(flaws),
        "levels": dict(sorted(levels.items())),
    }
    if batches:
        found |= run_year(maker, shelf, problems, batches, seconds)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"seconds": {name: round(value, 1) for name, value in seconds.items()}, "peak_mb": peak_mb, **found}


def run_year(
    maker: ProblemMaker, shelf: TitleIndex, suite: Sequence[Problem], batches: int, seconds: dict[str, float]
) -> dict[str, Any]:
    """`batches` of 120 problems: synthesised one by one, then partitioned; the last one enters alone."""
    pace: list[float] = []
    year: list[tuple[Problem, ...]] = []
    for number in range(batches):
        started = time.process_time()  # so that what else the machine does changes no ratio
        year.append(maker.make(seed=(1 << 200) + 1 + number, counts=dict.fromkeys(BUCKETS, BATCH)))
        pace.append(time.process_time() - started)
    tenth = max(1, batches // 10)
    seconds |= {"year": sum(pace), "first_tenth": sum(pace[:tenth]), "last_tenth": sum(pace[-tenth:])}
    drawn = [problem for batch in year for problem in batch]
    places = [shelf.place(item.product_id) for problem in drawn for item in problem.rewards]
    answer_classes = {-1 if place is None else int(shelf.class_numbers[place]) for place in places}
    first, later, last = drawn[: 3 * BATCH * FROZEN_BATCHES], drawn[3 * BATCH * FROZEN_BATCHES : -3 * BATCH], year[-1]
    frozen = timed(seconds, "freeze", lambda: freeze(first, suite, seed=7, key=KEY, classes=shelf.classes))
    grown = timed(seconds, "partition", lambda: extend(OpenPartition(frozen, KEY), later, shelf.classes))
    full = timed(seconds, "one_batch_more", lambda: extend(OpenPartition(grown.manifest, KEY), last, shelf.classes))
    return {
        "year_problems": len(drawn),
        "answers": len(places),
        "answer_classes": len(answer_classes),
        "pools": full.manifest.problem_counts,
        "clusters": len(full.manifest.rows),
        "refused": len(grown.refused) + len(full.refused),
        "manifest_mb": len(manifest_bytes(full.manifest)) // 1_000_000,
    }


def timed(seconds: dict[str, float], name: str, work: Any) -> Any:
    started = time.perf_counter()
    result = work()
    seconds[name] = time.perf_counter() - started
    return result


def test_three_thousand_problems_over_a_hundred_thousand_products_are_all_usable() -> None:
    found = run(100_000, 1_000)
    print(json.dumps(found))
    assert found["problems"] == found["usable"] == 3_000
    assert found["flaws"] == 0 and found["random_successes"] <= 3
    assert max(found["accepted"]) <= ACCEPTED_MAX and max(found["fitting"]) <= ACCEPTED_MAX
    assert sum(found["seconds"].values()) <= 300


def test_a_year_of_batches_is_dealt_whole_and_costs_the_same_at_its_end_as_at_its_beginning() -> None:
    found = run(300_000, 10, YEAR)
    print(json.dumps(found))
    assert found["year_problems"] == 120 * YEAR >= 44_000
    assert sum(found["pools"].values()) == found["year_problems"] + found["problems"] and found["refused"] == 0
    assert found["answer_classes"] == found["answers"]  # no class answers twice, so no two share a leak cluster
    assert found["seconds"]["last_tenth"] <= 3 * found["seconds"]["first_tenth"]


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:]))))

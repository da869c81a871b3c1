"""Guards: each fires on the fault it is for, names itself, and lets everything else pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foundation.errors import ArenaError
from neurons.cli.presenter import EXIT_USAGE, exit_code
from problems.partition import OpenPartition, freeze, touched_pools
from tests.training.stock import Stock, corpus_of
from training import guards
from training.corpus.building import read_lineage
from training.guards import GuardStopError
from training.recipe import GuardRules

RULES = GuardRules()
MIXED = GuardRules(mixed_min=0.3)
HELD = frozenset({"p1"})


@pytest.mark.parametrize(
    ("guard", "check", "fault", "fine"),
    [
        ("dropout", guards.require_eval_mode, (True,), (False,)),
        ("mask drift", guards.require_exact_masks, (100, ["a", "b"], RULES), (100, ["a"], RULES)),
        ("mixed groups", guards.require_mixed, ([1.0, *[0.2] * 10], MIXED), ([*[0.0] * 9, *[0.4] * 10], MIXED)),
        ("mixed groups", guards.require_mixed, ([0.0] * 10, MIXED), ([0.0] * 9, MIXED)),  # ten steps, and no fewer
        ("emission", guards.require_emission, (0.89, 1.0, RULES), (0.9, 1.0, RULES)),
        ("emission", guards.require_emission, (0.26, 0.3, RULES), (0.28, 0.3, RULES)),  # a share of the parent's
        ("emission", guards.require_emission, (0.0, 0.0, RULES), (0.01, 0.01, RULES)),
        ("non-finite", guards.require_finite, ("loss", math.nan), ("loss", 1e30)),
        ("non-finite", guards.require_small_kl, (math.inf, RULES), (0.9, RULES)),
        ("kl", guards.require_small_kl, (17.0, RULES), (2.0, RULES)),
        ("logprobs", guards.require_same_policy, (0.1, RULES), (1e-4, RULES)),
        ("one class", guards.require_two_classes, ([True, True],), ([True, False],)),
        ("one class", guards.require_two_classes, ([],), ([False, True],)),
        ("split", guards.require_train_pool, (["p2"], HELD), (["p1"], HELD)),
        ("context", guards.require_context, (3, 4), (2, 4)),
    ],
)
def test_a_guard_fires_on_its_fault_and_on_nothing_less(
    guard: str, check: Callable[..., None], fault: tuple[Any, ...], fine: tuple[Any, ...]
) -> None:
    check(*fine)
    with pytest.raises(GuardStopError) as stop:
        check(*fault)
    assert stop.value.guard == guard
    assert stop.value.failure.code == "V2123" and stop.value.failure.detail.startswith(f"{guard}: ")


def test_problems_to_train_on_need_somebody_who_knows_what_is_held_out(stock: Stock) -> None:
    blind = replace(stock.bench, held_out=())
    with pytest.raises(ArenaError) as wrong:
        blind.require_known()
    assert wrong.value.failure.code == "V2120" and exit_code(wrong.value) == EXIT_USAGE
    assert "--held-out" in str(wrong.value) and "--partition" in str(wrong.value)
    for bench in (
        stock.bench,
        replace(stock.bench, held_out=(), problems=()),
        replace(stock.bench, held_out=(), dev=(), partition=frozen(stock)),
    ):
        bench.require_known()


def test_the_partition_alone_tells_a_problem_of_another_pool(stock: Stock) -> None:
    partition, leaked = frozen(stock), stock.held[0]
    dev = tuple(problem for problem in stock.bench.dev if touched_pools(problem, partition) == ("dev",))
    train = tuple(problem for problem in stock.bench.problems if touched_pools(problem, partition) in ((), ("train",)))
    assert dev and train
    replace(stock.bench, held_out=(), problems=train, dev=dev, partition=partition).require_split()
    reworded = msgspec.structs.replace(leaked, problem_id="p_other", query="New words")
    for faulty in (
        {"problems": (*train, leaked)},
        {"problems": (*train, reworded)},
        {"problems": (*train, dev[0]), "dev": ()},
        {"dev": (train[0],), "problems": train[1:]},
        {"dev": (leaked,)},
    ):
        bench = replace(
            stock.bench, **({"held_out": (), "problems": train, "dev": dev, "partition": partition} | faulty)
        )
        with pytest.raises(GuardStopError, match="and taken for") as stop:
            bench.require_split()
        assert stop.value.guard == "split"


def test_a_corpus_of_another_partition_or_pool_is_refused(stock: Stock, tmp_path: Path) -> None:
    for name, pool, partition in (("a", "train", "1" * 64), ("b", "train", "2" * 64), ("c", "dev", "1" * 64)):
        corpus_of(stock.traces(pool), tmp_path / name, pool, partition)  # type: ignore[arg-type]
    a, b, c = (read_lineage(tmp_path / name) for name in "abc")
    bench = stock.bench
    assert bench.partition_in_use([]) == ""
    assert bench.partition_in_use([("a", "train", a), ("c", "dev", c)]) == "1" * 64
    named = replace(stock.bench, partition_sha256="2" * 64)
    assert named.partition_in_use([("b", "train", b)]) == "2" * 64
    with pytest.raises(GuardStopError, match="a was made under partition 111111111111, in use is 222222222222"):
        named.partition_in_use([("b", "train", b), ("a", "train", a)])
    with pytest.raises(GuardStopError, match="b was made under partition 222222222222, in use is 111111111111"):
        bench.partition_in_use([("a", "train", a), ("b", "train", b)])
    for name, pool, lineage in (("a", "dev", a), ("c", "train", c)):
        with pytest.raises(GuardStopError, match="is a corpus of the"):
            bench.partition_in_use([(name, pool, lineage)])  # type: ignore[list-item]


def test_rows_of_a_held_out_problem_are_found_in_a_corpus(stock: Stock) -> None:
    traces, held = stock.traces(), stock.held[0].problem_id
    stock.bench.require_clean(traces, "train")
    facts = msgspec.structs.replace(traces[0].facts, problem_id=held)
    with pytest.raises(GuardStopError, match="its problem is held out for eval"):
        stock.bench.require_clean([*traces, msgspec.structs.replace(traces[0], facts=facts)], "train")


def frozen(stock: Stock) -> OpenPartition:
    """A partition whose suite is what the shop holds out, with one dev problem of each bucket that `dev` has."""
    problems = (*stock.bench.problems, *stock.bench.dev)
    key = bytes(range(32))
    buckets = {problem.bucket: 1 for problem in stock.bench.dev}
    return OpenPartition(freeze(problems, stock.held, seed=0, key=key, eval_counts={}, dev_counts=buckets), key)

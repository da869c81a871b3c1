"""Guards: each fires on the fault it is for, names itself, and lets everything else pass."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from tests.training.rollouts import make_result
from tests.training.stock import Stock
from training import guards
from training.guards import GuardStopError
from training.recipe import GuardRules

RULES = GuardRules()
HELD = frozenset({"p1"})


@pytest.mark.parametrize(
    ("guard", "fault", "fine"),
    [
        ("dropout", lambda: guards.require_eval_mode(True), lambda: guards.require_eval_mode(False)),
        (
            "mask drift",
            lambda: guards.require_exact_masks(100, ["a", "b"], RULES),
            lambda: guards.require_exact_masks(100, ["a"], RULES),
        ),
        ("emission", lambda: guards.require_emission(0.89, RULES), lambda: guards.require_emission(0.9, RULES)),
        (
            "non-finite",
            lambda: guards.require_finite("loss", math.nan),
            lambda: guards.require_finite("loss", 1e30),
        ),
        ("non-finite", lambda: guards.require_small_kl(math.inf, RULES), lambda: guards.require_small_kl(0.9, RULES)),
        ("kl", lambda: guards.require_small_kl(17.0, RULES), lambda: guards.require_small_kl(2.0, RULES)),
        ("logprobs", lambda: guards.require_same_policy(0.1, RULES), lambda: guards.require_same_policy(1e-4, RULES)),
        (
            "one class",
            lambda: guards.require_two_classes([True, True]),
            lambda: guards.require_two_classes([True, False]),
        ),
        ("one class", lambda: guards.require_two_classes([]), lambda: guards.require_two_classes([False, True])),
        ("split", lambda: guards.require_train_pool(["p2"], HELD), lambda: guards.require_train_pool(["p1"], HELD)),
        ("context", lambda: guards.require_context(3, 4), lambda: guards.require_context(2, 4)),
    ],
)
def test_a_guard_fires_on_its_fault_and_on_nothing_less(
    guard: str, fault: Callable[[], None], fine: Callable[[], None]
) -> None:
    fine()
    with pytest.raises(GuardStopError) as stop:
        fault()
    assert stop.value.guard == guard
    assert stop.value.failure.code == "V2123" and stop.value.failure.detail.startswith(f"{guard}: ")


def test_emission_is_the_share_of_episodes_that_recommend() -> None:
    results = [make_result(is_recommending=place < 3) for place in range(4)]
    assert guards.emission_rate(results) == 0.75
    assert guards.emission_rate([]) == 0.0


def test_a_held_out_problem_stops_a_run_at_launch(stock: Stock) -> None:
    stock.bench.require_split()
    leaked = stock.bench.held_out[0]
    for bench in (
        changed(stock, problems=(*stock.bench.problems, leaked)),
        changed(stock, problems=(*stock.bench.problems, stock.bench.dev[0])),
        # another name and other words for the same answers
        changed(
            stock,
            problems=(*stock.bench.problems, msgspec.structs.replace(leaked, problem_id="p_other", query="New words")),
        ),
    ):
        with pytest.raises(GuardStopError) as stop:
            bench.require_split()
        assert stop.value.guard == "split"


def test_a_job_on_a_held_out_problem_is_refused_when_it_is_made(stock: Stock) -> None:
    from training.rollout import jobs_of

    with pytest.raises(GuardStopError, match="split"):
        stock.bench.require_train(jobs_of(stock.bench.held_out, 1, 0))


def changed(stock: Stock, **changes: object) -> object:
    from dataclasses import replace

    return replace(stock.bench, **changes)

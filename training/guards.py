"""Guards: checks that stop a run when post-training goes wrong in one of the known silent ways.

Each check is a function of values: it returns nothing or raises a `GuardStopError`. A stage that gets one
saves what it has, writes which guard fired into the lineage, and ends. A guard never repairs. Source: paper B.2; the
list: docs/architecture.md#training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from foundation.errors import ArenaError
from training.model import EpisodeResult
from training.recipe import GuardRules

_OVERFLOW_SHARE_MAX = 0.5
MIXED_STEPS = 10


class GuardStopError(ArenaError):
    """V2123: a guard ended the run. `guard` names it."""

    def __init__(self, guard: str, detail: str) -> None:
        super().__init__("V2123", f"{guard}: {detail}")
        self.guard = guard


def require_eval_mode(is_training: bool) -> None:
    """Sampling with live dropout is off-policy from its first token. Raises GuardStopError."""
    if is_training:
        raise GuardStopError("dropout", "the model samples in training mode")


def require_exact_masks(checked: int, defects: Sequence[str], rules: GuardRules) -> None:
    """Rows with a wrong mask are dropped and counted by the caller; too many raise GuardStopError."""
    if checked and len(defects) > rules.mask_drift_max * checked:
        raise GuardStopError("mask drift", f"{len(defects)} of {checked} rows, first: {defects[0]}")


def emission_rate(results: Sequence[EpisodeResult]) -> float:
    """Share of episodes that call recommend_product; 0 for none."""
    return sum(result.is_recommending for result in results) / len(results) if results else 0.0


def require_emission(rate: float, start_rate: float, rules: GuardRules) -> None:
    """The policy still recommends on `dev` as it did when the run began, and began by recommending at all.

    The floor is a share of the parent's own rate: B.5 stops below 0.9 with a parent that always recommends, where the
    two are one. Raises GuardStopError; never where no floor is set.
    """
    floor = rules.emission_min * start_rate
    if rate < floor or (start_rate == 0 and rules.emission_min > 0):
        raise GuardStopError(
            "emission",
            f"{rate:.3f} of dev episodes recommend; the run began with {start_rate:.3f}, its floor is {floor:.3f}",
        )


def require_finite(name: str, value: float) -> None:
    """Loss and gradient norm are numbers. Raises GuardStopError for NaN or infinity."""
    if not math.isfinite(value):
        raise GuardStopError("non-finite", f"{name} is {value}")


def require_small_kl(kl: float, rules: GuardRules) -> None:
    """The policy stays near its reference. Raises GuardStopError for a spike (v17 reached 17 to 21)."""
    require_finite("kl", kl)
    if kl > rules.kl_max:
        raise GuardStopError("kl", f"{kl:.4g} in one step, {rules.kl_max} is allowed")


def require_same_policy(gap: float, rules: GuardRules) -> None:
    """Sampler and trainer agree on the logprobs of what was sampled, before any update. Raises GuardStopError."""
    require_finite("logprob gap", gap)
    if gap > rules.logprob_gap_max:
        raise GuardStopError("logprobs", f"sampler and trainer differ by {gap:.4f} on average")


def require_two_classes(labels: Iterable[bool]) -> None:
    """KTO needs wanted and unwanted rows. Raises GuardStopError for one class."""
    given = set(labels)
    if len(given) < 2:
        raise GuardStopError("one class", f"all rows are {'wanted' if True in given else 'unwanted'}")


def require_train_pool(problem_ids: Iterable[str], train: frozenset[str]) -> None:
    """No held-out problem is sampled on or trained on (paper section 6). Raises GuardStopError with the first."""
    for problem_id in problem_ids:
        if problem_id not in train:
            raise GuardStopError("split", f"problem {problem_id} is not of the train pool")


def require_mixed(shares: Sequence[float], rules: GuardRules) -> None:
    """Enough groups have rewards that differ: others teach nothing. `shares` are by step, in order.

    Raises GuardStopError where the last MIXED_STEPS steps are below the floor.
    """
    last = shares[-MIXED_STEPS:]
    if rules.mixed_min and len(last) == MIXED_STEPS and sum(last) < rules.mixed_min * MIXED_STEPS:
        raise GuardStopError(
            "mixed groups", f"{sum(last) / MIXED_STEPS:.2f} of the last {MIXED_STEPS} steps' groups have a spread"
        )


def require_context(overflows: int, rollouts: int) -> None:
    """Episodes that outgrow the context are counted; too many measure the limit only. Raises GuardStopError."""
    if rollouts and overflows > _OVERFLOW_SHARE_MAX * rollouts:
        raise GuardStopError("context", f"{overflows} of {rollouts} rollouts outgrew the context")

"""What a study claims, as values that its page shows: tests that were named before any run, and how episodes ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from training.evaluation.resampling import SeedSpread


class SetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference over all seeds on one set, with its interval (bootstrap over seeds and problems)."""

    set: str
    problems: int
    difference: float
    low: float
    high: float


class RowComparison(msgspec.Struct, frozen=True, kw_only=True):
    """`better` against `worse` over all seeds: difference in success with its interval over seeds and problems, by
    seed, and the exact test of each seed on greedy episodes (p value, gained, lost).

    `spread` is how far the seeds lie apart, None for one seed; `frozen` the same difference on the set that decides
    nothing, None where it was not measured; `decode` is said where it is not the tests' own.
    """

    better: str
    worse: str
    problems: int
    difference: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    p_value: float
    greedy: tuple[tuple[float, int, int], ...]
    spread: SeedSpread | None = None
    frozen: SetDifference | None = None
    decode: str = ""


class StudyClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A test named before any run. `comparison` and `holm` (its p value, corrected for all claims) are None while rows
    are `missing`; `control` is shown beside and decides nothing."""

    name: str
    alpha: float
    missing: tuple[str, ...] = ()
    comparison: RowComparison | None = None
    holm: float | None = None
    control: RowComparison | None = None

    @property
    def holds(self) -> bool | None:
        """Whether `better` solves more at `alpha`, corrected; None while it is not tested."""
        if self.comparison is None or self.holm is None:
            return None
        return self.holm < self.alpha and self.comparison.difference > 0


class Endings(msgspec.Struct, frozen=True, kw_only=True):
    """How often the episodes of one row on one set ended in each way, `solved` among them."""

    label: str
    set: str
    counts: Mapping[str, int]

    def share(self, reason: str) -> float:
        """Of all episodes, those that ended so."""
        return self.counts.get(reason, 0) / sum(self.counts.values())


def reasons_of(endings: Sequence[Endings]) -> list[str]:
    """Every way that an episode ended in, the most frequent share first."""
    named = dict.fromkeys(reason for one in endings for reason in one.counts)
    return sorted(named, key=lambda reason: -sum(one.share(reason) for one in endings))

"""The outcome of one answer, by slot and axis, in integers.

`OutcomeScore` is what `problems.score.score` returns and what a record keeps. Hits and totals stay integers;
shares are derived. Definitions: docs/architecture.md#scores.
"""

from __future__ import annotations

import msgspec

from foundation.errors import Failure
from problems.model import Bucket

SCORING_PIPELINE = "scoring/1"


class Axis(msgspec.Struct, frozen=True):
    """Rules met and rules asked on one axis of one slot."""

    hits: int = 0
    total: int = 0


class SlotScore(msgspec.Struct, frozen=True, kw_only=True):
    """One slot. `is_answer`: the id is the answer's, which satisfies the slot whatever the fields say."""

    recommended_id: str | None
    is_found: bool
    is_answer: bool
    is_unsurfaced: bool = False  # the surfaced rule turned this slot into a missing one
    title: Axis
    price: Axis
    service: Axis
    sku: Axis
    attribute: Axis
    rule_hits: int  # 1 of 1 when is_answer, else the sum over axes
    rule_total: int

    @property
    def is_satisfied(self) -> bool:
        """True when rule is exactly 1 on this slot."""
        return self.is_found and self.rule_total > 0 and self.rule_hits == self.rule_total


class OutcomeScore(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """The outcome of one recommendation. `rule_e4` and `reward_e4` are rounded down ten-thousandths."""

    pipeline: str = SCORING_PIPELINE
    titles: str  # name of the title matcher
    bucket: Bucket
    slots: tuple[SlotScore, ...]
    is_one_shop: bool | None = None  # shop bucket only: every slot has rule > 0 and one shop
    is_within_budget: bool | None = None  # voucher bucket only
    is_success: bool
    is_gt_exact: bool
    rule_e4: int
    reward_e4: int  # bucket-aware reward
    findings: tuple[str, ...] = ()


class UnscoredOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="unscored"):
    """No outcome exists, and why: a problem, upstream or validator failure. Never a zero."""

    failure: Failure

"""The moments of a race that several validators share, all of them functions of its close and its policy.

Pure; no validator's own delay moves a moment. Each is a time here and becomes a block by the chain's
`block_at`. `arena/race/AGREEMENT.md` says what is read at each.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.policy import RaceRules

Moment = Literal["closing", "field_anchor", "field_receipt", "settling", "results_receipt", "countersign"]
Roll = Literal["field", "results"]

ROLLS: tuple[Roll, ...] = ("field", "results")

_ANCHOR: dict[Roll, Moment] = {"field": "field_anchor", "results": "settling"}
_RECEIPT: dict[Roll, Moment] = {"field": "field_receipt", "results": "results_receipt"}


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Unix milliseconds. What is to stand on chain at a moment is committed within `lead_ms` before it; a third of the
    time between two moments, so that a chain that takes one commitment in 100 blocks refuses none in its turn."""

    closing_ms: int
    field_anchor_ms: int
    field_receipt_ms: int
    settling_ms: int
    results_receipt_ms: int
    countersign_ms: int
    give_up_ms: int  # nobody waits for a lacking log any longer
    abandon_ms: int  # nor for the settlement that has the quorum
    lead_ms: int

    def at(self, moment: Moment) -> int:
        """The time of a moment."""
        at_ms: int = getattr(self, f"{moment}_ms")
        return at_ms

    def is_quiet(self, now_ms: int) -> bool:
        """True while the slot belongs to the race: an ordinary anchor now would stand in the way of one that counts."""
        before_ms = 3 * self.lead_ms
        is_field = self.field_anchor_ms - before_ms <= now_ms < self.field_receipt_ms
        return is_field or self.settling_ms - before_ms <= now_ms < self.countersign_ms


def timeline(closes_ms: int, rules: RaceRules) -> Timeline:
    """The moments of a race that closes at `closes_ms`."""
    field_ms, settling_ms = closes_ms + rules.qualifying_grace_ms, closes_ms + rules.run_ms
    countersign_ms = settling_ms + 2 * rules.reveal_ms
    return Timeline(
        closing_ms=closes_ms,
        field_anchor_ms=field_ms,
        field_receipt_ms=field_ms + rules.reveal_ms,
        settling_ms=settling_ms,
        results_receipt_ms=settling_ms + rules.reveal_ms,
        countersign_ms=countersign_ms,
        give_up_ms=countersign_ms + rules.agree_ms,
        abandon_ms=countersign_ms + rules.agree_ms + rules.agree_ms // 2,
        lead_ms=rules.reveal_ms // 3,
    )


def timeline_refusal(rules: RaceRules) -> str | None:
    """Why validators can't agree under these rules, or None: the field roll must end before the results roll begins."""
    needed_ms = rules.qualifying_grace_ms + 2 * rules.reveal_ms
    if rules.run_ms <= needed_ms or rules.reveal_ms < 3:
        return f"run_ms is {rules.run_ms}; the field is known {needed_ms} ms after the close"
    return None


def anchor_of(roll: Roll) -> Moment:
    """The moment at which a roll's anchors are read."""
    return _ANCHOR[roll]


def receipt_of(roll: Roll) -> Moment:
    """The moment at which a roll's receipts are read."""
    return _RECEIPT[roll]

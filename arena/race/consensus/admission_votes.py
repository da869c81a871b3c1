"""What one validator says of one submission, read from its gate records in the order of its log.

Promise: pure. The gate's latest verdict is a validator's word; a person's counts for the hold that it answered, and for
no other: where the gate later rejects, accepts, or holds for another reason, the person has said nothing of that.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.policy import AdmissionRules, CooldownRules
from arena.records.model import GateRecord, Subject
from arena.submissions.admission import CooldownClass, cooldown_blocks

Outcome = Literal["accept", "review", "reject"]


class GateWord(msgspec.Struct, frozen=True, kw_only=True):
    """The last verdict of a validator's gate, and what a person there decided of its hold ("": nothing)."""

    said: GateRecord
    decided: Literal["", "accept", "reject"] = ""

    @property
    def ended(self) -> CooldownClass:
        """What the submission costs its hotkey, if this word is right. What a person decides makes it no cheaper."""
        if self.said.outcome == "reject" and self.said.severity:
            return self.said.severity
        return "accepted"


def next_word(before: GateWord | None, record: GateRecord) -> GateWord | None:
    """A validator's word after one more record. What a person decides before the gate has spoken says nothing."""
    if record.decided_by == "gate":
        is_same_hold = before is not None and record.outcome == before.said.outcome and record.hold == before.said.hold
        return GateWord(said=record, decided=before.decided if before is not None and is_same_hold else "")
    if before is None or record.outcome == "review":
        return before
    return replace(before, decided=record.outcome)


def outcome_at(word: GateWord, block: int, rules: AdmissionRules) -> Outcome:
    """What a word comes to at a block: a hold is what a person decided of it; undecided, one by a heuristic runs out
    into acceptance, and one for likeness to another's agent does not."""
    if word.said.outcome != "review":
        return word.said.outcome
    if word.decided:
        return word.decided
    return "accept" if word.said.hold == "heuristic" and block >= hold_ends(word.said.subject, rules) else "review"


def hold_ends(subject: Subject, rules: AdmissionRules) -> int:
    """The block from which a hold by a heuristic, undecided, counts as accepted."""
    return subject.commitment_block + rules.hold_blocks


def cost_blocks(word: GateWord, rules: CooldownRules) -> int:
    """The cooldown that follows from a word."""
    return cooldown_blocks(word.ended, rules)

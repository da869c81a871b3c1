"""Who is let into a race: what enough validators say of each submission, in the logs that the field roll counted.

Pure, integers only, and a function of counted records, the chain at the closing block and the policy, so every
honest validator rules alike, in whatever order sources and logs reached it. Fewer than half of those that speak can
neither let a submission in, nor keep one out, nor make one up. A validator's word is its gate's latest verdict; a
person's counts for the hold that it answered, and for no other: where the gate later rejects, accepts, or holds for
another reason, the person has said nothing of that. The rule stands in `arena/race/AGREEMENT.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from arena.chain.port import Commitment
from arena.policy import AdmissionRules, CooldownRules, Policy
from arena.race.settlement.scores import results_needed
from arena.records.model import GateRecord, Subject
from arena.submissions.admission import CooldownClass, Submitted, cooldown_blocks, refused_by_cooldown
from arena.submissions.model import agent_version_id
from judge.rubric import lower_median

Outcome = Literal["accept", "review", "reject"]
Words = Mapping[Subject, Mapping[str, "GateWord"]]  # by submission, then by validator

RulingState = Literal["accepted", "rejected", "held", "cooldown"]
TWO = 2  # where there are two validators or more, nothing follows from the word of one


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


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stands with the gates of all. `speakers`: validators whose logs hold any word on anything."""

    subject: Subject
    state: RulingState
    accepts: int
    rejects: int
    speakers: int
    needed: int
    allowed_block: int = 0  # `cooldown`: the first block whose commitment would have counted


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


def words_floor(policy: Policy, permits: int) -> int:
    """The fewest validators that let an agent in, where `permits` of them are a race's: what the policy requires, and
    under the rule `agreed` two, unless there is only one."""
    required = policy.qualifying.validators_required
    return max(required, min(TWO, permits)) if policy.admission.rule == "agreed" else required


def asked_count(policy: Policy, permits: int) -> int:
    """How many validators qualify an agent at once; the others stand in."""
    asked = policy.qualifying.validators_asked
    return max(asked, min(policy.admission.validators_asked, permits)) if policy.admission.rule == "agreed" else asked


def more_than_half(speakers: int, floor: int) -> int:
    """How many of `speakers` have to agree."""
    return max(floor, speakers // 2 + 1)


def is_possible(subject: Subject, slots: Mapping[str, Commitment], *, is_repeatable: bool = False) -> bool:
    """Whether a subject is what it says: its id follows from hotkey and source, and its hotkey's slot holds its
    commitment in that block, or a later one of something else; where it `is_repeatable`, also of itself."""
    if subject.agent_version_id != agent_version_id(subject.miner_hotkey, subject.agent_sha256):
        return False
    slot = slots.get(subject.miner_hotkey)
    if slot is None or subject.commitment_block <= 0:
        return False
    if slot.sha256 == subject.commitment_sha256 and not is_repeatable:
        return slot.block == subject.commitment_block
    is_same = slot.sha256 == subject.commitment_sha256
    return slot.block >= subject.commitment_block if is_same else slot.block > subject.commitment_block


def speakers_of(words: Words, permitted: Collection[str]) -> frozenset[str]:
    """The race's validators whose logs hold any word of a gate."""
    return frozenset(validator for said in words.values() for validator in said if validator in permitted)


def rulings(
    words: Words, permitted: Collection[str], slots: Mapping[str, Commitment], closing_block: int, policy: Policy
) -> dict[Subject, Ruling]:
    """What follows for every submission that enough validators know, committed by the closing block.

    `permitted` are the race's validators, `slots` the commitments of the subnet's hotkeys at the closing block: no
    submission is later than its slot. What fewer know is none: nobody can be refused for it, or enter by it.
    """
    speakers = len(speakers_of(words, permitted))
    needed = more_than_half(speakers, words_floor(policy, len(permitted)))
    known: dict[Subject, list[GateWord]] = {}
    for subject, said in words.items():
        counted = [word for validator, word in said.items() if validator in permitted]
        if len(counted) >= needed and is_possible(subject, slots, is_repeatable=True):
            known[subject] = counted
    by_hotkey: dict[str, list[Submitted[Subject]]] = {}
    for subject, counted in known.items():
        # what a submission costs is the lower median of what the validators' words make it cost
        entry = Submitted(
            what=subject,
            block=subject.commitment_block,
            sha256=subject.commitment_sha256,
            cost_blocks=lower_median([cost_blocks(word, policy.cooldown) for word in counted]),
        )
        by_hotkey.setdefault(subject.miner_hotkey, []).append(entry)
    # those that came too early after an earlier one of their hotkey, each with the block it had to wait for
    allowed = {subject: block for past in by_hotkey.values() for subject, block in refused_by_cooldown(past).items()}
    policy_sha256, found = policy.policy_sha256, {}
    for subject, counted in known.items():
        here = [word for word in counted if word.said.policy_sha256 == policy_sha256]
        outcomes = [outcome_at(word, closing_block, policy.admission) for word in here]
        accepts, rejects = outcomes.count("accept"), outcomes.count("reject")
        state: RulingState = "accepted" if accepts >= needed else "rejected" if rejects >= needed else "held"
        found[subject] = Ruling(
            subject=subject,
            state="cooldown" if subject in allowed else state,
            accepts=accepts,
            rejects=rejects,
            speakers=speakers,
            needed=needed,
            allowed_block=allowed.get(subject, 0),
        )
    return found


def lone_race_refusal(policy: Policy, validators: Collection[str]) -> str | None:
    """Why one validator's own results can't qualify agents or settle a race, or None when they can.

    Asked before a node starts where it can't see other validators' records: what nobody can deliver would else be said
    only at each race's settlement. `validators` hold a permit. A race asks for fewer results where fewer permits exist,
    and admission by agreement (`words_floor`) for fewer words; a policy's own number of qualifying validators stays.
    """
    required = words_floor(policy, len(validators))
    if required > 1:
        return (
            f"policy {policy.name} qualifies an agent by {required} validators, and this one sees only its own results"
        )
    needed = results_needed(policy.race, len(validators))
    if needed > 1:
        return (
            f"policy {policy.name} needs {needed} results per problem, {len(validators)} validators hold a permit, "
            "and this one sees only its own results"
        )
    return None

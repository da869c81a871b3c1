"""The field of a race that several validators share: who qualified, from the logs the field roll counted.

Pure, and a function of counted records and the chain at the closing block, so every honest validator fixes the
same field. Under the rule `agreed` an agent is in it when more than half of the gates that speak let it in
(`arena.race.consensus.rulings`) and more than half of the validators that finished its suite passed it, two at the
least. Under `own` the gate and the cooldown are each validator's, and of those that finished an agent's suite the first
`validators_asked` in the agent's own order (`assignment.qualifying_order`) decide. What a record says of an agent is
checked against its own hash and, where the miner's slot still shows, the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from arena.chain.port import Commitment
from arena.policy import Policy
from arena.race.consensus.assignment import qualifying_order
from arena.race.consensus.reducer import RaceRecords
from arena.race.consensus.rulings import (
    Ruling,
    asked_count,
    is_possible,
    more_than_half,
    rulings,
    speakers_of,
    words_floor,
)
from arena.race.model import Candidate
from arena.race.settlement.qualifying import Qualification, QualifyingResult, qualify
from arena.records.model import Subject
from judge.rubric import lower_median


class FieldStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a submission stands at the close. `finished` validators did its suite, of whom `passes` passed it and
    `needed` had to; `candidate` where it may race."""

    ruling: Ruling
    passes: int = 0
    finished: int = 0
    needed: int = 0
    candidate: Candidate | None = None


def field_standings(
    records: RaceRecords,
    validators: Iterable[str],
    commitments: Iterable[Commitment],
    closing_block: int,
    suite: Sequence[str],
    policy: Policy,
) -> tuple[FieldStanding, ...]:
    """Every submission that enough validators know, and whether it may race, under a policy that admits by agreement.

    Of several commitments to one source the earliest that may race stands for it.
    """
    permitted = frozenset(validators)
    slots = {commitment.hotkey: commitment for commitment in commitments}
    ruled = rulings(records.words, permitted, slots, closing_block, policy)
    speakers = len(speakers_of(records.words, permitted))
    # who evaluated which submission in qualifying: what a validator says of an agent first is what it did
    first: dict[tuple[str, str], Subject] = {}
    for evaluation in records.evaluations:
        subject = evaluation.record.subject
        if evaluation.validator in permitted and evaluation.record.context.stage == "qualifying":
            first.setdefault((evaluation.validator, subject.agent_version_id), subject)
    claims: dict[Subject, set[str]] = {}
    for (validator, _), subject in first.items():
        claims.setdefault(subject, set()).add(validator)
    rows, raced = [], set()
    for subject in sorted(ruled, key=lambda each: (each.commitment_block, each.commitment_sha256)):
        row = _standing(ruled[subject], records, claims, speakers, len(permitted), suite, policy)
        if row.candidate is not None and subject.agent_version_id in raced:
            row = msgspec.structs.replace(row, candidate=None)
        elif row.candidate is not None:
            raced.add(subject.agent_version_id)
        rows.append(row)
    return tuple(rows)


def _standing(
    ruling: Ruling,
    records: RaceRecords,
    claims: Mapping[Subject, set[str]],
    speakers: int,
    permits: int,
    suite: Sequence[str],
    policy: Policy,
) -> FieldStanding:
    subject = ruling.subject
    by_validator: dict[str, list[QualifyingResult]] = {}
    for result in records.qualifying_results(subject.agent_version_id, policy.policy_sha256):
        if result.validator in claims.get(subject, ()):
            by_validator.setdefault(result.validator, []).append(result)
    alone = [qualify(rows, suite, policy) for rows in by_validator.values()]
    means = [found.score_e4 for found in alone if found.score_e4 is not None]
    passes = sum(found.passes for found in alone)
    at_once = more_than_half(min(speakers, asked_count(policy, permits)), words_floor(policy, permits))
    needed = more_than_half(len(means), at_once)
    is_in = ruling.state == "accepted" and passes >= needed
    candidate = Candidate(subject=subject, qualifying_score_e4=lower_median(means)) if is_in else None
    return FieldStanding(
        ruling=ruling, passes=passes, finished=len(means), needed=needed, candidate=candidate
    )  # fmt: skip


def qualified_candidates(
    records: RaceRecords,
    validators: Iterable[str],
    commitments: Iterable[Commitment],
    suite: Sequence[str],
    policy: Policy,
) -> tuple[Candidate, ...]:
    """Agents that qualified under a policy whose validators admit each by itself (`own`), by version id.

    `commitments` are the slots of the subnet's hotkeys at the closing block; `suite` the problem ids of the active
    suite. An agent counts as what most early a validator that passed it said it is (`Subject`).
    """
    slots = {commitment.hotkey: commitment for commitment in commitments}
    permitted = frozenset(validators)
    claims: dict[str, dict[str, Subject]] = {}
    for row in records.evaluations:
        subject = row.record.subject
        if row.validator in permitted and row.record.context.stage == "qualifying" and is_possible(subject, slots):
            claims.setdefault(subject.agent_version_id, {}).setdefault(row.validator, subject)
    candidates = []
    for agent, said in sorted(claims.items()):
        order = [validator for validator in qualifying_order(agent, permitted) if validator in said]
        results = [row for row in records.qualifying_results(agent, policy.policy_sha256) if row.validator in said]
        found, passed = qualify_across(results, order, suite, policy)
        if found.state != "qualified" or found.score_e4 is None:
            continue
        for subject in dict.fromkeys(said[validator] for validator in passed):
            if sum(said[validator] == subject for validator in passed) >= policy.qualifying.validators_required:
                candidates.append(Candidate(subject=subject, qualifying_score_e4=found.score_e4))
                break
    return tuple(candidates)


def qualify_across(
    results: Iterable[QualifyingResult], order: Sequence[str], suite: Sequence[str], policy: Policy
) -> tuple[Qualification, tuple[str, ...]]:
    """Where an agent stands by the first `validators_asked` validators of `order` that finished its suite, and who of
    them passed it, in that order."""
    by_validator: dict[str, list[QualifyingResult]] = {}
    for result in results:
        by_validator.setdefault(result.validator, []).append(result)
    alone = {validator: qualify(rows, suite, policy) for validator, rows in by_validator.items()}
    finished = [validator for validator in order if validator in alone and alone[validator].finished]
    deciding = finished[: policy.qualifying.validators_asked]
    whole = qualify((row for validator in deciding for row in by_validator[validator]), suite, policy)
    return whole, tuple(validator for validator in deciding if alone[validator].passes)


def select_candidates(
    candidates: Iterable[Candidate], closing_block: int, eliminated: frozenset[str] = frozenset()
) -> tuple[Candidate, ...]:
    """The field of a race, by agent version id: one agent version per hotkey. Pass only agents that qualified, and the
    incumbent, which races whatever else its hotkey has submitted.

    A candidate needs a commitment in a block up to `closing_block` (the caller passes a finalized one). `eliminated`
    holds version ids that left by an earlier settlement; the incumbent is never among the eliminated.
    """
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        if not candidate.subject.commitment_sha256 or candidate.subject.commitment_block > closing_block:
            continue
        if candidate.subject.agent_version_id in eliminated and not candidate.is_incumbent:
            continue
        rival = best.get(candidate.subject.miner_hotkey)
        if rival is None or _preference(candidate) < _preference(rival):
            best[candidate.subject.miner_hotkey] = candidate
    return tuple(sorted(best.values(), key=lambda candidate: candidate.subject.agent_version_id))


def _preference(candidate: Candidate) -> tuple[bool, int, int, str]:
    """Smaller is preferred."""
    subject = candidate.subject
    return (
        not candidate.is_incumbent,
        -candidate.qualifying_score_e4,
        subject.commitment_block,
        subject.agent_version_id,
    )

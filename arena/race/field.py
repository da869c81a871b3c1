"""The field of a race that several validators share: who qualified, from the logs the field roll counted.

Promise: pure, and a function of counted records and the chain at the closing block, so every honest validator fixes the
same field. Of the validators that finished an agent's suite the first `validators_asked` in the agent's own order
(`assign.qualifying_order` over the race's validators) decide; one that left the subnet or gave nothing is passed over.
What a record says of an agent is checked against its own hash and, where the miner's slot still shows, the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from arena.chain.port import Commitment
from arena.policy import Policy
from arena.race.assign import qualifying_order
from arena.race.fold import RaceRecords
from arena.race.model import Candidate
from arena.race.qualify import Qualification, QualifyingResult, qualify
from arena.records.model import Subject
from arena.submissions.model import agent_version_id


def qualified_candidates(
    records: RaceRecords,
    validators: Iterable[str],
    commitments: Iterable[Commitment],
    suite: Sequence[str],
    policy: Policy,
) -> tuple[Candidate, ...]:
    """Agents that qualified under `policy`, by version id.

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
    found = (_candidate(agent, claims[agent], records, permitted, suite, policy) for agent in sorted(claims))
    return tuple(candidate for candidate in found if candidate is not None)


def is_possible(subject: Subject, slots: Mapping[str, Commitment]) -> bool:
    """Whether a subject is what it says: its id follows from hotkey and source, and its hotkey's slot holds its
    commitment in that block, or a later one of something else."""
    if subject.agent_version_id != agent_version_id(subject.miner_hotkey, subject.agent_sha256):
        return False
    slot = slots.get(subject.miner_hotkey)
    if slot is None or subject.commitment_block <= 0:
        return False
    if slot.sha256 == subject.commitment_sha256:
        return slot.block == subject.commitment_block
    return slot.block > subject.commitment_block


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


def _candidate(
    agent: str,
    claims: Mapping[str, Subject],
    records: RaceRecords,
    permitted: frozenset[str],
    suite: Sequence[str],
    policy: Policy,
) -> Candidate | None:
    order = [validator for validator in qualifying_order(agent, permitted) if validator in claims]
    results = [row for row in records.qualifying_results(agent, policy.policy_sha256) if row.validator in claims]
    found, passed = qualify_across(results, order, suite, policy)
    if found.state != "qualified" or found.score_e4 is None:
        return None
    for subject in dict.fromkeys(claims[validator] for validator in passed):
        agreeing = sum(claims[validator] == subject for validator in passed)
        if agreeing >= policy.qualifying.validators_required:
            return Candidate(subject=subject, qualifying_score_e4=found.score_e4)
    return None

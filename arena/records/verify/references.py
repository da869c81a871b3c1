"""What records of one log say about each other: attempts, evaluations, verdicts, settlement and release of a race.

Every rule here compares facts two signed records state, and names the record that states the wrong one. A
record that refers to something absent is reported only in a log that was read whole; a contradiction always is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import msgspec

from arena.bank.batch import cluster_commitment
from arena.records.model import Context, ReleaseRecord, SettlementRecord, Subject
from arena.records.verify.inspection import (
    AttemptFacts,
    EvaluationFacts,
    Facts,
    GateFacts,
    ReleaseFacts,
    SettlementFacts,
    VerdictFacts,
)
from arena.records.verify.report import Rule

Reference = tuple[str, int, Rule, str]  # validator, seq, rule, detail
_SALT = re.compile("[0-9a-f]{64}")


class _RaceReferences(msgspec.Struct):
    """What one log says of one race. `contexts`: the distinct ones of its records, each with its first record."""

    contexts: dict[Context, int]
    settlement: tuple[int, SettlementRecord] | None = None
    release: tuple[int, ReleaseRecord] | None = None


class References:
    """The facts of all logs, kept by validator: one's records never speak for another's."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str, str], int] = {}  # validator, attempt, body -> seq
        self._evaluations: dict[tuple[str, str, str], int] = {}
        self._evaluated: set[tuple[str, str]] = set()  # validator, body
        self._verdicts: dict[tuple[str, str], int] = {}  # validator, body -> first seq
        self._counted: dict[tuple[str, ...], int] = {}
        self._races: dict[tuple[str, str], _RaceReferences] = {}  # validator, race
        self._gated: set[tuple[str, Subject]] = set()  # validator, submission
        self._persons: dict[tuple[str, Subject], int] = {}  # persons' words before any of the gate -> seq

    def take(self, validator: str, seq: int, facts: Facts) -> tuple[Rule, str] | None:
        """Note one record; what is wrong with it beside the ones before, or None."""
        match facts:
            case AttemptFacts():
                if facts.is_evaluated:
                    self._attempts.setdefault((validator, facts.attempt_id, facts.body_sha256), seq)
                self._note_context(validator, seq, facts.context)
            case EvaluationFacts():
                self._evaluated.add((validator, facts.body_sha256))
                self._evaluations.setdefault((validator, facts.attempt_id, facts.body_sha256), seq)
                self._note_context(validator, seq, facts.context)
                context = facts.context
                key = (validator, context.stage, context.race_id, context.problem_id, facts.agent_version_id)
                if facts.is_counted and (first := self._counted.setdefault(key, seq)) != seq:
                    return "double", f"record {first} already counts for this agent, problem and stage"
            case VerdictFacts():
                self._verdicts.setdefault((validator, facts.body_sha256), seq)
                self._note_context(validator, seq, facts.context)
            case SettlementFacts():
                race = self._race(validator, facts.record.race_id)
                if race.settlement:
                    return "settlement", f"record {race.settlement[0]} already settles race {facts.record.race_id}"
                race.settlement = (seq, facts.record)
            case ReleaseFacts():
                race = self._race(validator, facts.record.race_id)
                if race.release:
                    return "release", f"record {race.release[0]} already releases race {facts.record.race_id}"
                race.release = (seq, facts.record)
            case GateFacts():
                if not facts.is_of_person:
                    self._gated.add((validator, facts.subject))
                elif (validator, facts.subject) not in self._gated:
                    self._persons.setdefault((validator, facts.subject), seq)
        return None

    def defects(self, whole: Collection[str]) -> Iterator[Reference]:
        """What does not hold between the records taken. `whole`: the validators whose logs were read from their first
        record on, every one."""
        for (validator, attempt, body), seq in self._evaluations.items():
            if validator in whole and (validator, attempt, body) not in self._attempts:
                yield validator, seq, "attempt", f"no attempt record says that {attempt} made body {body}"
        for (validator, attempt, body), seq in self._attempts.items():
            if validator in whole and (validator, attempt, body) not in self._evaluations:
                yield validator, seq, "evaluation", f"no evaluation says what attempt {attempt} came to"
        for (validator, body), seq in self._verdicts.items():
            if validator in whole and (validator, body) not in self._evaluated:
                yield validator, seq, "verdict", f"no evaluation names body {body}"
        for (validator, subject), seq in self._persons.items():
            if validator in whole:
                yield validator, seq, "gate", f"no verdict of the gate on {subject.agent_version_id} stands before it"
        for (validator, _), race in self._races.items():
            found: list[tuple[int, Rule, str]] = []
            if race.settlement:
                found += _settlement_defects(*race.settlement, race.contexts)
            if race.release:
                found += _release_defects(*race.release, race.contexts)
            if race.settlement and race.release:
                (seq, settled), (released_at, released) = race.settlement, race.release
                if released.batch_sha256 != settled.batch_sha256:
                    found.append(
                        (released_at, "release", f"record {seq} settled another batch of race {settled.race_id}")
                    )
                elif missing := set(settled.drawn) - {problem.problem_id for problem in released.problems}:
                    found.append((released_at, "release", f"drawn problem {min(missing)} is not released"))
            yield from ((validator, *defect) for defect in found)

    def _race(self, validator: str, race_id: str) -> _RaceReferences:
        return self._races.setdefault((validator, race_id), _RaceReferences({}))

    def _note_context(self, validator: str, seq: int, context: Context) -> None:
        if context.stage == "race":
            self._race(validator, context.race_id).contexts.setdefault(context, seq)


def _settlement_defects(
    seq: int, settled: SettlementRecord, contexts: dict[Context, int]
) -> Iterator[tuple[int, Rule, str]]:
    """A settlement against itself, and the race's records that name a batch against it."""
    drawn = set(settled.drawn)
    if len(settled.uids) != len(settled.weights_u16) or not set(settled.void) <= drawn:
        yield seq, "settlement", "its weights do not fit its uids, or a void problem was not drawn"
    for context, stated_at in contexts.items():
        if not context.batch_sha256:
            continue
        if context.batch_sha256 != settled.batch_sha256:
            yield stated_at, "settlement", f"record {seq} settles another batch of race {settled.race_id}"
        elif settled.state == "settled" and context.problem_id not in drawn:
            yield stated_at, "settlement", f"{context.problem_id} was not drawn, says record {seq}"


def _release_defects(
    seq: int, released: ReleaseRecord, contexts: dict[Context, int]
) -> Iterator[tuple[int, Rule, str]]:
    """The race's records against the clusters its release opens: the salt turns each into what was committed to."""
    if not _SALT.fullmatch(released.salt):
        yield seq, "release", "a salt is 64 lower-case hex digits"
        return
    clusters = {problem.problem_id: problem.cluster_id for problem in released.problems}
    for context, stated_at in contexts.items():
        if context.batch_sha256 and context.batch_sha256 != released.batch_sha256:
            yield stated_at, "release", f"record {seq} releases another batch of race {released.race_id}"
        elif context.cluster_commitment and context.problem_id not in clusters:
            yield stated_at, "release", f"{context.problem_id} is not among the problems record {seq} releases"
        elif context.cluster_commitment and context.cluster_commitment != cluster_commitment(
            released.salt, context.problem_id, clusters[context.problem_id]
        ):
            yield stated_at, "release", f"its cluster commitment does not open with the salt of record {seq}"

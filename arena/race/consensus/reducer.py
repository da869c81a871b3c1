"""What records say of a race, or of qualifying, whoever's logs they come from: a fold, each record taken once.

Pure. Each validator speaks for itself: a verdict counts for the evaluation of its own validator alone, and the
first verdict on a body is the one that counts. Qualifying never ends: what it needs of records is kept, not the records
(`compact`), and of an agent that was decided nothing (`forget`). What the gate said of it stays: cooldowns follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from sys import intern

from arena.race.consensus.rulings import GateWord, next_word
from arena.race.model import CountedAttempt, CountedEvaluation, CountedVerdict
from arena.race.settlement.qualifying import QualifyingResult
from arena.records.model import AttemptRecord, EvaluationRecord, GateRecord, Payload, Subject, VerdictRecord
from foundation.codes.names import JOB_QUARANTINED, JUDGE_UNUSABLE
from foundation.codes.row import Owner
from judge.verdict import Verdict
from problems.scoring.outcome import OutcomeScore

REFUSALS_MAX = 3  # tries of the judge at one body, after which nobody asks again


class RaceRecords:
    """Evaluations, verdicts and closings of one race (or of qualifying), in the order they were taken; and for
    qualifying what gates say of submissions: by submission, then by validator."""

    def __init__(self) -> None:
        self.evaluations: list[CountedEvaluation] = []
        self.verdicts: list[CountedVerdict] = []
        self.attempts: list[CountedAttempt] = []  # of a race: those that gave no result
        self.words: dict[Subject, dict[str, GateWord]] = {}
        self._first: dict[tuple[str, str], Verdict] = {}  # by validator and body
        self._refusals: Counter[tuple[str, str]] = Counter()  # by validator and body
        self._quarantined: set[tuple[str, str]] = set()  # validator and body
        self._of_agent: dict[str, list[CountedEvaluation]] = {}
        self._compacted: dict[str, list[tuple[str, QualifyingResult]]] = {}  # by agent: policy hash and result
        self._closings: dict[str, dict[tuple[str, str], Owner]] = {}  # by agent, then by validator and problem id

    def take(self, validator: str, seq: int, content_sha256: str, payload: Payload) -> None:
        """Take in one record; kinds that say nothing about a result are passed over. Logs come in their order."""
        if isinstance(payload, EvaluationRecord):
            row = CountedEvaluation(validator=validator, seq=seq, content_sha256=content_sha256, record=payload)
            self.evaluations.append(row)
            self._of_agent.setdefault(payload.subject.agent_version_id, []).append(row)
        elif isinstance(payload, VerdictRecord):
            self.verdicts.append(
                CountedVerdict(validator=validator, seq=seq, content_sha256=content_sha256, record=payload)
            )
            key = (validator, payload.verdict.body_sha256)
            if isinstance(payload.verdict, Verdict):
                self._first.setdefault(key, payload.verdict)
            elif payload.verdict.failure.code == JUDGE_UNUSABLE:
                self._refusals[key] += 1
            elif payload.verdict.failure.code == JOB_QUARANTINED:
                self._quarantined.add(key)
        elif isinstance(payload, AttemptRecord):
            if payload.ended != "evaluated" and payload.context.stage == "race":
                self.attempts.append(
                    CountedAttempt(validator=validator, seq=seq, content_sha256=content_sha256, record=payload)
                )
            if payload.is_closing:
                owner = payload.failure.owner if payload.failure else Owner.VALIDATOR
                closings = self._closings.setdefault(payload.subject.agent_version_id, {})
                closings[validator, payload.context.problem_id] = owner
        elif isinstance(payload, GateRecord):
            said = self.words.get(payload.subject, {})
            word = next_word(said.get(validator), payload)
            if word is not None:
                self.words.setdefault(payload.subject, said)[validator] = word

    def owed(self, validator: str) -> list[CountedEvaluation]:
        """A validator's evaluations with an outcome and no verdict yet, successes first, then oldest first.

        A body that the judge refused `REFUSALS_MAX` times is not asked about again, nor in a race one that is
        quarantined.
        """
        rows = [row for row in self.evaluations if row.validator == validator and self._is_owed(row)]
        return sorted(rows, key=lambda row: not is_success(row.record))

    def quarantined(self, validator: str) -> list[CountedEvaluation]:
        """A validator's evaluations whose judging ended the workers of two slots, and that have no verdict."""
        keys = self._quarantined - self._first.keys()
        return [row for row in self.evaluations if row.validator == validator and _key(row) in keys]

    def compact(self) -> None:
        """Keep of evaluations on which nothing is owed their qualifying results alone, and of verdicts nothing else."""
        kept: list[CountedEvaluation] = []
        for row in self.evaluations:
            if self._is_owed(row):
                kept.append(row)
                continue
            result = self._result(row)
            if result is None:  # it never says anything
                continue
            policy_sha256, agent = row.record.conditions.policy_sha256, row.record.subject.agent_version_id
            small = QualifyingResult(
                validator=intern(result.validator), problem_id=intern(result.problem_id), score_e4=result.score_e4
            )
            self._compacted.setdefault(agent, []).append((intern(policy_sha256), small))
        bodies = {_key(row) for row in kept}
        self.evaluations, self.verdicts, self._of_agent = kept, [], {}
        for row in kept:
            self._of_agent.setdefault(row.record.subject.agent_version_id, []).append(row)
        self._first = {key: verdict for key, verdict in self._first.items() if key in bodies}
        self._refusals = Counter({key: count for key, count in self._refusals.items() if key in bodies})
        self._quarantined &= bodies

    def forget(self, agent_version_id: str, policy_sha256: str) -> None:
        """Let go of an agent's compacted results under a policy: it was decided."""
        rows = self._compacted.pop(agent_version_id, [])
        left = [(policy, result) for policy, result in rows if policy != policy_sha256]
        if left:
            self._compacted[agent_version_id] = left

    def qualifying_results(self, agent_version_id: str, policy_sha256: str) -> Iterator[QualifyingResult]:
        """What validators found of an agent under a policy: outcome x coefficient, zeros, withdrawn problems."""
        for policy, result in self._compacted.get(agent_version_id, ()):
            if policy == policy_sha256:
                yield result
        for row in self._of_agent.get(agent_version_id, ()):
            if row.record.conditions.policy_sha256 == policy_sha256:
                found = self._result(row)
                if found is not None:
                    yield found
        for (validator, problem_id), owner in self._closings.get(agent_version_id, {}).items():
            closed = _unscored(validator, problem_id, owner)
            if closed is not None:
                yield closed

    def _result(self, row: CountedEvaluation) -> QualifyingResult | None:
        """Outcome x coefficient of an evaluation, or None while that is owed."""
        outcome, problem_id = row.record.outcome, row.record.context.problem_id
        if not isinstance(outcome, OutcomeScore):
            return _unscored(row.validator, problem_id, outcome.failure.owner)
        if not outcome.is_success:
            return QualifyingResult(validator=row.validator, problem_id=problem_id, score_e4=0)
        verdict = self._first.get(_key(row))
        if verdict is None:
            return None
        return QualifyingResult(validator=row.validator, problem_id=problem_id, score_e4=verdict.coefficient_e4)

    def _is_owed(self, row: CountedEvaluation) -> bool:
        key = _key(row)
        is_judgeable = isinstance(row.record.outcome, OutcomeScore) and key not in self._first
        is_over = row.record.context.stage == "race" and key in self._quarantined
        return is_judgeable and not is_over and self._refusals[key] < REFUSALS_MAX


def is_success(record: EvaluationRecord) -> bool:
    """Whether the episode solved its problem."""
    return isinstance(record.outcome, OutcomeScore) and record.outcome.is_success


def _key(row: CountedEvaluation) -> tuple[str, str]:
    return row.validator, row.record.body_sha256


def _unscored(validator: str, problem_id: str, owner: Owner) -> QualifyingResult | None:
    """What an item without an outcome says: withdrawn, zero, or nothing."""
    if owner is Owner.PROBLEM:
        return QualifyingResult(validator=validator, problem_id=problem_id, score_e4=None)
    return QualifyingResult(validator=validator, problem_id=problem_id, score_e4=0) if owner is Owner.AGENT else None

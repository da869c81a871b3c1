"""What the log says about one race, read incrementally: results, verdicts, faults, settlement, release.

Promise: a fold over signed records and nothing else, so a restart rebuilds exactly the same picture. `race_id` ""
stands for qualifying, which belongs to no race.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from arena.policy import Policy
from arena.race.model import CountedEvaluation, CountedVerdict
from arena.race.qualify import Qualification, QualifyingResult, qualify
from arena.records.body import decode_content
from arena.records.model import (
    AttemptRecord,
    EvaluationRecord,
    ReleaseRecord,
    SettlementRecord,
    SignedRecord,
    VerdictRecord,
)
from arena.store.port import Store
from judge.verdict import Verdict
from problems.outcome import OutcomeScore


class RaceLog:
    """The records of one race, of every validator in the store."""

    def __init__(self, store: Store, race_id: str) -> None:
        self._store = store
        self._race_id = race_id
        self._last_seq: dict[str, int] = {}
        self._verdicts_by_body: dict[str, Verdict] = {}
        self.evaluations: list[CountedEvaluation] = []
        self.verdicts: list[CountedVerdict] = []
        self.faults: Counter[tuple[str, str, str]] = Counter()  # validator, agent version id, problem id
        self.settlement: SettlementRecord | None = None
        self.release: ReleaseRecord | None = None

    async def refresh(self) -> None:
        """Read what was appended since the last call."""
        for validator in await self._store.validators():
            last = self._last_seq.get(validator, 0)
            async for record in self._store.records(validator, after_seq=last, race_id=self._race_id):
                self._read(record)
                self._last_seq[validator] = record.seq

    def owed(self, validator: str) -> list[CountedEvaluation]:
        """Own evaluations with an outcome and no verdict yet, oldest first."""
        return [
            row
            for row in self.evaluations
            if row.validator == validator
            and isinstance(row.record.outcome, OutcomeScore)
            and row.record.body_sha256 not in self._verdicts_by_body
        ]

    def owed_successes(self) -> int:
        """Evaluations whose success has no verdict yet: what a settlement waits for."""
        return sum(
            1
            for row in self.evaluations
            if isinstance(row.record.outcome, OutcomeScore)
            and row.record.outcome.is_success
            and row.record.body_sha256 not in self._verdicts_by_body
        )

    def score_e4(self, record: EvaluationRecord) -> int | None:
        """Outcome x coefficient of an evaluation, or None while a success waits for its verdict."""
        if not isinstance(record.outcome, OutcomeScore) or not record.outcome.is_success:
            return 0
        verdict = self._verdicts_by_body.get(record.body_sha256)
        return verdict.coefficient_e4 if verdict else None

    def qualification(self, agent_version_id: str, problem_ids: Iterable[str], policy: Policy) -> Qualification:
        """Where an agent stands in qualifying, from the records so far."""
        results: list[QualifyingResult] = []
        for row in self.evaluations:
            record = row.record
            if record.subject.agent_version_id != agent_version_id:
                continue
            is_scored = isinstance(record.outcome, OutcomeScore)
            score = self.score_e4(record) if is_scored else None
            if is_scored and score is None:
                continue  # the verdict is owed
            results.append(
                QualifyingResult(validator=row.validator, problem_id=record.context.problem_id, score_e4=score)
            )
        for (validator, agent, problem_id), faults in self.faults.items():
            if agent == agent_version_id and faults >= policy.race.attempts:
                results.append(QualifyingResult(validator=validator, problem_id=problem_id, score_e4=None))
        return qualify(results, problem_ids, policy.qualifying)

    def _read(self, record: SignedRecord) -> None:
        payload = decode_content(record.content).payload
        if isinstance(payload, EvaluationRecord):
            self.evaluations.append(
                CountedEvaluation(
                    validator=record.validator,
                    seq=record.seq,
                    content_sha256=record.content_sha256,
                    record=payload,
                )
            )
        elif isinstance(payload, VerdictRecord):
            self.verdicts.append(
                CountedVerdict(
                    validator=record.validator,
                    seq=record.seq,
                    content_sha256=record.content_sha256,
                    record=payload,
                )
            )
            if isinstance(payload.verdict, Verdict):
                self._verdicts_by_body.setdefault(payload.verdict.body_sha256, payload.verdict)
        elif isinstance(payload, AttemptRecord) and payload.ended == "faulted":
            pair = (record.validator, payload.subject.agent_version_id, payload.context.problem_id)
            self.faults[pair] += 1
        elif isinstance(payload, SettlementRecord):
            self.settlement = self.settlement or payload
        elif isinstance(payload, ReleaseRecord):
            self.release = self.release or payload

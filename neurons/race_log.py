"""What the log says about one race, read incrementally: results, verdicts, closings, settlement, release.

Promise: a fold over signed records and nothing else, so a restart rebuilds exactly the same picture, and readers that
refresh at the same time count every record once. Each validator speaks for itself: a verdict counts for the evaluation
of its own validator, a settlement or release only when it is this store's. `race_id` "" stands for qualifying, which
belongs to no race.
"""

from __future__ import annotations

import asyncio
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
from problems.errors import Owner
from problems.outcome import OutcomeScore

QUALIFYING = ""  # the race id under which qualifying runs
REFUSALS_MAX = 3  # tries of the judge at one body, after which nobody asks again
_REFUSED = "U3021"


class RaceLog:
    """The records of one race, of every validator whose log the store shows."""

    def __init__(self, store: Store, race_id: str) -> None:
        self._store = store
        self._race_id = race_id
        self._reading = asyncio.Lock()
        self._last_seq: dict[str, int] = {}
        self._verdicts: dict[tuple[str, str], Verdict] = {}  # the first, by validator and body
        self._refusals: Counter[tuple[str, str]] = Counter()  # by validator and body
        self._closings: dict[tuple[str, str, str], Owner] = {}  # by validator, agent version id and problem id
        self.evaluations: list[CountedEvaluation] = []
        self.verdicts: list[CountedVerdict] = []
        self.settlement: SettlementRecord | None = None
        self.release: ReleaseRecord | None = None

    async def refresh(self) -> None:
        """Read what was appended since the last call."""
        async with self._reading:
            for validator in await self._store.validators():
                last = self._last_seq.get(validator, 0)
                async for record in self._store.records(validator, after_seq=last, race_id=self._race_id):
                    if record.seq > self._last_seq.get(validator, 0):
                        self._read(record)
                        self._last_seq[validator] = record.seq

    def owed(self, validator: str) -> list[CountedEvaluation]:
        """A validator's evaluations with an outcome and no verdict yet, successes first, then oldest first.

        A body that the judge refused `REFUSALS_MAX` times is not asked about again.
        """
        rows = [row for row in self.evaluations if row.validator == validator and self._is_owed(row)]
        return sorted(rows, key=lambda row: not _is_success(row.record))

    def owed_successes(self) -> int:
        """Own evaluations whose success may still get its verdict: what a settlement waits for."""
        return sum(_is_success(row.record) for row in self.owed(self._store.validator))

    def qualification(self, agent_version_id: str, problem_ids: Iterable[str], policy: Policy) -> Qualification:
        """Where an agent stands in qualifying under `policy`, from the records so far.

        Results under another policy don't count. A failed or closed item withdraws its problem when the problem was at
        fault, and is a zero when the agent was; any other leaves the agent pending.
        """
        rules = policy.policy_sha256
        results = [
            result
            for row in self.evaluations
            if row.record.subject.agent_version_id == agent_version_id
            and row.record.conditions.policy_sha256 == rules
            and (result := self._result(row)) is not None
        ]
        for (validator, agent, problem_id), owner in self._closings.items():
            closed = _unscored(validator, problem_id, owner)
            if agent == agent_version_id and closed is not None:
                results.append(closed)
        return qualify(results, problem_ids, policy)

    def _result(self, row: CountedEvaluation) -> QualifyingResult | None:
        """Outcome x coefficient of an evaluation, or None while that is owed."""
        outcome, problem_id = row.record.outcome, row.record.context.problem_id
        if not isinstance(outcome, OutcomeScore):
            return _unscored(row.validator, problem_id, outcome.failure.owner)
        if not outcome.is_success:
            return QualifyingResult(validator=row.validator, problem_id=problem_id, score_e4=0)
        verdict = self._verdicts.get((row.validator, row.record.body_sha256))
        if verdict is None:
            return None
        return QualifyingResult(validator=row.validator, problem_id=problem_id, score_e4=verdict.coefficient_e4)

    def _is_owed(self, row: CountedEvaluation) -> bool:
        key = (row.validator, row.record.body_sha256)
        is_judgeable = isinstance(row.record.outcome, OutcomeScore) and key not in self._verdicts
        return is_judgeable and self._refusals[key] < REFUSALS_MAX

    def _read(self, record: SignedRecord) -> None:
        payload = decode_content(record.content).payload
        is_own = record.validator == self._store.validator
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
            self._read_verdict(record, payload)
        elif isinstance(payload, AttemptRecord) and payload.is_closing:
            item = (record.validator, payload.subject.agent_version_id, payload.context.problem_id)
            self._closings[item] = payload.failure.owner if payload.failure else Owner.VALIDATOR
        elif isinstance(payload, SettlementRecord) and is_own:
            self.settlement = self.settlement or payload
        elif isinstance(payload, ReleaseRecord) and is_own:
            self.release = self.release or payload

    def _read_verdict(self, record: SignedRecord, payload: VerdictRecord) -> None:
        self.verdicts.append(
            CountedVerdict(
                validator=record.validator,
                seq=record.seq,
                content_sha256=record.content_sha256,
                record=payload,
            )
        )
        key = (record.validator, payload.verdict.body_sha256)
        if isinstance(payload.verdict, Verdict):
            self._verdicts.setdefault(key, payload.verdict)
        elif payload.verdict.failure.code == _REFUSED:
            self._refusals[key] += 1


def _is_success(record: EvaluationRecord) -> bool:
    return isinstance(record.outcome, OutcomeScore) and record.outcome.is_success


def _unscored(validator: str, problem_id: str, owner: Owner) -> QualifyingResult | None:
    """What an item without an outcome says: withdrawn, zero, or nothing."""
    if owner is Owner.PROBLEM:
        return QualifyingResult(validator=validator, problem_id=problem_id, score_e4=None)
    return QualifyingResult(validator=validator, problem_id=problem_id, score_e4=0) if owner is Owner.AGENT else None

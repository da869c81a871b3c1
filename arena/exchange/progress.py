"""Progress: which pairs of a race this validator is done with, counted from its own log. Never how they ended.

A pair is done once its evaluation has an outcome and its body a verdict, whatever the outcome: asking for the verdict
of successes alone would tell them from failures while a judge is away. Only new records are read each time.
"""

from __future__ import annotations

import asyncio

from arena.export.writing.assembly import signed_content
from arena.records.model import EvaluationRecord, VerdictRecord
from arena.store.port import Store
from judge.verdict import Verdict
from problems.scoring.outcome import OutcomeScore

RACES_KEPT = 4


class _RaceProgress:
    def __init__(self) -> None:
        self.read_to = 0
        self.pairs: dict[str, set[tuple[str, str]]] = {}  # body -> pairs whose evaluation names it
        self.judged: set[str] = set()
        self.done: set[tuple[str, str]] = set()
        self.lock = asyncio.Lock()


class DonePairs:
    """The pairs done in the newest races of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._races: dict[str, _RaceProgress] = {}

    async def of(self, race_id: str) -> tuple[tuple[str, str], ...]:
        """(agent version id, problem id) of every pair that is done, sorted. Raises ArenaError V2021."""
        race = self._races.pop(race_id, None) or _RaceProgress()
        self._races[race_id] = race
        for old in list(self._races)[:-RACES_KEPT]:
            del self._races[old]
        async with race.lock:
            await self._read(race, race_id)
            return tuple(sorted(race.done))

    async def _read(self, race: _RaceProgress, race_id: str) -> None:
        own, kinds = self._store.validator, ("evaluation", "verdict")
        async for record in self._store.records(own, after_seq=race.read_to, kinds=kinds, race_id=race_id):
            content = signed_content(record.content, record.content_sha256)
            payload = content.payload if content else None
            if isinstance(payload, EvaluationRecord) and isinstance(payload.outcome, OutcomeScore):
                if payload.context.stage == "race":
                    pair = (payload.subject.agent_version_id, payload.context.problem_id)
                    race.pairs.setdefault(payload.body_sha256, set()).add(pair)
            elif isinstance(payload, VerdictRecord) and isinstance(payload.verdict, Verdict):
                race.judged.add(payload.verdict.body_sha256)
            race.read_to = record.seq
        for body in race.judged & race.pairs.keys():
            race.done |= race.pairs.pop(body)

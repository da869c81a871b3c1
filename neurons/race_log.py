"""What this node's log says about one race, read incrementally: results, verdicts, closings, settlement, release.

Promise: a fold over signed records and nothing else (`arena.race.fold`), so a restart rebuilds exactly the same
picture, and readers that refresh at the same time count every record once. A settlement or release counts only when it
is this store's. `race_id` "" stands for qualifying, which belongs to no race.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from arena.policy import Policy
from arena.race.fold import REFUSALS_MAX, RaceRecords, is_success
from arena.race.model import CountedEvaluation, CountedVerdict
from arena.race.qualify import Qualification, qualify
from arena.records.body import decode_content
from arena.records.model import ReleaseRecord, SettlementRecord, SignedRecord
from arena.store.port import Store

__all__ = ["QUALIFYING", "REFUSALS_MAX", "RaceLog"]

QUALIFYING = ""  # the race id under which qualifying runs


class RaceLog:
    """The records of one race, of every validator whose log the store shows."""

    def __init__(self, store: Store, race_id: str) -> None:
        self._store = store
        self._race_id = race_id
        self._reading = asyncio.Lock()
        self._last_seq: dict[str, int] = {}
        self._records = RaceRecords()
        self.settlement: SettlementRecord | None = None
        self.release: ReleaseRecord | None = None

    @property
    def evaluations(self) -> list[CountedEvaluation]:
        """Evaluations in the order they were read."""
        return self._records.evaluations

    @property
    def verdicts(self) -> list[CountedVerdict]:
        """Verdicts in the order they were read."""
        return self._records.verdicts

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
        """A validator's evaluations that wait for a verdict (`RaceRecords.owed`)."""
        return self._records.owed(validator)

    def owed_successes(self) -> int:
        """Own evaluations whose success may still get its verdict: what a settlement waits for."""
        return sum(is_success(row.record) for row in self.owed(self._store.validator))

    def qualification(self, agent_version_id: str, problem_ids: Iterable[str], policy: Policy) -> Qualification:
        """Where an agent stands in qualifying under `policy`, from the records so far.

        Results under another policy don't count. A failed or closed item withdraws its problem when the problem was at
        fault, and is a zero when the agent was; any other leaves the agent pending.
        """
        results = self._records.qualifying_results(agent_version_id, policy.policy_sha256)
        return qualify(results, problem_ids, policy)

    def _read(self, record: SignedRecord) -> None:
        payload = decode_content(record.content).payload
        self._records.take(record.validator, record.seq, record.content_sha256, payload)
        if record.validator != self._store.validator:
            return
        if isinstance(payload, SettlementRecord):
            self.settlement = self.settlement or payload
        elif isinstance(payload, ReleaseRecord):
            self.release = self.release or payload

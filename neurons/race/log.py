"""What this node's log says about one race, read incrementally: results, verdicts, closings, settlement, release.

A fold over signed records and nothing else (`arena.race.consensus.reducer`), so a restart rebuilds exactly the
same picture, and readers that refresh at the same time count every record once. A settlement or release counts only
when it is this store's. `race_id` "" stands for qualifying, which belongs to no race and never ends: a node that runs
for months asks it to be `lasting`, and then it keeps only records on which a verdict is owed, and the results of agents
that are not decided yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from arena.policy import Policy
from arena.race.consensus.reducer import REFUSALS_MAX, RaceRecords, is_success
from arena.race.consensus.rulings import GateWord
from arena.race.model import CountedEvaluation
from arena.race.settlement.qualifying import Qualification, qualify
from arena.records.body import decode_content
from arena.records.model import ReleaseRecord, SettlementRecord, Subject
from arena.store.port import Store

__all__ = ["QUALIFYING", "REFUSALS_MAX", "RaceLog"]

QUALIFYING = ""  # the race id under which qualifying runs
COMPACT_EVERY = 5_000  # records, while a long log is read for the first time


class RaceLog:
    """The records of one race, of every validator whose log the store shows."""

    def __init__(self, store: Store, race_id: str, *, is_lasting: bool = False) -> None:
        """`is_lasting`: forget what nobody asks for again; qualifying alone, since a settlement needs every record."""
        self._store = store
        self._race_id = race_id
        self._is_lasting = is_lasting and race_id == QUALIFYING
        self._reading = asyncio.Lock()
        self._last_seq: dict[str, int] = {}
        self.records = RaceRecords()
        self._fresh = 0  # records taken since they were compacted
        self._decided: dict[tuple[str, str], Qualification] = {}  # by agent and policy hash
        self.settlement: SettlementRecord | None = None
        self.release: ReleaseRecord | None = None

    @property
    def evaluations(self) -> list[CountedEvaluation]:
        """Evaluations in the order they were read."""
        return self.records.evaluations

    async def refresh(self) -> None:
        """Read what was appended since the last call."""
        async with self._reading:
            for validator in await self._store.validators():
                last = self._last_seq.get(validator, 0)
                async for record in self._store.records(validator, after_seq=last, race_id=self._race_id):
                    if record.seq <= self._last_seq.get(validator, 0):
                        continue
                    payload = decode_content(record.content).payload
                    self.records.take(validator, record.seq, record.content_sha256, payload)
                    if validator == self._store.validator and isinstance(payload, SettlementRecord):
                        self.settlement = self.settlement or payload
                    if validator == self._store.validator and isinstance(payload, ReleaseRecord):
                        self.release = self.release or payload
                    self._last_seq[validator] = record.seq
                    self._fresh += 1
                    if self._fresh >= COMPACT_EVERY:
                        self._compact()
            self._compact()

    def own_word(self, subject: Subject) -> GateWord | None:
        """What this validator said last of a submission, or None."""
        return self.records.words.get(subject, {}).get(self._store.validator)

    def owed(self, validator: str) -> list[CountedEvaluation]:
        """A validator's evaluations that wait for a verdict (`RaceRecords.owed`)."""
        return self.records.owed(validator)

    def owed_successes(self) -> int:
        """Own evaluations whose success may still get its verdict: what a settlement waits for."""
        return sum(is_success(row.record) for row in self.owed(self._store.validator))

    def qualification(self, agent_version_id: str, problem_ids: Iterable[str], policy: Policy) -> Qualification:
        """Where an agent stands in qualifying under `policy`, from the records so far.

        Results under another policy don't count. A failed or closed item withdraws its problem when the problem was at
        fault, and is a zero when the agent was; any other leaves the agent pending. In a lasting log it stays so for
        this process once decided, whatever comes later.
        """
        agent = (agent_version_id, policy.policy_sha256)
        if agent in self._decided:
            return self._decided[agent]
        found = qualify(self.records.qualifying_results(*agent), problem_ids, policy)
        if self._is_lasting and found.state != "pending":
            self._decided[agent] = found
            self.records.forget(*agent)
        return found

    def _compact(self) -> None:
        if self._is_lasting and self._fresh:
            self._fresh = 0
            self.records.compact()

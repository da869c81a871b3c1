"""Whose code a submission is, by the chain and settled races: coldkeys at commitments, winners since their reveal.

Promise: both follow from what every validator reads alike. A coldkey is the one that held the hotkey in the block of
the submission's own commitment, so a later swap changes no verdict. A promoted agent is a revealed winner for what was
committed in the block at which its embargo had ended, or later.
"""

from __future__ import annotations

from arena.gate.similarity.ownership import Author
from arena.race.state.schedule import embargo_ends_ms
from arena.records.body import decode_content
from arena.records.model import SettlementRecord, Subject
from foundation.errors import ArenaError
from neurons.node.node import Node

FORGOTTEN = "U3033"


class Ownership:
    """What this node knows of owners and winners. What the chain said once is kept for the life of the process."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._coldkeys: dict[tuple[str, int], str] = {}
        self._last_seq = 0
        self._ends_ms: dict[str, int] = {}  # by promoted agent version: the end of its first embargo
        self._reveals: dict[str, int] = {}

    async def author(self, subject: Subject) -> Author:
        """Who committed a submission. Raises ArenaError U3030."""
        return Author(
            agent_version_id=subject.agent_version_id,
            miner_hotkey=subject.miner_hotkey,
            commitment_block=subject.commitment_block,
            miner_coldkey=await self._coldkey(subject),
            is_public=subject.agent_version_id in self._reveals,
        )

    async def reveals(self) -> dict[str, int]:
        """By agent version of a revealed winner: the block at which its source opened. Raises ArenaError U3030."""
        await self._read_settlements()
        now_ms = self._node.now_ms()
        for agent, ends_ms in self._ends_ms.items():
            if agent in self._reveals or ends_ms > now_ms:
                continue
            try:
                block = await self._node.chain.block_at(ends_ms)
            except ArenaError as error:
                if error.failure.code != FORGOTTEN:
                    raise
                self._node.log.warning("the chain forgot when a winner was revealed", agent=agent, ends_ms=ends_ms)
                continue
            if block is not None:
                self._reveals[agent] = block
        return dict(self._reveals)

    async def _read_settlements(self) -> None:
        """Promotions that this validator settled; settlements that don't state their inputs name no time."""
        own = self._node.store.validator
        async for record in self._node.store.records(own, after_seq=self._last_seq, kinds=("settlement",)):
            self._last_seq = record.seq
            settled = decode_content(record.content).payload
            if not isinstance(settled, SettlementRecord) or settled.state != "settled" or not settled.is_promotion:
                continue
            if settled.inputs is not None:
                ends_ms = embargo_ends_ms(settled.inputs.closes_ms, self._node.policy.embargo)
                self._ends_ms.setdefault(settled.top_agent_version_id, ends_ms)

    async def _coldkey(self, subject: Subject) -> str:
        """The coldkey of a submission's hotkey in the block of its commitment; where the chain forgot that block, the
        one of today; "" where the hotkey is not registered."""
        place = (subject.miner_hotkey, subject.commitment_block)
        if place not in self._coldkeys:
            try:
                metagraph = await self._node.chain.metagraph(subject.commitment_block)
            except ArenaError as error:
                if error.failure.code != FORGOTTEN:
                    raise
                self._node.log.warning("the chain forgot a commitment's block", block=subject.commitment_block)
                metagraph = await self._node.chain.metagraph(await self._node.chain.finalized_block())
            found = (each.coldkey for each in metagraph.neurons if each.hotkey == subject.miner_hotkey)
            self._coldkeys[place] = next(found, "")
        return self._coldkeys[place]

"""From the door's queue into the inbox, and the door's address onto the chain.

What a miner was told is queued reaches the gate, whenever this process is killed: it stays in the database
until its receipt is written, and is put into the inbox again at each start. What a miner was told is withdrawn is taken
out of the inbox, by the next start at the latest. A node that shares races publishes its exchange's address instead,
which names the door's port.
"""

from __future__ import annotations

import asyncio

import msgspec

from arena.submissions.model import SignedSubmission
from neurons.loops.node import Node
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.race.sentences import short
from neurons.race.sharing import AddressOnChain

TURN_S = 0.5
PUBLISH_EVERY_S = 10.0
LOOK_BLOCKS = 25  # between two looks at the address that the chain names


class DoorLoop:
    """Brings in what the door took."""

    def __init__(self, node: Node, endpoint: str) -> None:
        """`endpoint` is the door's address, published where the node shares no races."""
        self._node = node
        self._handed: set[tuple[str, int]] = set()  # versions and blocks put into the inbox by this process
        self._address = AddressOnChain(node, endpoint, whose="door's address", told="miners find the door on chain:")
        self._looked: int | None = None  # the block at which the address on chain was read last

    async def run(self, drain: StopSignal) -> None:
        """Turn until drained."""
        loops = [run_loop("door", self.turn, drain, self._node.log, every_s=TURN_S)]
        if self._node.sharing is None:
            loops.append(run_loop("address", self.publish, drain, self._node.log, every_s=PUBLISH_EVERY_S))
        await asyncio.gather(*loops)

    async def begin(self) -> None:
        """Before anything is inspected: take back what was withdrawn when the process ended before it could.

        Raises ArenaError V2021, V2060, V2185.
        """
        entries = self._node.inbox.pending()
        while (entry := await asyncio.to_thread(next, entries, None)) is not None:
            if entry.submission is None:
                continue
            agent = entry.submission.agent_version_id
            for arrival in await self._node.store.arrivals(entry.submission.hotkey):
                if arrival.agent_version_id == agent and arrival.state == "withdrawn":
                    await asyncio.to_thread(self._node.inbox.take_back, agent)
                    self._node.log.info("submission withdrawn", agent=arrival.name, hotkey=arrival.miner_hotkey)

    async def turn(self) -> None:
        """Put what waits into the inbox, and end the wait of what has its receipt. Raises ArenaError V2021, V2060."""
        waiting = await self._node.store.arrivals()
        for arrival in waiting:
            receipt = await asyncio.to_thread(self._node.inbox.receipt, arrival.agent_version_id)
            is_decided = receipt is not None and receipt.submitted_block >= arrival.commitment_block
            if receipt is not None and not is_decided:  # or another validator brought it, with an earlier commitment
                stored = await self._node.store.submissions(miner_hotkey=arrival.miner_hotkey)
                is_decided = any(each.subject.agent_version_id == arrival.agent_version_id for each in stored)
            if is_decided:
                await self._node.store.close_arrival(arrival.agent_version_id, "decided")
                continue
            place = (arrival.agent_version_id, arrival.commitment_block)
            content = None if place in self._handed else await self._node.store.waiting_submission(place[0])
            if content is not None:
                submission = msgspec.json.decode(content, type=SignedSubmission)
                await asyncio.to_thread(self._node.inbox.put, submission)
                self._handed.add(place)
                text = f"{arrival.name} {short(arrival.miner_hotkey)} is submitted"
                self._node.log.info("submission taken", agent=arrival.name, hotkey=arrival.miner_hotkey, text=text)
        still = {(each.agent_version_id, each.commitment_block) for each in waiting}
        for agent, _ in self._handed - still:  # decided, so that it is gone; or withdrawn
            await asyncio.to_thread(self._node.inbox.take_back, agent)
        self._handed &= still

    async def publish(self) -> None:
        """Say on chain where the door is, unless the chain says so: looked at once in `LOOK_BLOCKS`, and again after
        each pause while the chain refuses. Raises ArenaError U3030."""
        if not self._address.may_try():
            return
        block = await self._node.chain.block()
        if self._looked is not None and 0 <= block - self._looked < LOOK_BLOCKS and not self._address.is_refused:
            return
        metagraph = await self._node.chain.metagraph()
        await self._address.keep(metagraph)
        self._looked = block

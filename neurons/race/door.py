"""The door's address, kept on chain by a node that shares no races; one that does publishes its exchange's address
instead, which names the door's port.
"""

from __future__ import annotations

from neurons.loops.node import Node
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.race.sharing import AddressOnChain

PUBLISH_EVERY_S = 10.0
LOOK_BLOCKS = 25  # between two looks at the address that the chain names


class DoorLoop:
    """Says on chain where the door is."""

    def __init__(self, node: Node, endpoint: str) -> None:
        """`endpoint` is the door's address."""
        self._node = node
        self._address = AddressOnChain(node, endpoint, whose="door's address", told="miners find the door on chain:")
        self._looked: int | None = None  # the block at which the address on chain was read last

    async def run(self, drain: StopSignal) -> None:
        """Turn until drained."""
        await run_loop("address", self.publish, drain, self._node.log, every_s=PUBLISH_EVERY_S)

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

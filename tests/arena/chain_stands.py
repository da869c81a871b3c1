"""Chains to test against, behind one handle: the local twin, and the real adapter over a fake node's websocket."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from arena.chain.local import LocalRules, LocalSubtensor, RemoteSubtensor
from arena.chain.port import Signer, Subtensor
from arena.web.server import ChainServer
from harness.catalogue.server import listen
from tests.arena.chain_faults import reorg

NETUID = 15
BLOCK_MS = 250
SCHEDULE = ("LastEpochBlock", "PendingEpochAt", "SubnetEpochIndex")  # storages that spec 343 had not yet
# The SDK caches runtimes under the home folder unless it is told where, before its first import.
os.environ.setdefault("BITTENSOR_RUNTIME_CACHE_DIR", tempfile.mkdtemp(prefix="arena-runtime-"))


class Clock:
    """Unix milliseconds that move when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class ChainStand(Protocol):
    """A chain, and what the network would decide about it."""

    chain: Subtensor

    async def enrol(self, signer: Signer) -> None: ...

    async def make_validator(self, signer: Signer, stake_rao: int) -> None: ...

    async def advance(self, blocks: int = 1) -> None: ...

    async def time_of(self, block: int) -> int:
        """The block's timestamp, unix milliseconds."""
        ...

    async def reorg(self, depth: int) -> None:
        """Replace the newest blocks by empty ones."""
        ...

    async def name_owner(self, signer: Signer) -> None:
        """Make this the hotkey of the subnet's owner."""
        ...


class LocalStand:
    """The local twin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.clock = Clock()
        self._born_ms = self.clock.now_ms
        self.home = LocalSubtensor(path, now_ms=self.clock, rules=LocalRules(netuid=NETUID, block_ms=BLOCK_MS))
        self.chain: Subtensor = self.home

    async def enrol(self, signer: Signer) -> None:
        assert (await self.chain.register(signer)).status == "ok"
        await self.advance()

    async def make_validator(self, signer: Signer, stake_rao: int) -> None:
        await self.home.set_stake(signer.hotkey, stake_rao)
        await self.advance()

    async def advance(self, blocks: int = 1) -> None:
        self.clock.now_ms += blocks * BLOCK_MS

    async def time_of(self, block: int) -> int:
        return self._born_ms + (block - 1) * BLOCK_MS

    async def reorg(self, depth: int) -> None:
        await reorg(self.home, depth)

    async def name_owner(self, signer: Signer) -> None:
        owned = self._path.with_name("owned.sqlite")  # a local chain has its owner from the first block on
        self.chain = LocalSubtensor(owned, now_ms=self.clock, netuid=NETUID, owner=signer.hotkey)


class NodeStand:
    """The real adapter over the fake node."""

    def __init__(self, node: Any, chain: Subtensor, url: str, lock_folder: Path) -> None:
        self.node = node
        self.chain = chain
        self.url = url
        self.lock_folder = lock_folder

    async def enrol(self, signer: Signer) -> None:
        self.node.advance()
        self.node.enrol(signer.hotkey)

    async def make_validator(self, signer: Signer, stake_rao: int) -> None:
        self.node.advance()
        self.node.stake(signer.hotkey, stake_rao, has_permit=True)

    async def people(self, validator: Signer, *miners: Signer) -> None:
        """Enrol them in this order; the first holds a permit."""
        for signer in (validator, *miners):
            await self.enrol(signer)
        await self.make_validator(validator, 10**12)

    async def advance(self, blocks: int = 1) -> None:
        self.node.advance(blocks)

    async def time_of(self, block: int) -> int:
        return self.node.time_of(block)

    async def reorg(self, depth: int) -> None:
        self.node.reorg(depth)

    async def name_owner(self, signer: Signer) -> None:
        self.node.advance()
        self.node.write("SubtensorModule", "SubnetOwnerHotkey", [NETUID], signer.hotkey)


@asynccontextmanager
async def served_stand(path: Path) -> AsyncIterator[LocalStand]:
    """The local twin, as another machine reaches it."""
    stand, stop = LocalStand(path), asyncio.Event()
    with listen("127.0.0.1", 0) as listener:
        server = ChainServer(stand.home, listener)
        serving = asyncio.create_task(server.run(stop))
        stand.chain = RemoteSubtensor(server.address, netuid=NETUID)
        try:
            yield stand
        finally:
            stop.set()
            await serving


def make_node(**settings: Any) -> Any:
    """A fake node, or a skip where its runtime's metadata is not here. `settings` as `FakeNode` takes them."""
    from tests.arena.fakenode import FakeNode
    from tests.arena.runtimes import SPEC_VERSION, read_metadata

    return FakeNode(read_metadata(), **{"spec_version": SPEC_VERSION, "netuid": NETUID, **settings})


@asynccontextmanager
async def node_stand(node: Any, port: int = 0, *, timeout_s: float = 120.0) -> AsyncIterator[NodeStand]:
    """Serve a node on loopback and connect the real adapter to it."""
    from arena.chain.real import BittensorSubtensor

    async with node.start(port) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with tempfile.TemporaryDirectory(prefix="arena-senders-") as folder:
            locks = Path(folder)
            chain = BittensorSubtensor(
                url, netuid=NETUID, make_client=make_client, timeout_s=timeout_s, lock_folder=locks
            )
            try:
                yield NodeStand(node, chain, url, locks)
            finally:
                await chain.close()


def make_client(url: str) -> Any:
    """The product's own client; what spec 343, older than the SDK, lacks of the epochs' schedule reads as unset."""
    import bittensor
    from bittensor._transport.errors import StorageFunctionNotFound

    from arena.chain.sdk_client import NodeSubstrate

    class OlderRuntime(NodeSubstrate):
        async def query(self, module: str, storage: str, params: Any = None, block_hash: str | None = None) -> Any:
            try:
                return await super().query(module, storage, params, block_hash)
            except StorageFunctionNotFound:
                if storage not in SCHEDULE:
                    raise
                return 0

    return bittensor.Client(url, substrate=OlderRuntime(url))

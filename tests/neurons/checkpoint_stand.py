"""A node whose log is signed and anchored, on real Postgres, with a chain and a clock the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.port import ChainResult, Signer
from arena.records.model import StoredCheckpoint
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from neurons.loops.checkpoints import AnchorLoop, CheckpointLoop
from tests.arena.log_stand import attempt
from tests.keys import generate_signer
from tests.neurons.clock_stand import BLOCK_MS, Desk, Time


class UnsureChain(LocalSubtensor):
    """The local twin, which can lose the reply to a commitment."""

    is_reply_lost = False
    commits: list[str]

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        self.commits.append(sha256)
        result = await super().commit(signer, sha256)
        if self.is_reply_lost:
            raise ArenaError("U3030", "the reply was lost")
        return result


class UnsureStore(PostgresStore):
    """A store that can lose the reply to a checkpoint it has stored."""

    is_reply_lost = False

    async def put_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        await super().put_checkpoint(checkpoint)
        if self.is_reply_lost:
            raise ArenaError("V2021", "the reply was lost")


@asynccontextmanager
async def open_log_desk(server: EmbeddedServer, folder: Path) -> AsyncIterator[LogDesk]:
    """A registered validator of its own on a running server."""
    signer, time = generate_signer(), Time()
    rules = LocalRules(block_ms=BLOCK_MS, finality_blocks=3)
    chain = UnsureChain(folder / "twin.sqlite", now_ms=time, rules=rules)
    chain.commits = []
    store = await UnsureStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    for each in (generate_signer(), signer):
        await chain.register(each)
    try:
        yield LogDesk(store, signer, folder, time, chain=chain)
    finally:
        await store.close()


class LogDesk(Desk):
    """One validator's log with its checkpoint and anchor loops. `start` is a new process over the same folders."""

    store: UnsureStore
    chain: UnsureChain
    _attempts = 0

    def begin(self) -> None:
        self.checkpoints = CheckpointLoop(self.node)
        self.anchors = AnchorLoop(self.node)

    async def append(self, count: int = 1) -> int:
        """Append some records; returns the log's size."""
        first, self._attempts = self._attempts, self._attempts + count
        return (await self.node.sequencer.append([attempt(first + number) for number in range(count)])).seq

    async def signed(self, count: int = 1) -> StoredCheckpoint | None:
        """Append, and sign."""
        await self.append(count)
        return await self.checkpoints.sign()

    async def stored(self) -> list[StoredCheckpoint]:
        return await self.store.checkpoints()

    def metric(self, name: str) -> float | None:
        return self.node.metrics.registry.get_sample_value(f"arena_{name}")

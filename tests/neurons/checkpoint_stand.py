"""A node whose log is signed and anchored, on real Postgres, with a chain and a clock the test moves."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from arena.chain.keys import generate_signer
from arena.chain.local import LocalRules, LocalSubtensor
from arena.chain.port import ChainResult, Signer
from arena.records.model import StoredCheckpoint
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from foundation.errors import ArenaError
from neurons.health.metrics import Metrics
from neurons.loops.checkpoints import AnchorLoop, CheckpointLoop
from neurons.loops.node import Node
from tests.arena.log_stand import attempt
from tests.neurons.clock_stand import BLOCK_MS, Desk, Time


class Chain:
    """The local twin, which can lose the reply to a commitment."""

    def __init__(self, path: Path, time: Time) -> None:
        rules = LocalRules(block_ms=BLOCK_MS, finality_blocks=3)
        self.twin = LocalSubtensor(path, now_ms=time, rules=rules)
        self.commitment, self.finalized_block = self.twin.commitment, self.twin.finalized_block
        self.is_reply_lost = False
        self.commits: list[str] = []

    async def commit(self, signer: Signer, sha256: str) -> ChainResult:
        self.commits.append(sha256)
        result = await self.twin.commit(signer, sha256)
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
    signer = generate_signer()
    store = await UnsureStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    made = LogDesk(store, signer, folder)
    await made.chain.twin.register(generate_signer())
    await made.chain.twin.register(signer)
    try:
        yield made
    finally:
        await store.close()


class LogDesk:
    """One validator's log with its checkpoint and anchor loops. `start` is a new process over the same folders."""

    def __init__(self, store: UnsureStore, signer: Signer, folder: Path) -> None:
        self.time = Time()
        self.store, self.signer, self.folder = store, signer, folder
        self.chain = Chain(folder / "twin.sqlite", self.time)
        self._desk = Desk(store, signer, folder, self.time)
        self._attempts = 0
        self.start()

    def start(self) -> None:
        node: Node = dataclasses.replace(self._desk.node, chain=self.chain, metrics=Metrics())  # type: ignore[arg-type]
        self.node = node
        self.checkpoints = CheckpointLoop(node)
        self.anchors = AnchorLoop(node)

    async def append(self, count: int = 1) -> int:
        """Append some records; returns the log's size."""
        self._attempts += count
        first = self._attempts - count
        head = await self.node.sequencer.append([attempt(first + number) for number in range(count)])
        return head.seq

    async def signed(self, count: int = 1) -> StoredCheckpoint | None:
        """Append, and sign."""
        await self.append(count)
        return await self.checkpoints.sign()

    async def stored(self) -> list[StoredCheckpoint]:
        return await self.store.checkpoints()

    def metric(self, name: str) -> float | None:
        return self.node.metrics.registry.get_sample_value(f"arena_{name}")

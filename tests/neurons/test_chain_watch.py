"""A chain that stands still or drops us is said once, and kept where it is seen."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
import structlog

from arena.chain.keys import generate_signer
from neurons.health.metrics import Metrics
from neurons.loops.watches import STALE_MS, ChainWatch
from tests.arena.chain_faults import set_finality_lag
from tests.neurons.clock_stand import BLOCK_MS, Desk, Time


class Watched:
    """A desk whose chain is watched; its log lines can be read."""

    def __init__(self, folder: Path) -> None:
        self.said = io.StringIO()
        log = structlog.wrap_logger(
            structlog.PrintLogger(self.said),
            processors=[structlog.processors.JSONRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )
        self.desk = Desk(None, generate_signer(), folder, Time())  # type: ignore[arg-type]  # nothing here is stored
        self.chain = self.desk.chain
        node = dataclasses.replace(self.desk.node, log=log, metrics=Metrics())
        self.metrics, self.watch = node.metrics, ChainWatch(node)

    async def after(self, blocks: int) -> None:
        self.desk.time.pass_s(blocks * BLOCK_MS / 1_000)
        await self.watch.turn()

    def events(self, name: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.said.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"arena_{name}")


@pytest.fixture
async def watched(tmp_path: Path) -> Watched:
    made = Watched(tmp_path)
    await set_finality_lag(made.chain, 5)
    await made.desk.settle_in()
    await made.after(30)
    return made


async def test_a_chain_that_stands_still_is_said_once_and_forgiven_when_it_moves(watched: Watched) -> None:
    head = watched.watch.facts.block

    async def standing() -> int:
        return head

    watched.chain.block = standing  # type: ignore[method-assign]  # an endpoint that hears no new blocks
    watched.desk.time.pass_s(STALE_MS / 1_000 + 1)
    await watched.watch.turn()
    await watched.watch.turn()
    assert watched.watch.facts.is_stale and watched.metric("chain_is_stale") == 1
    assert len(watched.events("chain stands still")) == 1
    del watched.chain.block
    await watched.watch.turn()
    assert not watched.watch.facts.is_stale

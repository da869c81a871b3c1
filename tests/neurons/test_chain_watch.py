"""A chain that stands still, takes blocks back or drops us is said once, and kept where it is seen."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
from pathlib import Path

import pytest
import structlog

from arena.chain.keys import generate_signer
from foundation.errors import ArenaError
from neurons.health.metrics import Metrics
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.loops.watches import STALE_MS, ChainWatch
from tests.arena.chain_faults import hand_on_uid, reorg, set_finality_lag
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


async def test_head_finality_and_our_place_are_shown(watched: Watched) -> None:
    facts = watched.watch.facts
    assert (facts.uid, facts.has_permit, facts.stake_rao) == (1, True, 2_000_000_000_000)
    assert (facts.block - facts.finalized_block, facts.is_stale, facts.reorgs) == (5, False, 0)
    assert (watched.metric("uid"), watched.metric("validator_permit")) == (1, 1)
    assert watched.metric("chain_block") == facts.block


async def test_a_reorg_is_counted_with_its_depth_and_no_block_of_ours_is_one(watched: Watched) -> None:
    for _ in range(4):
        await watched.after(1)
    assert watched.metric("chain_reorgs_total") == 0
    await reorg(watched.chain, 3)
    await watched.after(1)
    (said,) = watched.events("reorg")
    assert (watched.metric("chain_reorgs_total"), watched.metric("chain_reorg_depth"), said["depth"]) == (1, 3, 3)
    await watched.after(1)
    assert watched.watch.facts.reorgs == 1


async def test_a_chain_that_stands_still_is_said_once_and_forgiven_when_it_moves(watched: Watched) -> None:
    head = watched.watch.facts.block

    async def standing() -> int:
        return head

    watched.chain.block = standing  # type: ignore[method-assign]  # an endpoint that hears no new blocks
    watched.desk.time.pass_s(STALE_MS / 1_000 + 1)
    await watched.watch.turn()
    await watched.watch.turn()
    assert (
        watched.watch.facts.is_stale,
        watched.metric("chain_is_stale"),
        len(watched.events("chain stands still")),
    ) == (
        True,
        1,
        1,
    )
    del watched.chain.block
    await watched.watch.turn()
    assert not watched.watch.facts.is_stale


async def test_a_lost_registration_and_a_lost_permit_are_seen_within_minutes(watched: Watched) -> None:
    hotkey = watched.desk.signer.hotkey
    await watched.chain.set_stake(hotkey, 0)
    await watched.after(30)
    assert (watched.watch.facts.uid, watched.watch.facts.has_permit) == (1, False)
    await hand_on_uid(watched.chain, hotkey, generate_signer().hotkey)
    await watched.after(30)
    assert (watched.watch.facts.uid, watched.metric("uid")) == (None, -1)
    assert [line["code"] for line in watched.events("place on the subnet")] == ["", "U3035", "U3035"]


@pytest.mark.parametrize("code", ["U3037", "U3038", "U3039", "V2032"])
async def test_a_chain_that_this_release_can_not_work_on_is_waited_for_by_name_and_ends_no_other_loop(
    watched: Watched, code: str
) -> None:
    head, others = watched.watch.facts.block, 0
    drain = StopSignal(watched.desk.time, spread=lambda low, high: 0.0)

    async def unfit(hotkey: str) -> None:
        raise ArenaError(code, "spec 500, missing SubtensorModule.Tempo")

    async def other() -> None:
        nonlocal others
        others += 1

    watched.chain.check = unfit  # type: ignore[method-assign]
    watched.desk.time.pass_s(3 * BLOCK_MS / 1_000)
    log = watched.watch._node.log
    loops = [
        asyncio.create_task(run_loop("chain", watched.watch.turn, drain, log, every_s=0)),
        asyncio.create_task(run_loop("episodes", other, drain, log, every_s=0)),
    ]
    async with asyncio.timeout(30):
        while "chain" not in drain.waits or drain.waits["chain"].failures < 3 or others < 3:
            await asyncio.sleep(0.01)
        wait = drain.waits["chain"]
        assert (wait.code, wait.detail) == (code, "spec 500, missing SubtensorModule.Tempo")
        assert set(drain.waits) == {"chain"} and not any(task.done() for task in loops)
        assert watched.watch.facts.block == head + 3, "what can be read is kept"
        del watched.chain.check  # the runtime was upgraded, or a release that knows it runs
        while drain.waits:
            await asyncio.sleep(0.01)
        drain.set()
        await asyncio.gather(*loops)

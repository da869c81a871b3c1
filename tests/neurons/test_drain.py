"""Told to stop in the middle of any work, the node ends within its time, and the next one goes on from there."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal

import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Metagraph
from arena.race.decider import qualifying_items
from arena.records.body import decode_content
from arena.records.verification import verify_store
from harness.sandbox.port import SandboxLevel
from neurons import validator as supervisor
from neurons.health.status import RestingSlot
from neurons.loops.node import Node
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop, sweep
from neurons.race.intake import Intake
from neurons.race.log import QUALIFYING, RaceLog
from neurons.settings.settings import Settings
from neurons.validator import STOP_SIGNALS, Supervisor
from neurons.worker.ports import EvaluateJob, JudgeJob, Reply
from tests.arena import log_stand
from tests.neurons.clock_stand import Desk

DRAIN_S, BOUND_S = 0.5, 20.0


class Stuck:
    """Something that was begun and never ends, unless it is cancelled."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, *_: object) -> Metagraph:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        raise AssertionError("unreachable: nothing sets it")


class StuckPool:
    """A pool whose jobs never end."""

    size = 1
    sandbox: SandboxLevel = log_stand.LEVEL
    resting: tuple[RestingSlot, ...] = ()

    def __init__(self, stuck: Stuck) -> None:
        self._stuck = stuck
        self.is_stopped = False

    async def run(self, job: EvaluateJob | JudgeJob) -> Reply:
        await self._stuck(job)
        raise AssertionError("unreachable")

    async def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize("work", ["episode", "chain", "beacon", "checkpoint"])
async def test_sigterm_in_the_middle_of_work_ends_the_node_in_time_and_loses_nothing(
    desk: Desk, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SIGN_OFF_S", DRAIN_S)
    await desk.submit("waits", state="accepted")
    await desk.turn_until("open")
    stuck = Stuck()
    pool = StuckPool(stuck if work == "episode" else Stuck())
    node = dataclasses.replace(desk.node, pool=pool)  # type: ignore[arg-type]
    intake = Intake(node, RaceLog(node.store, QUALIFYING, is_lasting=True))
    await intake.turn()  # the gate has spoken, the suite is in the queue
    await node.sequencer.append([log_stand.attempt(1)])
    if work == "beacon":
        desk.time.pass_s(30)  # past the close
    calls = {"chain": (node.chain, "metagraph"), "beacon": (node.beacon, "fetch")}
    if call := {**calls, "checkpoint": (node.store, "put_checkpoint")}.get(work):
        monkeypatch.setattr(*call, stuck)
    await stopped_in(node, desk, stuck)
    assert stuck.was_cancelled and pool.is_stopped
    assert (await verify_store(desk.store, verify)).is_ok
    # what was claimed is no result and no loss: the next start records the attempt and has the item again
    assert await desk.store.open_items("", "qualifying") == len(desk.node.suite)


async def stopped_in(node: Node, desk: Desk, stuck: Stuck) -> None:
    """Run the node, and send SIGTERM once it is stuck."""
    running = asyncio.create_task(Supervisor(node, Settings(state_dir=desk.folder), drain_s=DRAIN_S).run())
    try:
        async with asyncio.timeout(BOUND_S):
            await stuck.has_begun.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await running
    finally:
        running.cancel()
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_lease_that_is_lost_stops_its_episode_at_once_and_leaves_one_attempt(desk: Desk) -> None:
    desk.start(replace(desk.policy, race=replace(desk.policy.race, lease_ms=900)))
    subject = await desk.submit("slow", state="accepted")
    await desk.store.enqueue(qualifying_items(subject, [desk.node.suite[0].problem_id], desk.policy))
    stuck = Stuck()
    loop = EpisodeLoop(dataclasses.replace(desk.node, pool=StuckPool(stuck)), StopSignal(desk.node.now_ms))  # type: ignore[arg-type]
    serving = asyncio.create_task(loop.turn())
    async with asyncio.timeout(BOUND_S):
        await stuck.has_begun.wait()
        assert await desk.store.close_items("", "qualifying") == 1
        await serving
    assert stuck.was_cancelled
    await sweep(desk.node)
    await sweep(desk.node)
    ended = [decode_content(r.content).payload.ended async for r in desk.store.records(kinds=("attempt",))]
    assert ended == ["abandoned"]

"""Told to stop in the middle of any work, the node ends within its time, and the next one goes on from there."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Metagraph
from arena.race.decider import qualifying_items
from arena.records.body import decode_content
from arena.records.verification import verify_store
from foundation.backoff import Backoff
from foundation.errors import ArenaError
from harness.sandbox.port import SandboxLevel
from neurons import validator as supervisor
from neurons.health.status import RestingSlot, read_node_file
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

    async def run(self, job: EvaluateJob | JudgeJob, spending: object) -> Reply:
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
    settings = Settings(state_dir=desk.folder, database_dsn="postgresql://its-own")
    running = asyncio.create_task(Supervisor(node, settings, drain_s=DRAIN_S).run())
    try:
        async with asyncio.timeout(BOUND_S):
            await stuck.has_begun.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await running
    finally:
        running.cancel()
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


@pytest.mark.parametrize(("last", "dsn"), [("U3001", ""), ("V2030", ""), ("V2080", ""), ("V2024", ""), ("", "x")])
def test_a_start_waits_for_what_mends_itself_and_ends_with_what_a_person_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, dsn: str
) -> None:
    met: list[ArenaError | None] = [ArenaError(code, "away") for code in ("U3030", "V2021", "U3035", "U3048")]
    met += [ArenaError("V2024")] if dsn else []  # a host that died without a word keeps its hold for a while
    met += [ArenaError(last, "away") if last else None]
    waited: list[tuple[str, bool]] = []

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[None]:
        if (ending := read_node_file(tmp_path).ending) is not None and ending.failure is not None:
            waited.append((ending.failure.code, bool(ending.since_ms)))
        if (failure := met.pop(0)) is not None:
            raise failure
        raise asyncio.CancelledError
        yield

    monkeypatch.setattr(supervisor, "open_node", opened)
    monkeypatch.setattr(supervisor, "PAUSES", Backoff(first_ms=1, most_ms=1))
    settings = Settings(state_dir=tmp_path, database_dsn=f"postgresql://{dsn}" if dsn else "")
    if last:
        with pytest.raises(ArenaError, match=last):
            supervisor.run_validator(settings)
    else:
        supervisor.run_validator(settings)
    assert not met and waited[:4] == [(code, True) for code in ("U3030", "V2021", "U3035", "U3048")]
    ending = read_node_file(tmp_path).ending
    assert ending is not None and (ending.failure.code if ending.failure else "") == (
        last if last != "V2024" else "U3048"
    )


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

"""Loops that fail: growing pauses that are spread, a wait that is kept and told, a full disk that only waits."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import signal
from collections.abc import AsyncIterator, Callable
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
from neurons.loops import run_loop as run_loop_module
from neurons.loops.node import Node
from neurons.loops.run_loop import SPREAD, StopSignal, persist, run_loop
from neurons.race.episodes import EpisodeLoop, sweep
from neurons.race.intake import Intake
from neurons.race.log import QUALIFYING, RaceLog
from neurons.settings.settings import Settings
from neurons.validator import STOP_SIGNALS, Supervisor
from neurons.worker.ports import EvaluateJob, JudgeJob, Reply
from tests.arena import log_stand
from tests.neurons.clock_stand import LOG, Desk, Time


class Stage:
    """A loop whose pauses pass at once; keeps how long each would have been."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, spread: Callable[[float, float], float]) -> None:
        self.pauses: list[float] = []
        self.heard: list[tuple[str, str]] = []
        self.drain = StopSignal(Time(), spread=spread, on_failure=lambda *heard: self.heard.append(heard))

        async def pause(drain: asyncio.Event, seconds: float) -> bool:
            self.pauses.append(seconds)
            await asyncio.sleep(0)
            return drain.is_set()

        monkeypatch.setattr(run_loop_module, "drained_within", pause)

    async def play(self, *acts: BaseException | None) -> None:
        """Turns that end as given, one after the other; then the drain."""
        waiting = list(acts)

        async def turn() -> None:
            act = waiting.pop(0)
            if not waiting:
                self.drain.set()
            if act is not None:
                raise act

        await run_loop("loop", turn, self.drain, LOG, every_s=0)


def away() -> ArenaError:
    return ArenaError("U3030", "away")


async def test_pauses_grow_and_are_spread_by_the_chance_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in SPREAD:
        stage = Stage(monkeypatch, spread=lambda low, high, factor=factor: factor)
        await stage.play(*(away() for _ in range(8)), None)
        assert stage.pauses[:8] == [pytest.approx(seconds * factor) for seconds in (1, 2, 4, 8, 16, 32, 60, 60)]


async def test_what_a_loop_waits_for_is_kept_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, spread=lambda low, high: 1.0)
    await stage.play(away(), away(), away())
    wait = stage.drain.waits["loop"]
    assert (wait.code, wait.failures, stage.heard) == ("U3030", 3, [("loop", "U3030")] * 3)
    stage.drain.clear()
    await stage.play(None)
    assert stage.drain.waits == {}


async def test_what_is_to_stand_is_written_again_until_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, spread=lambda low, high: 1.0)
    answers: list[BaseException | None] = [OSError(errno.ENOSPC, "full", "/state/inbox"), away(), None]

    async def write() -> None:
        if (act := answers.pop(0)) is not None:
            raise act

    await persist("append item:1", write, stage.drain, LOG)
    assert stage.heard == [("append", "V2115"), ("append", "U3030")]
    assert stage.drain.waits == {} and not answers


# -- a stop in the middle of any work: the node ends within its time, and the next one goes on from there


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

"""Loops: how they end, drain, and set aside what ends workers."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Metagraph
from arena.race.decider import qualifying_items
from arena.race.forecast import Cost
from arena.records.body import decode_content
from arena.records.verification import verify_store
from foundation.backoff import Backoff
from foundation.codes import Owner
from foundation.errors import ArenaError, Failure
from harness.sandbox.port import SandboxLevel
from judge.verdict import UnscoredVerdict
from neurons import validator as supervisor
from neurons.health.status import NodeFile, RestingSlot, assess, read_node_file
from neurons.loops import run_loop as run_loop_module
from neurons.loops.node import Node
from neurons.loops.purse import Purse
from neurons.loops.run_loop import SPREAD, StopSignal, persist, run_loop
from neurons.loops.watches import ChainWatch
from neurons.node.reporting import HeartbeatLoop
from neurons.race.episodes import EpisodeLoop, VerdictLoop, sweep
from neurons.race.intake import Intake
from neurons.race.log import QUALIFYING, RaceLog
from neurons.settings.settings import Budget, Secret, Settings, resolve
from neurons.validator import STOP_SIGNALS, Supervisor
from neurons.worker import pool as pool_module
from neurons.worker.pool import WorkerPool
from neurons.worker.ports import EvaluateJob, FaultReply, JudgeJob, Reply, worker_setup
from problems.model import Problem
from tests.arena import log_stand
from tests.neurons.arena_stand import SMALL
from tests.neurons.clock_stand import Desk, Time


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

        await run_loop("loop", turn, self.drain, every_s=0)


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

    await persist("append item:1", write, stage.drain)
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
    settings = Settings(state_dir=desk.folder, database_dsn=Secret("postgresql://its-own"))
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
    settings = Settings(state_dir=tmp_path, database_dsn=Secret(f"postgresql://{dsn}" if dsn else ""))
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


@asynccontextmanager
async def scripted_pool(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int, deadline_s: float = 30.0
) -> AsyncIterator[WorkerPool]:
    monkeypatch.setattr(pool_module, "_MODULE", ("-m", "tests.neurons.scripted_worker"))
    monkeypatch.setenv("SCRIPTED_WORKER", str(folder))
    settings = resolve({"state_dir": folder, "guest_dir": folder, "policy": "demo"}).settings
    setups = tuple(worker_setup(settings, SMALL, (), (), slot) for slot in range(size))
    pool = WorkerPool(setups, deadline_s)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.stop()


async def until_done(pool: WorkerPool, jobs: Sequence[EvaluateJob]) -> dict[str, list[str]]:
    """How each job was answered, by id; one is given again while it answers V2005, as a node does with its item."""
    codes: dict[str, list[str]] = {job.problem.problem_id: [] for job in jobs}

    async def one(job: EvaluateJob) -> None:
        while not (own := codes[job.problem.problem_id]) or own[-1] == "V2005":
            own.append(code_of(await pool.run(job, [])))

    async with asyncio.timeout(300):
        await asyncio.gather(*(one(job) for job in jobs))
    return codes


def code_of(reply: Reply) -> str:
    return reply.failure.code if isinstance(reply, FaultReply) else type(reply).__name__


def job(number: int) -> EvaluateJob:
    problem = Problem(problem_id=f"p{number}", bucket="product", query="a lamp", rewards=())
    return EvaluateJob(source="an agent", problem=problem)


@pytest.mark.parametrize(("size", "does"), [(1, "end"), (2, "hang")])
async def test_of_sixty_jobs_one_ends_its_workers_is_quarantined_and_costs_no_other(tmp_path, monkeypatch, size, does):
    (tmp_path / "p7").write_text(does)
    async with scripted_pool(tmp_path, monkeypatch, size, 3.0 if does == "hang" else 30.0) as pool:
        codes = await until_done(pool, [job(n) for n in range(60)])
        assert not pool.resting
    killer = codes.pop("p7")
    assert list(codes.values()) == [["EvaluationReply"]] * 59
    assert killer == ["V2005", "V2009"]
    starts = (tmp_path / "starts").read_text().split()
    assert len(starts) == size + len(killer), "an end costs the slot it was in one start, and no other slot any"


async def test_a_slot_that_can_not_start_rests_by_name_and_what_met_it_is_not_to_blame(tmp_path, monkeypatch):
    (tmp_path / "p0").write_text("end")
    async with scripted_pool(tmp_path, monkeypatch, 1) as pool, asyncio.timeout(60):
        (tmp_path / "sick").touch()
        first, other = (asyncio.create_task(pool.run(job(n), [])) for n in range(2))
        assert code_of(await first) == "V2005"
        while pool.resting[0].tries < 2:
            await asyncio.sleep(0.05)
        assert [(one.slot, one.tries, one.failure.code) for one in pool.resting] == [(0, 2, "V2002")]
        assert not other.done()
        (tmp_path / "sick").unlink()
        assert code_of(await other) == "EvaluationReply" and not pool.resting
        codes = [code_of(await pool.run(job(0), [])) for _ in range(2)]
    assert codes == ["V2005", "V2009"], "what it met while the slot was sick is not charged to it"


async def test_a_pool_may_be_stopped_at_the_moment_a_worker_ends(tmp_path, monkeypatch):
    (tmp_path / "p0").write_text("hang")
    is_asked, ended = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60), scripted_pool(tmp_path, monkeypatch, 1) as pool:
        monkeypatch.setattr(asyncio.subprocess.Process, "wait", lambda _: is_asked.set() or ended)
        running = asyncio.create_task(pool.run(job(0), []))
        await asyncio.sleep(0)
        running.cancel()  # its worker is killed
        await is_asked.wait()
        ended.set_result(-9)
        await asyncio.wait_for(pool.stop(), 5)
        monkeypatch.undo()


# -- judging


async def ask_for_verdicts(desk: Desk, pool: WorkerPool, seconds: int) -> None:
    """The loop that asks for owed verdicts, for so long; a new process remembers nothing."""
    verdicts = VerdictLoop(dataclasses.replace(desk.node, pool=pool), desk.clock.current_logs)
    for _ in range(0, seconds, 5):
        await verdicts.turn()
        desk.time.pass_s(5)


async def test_a_race_goes_on_without_the_verdict_that_ends_its_workers_and_status_names_the_trace(
    desk, tmp_path, monkeypatch
):
    (tmp_path / "workers").mkdir()
    await desk.settle_in()
    await desk.submit("one")
    await desk.turn_until("running")
    desk.unjudged = Failure(code="U3020")
    race_id = (await desk.clock.states())[-1].race_id
    await desk.clock.turn()
    await desk.work()
    await desk.clock.turn()
    log = next(log for log in desk.clock.current_logs() if log.owed_successes())
    assert log.owed_successes() == 4  # two problems, the agent and the control agent
    own = next(row for row in log.owed(desk.signer.hotkey) if not row.record.subject.is_control)
    body_sha256 = own.record.body_sha256
    (tmp_path / "workers" / body_sha256).write_text("end")
    async with scripted_pool(tmp_path / "workers", monkeypatch, 2) as pool:
        await ask_for_verdicts(desk, pool, 30)
        starts = (tmp_path / "workers" / "starts").read_text()
        desk.start(desk.policy)  # what the log says is enough: the next process does not ask either
        await desk.clock.turn()
        await ask_for_verdicts(desk, pool, 30)
        assert (tmp_path / "workers" / "starts").read_text() == starts
    said = [row.record.verdict for row in log.verdicts if row.record.verdict.body_sha256 == body_sha256]
    assert [type(one) for one in said] == [UnscoredVerdict, UnscoredVerdict]
    assert (said[-1].failure.code, said[-1].failure.owner) == ("V2009", Owner.VALIDATOR)
    heart = HeartbeatLoop(desk.node, ChainWatch(desk.node), desk.clock)
    found = assess(desk.time(), NodeFile(beat=await heart.beat(StopSignal(desk.time))), None, 100 << 30)
    (point,) = [point for point in found.points if point.code == "V2009"]
    assert f"record {own.seq} of {race_id}, body {body_sha256}" in point.about
    state = await desk.turn_until("settled", turns=20)
    assert state.settlement is not None and state.settlement.state == "settled"
    defects = (await verify_store(desk.store, verify)).defects
    assert {defect.rule for defect in defects} == {"body"}  # the stand's bodies are of no real episode


async def test_verdicts_that_a_cap_stops_keep_their_traces_and_hold_up_no_race(desk):
    await desk.settle_in()
    await desk.submit("one")
    await desk.turn_until("running")
    desk.unjudged = Failure(code="U3020")  # an outage of the judge costs verdicts, which are owed
    await desk.clock.turn()
    await desk.work()
    await desk.clock.turn()
    (log,) = [log for log in desk.clock.current_logs() if log.owed_successes() == 4]
    costs = (Cost(), Cost()), (Cost(), Cost(prompt_tokens=2))
    purse = Purse(desk.store, Budget(judge_race_tokens=1), *costs, desk.time)
    desk.node = dataclasses.replace(desk.node, purse=purse)
    await ask_for_verdicts(desk, desk.node.pool, 5)
    state = await desk.turn_until("cancelled", turns=20)
    why = "no validator gave a result: a cap on what models cost was reached"
    assert state.settlement.reason == why and not state.settlement.standings
    assert len(log.evaluations) == 4 and not log.owed(desk.signer.hotkey)

"""A job that ends its workers: what it costs itself, what it costs the others, and when a slot is to blame instead."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from arena.chain.keys import verify
from arena.race.forecast import Cost
from arena.records.verification import verify_store
from foundation.codes import Owner
from foundation.errors import Failure
from judge.verdict import UnscoredVerdict
from neurons.health.status import NodeFile, assess
from neurons.loops.purse import Purse
from neurons.loops.run_loop import StopSignal
from neurons.loops.watches import ChainWatch
from neurons.node.reporting import HeartbeatLoop
from neurons.race.episodes import VerdictLoop
from neurons.settings.settings import Budget, resolve
from neurons.worker import pool as pool_module
from neurons.worker.pool import WorkerPool
from neurons.worker.ports import EvaluateJob, Faulted, Reply, worker_setup
from problems.model import Problem
from tests.neurons.arena_stand import SMALL
from tests.neurons.clock_stand import Desk


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
    return reply.failure.code if isinstance(reply, Faulted) else type(reply).__name__


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
    assert list(codes.values()) == [["Evaluated"]] * 59
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
        assert code_of(await other) == "Evaluated" and not pool.resting
        codes = [code_of(await pool.run(job(0), [])) for _ in range(2)]
    assert codes == ["V2005", "V2009"], "what it met while the slot was sick is not charged to it"


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
    why = "no validator gave a result: a cap on what models cost was reached (judge_race_tokens 1)"
    assert state.settlement.reason == why and not state.settlement.standings
    assert len(log.evaluations) == 4 and not log.owed(desk.signer.hotkey)

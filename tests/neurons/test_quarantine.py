"""A job that ends its workers: what it costs itself, what it costs the others, and when a slot is to blame instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.agents.registry import reference_agent
from neurons.cli.app import main
from neurons.node.settings import resolve
from neurons.node.wiring import worker_setup
from neurons.worker import pool as pool_module
from neurons.worker.pool import WorkerPool
from neurons.worker.protocol import EvaluateJob, Faulted, Reply
from neurons.worker.quarantine import Quarantine
from neurons.worker.slots import RestingSlot
from problems.model import Problem
from tests.neurons.arena_stand import SMALL

JOBS = st.tuples(st.sampled_from(("a", "b", "c")), st.just("p"))


@given(st.integers(1, 4), st.lists(st.tuples(JOBS, st.integers(0, 3), st.booleans()), max_size=30))
def test_a_job_is_quarantined_by_two_ends_in_two_slots_since_it_last_ended_well(slots, steps):
    held = Quarantine(slots)
    ends: dict[tuple[str, str], list[int]] = {}
    for job, place, is_end in steps:
        if not is_end:
            held.clear(job)
            ends[job] = []
            continue
        ends.setdefault(job, []).append(place % slots)
        there = ends[job]
        assert held.charge(job, place % slots) == (len(there) > 1 and (slots == 1 or len(set(there)) > 1))


@asynccontextmanager
async def scripted_pool(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int, told: list[RestingSlot], deadline_s: float = 30.0
) -> AsyncIterator[WorkerPool]:
    script_workers(folder, monkeypatch)
    settings = resolve({"state_dir": folder, "guest_dir": folder, "policy": "demo"}).settings
    setups = tuple(worker_setup(settings, SMALL, (), None, slot) for slot in range(size))
    pool = WorkerPool(setups, deadline_s, told=told.append)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.stop()


def script_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_MODULE", ("-m", "tests.neurons.scripted_worker"))
    monkeypatch.setenv("SCRIPTED_WORKER", str(folder))


async def until_done(pool: WorkerPool, jobs: Sequence[EvaluateJob]) -> dict[str, list[str]]:
    """How each job was answered, by id; one is given again while it answers V2005, as a node does with its item."""
    codes: dict[str, list[str]] = {job.job_id: [] for job in jobs}

    async def one(job: EvaluateJob) -> None:
        while not codes[job.job_id] or codes[job.job_id][-1] == "V2005":
            codes[job.job_id].append(code_of(await pool.run(job)))

    async with asyncio.timeout(300):
        await asyncio.gather(*(one(job) for job in jobs))
    return codes


def code_of(reply: Reply) -> str:
    return reply.failure.code if isinstance(reply, Faulted) else type(reply).__name__


def job(number: int) -> EvaluateJob:
    problem = Problem(problem_id=f"p{number}", bucket="product", query="a lamp", rewards=())
    return EvaluateJob(job_id=f"p{number}", source="an agent", problem=problem)


@pytest.mark.parametrize(("size", "does"), [(1, "end"), (2, "end"), (3, "end"), (2, "hang")])
async def test_of_sixty_jobs_one_ends_its_workers_is_quarantined_and_costs_no_other(tmp_path, monkeypatch, size, does):
    told: list[RestingSlot] = []
    (tmp_path / "p7").write_text(does)
    async with scripted_pool(tmp_path, monkeypatch, size, told, 3.0 if does == "hang" else 30.0) as pool:
        codes = await until_done(pool, [job(n) for n in range(60)])
        again = await until_done(pool, [job(100 + n) for n in range(2 * size)])
    killer = codes.pop("p7")
    assert list(codes.values()) == [["Evaluated"]] * 59
    # with several slots the second end may be in the first one's slot, which proves nothing yet
    assert killer[-1] == "V2009" and set(killer[:-1]) == {"V2005"}
    assert size > 1 or len(killer) == 2
    assert not told and list(again.values()) == [["Evaluated"]] * (2 * size)
    starts = (tmp_path / "starts").read_text().split()
    assert len(starts) == size + len(killer), "an end costs the slot it was in one start, and no other slot any"


async def test_a_slot_that_can_not_start_rests_by_name_and_what_met_it_is_not_to_blame(tmp_path, monkeypatch):
    told: list[RestingSlot] = []
    (tmp_path / "p0").write_text("end")
    async with scripted_pool(tmp_path, monkeypatch, 1, told) as pool:
        (tmp_path / "sick").touch()
        first, *others = (asyncio.create_task(pool.run(job(n))) for n in range(3))
        assert code_of(await first) == "V2005"
        async with asyncio.timeout(60):
            while len(told) < 2:
                await asyncio.sleep(0.05)
        assert [(one.slot, one.tries, one.failure.code) for one in told] == [(0, 1, "V2002"), (0, 2, "V2002")]
        assert pool.resting == (told[-1],)
        assert not any(task.done() for task in others), "a resting slot swallows nothing"
        (tmp_path / "sick").unlink()
        assert [code_of(await task) for task in others] == ["Evaluated"] * 2
        assert not pool.resting
        codes = [code_of(await pool.run(job(0))) for _ in range(2)]
    assert codes == ["V2005", "V2009"], "what it met while the slot was sick is not charged to it"


async def test_a_job_is_quarantined_by_its_own_ends_and_freed_by_a_good_one(tmp_path, monkeypatch):
    for name in ("p0", "p1"):
        (tmp_path / name).write_text("end")
    async with scripted_pool(tmp_path, monkeypatch, 1, []) as pool:
        codes = [code_of(await pool.run(job(n))) for n in (0, 1)]
        (tmp_path / "p0").rename(tmp_path / "away")
        codes.append(code_of(await pool.run(job(0))))
        (tmp_path / "away").rename(tmp_path / "p0")
        codes += [code_of(await pool.run(job(n))) for n in (0, 1, 0)]
    assert codes == ["V2005", "V2005", "Evaluated", "V2005", "V2009", "V2009"]


async def test_a_job_that_is_given_up_while_its_worker_is_replaced_leaves_the_slot_working(tmp_path, monkeypatch):
    (tmp_path / "p0").write_text("end")
    async with scripted_pool(tmp_path, monkeypatch, 1, []) as pool:
        (tmp_path / "sick").touch()
        lost = asyncio.create_task(pool.run(job(0)))
        async with asyncio.timeout(60):
            while (tmp_path / "starts").read_text().count("0") < 2:
                await asyncio.sleep(0.01)
        lost.cancel()
        (tmp_path / "sick").unlink()
        assert code_of(await pool.run(job(1))) == "Evaluated"


def test_a_run_at_home_goes_on_past_a_problem_that_ends_its_workers(
    tmp_path, arena_base, small_catalogue, monkeypatch, capsys
):
    agent, words = tmp_path / "agent.py", ["--catalogue", str(small_catalogue), "--state-dir", str(arena_base)]
    agent.write_text(reference_agent("nop").source)

    def run(*more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["run", str(agent), *words, "--count", "4", *more])
        return int(str(ended.value.code or 0)), capsys.readouterr().out

    fatal = json.loads(run("--json")[1])[1]["problem_id"]
    (tmp_path / fatal).write_text("end")
    script_workers(tmp_path, monkeypatch)
    code, shown = run("--json", "--workers", "2")
    rows = {row["problem_id"]: row["failure"] for row in json.loads(shown)}
    assert rows.pop(fatal)["code"] in ("V2009", "V2005")  # the latter where all three ends were in one slot
    assert len(rows) == 3 and {failure["code"] for failure in rows.values()} == {"P4006"}
    assert code == 3
    shown = run("--workers", "2")[1]
    assert "an episode ended the workers of two slots" in shown or "episode worker died" in shown
    assert "the recording holds no reply" not in shown

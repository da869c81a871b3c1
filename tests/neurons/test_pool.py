"""The worker pool: how many there are, and that one in trouble is nobody else's."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue.native import open_catalogue
from harness.limits import EpisodeLimits
from neurons.settings.endpoints import chosen_endpoints
from neurons.settings.settings import resolve
from neurons.worker import ports
from neurons.worker.pool import WorkerPool
from problems.model import Problem
from problems.synthesis import synthesize
from tests.harness.jail_stand import WHY_NO_JAIL, has_jail
from tests.neurons.arena_stand import SMALL, is_alive

SLEEPER = "import time\ndef agent_main(problem): time.sleep(60)"
QUICK = "from arena_sdk import tools\ndef agent_main(problem): tools.find_product(q='lamp')"


@given(st.integers(1, 1024), st.integers(0, 1 << 42), st.integers(1 << 26, 1 << 34))
def test_all_jails_at_their_limit_fit_into_memory_whenever_more_than_one_runs(wanted, memory_bytes, jail_bytes):
    limits = EpisodeLimits(memory_bytes=jail_bytes)
    count = ports.worker_count(wanted, memory_bytes, limits)
    assert 1 <= count <= wanted
    assert count == 1 or count * (ports.WORKER_BYTES + jail_bytes) + ports.RESERVED_BYTES <= memory_bytes


@asynccontextmanager
async def open_pool(base: Path, catalogue: Path, size: int, deadline_s: float) -> AsyncIterator[WorkerPool]:
    settings = resolve({"state_dir": base, "catalogue_dir": catalogue, "guest_dir": base, "policy": "demo"}).settings
    chosen = chosen_endpoints(settings, SMALL)
    pool = WorkerPool(tuple(ports.worker_setup(settings, SMALL, *chosen, slot) for slot in range(size)), deadline_s)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.stop()


def workers() -> list[psutil.Process]:
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if "neurons.worker.process" in child.cmdline()]


async def busy_worker(known: set[int]) -> psutil.Process:
    """The worker, not among `known`, whose jail runs: a jail is three processes, and one more jail waits."""
    async with asyncio.timeout(60):
        while True:
            for worker in workers():
                if worker.pid not in known and len(worker.children(recursive=True)) > 3:
                    return worker
            await asyncio.sleep(0.05)


async def test_a_killed_a_stopped_and_a_cancelled_job_end_with_their_jails_and_cost_no_other(
    arena_base, small_catalogue
):
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    products = tuple(open_catalogue(small_catalogue).products())
    (problem,) = synthesize(products, seed=3, counts={"product": 1})
    async with open_pool(arena_base, small_catalogue, size=3, deadline_s=8.0) as pool:
        killed_job = asyncio.create_task(pool.run(job("killed", SLEEPER, problem), []))
        killed = await busy_worker(set())
        stopped_job = asyncio.create_task(pool.run(job("stopped", SLEEPER, problem), []))
        stopped = await busy_worker({killed.pid})
        jails = [child.pid for one in (killed, stopped) for child in one.children(recursive=True)]
        killed.send_signal(signal.SIGKILL)
        stopped.send_signal(signal.SIGSTOP)
        replies = await asyncio.gather(*(pool.run(job(f"quick-{n}", QUICK, problem), []) for n in range(4)))
        assert all(isinstance(reply, ports.EvaluationReply) for reply in replies), replies
        assert not stopped_job.done()  # the others did not wait for it
        for task in (killed_job, stopped_job):
            reply = await task
            assert isinstance(reply, ports.FaultReply) and reply.failure.code == "V2005"
        replies = await asyncio.gather(*(pool.run(job(f"after-{n}", QUICK, problem), []) for n in range(3)))
        assert all(isinstance(reply, ports.EvaluationReply) for reply in replies), replies
        assert len({worker.pid for worker in workers()} & {killed.pid, stopped.pid}) == 0
        lost_job = asyncio.create_task(pool.run(job("lost", SLEEPER, problem), []))  # its lease was lost
        lost = await busy_worker(set())
        jails += [lost.pid, *(child.pid for child in lost.children(recursive=True))]
        lost_job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lost_job
        async with asyncio.timeout(30):
            while any(is_alive(pid) for pid in jails):
                await asyncio.sleep(0.02)
    assert not workers()


def job(name: str, source: str, problem: Problem) -> ports.EvaluateJob:
    return ports.EvaluateJob(source=f"{source}  # {name}", problem=problem)

"""Restarts of an episode by the node: what a job is told, what survives an attempt, and when a journal ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.evaluate import EpisodeCost, Evaluation
from arena.race.decider import qualifying_items
from foundation.errors import Failure
from harness.catalogue.native import open_catalogue
from harness.inference.journal import FileJournal
from harness.trace import FailedCompletion
from neurons.loops.run_loop import StopSignal
from neurons.race.episodes import EpisodeLoop, sweep
from neurons.race.log import QUALIFYING, RaceLog
from neurons.settings.settings import Endpoint, resolve
from neurons.worker.pool import WorkerPool
from neurons.worker.ports import EvaluateJob, EvaluationReply, FaultReply, worker_setup
from problems.synthesis import synthesize
from tests.arena import log_stand
from tests.harness.jail_stand import WHY_NO_JAIL, has_jail
from tests.harness.refusing_stand import WAYS, RefusingServer, text_of, words
from tests.harness.test_journal import answer
from tests.neurons.arena_stand import SMALL
from tests.neurons.clock_stand import Desk
from tests.neurons.test_pool import busy_worker

CAP = 3


class Faulty:
    """In place of the workers: answers each job with the next code, `ok` for an evaluation, and keeps a completion."""

    def __init__(self, codes: Iterable[str]) -> None:
        self._codes = list(codes)
        self.jobs: list[EvaluateJob] = []
        self.owed: list[int] = []  # when each job came

    async def run(self, job: EvaluateJob, spending: object) -> FaultReply | EvaluationReply:
        self.jobs.append(job)
        with contextlib.closing(FileJournal(Path(job.journal))) as journal:
            self.owed.append(journal.owed())
            if journal.take("a request") is None:
                journal.add(answer("a request"))
        code = self._codes.pop(0)
        if code != "ok":
            return FaultReply(failure=Failure(code=code))
        body = replace(log_stand.body(1, 60), problem_id=job.problem.problem_id)
        evaluation = Evaluation(
            body=body,
            outcome=log_stand.outcome(False),
            verdict=None,
            status="unjudged",
            failure=None,
            sandbox=log_stand.LEVEL,
            cost=EpisodeCost(agent_time_ms=5),
        )
        return EvaluationReply(evaluation=evaluation)


async def attempts(desk: Desk, *codes: str) -> Faulty:
    """One qualifying item, tried once for each code."""
    race = replace(desk.policy.race, retry_ms=1, retry_max_ms=1, refused_attempts=CAP)
    desk.start(replace(desk.policy, race=race))
    subject = await desk.submit("agent", state="accepted")
    await desk.store.enqueue(qualifying_items(subject, [desk.node.suite[0].problem_id], desk.policy))
    pool = Faulty(codes)
    loop = EpisodeLoop(dataclasses.replace(desk.node, pool=pool), StopSignal(desk.node.now_ms))  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        while len(pool.jobs) < len(codes):
            await loop.turn()
    return pool


@pytest.mark.parametrize(
    ("codes", "before_last"),
    [
        (["V2005", "V2004", "U3006", "V2005", "U3006", "V2005", "V2004", "ok"], 5),  # each kind has its own count
        (["U3002", "U3004", "U3007", "U3001", "U3003", "ok"], 6),  # outages, and shapes that are not served, have none
    ],
)
async def test_only_refusals_and_our_faults_use_up_attempts(desk: Desk, codes: list[str], before_last: int) -> None:
    pool = await attempts(desk, *codes)
    assert [job.is_last for job in pool.jobs] == [False] * before_last + [True] * (len(codes) - before_last)


async def test_a_restart_owes_what_was_answered_after_every_fault_but_a_real_outage(desk: Desk) -> None:
    codes = ["U3006", "U3007", "V2005", "V2004", "U3002", "ok"]
    pool = await attempts(desk, *codes)
    assert pool.owed == [0, 1, 1, 1, 1, 0]
    assert len({job.journal for job in pool.jobs}) == 1


async def test_an_agent_whose_worker_time_is_spent_scores_0_on_the_rest_by_the_records_alone(desk: Desk) -> None:
    desk.start(replace(desk.policy, qualifying=replace(desk.policy.qualifying, worker_ms=5)))
    subject, suite = await desk.submit("agent", state="accepted"), [each.problem_id for each in desk.node.suite]
    await desk.store.enqueue(qualifying_items(subject, suite, desk.policy))
    pool = Faulty(["ok"])
    loop = EpisodeLoop(dataclasses.replace(desk.node, pool=pool), StopSignal(desk.node.now_ms))  # type: ignore[arg-type]
    for _ in suite:
        await loop.turn()
    assert len(pool.jobs) == 1 and not await desk.store.open_items("", "qualifying")
    log = RaceLog(desk.store, QUALIFYING)
    await log.refresh()
    results = list(log.qualifying_results(subject.agent_version_id, desk.policy.policy_sha256))
    assert [(row.problem_id, row.score_e4) for row in results] == [(problem_id, 0) for problem_id in suite]


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "cannot be kept"])
async def test_a_lease_that_was_lost_owes_nothing(desk: Desk, is_kept: bool) -> None:
    pool = await attempts(desk, "V2005")
    path = Path(pool.jobs[0].journal)
    if not is_kept:
        path.unlink()
        path.mkdir()
    async with asyncio.timeout(10):
        while not await desk.store.claim(1, 1):  # the one item, under a lease that runs out at once
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.05)
    await sweep(desk.node)
    assert not await desk.store.expired()
    if is_kept:
        journal = FileJournal(path)
        assert (journal.owed(), journal.take("a request")) == (0, answer("a request"))


@pytest.mark.parametrize("end", ["ok", "P4006", ""])
async def test_a_journal_lies_in_the_state_folder_and_goes_with_its_item_or_its_stage(desk: Desk, end: str) -> None:
    path = Path((await attempts(desk, "U3002", *([end] if end else []))).jobs[0].journal)
    assert path.is_absolute() and path.is_relative_to(desk.folder) and path.exists() is not bool(end)
    if not end:  # what closed items leave goes once nothing of the stage is open
        await sweep(desk.node)
        assert path.exists()
        await desk.store.close_items("", "qualifying")
        await sweep(desk.node)
        assert not path.parent.exists()


# -- real workers

ASKS_AND_WAITS = """
import time
from arena_sdk import llm
def agent_main(problem):
    llm.chat([{"role": "user", "content": "one lamp"}])
    time.sleep(2)
    llm.chat([{"role": "user", "content": "two bombs"}])
"""


async def test_what_a_killed_worker_and_a_refused_one_were_answered_is_not_asked_again(
    arena_base: Path, small_catalogue: Path, tmp_path: Path
) -> None:
    if not has_jail():
        pytest.skip(WHY_NO_JAIL)
    (problem,) = synthesize(tuple(open_catalogue(small_catalogue).products()), seed=3, counts={"product": 1})
    settings = resolve(
        {"state_dir": arena_base, "catalogue_dir": small_catalogue, "guest_dir": arena_base, "policy": "demo"}
    ).settings
    first = EvaluateJob(source=ASKS_AND_WAITS, problem=problem, journal=str(tmp_path / "completions" / "one.journal"))
    policy = replace(SMALL, inference=replace(SMALL.inference, attempts=1))
    with RefusingServer(WAYS["moderation"][0], words("bombs")) as server:
        upstreams = (Endpoint(name="model", base_url=server.base_url),)
        pool = WorkerPool((worker_setup(settings, policy, upstreams, (), 0),), 60.0)
        try:
            await pool.start()
            running = asyncio.create_task(pool.run(first, spending := []))
            worker = await busy_worker(set())
            async with asyncio.timeout(30):
                while not (Path(first.journal).exists() and Path(first.journal).stat().st_size):
                    await asyncio.sleep(0.02)
            worker.send_signal(signal.SIGKILL)
            killed, refused = await running, await pool.run(first, [])
            ended = await pool.run(replace(first, is_last=True), [])
        finally:
            await pool.stop()
        asked = [text_of(body) for body in server.bodies]
    assert isinstance(killed, FaultReply) and killed.failure.code == "V2005" and spending[0].requests == 1
    assert isinstance(refused, FaultReply) and refused.failure.code == "U3006"
    assert isinstance(ended, EvaluationReply)
    body = ended.evaluation.body
    assert body.failure is not None and (body.stop, body.failure.code) == ("model_refused", "A1043")
    assert ended.evaluation.score_e4 == 0 and isinstance(body.events[-1], FailedCompletion)
    assert asked.count("one lamp") == 1

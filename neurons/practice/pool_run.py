"""An agent run on problems by the validator's own worker pool: a process for each episode that is under way.

Rows are those of `local_run`, in the order in which they end, and bodies the same bytes. A problem whose
worker died is run again; one that ends workers in two places, or `TRIES_MAX` of them, is a row that says so, and costs
no other. No worker outlives the run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from arena.evaluate import Evaluation
from foundation.codes.names import JOB_QUARANTINED, WORKER_DIED
from foundation.errors import ArenaError, Failure
from foundation.executors.port import TRIES_MAX
from neurons.practice.local_run import Asked, RunRow, row_of
from neurons.worker.capacity import episode_deadline_s
from neurons.worker.pool import WorkerPool
from neurons.worker.protocol import Evaluated, EvaluateJob, Faulted, WorkerSetup
from problems.scoring.title_matching import AcceptedTitles


def run_in_pool(
    source: str,
    asked: Sequence[Asked],
    setups: tuple[WorkerSetup, ...],
    *,
    time_limit_s: float,
    clock: Callable[[], float],
    unjudged: Failure | None = None,
) -> Iterator[RunRow]:
    """Each problem's row when it is finished, one worker a set-up. `clock` gives seconds, monotonic; `unjudged`: why
    no trace is judged, None: each is.

    After `time_limit_s` (0: no limit) no further problem is begun; those get no row. Raises the first ArenaError that
    would be every problem's too.
    """
    waiting, begun_s = deque(asked), clock()
    under_way: dict[asyncio.Task[Evaluation | Failure], Asked] = {}
    pool = WorkerPool(setups, episode_deadline_s(setups[0].policy))

    async def some_ended() -> list[tuple[Asked, Evaluation | Failure]]:
        while waiting and len(under_way) < pool.size and not (time_limit_s and clock() - begun_s >= time_limit_s):
            one = waiting.popleft()
            under_way[asyncio.create_task(_evaluated(pool, source, one, unjudged))] = one
        ended = (await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED))[0] if under_way else ()
        return [(under_way.pop(task), task.result()) for task in ended]

    with asyncio.Runner() as runner:
        try:
            runner.run(pool.start())
            while found := runner.run(some_ended()):
                for (problem, ports), ended in found:
                    if isinstance(ended, Failure):
                        yield RunRow(problem=problem, failure=ended)
                    else:
                        yield row_of(problem, ports, ended)
        finally:
            runner.run(pool.stop())


async def _evaluated(pool: WorkerPool, source: str, asked: Asked, unjudged: Failure | None) -> Evaluation | Failure:
    problem, ports = asked
    titles = ports.titles if isinstance(ports.titles, AcceptedTitles) else None  # a variant's own
    job = EvaluateJob(
        job_id=problem.problem_id, source=source, problem=problem, titles=titles, is_last=True, unjudged=unjudged
    )
    tries = 1
    while not isinstance(reply := await pool.run(job), Evaluated):
        assert isinstance(reply, Faulted)
        failure = reply.failure
        if failure.code == JOB_QUARANTINED or (failure.code == WORKER_DIED and tries == TRIES_MAX):
            return failure
        if failure.code != WORKER_DIED:
            raise ArenaError(failure.code, failure.detail)
        tries += 1
    return reply.evaluation

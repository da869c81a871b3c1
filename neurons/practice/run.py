"""An agent run on problems on a miner's computer: each result as it comes, here or in the validator's pool.

Each problem is evaluated by `arena.evaluate`, as a validator does it; a problem that could not be run is a row
with the reason, never a score. In the pool a problem whose worker died is run again; a quarantined one is a row that
says so, and costs no other. No worker outlives the run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.view.reading import loss_of
from foundation.codes.names import JOB_QUARANTINED, NOT_RECORDED, WORKER_DIED
from foundation.durable_files import write_whole
from foundation.errors import ArenaError, Failure
from foundation.executors.port import TRIES_MAX
from harness.trace import EvaluationBody
from neurons.worker.pool import WorkerPool
from neurons.worker.ports import episode_deadline_s
from neurons.worker.protocol import Evaluated, EvaluateJob, Faulted, WorkerSetup
from problems.explanation import Constraint, explain_outcome
from problems.model import Problem
from problems.outcome import OutcomeScore
from problems.titles import AcceptedTitles

RUN_FORMAT = "agent-arena/local-run/1"

Asked = tuple[Problem, EvaluatePorts]


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a run: its evaluation with every constraint and what was found, or why it was not run."""

    problem: Problem
    evaluation: Evaluation | None = None
    constraints: tuple[Constraint, ...] = ()
    failure: Failure | None = None


class LocalRun(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, as it is kept in a file."""

    format: str = RUN_FORMAT
    agent: str
    agent_sha256: str
    policy: str
    rows: tuple[RunRow, ...]


def run_problems(
    source: str, asked: Sequence[Asked], *, time_limit_s: float, clock: Callable[[], float]
) -> Iterator[RunRow]:
    """Each problem's row, one at a time in this process. `clock` gives seconds, monotonic.

    After `time_limit_s` (0: no limit) no further problem is begun; those get no row. Raises the first ArenaError that
    would be every problem's too: an endpoint or a host that fails, unlike a reply that is not recorded.
    """
    begun_s = clock()
    for problem, ports in asked:
        if time_limit_s and clock() - begun_s >= time_limit_s:
            return
        try:
            yield row_of(problem, ports, evaluate(source, problem, ports))
        except ArenaError as error:
            if error.failure.code != NOT_RECORDED:
                raise
            yield RunRow(problem=problem, failure=error.failure)


def row_of(problem: Problem, ports: EvaluatePorts, evaluation: Evaluation) -> RunRow:
    """The row of an evaluation, with what was found of each constraint."""
    constraints: tuple[Constraint, ...] = ()
    if isinstance(evaluation.outcome, OutcomeScore):
        constraints = explain_outcome(problem, evaluation.outcome, ports.catalogue.product, ports.titles)
    return RunRow(problem=problem, evaluation=evaluation, constraints=constraints)


def json_row(row: RunRow) -> dict[str, object]:
    """A row as `arena run --json` prints it: the evaluation's own names, and why points were lost."""
    done = row.evaluation
    if done is None:
        return {"problem_id": row.problem.problem_id, "score_e4": None, "failure": row.failure, "loss": None}
    names = ("status", "failure", "outcome", "verdict", "sandbox", "cost")
    return {
        "problem_id": done.body.problem_id,
        "body_sha256": done.body.body_hash(),
        "score_e4": done.score_e4,
        "stop": done.body.stop,
        "is_agentic": done.body.is_agentic,
        **{name: getattr(done, name) for name in names},
        "loss": loss_of(done, row.constraints),
    }


def save_run(path: Path, run: LocalRun) -> None:
    """Write a run. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(run), mode=0o600)


def read_run(content: bytes) -> LocalRun | EvaluationBody:
    """A run, or a body alone. Raises msgspec.MsgspecError for anything else."""
    try:
        run = msgspec.json.decode(content, type=LocalRun)
    except msgspec.ValidationError:
        return msgspec.json.decode(content, type=EvaluationBody)
    return run


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

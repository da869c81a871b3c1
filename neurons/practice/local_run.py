"""An agent run on problems on a miner's computer: several at a time, each result as it comes, and the run is kept.

Each problem is evaluated by `arena.evaluate`, as a validator does it; a problem that could not be run is a row
with the reason, never a score.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.view.reading import loss_of
from foundation.codes.names import NOT_RECORDED
from foundation.durable_files import write_whole
from foundation.errors import ArenaError, Failure
from harness.trace import EvaluationBody
from problems.model import Problem
from problems.scoring.constraints import Constraint, explain_outcome
from problems.scoring.outcome import OutcomeScore

RUN_FORMAT = "agent-arena/local-run/1"
_POLL_S = 0.2  # how soon a Ctrl-C is heard while problems run

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
    source: str,
    asked: Sequence[Asked],
    *,
    workers: int,
    time_limit_s: float,
    clock: Callable[[], float],
) -> Iterator[RunRow]:
    """Each problem's row when it is finished, `workers` at a time. `clock` gives seconds, monotonic.

    After `time_limit_s` (0: no limit) no further problem is begun; those get no row. Raises the first ArenaError that
    would be every problem's too: an endpoint or a host that fails, unlike a reply that is not recorded.
    """
    begun_s = clock()
    waiting: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    finished: queue.SimpleQueue[RunRow | BaseException | None] = queue.SimpleQueue()
    for one in asked:
        waiting.put(one)
    is_stopped = threading.Event()

    def work() -> None:
        while not is_stopped.is_set() and not (time_limit_s and clock() - begun_s >= time_limit_s):
            try:
                problem, ports = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                finished.put(run_one(source, problem, ports))
            except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that prints
                finished.put(error)
                break
        finished.put(None)

    running = min(workers, len(asked))
    for number in range(running):
        threading.Thread(target=work, name=f"run-{number}", daemon=True).start()
    try:
        while running:
            try:
                row = finished.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if isinstance(row, BaseException):
                raise row
            if row is None:
                running -= 1
            else:
                yield row
    finally:
        is_stopped.set()


def run_one(source: str, problem: Problem, ports: EvaluatePorts) -> RunRow:
    """One problem. Raises ArenaError for what would stop every other one as well."""
    try:
        evaluation = evaluate(source, problem, ports)
    except ArenaError as error:
        if error.failure.code != NOT_RECORDED:
            raise
        return RunRow(problem=problem, failure=error.failure)
    return row_of(problem, ports, evaluation)


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

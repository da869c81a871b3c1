"""An agent run on problems on a miner's computer: which problems, what answers them, each result as it comes.

Each problem is evaluated by `arena.evaluate`, as a validator does it; a problem that could not be run is a row with the
reason, never a score.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import typer

from arena.bank.suite_signature import open_shipped
from arena.chain.keys import verify
from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from foundation.codes import NOT_RECORDED
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError, Failure
from harness.catalogue.port import Catalogue
from harness.inference.journal import NoUpstream, Recording
from harness.trace import EvaluationBody
from neurons.practice.opening import Choice
from neurons.settings.endpoints import check_endpoints, local_models, named_endpoints
from neurons.settings.inputs import policy_of, prepare_suite
from neurons.settings.settings import Settings
from neurons.worker.ports import open_local_ports, usable_memory_bytes, worker_count
from problems.formats import count_web, read_problems
from problems.model import BUCKETS, OutcomeScore, Problem
from problems.score import Constraint, explain_outcome
from problems.suites import SUITES, VariantMaker

DEFAULT_COUNT = 6
LAST_RUN = "last-run.json"
_NOWHERE = "http://127.0.0.1:9/v1"  # stands for the endpoint where a recording answers alone; nothing is sent there

Asked = tuple[Problem, EvaluatePorts]


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a run: its evaluation with every constraint and what was found, or why it was not run."""

    problem: Problem
    evaluation: Evaluation | None = None
    constraints: tuple[Constraint, ...] = ()
    failure: Failure | None = None


class LocalRun(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, as it is kept in a file."""

    format: str = "agent-arena/local-run/1"
    agent: str
    agent_sha256: str
    policy: str
    rows: tuple[RunRow, ...]

    @property
    def lost(self) -> frozenset[str]:
        """The problems that earned less than 1, or were not run."""
        rows = ((row.problem.problem_id, row.evaluation) for row in self.rows)
        return frozenset(problem for problem, done in rows if done is None or done.score_e4 != 10_000)

    def keep(self) -> None:
        """Keep it in the place of the last one, in a file of this user alone. Raises OSError."""
        folder = default_cache_dir()
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / LAST_RUN, msgspec.json.encode(self), mode=0o600)


def default_cache_dir() -> Path:
    """The user's cache folder: XDG_CACHE_HOME, else ~/.cache, and `agent-arena` in it. Makes nothing."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "agent-arena"


def run_here(source: str, asked: Sequence[Asked], at_once: int) -> Iterator[RunRow]:
    """Each problem's row in the order of the problems, `at_once` at a time in this process.

    Raises the first ArenaError that would be every problem's too: an endpoint or a host that fails, unlike a reply that
    is not recorded.
    """

    def one(problem: Problem, ports: EvaluatePorts) -> RunRow:
        try:
            return row_of(problem, ports, evaluate(source, problem, ports))
        except ArenaError as error:
            if error.failure.code != NOT_RECORDED:
                raise
            return RunRow(problem=problem, failure=error.failure)

    if at_once == 1:
        yield from (one(*each) for each in asked)
        return
    with ThreadPoolExecutor(at_once) as pool:
        try:
            yield from pool.map(one, *zip(*asked, strict=True))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def row_of(problem: Problem, ports: EvaluatePorts, evaluation: Evaluation) -> RunRow:
    """The row of an evaluation, with what was found of each constraint."""
    constraints: tuple[Constraint, ...] = ()
    if isinstance(evaluation.outcome, OutcomeScore):
        constraints = explain_outcome(problem, evaluation.outcome, ports.catalogue.product, ports.titles)
    return RunRow(problem=problem, evaluation=evaluation, constraints=constraints)


def json_row(row: RunRow) -> dict[str, object]:
    """A row as `arena run --json` prints it: the evaluation's own names, and what was found of each constraint."""
    done = row.evaluation
    if done is None:
        return {"problem_id": row.problem.problem_id, "score_e4": None, "failure": row.failure}
    names = ("status", "failure", "outcome", "verdict", "sandbox", "cost")
    return {
        "problem_id": done.body.problem_id,
        "body_sha256": done.body.body_hash(),
        "score_e4": done.score_e4,
        "stop": done.body.stop,
        "is_agentic": done.body.is_agentic,
        **{name: getattr(done, name) for name in names},
        "constraints": row.constraints,
    }


def read_run(content: bytes) -> LocalRun | EvaluationBody:
    """A run, or a body alone. Raises msgspec.MsgspecError for anything else."""
    try:
        return msgspec.json.decode(content, type=LocalRun)
    except msgspec.ValidationError:
        return msgspec.json.decode(content, type=EvaluationBody)


def at_once_here(wanted: int, settings: Settings) -> int:
    """How many of `wanted` episodes this host's memory holds with every jail at its limit; fewer are said on stderr."""
    count = worker_count(wanted, usable_memory_bytes(), policy_of(settings).limits)
    if count < wanted:
        typer.echo(f"memory holds {count} of {wanted} episodes at a time", err=True)
    return count


def open_problems(settings: Settings, choice: Choice, *, at_once: int = 1) -> list[Asked]:
    """The problems to run on (as `Choice` describes them), each with the ports that score it.

    Raises typer.BadParameter for an id or a number that is not there, ArenaError P4001 to P4009 for a broken file,
    P4013 for a variant that can't be drawn, V2027 for a recording, U3001 or U3002 for an endpoint.
    """
    recording: Recording | None = None
    record, replay = choice.record, choice.replay
    if path := record or replay:
        if record and replay and record != replay:
            raise typer.BadParameter("--record and --replay together name one file", param_hint="--record")
        models, is_replayed = policy_of(settings).inference.models, replay is not None
        recording = Recording(path, models, is_new=record is not None, is_replayed=is_replayed)
        settings = msgspec.structs.replace(settings, models=",".join(recording.offered))
    if is_alone := replay is not None and record is None:
        settings = msgspec.structs.replace(settings, openai_base_url=_NOWHERE, upstreams=())
    elif endpoints := named_endpoints(settings):
        for line in check_endpoints(endpoints, local_models(settings, policy_of(settings)), must_answer=True):
            typer.echo(f"{line}; the others are asked", err=True)

    ports = dataclasses.replace(open_local_ports(settings, at_once=at_once), journal=recording)
    if is_alone:
        ports = dataclasses.replace(ports, upstreams=(NoUpstream(),))
    file, wanted = choice.problems, choice.problem or ()
    is_suite = file is not None and not file.exists() and str(file) in SUITES
    known = _known(settings, file, is_suite=is_suite)
    by_id = {problem.problem_id: problem for problem in known}
    if missing := [name for name in wanted if name not in by_id]:
        raise typer.BadParameter(f"no problem {missing[0]}; there are {', '.join(list(by_id)[:3])} and others")
    count = choice.count or (len(known) if is_suite or choice.failed else DEFAULT_COUNT)
    if count > len(known) and (file is None or is_suite):
        raise typer.BadParameter(f"there are {len(known)} problems; give a file with --problems for more")
    chosen = [by_id[name] for name in wanted] if wanted else list(known[:count])
    _say_missing(chosen, ports.catalogue)
    asked = [(one, ports) for one in chosen]
    if choice.variant is not None:
        maker = VariantMaker(known, ports.catalogue.products())
        drawn = [maker.variant(problem.problem_id, choice.variant) for problem in chosen]
        asked = [(one.problem, dataclasses.replace(ports, titles=one.titles)) for one in drawn]
    if not choice.failed:
        return asked
    with coded(path := default_cache_dir() / LAST_RUN, "V2027"):
        before = read_run(path.read_bytes())
    return [each for each in asked if isinstance(before, LocalRun) and each[0].problem_id in before.lost]


def _known(settings: Settings, file: Path | None, *, is_suite: bool) -> Sequence[Problem]:
    """The problems to choose from; of a file all but its web problems, which are counted on stderr."""
    if file is None:
        suite = prepare_suite(settings, policy_of(settings))
        by_bucket = [[one for one in suite if one.bucket == bucket] for bucket in BUCKETS]
        return [one for group in itertools.zip_longest(*by_bucket) for one in group if one]
    if is_suite:
        return open_shipped(str(file), verify).problems
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        detail = f"{file}: {error.strerror}; suites are {', '.join(SUITES)}"
        raise ArenaError("P4001", detail, fix="name one of them, or a problem file") from error
    problems = read_problems(lines, is_web_skipped=True)
    if left_out := count_web(lines):
        typer.echo(f"{left_out} web problems skipped, {len(problems)} left", err=True)
    return problems


def _say_missing(problems: Sequence[Problem], catalogue: Catalogue) -> None:
    """Say on stderr which problems ask for products that the catalogue lacks: no answer of theirs can be right. Raises
    ArenaError P4006 where that is every problem."""
    lacking = {
        problem.problem_id: item.product_id
        for problem in problems
        for item in problem.rewards
        if catalogue.product(item.product_id) is None
    }
    if not lacking:
        return
    name, product_id = next(iter(lacking.items()))
    detail = f"{len(lacking)} of {len(problems)} problems, such as {name} with product {product_id}"
    if len(lacking) == len(problems):
        raise ArenaError("P4006", f"{detail}; name their catalogue with --catalogue")
    typer.echo(f"note: the answers of {detail} are not in this catalogue: they can't be solved here", err=True)

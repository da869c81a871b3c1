"""`arena run`: an agent file on problems, here: a row for each as it ends, and why points were lost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from foundation.codes import lookup
from foundation.codes.names import NOT_RECORDED
from foundation.errors import ArenaError, render
from neurons.cli.exit_codes import EXIT_FAILED, EXIT_NOT_READY, exit_code
from neurons.cli.miner.check import (
    WIDTH,
    AgentFile,
    Policy,
    StateDir,
    miner_settings,
    open_cache,
    read_agent,
    report_of,
    show_report,
)
from neurons.cli.options import BuiltIndexOption, ClusterOption, JsonOption
from neurons.cli.presenter import echo_json, printable, share_text

if TYPE_CHECKING:
    from arena.evaluate import Evaluation
    from neurons.node.settings import Settings
    from neurons.practice.local_run import RunRow
    from neurons.practice.problem_choice import Asked, RunFacts

app = typer.Typer()

_TAIL_CHARS = 2_000  # of a failed agent's own output
_COLUMNS = {  # heading -> characters; with two spaces between them 80
    "problem": 18,
    "bucket": 7,
    "success": 8,
    "met": 5,
    "coeff": 6,
    "agentic": 7,
    "ended": 17,
}
_AXES = ("title", "price", "service", "sku", "attribute")
_PRACTICE_COUNT = 6
_WATCH_S = 0.3  # how often the file is looked at
_SCRIPTED_SAYS = (
    "scripted model: it shows that the file runs, that the model's calls get through",
    "and what the rules count. It never reads your prompt, so it can't show whether",
    "a prompt is good: for that use --model-url, and --record to iterate for free.",
)
_ENDPOINT_SAYS = "error[U3002]: {detail}. Check --model-url or OPENAI_BASE_URL and run again."


_SkipWeb = Annotated[bool, typer.Option("--skip-web", help="Leave a file's web problems out.")]
_AllowMissing = Annotated[
    bool, typer.Option("--allow-missing", help="Run problems whose answers the catalogue lacks, too.")
]
_Variant = Annotated[
    str | None,
    typer.Option(
        metavar="SEED",
        help="Run on variants drawn by SEED, as qualifying does: of the policy's suite, or of the problem file. "
        "Any text will do; a qualifying record names the seed it ran under.",
    ),
]
_ProblemFile = Annotated[
    Path | None, typer.Option(help="Problem file, or s1, s2, s3; else practice problems are made.")
]
_Count = Annotated[
    int | None, typer.Option(min=1, help="How many problems. Default: 6, of a suite all.", show_default=False)
]
_Replay = Annotated[Path | None, typer.Option(help="Answer from this recording; no endpoint is asked.", dir_okay=False)]
_ModelUrls = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL[=N]",
        help="OpenAI-compatible endpoint, asked N requests at a time; else OPENAI_BASE_URL. Repeatable: --workers are"
        " dealt over them.",
    ),
]


class RunFlags(NamedTuple):
    """The flags that settings are resolved under, here and on a cluster's machines."""

    policy: str | None
    catalogue: Path | None
    state_dir: Path | None
    model_urls: tuple[str, ...]
    model: str | None

    def settings(self) -> Settings:
        return miner_settings(*self).settings


@dataclass(frozen=True)
class RunPlan:
    """What to run an agent file on, and how: the options of one command."""

    opening: RunFlags
    problem: Sequence[str]
    problems: Path | None
    suite: str | None
    count: int | None
    variant: str | None
    workers: int
    cluster: str
    is_dealt: bool
    time_limit_s: float
    record: Path | None
    replay: Path | None
    bodies: Path | None
    is_gated: bool
    is_web_skipped: bool
    is_missing_allowed: bool
    as_json: bool


@app.command()
def run(
    agent: AgentFile,
    problem: Annotated[list[str] | None, typer.Option(help="Only this problem id; may be given again.")] = None,
    problems: _ProblemFile = None,
    skip_web: _SkipWeb = False,
    allow_missing: _AllowMissing = False,
    suite: Annotated[str | None, typer.Option(help="The whole shipped suite s1, s2 or s3, as in qualifying.")] = None,
    count: _Count = None,
    variant: _Variant = None,
    catalogue: BuiltIndexOption = None,
    model_url: _ModelUrls = None,
    model: Annotated[str | None, typer.Option(help="Model id there, instead of the policy's list.")] = None,
    record: Annotated[Path | None, typer.Option(help="Keep every completion in this file.", dir_okay=False)] = None,
    replay: _Replay = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Problems at a time.")] = 1,
    cluster: ClusterOption = "",
    time_limit: Annotated[float, typer.Option(min=0, help="Begin no problem after so many seconds; 0: no limit.")] = 0,
    watch: Annotated[bool, typer.Option("--watch", help="Stay, and run again when the file changes.")] = False,
    policy: Policy = None,
    state_dir: StateDir = None,
    bodies: Annotated[Path | None, typer.Option(help="Folder to keep each trace in, as JSON.")] = None,
    gate: Annotated[bool, typer.Option(help="Gate the file first, as a validator does.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Run an agent file on problems, as a validator would.

    arena run my_agent/agent.py
    arena run my_agent/agent.py --suite s1 --workers 4 --time-limit 300
    arena run my_agent/agent.py --model-url URL --model NAME --record replies.jsonl
    arena run my_agent/agent.py --replay replies.jsonl --watch

    The gate comes first: a file that it rejects would never run at a validator, so it does not run here either, unless
    you say --no-gate. Then the same jail, tools, gateway, scoring and judge: the body hash in --json is the one that a
    validator records for the same agent, problem, policy and model replies.

    Without a model endpoint the scripted model answers. It solves what the request says whatever your prompt is, so it
    tests the program and not the prompt. A recording answers exactly the requests that it holds; a changed prompt is
    another request, and is said to be missing. --record and --replay with one file ask the endpoint for the rest.
    A model folder of your own can be the endpoint: arena serve-model. With --cluster a problem runs on each processor
    of machines that hold no key, with the same release, index and jail. Practice problems and the last run (`arena
    view`) are kept in the user's cache folder. Exit code 1 when an episode ended in a fault of the agent's own.
    """
    plan = RunPlan(
        opening=RunFlags(policy, catalogue, state_dir, tuple(model_url or ()), model),
        problem=problem or [],
        problems=problems,
        suite=suite,
        count=count,
        variant=variant,
        workers=workers,
        cluster=cluster,
        is_dealt=bool(model_url),
        time_limit_s=time_limit,
        record=record,
        replay=replay,
        bodies=bodies,
        is_gated=gate,
        is_web_skipped=skip_web,
        is_missing_allowed=allow_missing,
        as_json=as_json,
    )
    if suite and (problems or variant):
        raise typer.BadParameter("give --suite alone, or --problems FILE and --variant", param_hint="--suite")
    if cluster and (record or replay or workers > 1):
        raise typer.BadParameter("leave out --workers, --record and --replay", param_hint="--cluster")
    if not watch:
        raise typer.Exit(_run_once(agent, read_agent(agent), plan))
    try:
        for raw in _versions(agent):
            try:
                _run_once(agent, raw, plan)
            except ArenaError as error:  # said, and the next version of the file is waited for
                typer.echo(str(error), err=True)
            typer.echo(f"\nwatching {agent}; Ctrl-C ends it", err=True)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


def _versions(agent: Path) -> Iterator[bytes]:
    """The file's bytes, now and whenever they are others; a moment without the file, as editors save it, is waited
    for."""
    known = read_agent(agent)
    yield known
    while True:
        time.sleep(_WATCH_S)
        if agent.exists() and (now := read_agent(agent)) != known:
            known = now
            yield known


def _run_once(agent: Path, raw: bytes, plan: RunPlan) -> int:
    """One run of one version of the file; the exit code."""
    try:
        source = raw.decode("utf-8")  # as the gate decodes it: what runs is what was checked
    except UnicodeDecodeError as error:
        raise ArenaError("A1001", f"byte {raw[error.start]:#04x} at offset {error.start}") from error

    from foundation.canonical import canonical_bytes, text_hash
    from neurons.practice.content_cache import default_cache_dir
    from neurons.practice.local_run import LocalRun, json_row, save_run
    from neurons.practice.problem_choice import opened_problems

    cache, settings = open_cache(), plan.opening.settings()
    if plan.is_gated:
        report = report_of(raw, settings)
        if report.outcome == "reject":
            show_report(agent, raw, report)
            return EXIT_FAILED
    done: list[RunRow] = []
    with opened_problems(settings, plan, cache) as (asked, facts):
        if facts.unreachable:
            typer.echo(_ENDPOINT_SAYS.format(detail=facts.unreachable), err=True)
            return EXIT_NOT_READY
        if not plan.as_json:
            typer.echo(_line(tuple(_COLUMNS)))
        for row in _rows(source, asked, facts, plan):
            done.append(row)
            if plan.bodies is not None and row.evaluation is not None:  # the bytes whose sha256 is the body hash
                body = row.evaluation.body
                plan.bodies.mkdir(parents=True, exist_ok=True)
                (plan.bodies / f"{body.problem_id}.json").write_bytes(canonical_bytes(body))
            if not plan.as_json:
                typer.echo(_line(_cells(row)))
    order = {one.problem_id: place for place, (one, _) in enumerate(asked)}
    done.sort(key=lambda row: order[row.problem.problem_id])
    kept = LocalRun(agent=str(agent), agent_sha256=text_hash(source), policy=facts.policy, rows=tuple(done))
    try:
        save_run(default_cache_dir() / "last-run.json", kept)
    except OSError as error:
        typer.echo(f"the run is not kept: {error.filename}: {error.strerror}", err=True)
    if plan.as_json:
        echo_json([json_row(row) for row in done])
    else:
        for line in _summary_lines(done, len(asked), facts.is_scripted):
            typer.echo(line)
    return max((_row_exit(row) for row in done), default=0)


def _rows(source: str, asked: list[Asked], facts: RunFacts, plan: RunPlan) -> Iterator[RunRow]:
    """Rows as they end: of a cluster, of the validator's worker pool, or of this process."""
    limits: dict[str, Any] = {"time_limit_s": plan.time_limit_s, "clock": time.monotonic}
    if plan.cluster and asked:
        from neurons.cluster.agent_episodes import AgentEpisodes, alike, run_elsewhere
        from neurons.cluster.choice import absolute_policy, open_executor

        opening = plan.opening._replace(
            policy=absolute_policy(plan.opening.policy),
            catalogue=plan.opening.catalogue and plan.opening.catalogue.absolute(),
            state_dir=plan.opening.state_dir and plan.opening.state_dir.absolute(),
        )
        episodes = AgentEpisodes(source=source, alike=alike(asked[0][1]), **opening._asdict())
        with open_executor(plan.cluster, 0, 0, state_dir=opening.state_dir) as executor:
            yield from run_elsewhere(episodes, asked, executor, **limits)
    elif facts.setups:
        from neurons.practice.pool_run import run_in_pool

        yield from run_in_pool(source, asked, facts.setups, **limits)
    else:
        from neurons.practice.local_run import run_problems

        yield from run_problems(source, asked, workers=plan.workers, **limits)


def _row_exit(row: RunRow) -> int:
    if row.failure is not None:
        return exit_code(ArenaError(row.failure.code))
    return EXIT_FAILED if row.evaluation and row.evaluation.body.failure else 0


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _COLUMNS.values(), strict=True)).rstrip()


def _cells(row: RunRow) -> tuple[str, ...]:
    """One row: what was asked, rules met of rules asked, coefficient, and how it ended."""
    from judge.verdict import Verdict
    from problems.scoring.outcome import OutcomeScore

    if row.evaluation is None:
        code = row.failure.code if row.failure else ""
        return (row.problem.problem_id, row.problem.bucket, "not run", "-", "-", "-", code)
    body, outcome, verdict = row.evaluation.body, row.evaluation.outcome, row.evaluation.verdict
    success, met = "unscored", "-"
    if isinstance(outcome, OutcomeScore):
        success = "yes" if outcome.is_success else "no"
        axes = [getattr(slot, axis) for slot in outcome.slots for axis in _AXES]
        met = f"{sum(axis.hits for axis in axes)}/{sum(axis.total for axis in axes)}"
    coefficient = share_text(verdict.coefficient_e4) if isinstance(verdict, Verdict) else "-"
    ended = f"{body.failure.code} {body.stop}" if body.failure else body.stop
    is_agentic = "yes" if body.is_agentic else "no"
    return (body.problem_id, body.bucket, success, met, coefficient, is_agentic, ended)


def _summary_lines(done: Sequence[RunRow], asked: int, is_scripted: bool) -> Iterator[str]:
    from arena.view.lines import loss_lines
    from arena.view.reading import loss_of

    evaluations = [row.evaluation for row in done if row.evaluation is not None]
    solved = sum(1 for evaluation in evaluations if (evaluation.score_e4 or 0) > 0)
    scores = [evaluation.score_e4 for evaluation in evaluations if evaluation.score_e4 is not None]
    mean = sum(scores) / len(scores) / 10_000 if scores else 0.0
    yield f"\nsolved {solved} of {len(done)}; mean score {mean:.4f} over {len(scores)} scored (outcome x coefficient)"
    if len(done) < asked:
        yield f"{asked - len(done)} problems were not begun within the time limit"
    losses = [loss for row in done if row.evaluation and (loss := loss_of(row.evaluation, row.constraints))]
    if losses:
        yield f"\nWhy points were lost ({len(losses)} of {len(done)}); whole traces: arena view"
    for loss in losses:
        yield ""
        yield from (line.text for line in loss_lines(loss, WIDTH))
    not_run = [(row.problem.problem_id, row.failure) for row in done if row.failure is not None]
    if missing := [(name, failure.detail) for name, failure in not_run if failure.code == NOT_RECORDED]:
        yield f"\nnot run: {len(missing)} of {len(done)} problems, because the recording holds no reply:"
        yield from (f"  {name}: {detail}" for name, detail in missing)
        yield "The agent asks something else than when it was recorded. Record again, or give"
        yield "--record and --replay the same file to ask the endpoint for what is missing."
    for name, failure in not_run:
        if failure.code != NOT_RECORDED:
            yield f"{name}: {render(lookup(failure.code), failure.detail)}"
    yield from _fault_lines(evaluations)
    if is_scripted:
        yield ""
        yield from _SCRIPTED_SAYS


def _fault_lines(done: Sequence[Evaluation]) -> Iterator[str]:
    for evaluation in done:
        if failure := evaluation.body.failure:
            yield f"{evaluation.body.problem_id}: {render(lookup(failure.code), failure.detail)}"
            if tail := evaluation.cost.output_tail[-_TAIL_CHARS:].strip():
                yield printable(tail)

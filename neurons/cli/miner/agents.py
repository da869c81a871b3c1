"""`arena check` and `arena run`: what a miner tries before submitting.

Gate and evaluation are the validator's own code; this file calls them and prints the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.codes import lookup
from foundation.errors import ArenaError, render
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import BuiltIndexOption, JsonOption
from neurons.cli.presenter import badge, echo_json, make_table, share_text, show

if TYPE_CHECKING:
    from rich.table import Table

    from arena.evaluate.model import Evaluation
    from arena.evaluate.ports import EvaluatePorts
    from arena.gate.report import GateReport
    from neurons.node.settings import ResolvedSettings, Settings
    from problems.model import Problem

app = typer.Typer()

_TAIL_CHARS = 2_000  # of a failed agent's own output
_COLUMNS = {  # heading -> characters
    "problem": 18,
    "bucket": 7,
    "success": 8,
    "title": 5,
    "price": 5,
    "service": 7,
    "sku": 5,
    "attr": 5,
    "coeff": 6,
    "agentic": 7,
    "stop": 16,
    "body": 12,
}
_AXES = ("title", "price", "service", "sku", "attribute")
_PRACTICE_SEED, _PRACTICE_PER_BUCKET = 1, 20  # the same practice problems on every machine with the same catalogue

_AgentFile = Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.")]
_Policy = Annotated[str | None, typer.Option(help="Policy by name or JSON file; without a judge endpoint: demo.")]
_StateDir = Annotated[Path | None, typer.Option(help="State folder instead of the one set.")]


@app.command()
def check(
    agent: _AgentFile,
    catalogue: BuiltIndexOption = None,
    policy: _Policy = None,
    state_dir: _StateDir = None,
    as_json: JsonOption = False,
) -> None:
    """Gate an agent file with the validator's own code.

    Nothing in the file is executed. A `reject` is certain and names rule and line; a `review` asks a person to look.
    What the gate accepts here it accepts at a validator with the same policy and catalogue. Exit code 1 on a reject.
    """
    source = _read(agent)

    import msgspec

    from neurons.node.bank_preparation import gate_report

    report = gate_report(source, _settings(policy, catalogue, state_dir).settings)
    if as_json:
        failure = report.failure.code if report.failure else ""
        echo_json({**msgspec.to_builtins(report), "code": failure})
    else:
        _show_report(agent, report)
    if report.outcome == "reject":
        raise typer.Exit(EXIT_FAILED)


@app.command()
def run(
    agent: _AgentFile,
    problem: Annotated[list[str] | None, typer.Option(help="Only this problem id; may be given again.")] = None,
    problems: Annotated[Path | None, typer.Option(help="Problem file; else practice problems are made.")] = None,
    skip_web: Annotated[bool, typer.Option("--skip-web", help="Leave a file's web problems out.")] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Run problems whose answers the catalogue lacks, too.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, help="How many problems.")] = 6,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="SEED",
            help="Run on variants drawn by SEED, as qualifying does: of the policy's suite, or of the problem file. "
            "Any text will do; a qualifying record names the seed it ran under.",
        ),
    ] = None,
    catalogue: BuiltIndexOption = None,
    model_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint; else OPENAI_BASE_URL.")] = None,
    model: Annotated[str | None, typer.Option(help="Model id there, instead of the policy's list.")] = None,
    policy: _Policy = None,
    state_dir: _StateDir = None,
    bodies: Annotated[Path | None, typer.Option(help="Folder to keep each trace in, as JSON.")] = None,
    gate: Annotated[bool, typer.Option(help="Gate the file first, as a validator does.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Run an agent file on problems, as a validator would.

    The gate comes first: a file that it rejects would never run at a validator, so it does not run here either, unless
    you say --no-gate.

    The same jail, tools, gateway, scoring and judge, so the body hash printed here is the one a validator records for
    the same agent, problem, policy and model replies. Without a model endpoint the scripted model answers, and without
    a catalogue a synthetic one is made. Exit code 1 when an episode ended in a fault of the agent's own.
    """
    raw = _read(agent)
    try:
        source = raw.decode("utf-8")  # as the gate decodes it: what runs is what was checked
    except UnicodeDecodeError as error:
        raise ArenaError("A1001", f"byte {raw[error.start]:#04x} at offset {error.start}") from error

    from arena.evaluate import evaluate
    from foundation.canonical import canonical_bytes
    from neurons.cli.miner.problem_file import refuse_missing
    from neurons.node.wiring import open_local_ports

    resolved = _settings(policy, catalogue, state_dir, model_url, model)
    if gate:
        from neurons.node.bank_preparation import gate_report

        report = gate_report(raw, resolved.settings)
        if report.outcome == "reject":
            _show_report(agent, report)
            raise typer.Exit(EXIT_FAILED)
    done: list[Evaluation] = []
    with open_local_ports(resolved.settings) as ports:
        asked = _asked(ports, resolved.settings, problems, problem or [], count, variant, is_web_skipped=skip_web)
        refuse_missing([one for one, _ in asked], ports.catalogue, is_allowed=allow_missing)
        with _watched(len(asked), is_quiet=as_json) as watch:
            for one, its_ports in asked:
                evaluation = evaluate(source, one, its_ports)
                done.append(evaluation)
                if bodies is not None:  # the bytes whose sha256 is the body hash
                    bodies.mkdir(parents=True, exist_ok=True)
                    (bodies / f"{evaluation.body.problem_id}.json").write_bytes(canonical_bytes(evaluation.body))
                watch(evaluation)
    show(list(map(_json_row, done)), _summary_lines(done), as_json=as_json)
    if any(evaluation.body.failure for evaluation in done):
        raise typer.Exit(EXIT_FAILED)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArenaError("A1009", f"{path}: {error.strerror}") from error


def _settings(
    policy: str | None,
    catalogue: Path | None,
    state_dir: Path | None,
    model_url: str | None = None,
    model: str | None = None,
) -> ResolvedSettings:
    """A miner's settings: where nobody chose a policy or a judge, the demo policy holds, which needs no key."""
    from neurons.node.settings import resolve

    flags = {
        "policy": policy,
        "catalogue_dir": catalogue,
        "state_dir": state_dir,
        "openai_base_url": model_url,
        "upstreams": () if model_url else None,  # the endpoint named here is asked, whatever a file names
        "models": model,
    }
    resolved = resolve(flags)
    is_chosen = any(row.name == "policy" and row.source != "default" for row in resolved.rows)
    if is_chosen or resolved.settings.judge_base_url:
        return resolved
    return resolve({**flags, "policy": "demo"})


def _show_report(agent: Path, report: GateReport) -> None:
    from arena.gate.remedies import what_to_change
    from arena.gate.rules import RULES

    colour = {"accept": "green", "review": "yellow", "reject": "red"}[report.outcome]
    typer.echo(f"{badge(report.outcome, colour)}  {agent}  sha256 {report.source_sha256}")
    for finding in report.findings:
        where = f"{agent}:{finding.line}" if finding.line else f"{agent}"
        typer.echo(f"  {finding.outcome}  {where}  {finding.rule}: {finding.detail or RULES[finding.rule].meaning}")
        if change := what_to_change(finding):
            typer.echo(f"      change: {change}")
    if report.failure is not None:
        typer.echo(f"      fix: {lookup(report.failure.code).remedy}")
    elif report.outcome == "accept":
        typer.echo(f"      next: arena run {agent}")
    typer.echo(f"rules {report.rules_version}, inputs {report.inputs_sha256[:12]}")


def _asked(
    ports: EvaluatePorts,
    settings: Settings,
    file: Path | None,
    wanted: Sequence[str],
    count: int,
    seed: str | None,
    *,
    is_web_skipped: bool,
) -> list[tuple[Problem, EvaluatePorts]]:
    """The problems to run on, each with the ports that score it: the wanted ones, or the first `count`.

    They are those of a file, else with a seed for variants the policy's suite, as a validator opens it, else practice
    problems, buckets in turn. Raises typer.BadParameter for an id or a number that is not there, ArenaError P4001 to
    P4009 for a broken file, P4032 for a variant that can't be drawn.
    """
    import dataclasses

    from neurons.cli.miner.problem_file import read_problem_file
    from neurons.node.bank_preparation import prepare_suite
    from neurons.node.wiring import local_problems, policy_of
    from problems.suites.variants import VariantMaker

    if file is not None:
        known: Sequence[Problem] = read_problem_file(file, is_web_skipped=is_web_skipped)
    elif seed is not None:
        known = prepare_suite(settings, policy_of(settings))
    else:
        made = local_problems(ports, _PRACTICE_SEED, _PRACTICE_PER_BUCKET)
        known = [one for offset in range(_PRACTICE_PER_BUCKET) for one in made[offset::_PRACTICE_PER_BUCKET]]
    by_id = {problem.problem_id: problem for problem in known}
    if missing := [name for name in wanted if name not in by_id]:
        raise typer.BadParameter(f"no problem {missing[0]}; there are {', '.join(list(by_id)[:3])} and others")
    if file is None and count > len(known):
        raise typer.BadParameter(f"there are {len(known)} problems; give a file with --problems for more")
    chosen = [by_id[name] for name in wanted] if wanted else list(known[:count])
    if seed is None:
        return [(one, ports) for one in chosen]
    maker = VariantMaker(known, ports.catalogue.products())
    drawn = [maker.variant(problem.problem_id, seed) for problem in chosen]
    return [(one.problem, dataclasses.replace(ports, titles=one.titles)) for one in drawn]


@contextmanager
def _watched(total: int, is_quiet: bool) -> Iterator[Callable[[Evaluation], None]]:
    """Shows each evaluation as it ends: a live table on a terminal, a line each elsewhere, nothing when quiet."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if is_quiet:
        yield lambda evaluation: None
    elif not console.is_terminal:
        typer.echo(_line(tuple(_COLUMNS)))
        yield lambda evaluation: typer.echo(_line(_cells(evaluation)))
    else:
        done: list[Evaluation] = []
        with Live(_table(done, total), console=console, refresh_per_second=4) as live:

            def take(evaluation: Evaluation) -> None:
                done.append(evaluation)
                live.update(_table(done, total))

            yield take


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _COLUMNS.values(), strict=True)).rstrip()


def _table(done: Sequence[Evaluation], total: int) -> Table:
    title = f"{len(done)} of {total} problems"
    table = make_table(*_COLUMNS, title=title, box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", column.header == "problem"  # ids are copied: never cut or wrapped
    for evaluation in done:
        table.add_row(*_cells(evaluation))
    return table


def _cells(evaluation: Evaluation) -> tuple[str, ...]:
    """One row: what was asked, hits of total per axis over all slots, coefficient, and how it ended."""
    from judge.verdict import Verdict
    from problems.scoring.outcome import OutcomeScore

    body, outcome, verdict = evaluation.body, evaluation.outcome, evaluation.verdict
    success, axes = "unscored", ["-"] * len(_AXES)
    if isinstance(outcome, OutcomeScore):
        success = "yes" if outcome.is_success else "no"
        totals = [[getattr(slot, axis) for slot in outcome.slots] for axis in _AXES]
        axes = [f"{sum(a.hits for a in axis)}/{sum(a.total for a in axis)}" for axis in totals]
    coefficient = share_text(verdict.coefficient_e4) if isinstance(verdict, Verdict) else "-"
    ended = f"{body.stop} {body.failure.code}" if body.failure else body.stop
    is_agentic = "yes" if body.is_agentic else "no"
    return (body.problem_id, body.bucket, success, *axes, coefficient, is_agentic, ended, body.body_hash()[:12])


def _summary_lines(done: Sequence[Evaluation]) -> Iterator[str]:
    solved = sum(1 for evaluation in done if (evaluation.score_e4 or 0) > 0)
    scores = [evaluation.score_e4 for evaluation in done if evaluation.score_e4 is not None]
    mean = sum(scores) / len(scores) / 10_000 if scores else 0.0
    yield f"\nsolved {solved} of {len(done)}; mean score {mean:.4f} over {len(scores)} scored (outcome x coefficient)"
    for evaluation in done:
        if failure := evaluation.body.failure:
            yield f"{evaluation.body.problem_id}: {render(lookup(failure.code), failure.detail)}"
            if tail := evaluation.cost.output_tail[-_TAIL_CHARS:].strip():
                yield tail


def _json_row(evaluation: Evaluation) -> dict[str, object]:
    names = ("status", "failure", "outcome", "verdict", "sandbox", "cost")
    return {
        "problem_id": evaluation.body.problem_id,
        "body_sha256": evaluation.body.body_hash(),
        "score_e4": evaluation.score_e4,
        "stop": evaluation.body.stop,
        "is_agentic": evaluation.body.is_agentic,
        **{name: getattr(evaluation, name) for name in names},
    }

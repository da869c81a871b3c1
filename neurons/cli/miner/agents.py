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

if TYPE_CHECKING:
    from rich.table import Table

    from arena.evaluate.model import Evaluation
    from arena.evaluate.ports import EvaluatePorts
    from arena.gate.report import GateReport
    from neurons.node.settings import ResolvedSettings, Settings
    from problems.model import Problem

app = typer.Typer()

_EXIT_FAILED = 1
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
_PRACTICE_SEED, _PRACTICE_PER_BUCKET = 1, 20  # the same practice problems at every desk with the same catalogue

_AgentFile = Annotated[Path, typer.Argument(metavar="AGENT.py", help="The agent file.")]
_Catalogue = Annotated[Path | None, typer.Option("--catalogue", help="Built index; else the synthetic one.")]
_Policy = Annotated[str | None, typer.Option(help="Policy by name or JSON file; without a judge endpoint: demo.")]
_StateDir = Annotated[Path | None, typer.Option(help="State folder instead of the one set.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def check(
    agent: _AgentFile,
    catalogue: _Catalogue = None,
    policy: _Policy = None,
    state_dir: _StateDir = None,
    as_json: _Json = False,
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
        typer.echo(msgspec.json.encode({**msgspec.to_builtins(report), "code": failure}).decode())
    else:
        _show_report(agent, report)
    if report.outcome == "reject":
        raise typer.Exit(_EXIT_FAILED)


@app.command()
def run(
    agent: _AgentFile,
    problem: Annotated[list[str] | None, typer.Option(help="Only this problem id; may be given again.")] = None,
    problems: Annotated[Path | None, typer.Option(help="Problem file; else practice problems are made.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many problems.")] = 6,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="SEED",
            help="Run on variants drawn by SEED, as qualifying does: of the policy's suite, or of the problem file. "
            "Any text will do; a qualifying record names the seed it ran under.",
        ),
    ] = None,
    catalogue: _Catalogue = None,
    model_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint; else OPENAI_BASE_URL.")] = None,
    model: Annotated[str | None, typer.Option(help="Model id there, instead of the policy's list.")] = None,
    policy: _Policy = None,
    state_dir: _StateDir = None,
    bodies: Annotated[Path | None, typer.Option(help="Folder to keep each trace in, as JSON.")] = None,
    gate: Annotated[bool, typer.Option(help="Gate the file first, as a validator does.")] = True,
    as_json: _Json = False,
) -> None:
    """Run an agent file on problems, as a validator would.

    The gate comes first: a file that it rejects would never run at a validator, so it does not run here either, unless
    you say --no-gate.

    The same jail, tools, gateway, scoring and judge, so the body hash printed here is the one a validator records for
    the same agent, problem, policy and model replies. Without a model endpoint the scripted model answers, and without
    a catalogue a synthetic one is made. Exit code 1 when an episode ended in a fault of the agent's own.
    """
    raw = _read(agent)
    source = _decoded(raw)

    from arena.evaluate import evaluate
    from neurons.node.wiring import open_local_ports

    resolved = _settings(policy, catalogue, state_dir, model_url, model)
    if gate:
        from neurons.node.bank_preparation import gate_report

        report = gate_report(raw, resolved.settings)
        if report.outcome == "reject":
            _show_report(agent, report)
            raise typer.Exit(_EXIT_FAILED)
    done: list[Evaluation] = []
    with open_local_ports(resolved.settings) as ports:
        if problems is not None:
            known = _from_file(problems)
        else:
            known = _practice(ports) if variant is None else _suite(resolved.settings)
        chosen = _choose(known, problem or [], count, is_file=problems is not None)
        asked = [(one, ports) for one in chosen] if variant is None else _variants(ports, known, chosen, variant)
        with _watched(len(asked), is_quiet=as_json) as show:
            for one, its_ports in asked:
                evaluation = evaluate(source, one, its_ports)
                done.append(evaluation)
                _keep(bodies, evaluation)
                show(evaluation)
    if as_json:
        _print_json(done)
    else:
        _print_summary(done)
    if any(evaluation.body.failure for evaluation in done):
        raise typer.Exit(_EXIT_FAILED)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArenaError("A1009", f"{path}: {error.strerror}") from error


def _decoded(source: bytes) -> str:
    """The gate's own decoding: what is run is what was checked."""
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("A1001", f"byte {source[error.start]:#04x} at offset {error.start}") from error


def _settings(
    policy: str | None,
    catalogue: Path | None,
    state_dir: Path | None,
    model_url: str | None = None,
    model: str | None = None,
) -> ResolvedSettings:
    """A miner's desk: where nobody chose a policy or a judge, the demo policy holds, which needs no key."""
    from neurons.node.settings import resolve

    flags = {
        "policy": policy,
        "catalogue_dir": catalogue,
        "state_dir": state_dir,
        "openai_base_url": model_url,
        "models": model,
    }
    resolved = resolve(flags)
    is_chosen = any(row.name == "policy" and row.source != "default" for row in resolved.rows)
    if is_chosen or resolved.settings.judge_base_url:
        return resolved
    return resolve({**flags, "policy": "demo"})


def _show_report(agent: Path, report: GateReport) -> None:
    from arena.gate.rules import RULES

    colour = {"accept": "green", "review": "yellow", "reject": "red"}[report.outcome]
    typer.echo(f"{typer.style(report.outcome, fg=colour, bold=True)}  {agent}  sha256 {report.source_sha256}")
    for finding in report.findings:
        where = f"{agent}:{finding.line}" if finding.line else f"{agent}"
        typer.echo(f"  {finding.outcome}  {where}  {finding.rule}: {finding.detail or RULES[finding.rule].meaning}")
    if report.failure is not None:
        typer.echo(f"      fix: {lookup(report.failure.code).remedy}")
    elif report.outcome == "accept":
        typer.echo(f"      next: arena run {agent}")
    typer.echo(f"rules {report.rules_version}, inputs {report.inputs_sha256[:12]}")


def _choose(known: Sequence[Problem], wanted: Sequence[str], count: int, *, is_file: bool) -> tuple[Problem, ...]:
    """The problems to run on: the wanted ones, or the first.

    Raises typer.BadParameter for an id or a number that is not there.
    """
    by_id = {problem.problem_id: problem for problem in known}
    if missing := [name for name in wanted if name not in by_id]:
        raise typer.BadParameter(f"no problem {missing[0]}; there are {', '.join(list(by_id)[:3])} and others")
    if not is_file and count > len(known):
        raise typer.BadParameter(f"there are {len(known)} problems; give a file with --problems for more")
    return tuple(by_id[name] for name in wanted) if wanted else tuple(known[:count])


def _variants(
    ports: EvaluatePorts, suite: Sequence[Problem], wanted: Sequence[Problem], seed: str
) -> list[tuple[Problem, EvaluatePorts]]:
    """The variants of the wanted problems, each with the ports that score it. Raises ArenaError P4032."""
    import dataclasses

    from problems.suites.variants import VariantMaker

    maker = VariantMaker(suite, ports.catalogue.products())
    drawn = [maker.variant(problem.problem_id, seed) for problem in wanted]
    return [(one.problem, dataclasses.replace(ports, titles=one.titles)) for one in drawn]


def _suite(settings: Settings) -> Sequence[Problem]:
    """The suite of the policy, as a validator opens it."""
    from neurons.node.bank_preparation import prepare_suite
    from neurons.node.wiring import policy_of

    return prepare_suite(settings, policy_of(settings))


def _practice(ports: EvaluatePorts) -> Sequence[Problem]:
    """Practice problems for the open catalogue, buckets in turn."""
    from neurons.node.wiring import local_problems

    made = local_problems(ports, _PRACTICE_SEED, _PRACTICE_PER_BUCKET)
    return [
        made[start]
        for offset in range(_PRACTICE_PER_BUCKET)
        for start in range(offset, len(made), _PRACTICE_PER_BUCKET)
    ]


def _from_file(path: Path) -> Sequence[Problem]:
    """The problems of a file. Raises ArenaError P4001..P4009 for a broken one."""
    from problems.suites.formats import read_problems

    try:
        with path.open("rb") as stream:
            return read_problems(stream)
    except OSError as error:
        raise ArenaError("P4001", f"{path}: {error.strerror}") from error


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

            def show(evaluation: Evaluation) -> None:
                done.append(evaluation)
                live.update(_table(done, total))

            yield show


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, _COLUMNS.values(), strict=True)).rstrip()


def _table(done: Sequence[Evaluation], total: int) -> Table:
    from rich.table import Table

    table = Table(
        title=f"{len(done)} of {total} problems", title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for heading in _COLUMNS:
        table.add_column(heading, overflow="fold", no_wrap=heading == "problem")  # ids are copied: never cut or wrapped
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
    coefficient = f"{verdict.coefficient_e4 / 10_000:.4f}" if isinstance(verdict, Verdict) else "-"
    ended = f"{body.stop} {body.failure.code}" if body.failure else body.stop
    is_agentic = "yes" if body.is_agentic else "no"
    return (body.problem_id, body.bucket, success, *axes, coefficient, is_agentic, ended, body.body_hash()[:12])


def _print_summary(done: Sequence[Evaluation]) -> None:
    solved = sum(1 for evaluation in done if (evaluation.score_e4 or 0) > 0)
    scores = [evaluation.score_e4 for evaluation in done if evaluation.score_e4 is not None]
    mean = sum(scores) / len(scores) / 10_000 if scores else 0.0
    typer.echo(
        f"\nsolved {solved} of {len(done)}; mean score {mean:.4f} over {len(scores)} scored (outcome x coefficient)"
    )
    for evaluation in done:
        if evaluation.body.failure is not None:
            failure = evaluation.body.failure
            typer.echo(f"{evaluation.body.problem_id}: {render(lookup(failure.code), failure.detail)}")
            if tail := evaluation.cost.output_tail[-_TAIL_CHARS:].strip():
                typer.echo(tail)


def _print_json(done: Sequence[Evaluation]) -> None:
    import msgspec

    rows = [
        {
            "problem_id": evaluation.body.problem_id,
            "body_sha256": evaluation.body.body_hash(),
            "score_e4": evaluation.score_e4,
            "stop": evaluation.body.stop,
            "is_agentic": evaluation.body.is_agentic,
            **{
                name: getattr(evaluation, name)
                for name in ("status", "failure", "outcome", "verdict", "sandbox", "cost")
            },
        }
        for evaluation in done
    ]
    typer.echo(msgspec.json.encode(rows).decode())


def _keep(folder: Path | None, evaluation: Evaluation) -> None:
    """Write the body's canonical bytes, whose sha256 is the body hash."""
    if folder is not None:
        from foundation.canonical import canonical_bytes

        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{evaluation.body.problem_id}.json").write_bytes(canonical_bytes(evaluation.body))

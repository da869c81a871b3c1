"""`arena study`: the small study, from nothing to its report, one resumable command.

It opens plan and recipes and shows what runs; the decisions are in `training.study`.
"""

from __future__ import annotations

import difflib
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.codes.names import GUARD_STOPPED, RUN_UNUSABLE
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import JsonOption
from neurons.cli.presenter import echo_json, show, show_progress

if TYPE_CHECKING:
    from training.study.parts import Part
    from training.study.study import Study

_FINDINGS = frozenset({GUARD_STOPPED, RUN_UNUSABLE})  # of a stage or a measurement; the study goes on

app = typer.Typer(help="Run the small study.", no_args_is_help=True)


@app.command()
def study(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; an unfinished one goes on.")],
    file: Annotated[
        Path | None, typer.Option("--file", help="The plan's TOML file; its recipes lie beside it.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The shipped small plan: one seed, under an hour of one core.")
    ] = False,
    results: Annotated[Path | None, typer.Option("--results", help="Folder of finished rows. Default: in OUT.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder. Default: the trimmed one.")] = None,
    only: Annotated[str, typer.Option("--only", help="Run this row or part alone, or all whose names begin so.")] = "",
    plan: Annotated[
        bool, typer.Option("--plan", "--dry-run", help="What is left, and how long; runs nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the small study from nothing to its report.

    A small model on a synthetic market: problems, a frozen partition, records of agents, export, corpus, base, then row
    after row of the table: a stage, its measurements, its result, and report.html. Killed or stopped at any point, the
    same command goes on; a stage that can't be trained is named, on the page too, and the rest is measured (exit code
    1). A row's result is a file in RESULTS and is never made twice: with it and without OUT the same command makes
    again what the open rows start from. It takes CPU hours (training/recipes/README.md); `--plan` says what is left
    and how long, row by row, from what finished parts took. SIGTERM stops it where it is. `--quick` runs the same on
    fewer problems with one seed, which confirms nothing.
    """
    from neurons.settings import inputs as wiring
    from training.study.plan import read_plan
    from training.study.study import Study

    recipes = Path(wiring.__file__).parents[2] / "training" / "recipes"
    if file and quick:
        raise typer.BadParameter("a plan is named already, by --file", param_hint="--quick")
    told = file or recipes / "study" / ("quick/study.toml" if quick else "study.toml")
    with show_progress(is_quiet=as_json) as progress:
        running = Study(
            read_plan(told),
            told.read_text("utf-8"),
            told.parent,
            tokenizer or recipes / "smoke" / "tokenizer",
            out,
            code_commit=wiring.code_commit(),
            now_ms=wiring.unix_ms,
            results=results,
            progress=progress,
        )
        parts = _chosen(running, only)
        signal.signal(signal.SIGTERM, _stop)
        failed = {} if plan else _run(running, parts, is_quiet=as_json)
    if plan:
        _show(running, parts, told.parent, as_json=as_json)
    elif as_json:
        echo_json(running.document())
    elif not only:
        typer.echo(f"{out / 'report.html'}")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _stop(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: what is under way is kept as far as it is resumable, and servers are stopped."""
    raise KeyboardInterrupt


def _chosen(running: Study, only: str) -> list[Part]:
    """The parts of the row called `only`, as `--plan` lists it, or the part of that name; where there is none, those of
    which either begins so. Raises typer.BadParameter for none, naming the nearest."""
    parts = running.parts()
    if not only:
        return list(parts)
    chosen = [part for part in parts if only in (part.name, part.row)]
    chosen = chosen or [part for part in parts if part.name.startswith(only) or part.row.startswith(only)]
    if chosen:
        return chosen
    known = {name: None for part in parts for name in (part.row, part.name) if name}
    (nearest,) = difflib.get_close_matches(only, known, n=1, cutoff=0.0)
    raise typer.BadParameter(f"no row or part is called {only!r}; the nearest is {nearest!r}", param_hint="--only")


def _show(running: Study, parts: Sequence[Part], recipes: Path, *, as_json: bool) -> None:
    """The rows with what each takes, and what is left in all; as JSON, part by part."""
    from training.study.costs import estimate_minutes, read_recipes, row_costs

    known, took = read_recipes(running.plan, recipes), running.seconds()
    costs = [(part, estimate_minutes(part, running.plan, known, took), running.is_done(part)) for part in parts]
    listed = [
        {
            "name": part.name,
            "kind": part.kind,
            "row": part.row,
            "minutes": round(minutes, 1),
            "is_measured": part.name in took,
            "is_done": is_done,
        }
        for part, minutes, is_done in costs
    ]
    rows = row_costs(costs)
    lines = [
        f"{'open' if one.is_open else 'done':<6}{one.left / 60:6.1f} h of {one.whole / 60:5.1f}  {one.row}"
        for one in rows
    ]
    left_min = sum(one.left for one in rows)
    show(listed, [*lines, f"left: about {left_min / 60:.1f} hours of one core"], as_json=as_json)


def _run(running: Study, parts: Sequence[Part], *, is_quiet: bool) -> dict[str, str]:
    """Run the open parts; why each that failed did. A part that fails ends its row and no other."""
    from foundation.errors import ArenaError

    failed: dict[str, str] = {}
    rows: set[str] = set()  # of what failed
    for part in parts:
        if running.is_done(part) or part.row in rows:
            continue
        begun_s = time.monotonic()
        if not is_quiet:
            typer.echo(part.name)
        try:
            running.run(part)
            if not is_quiet:
                typer.echo(f"{part.name}: {time.monotonic() - begun_s:.0f} s")
        except ArenaError as error:
            if part.kind not in ("generation", "stage", "measure") or error.failure.code not in _FINDINGS:
                raise
            failed[part.name] = str(error)
            rows.add(part.row)
            running.keep_failure(part, str(error))
            typer.echo(f"{part.name}: {error}", err=True)
    return failed

"""`arena study`: the small study, from nothing to its report, one resumable command.

It opens plan and recipes and shows what runs; the decisions are in `training.study`.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foundation.codes.names import GUARD_STOPPED, RUN_UNUSABLE
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import json_flag
from neurons.cli.presenter import echo_json, show
from neurons.cli.progress import show_progress

if TYPE_CHECKING:
    from training.study.parts import Part
    from training.study.study import Study

_FINDINGS = frozenset({GUARD_STOPPED, RUN_UNUSABLE})  # of a stage or a measurement; the study goes on

app = typer.Typer(help="Run the small study.", no_args_is_help=True)


@app.command()
def study(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; an unfinished one goes on.")],
    plan: Annotated[Path | None, typer.Option("--plan", help="TOML file; its recipes lie beside it.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder. Default: the trimmed one.")] = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Also train and measure the ablations.")] = False,
    only: Annotated[str, typer.Option("--only", help="Run the unfinished parts whose name begins so.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the parts, what they take, what is done.")] = False,
    as_json: Annotated[bool, json_flag("Print the report, or the parts, as JSON on stdout.")] = False,
) -> None:
    """Run the small study from nothing to its report.

    A small model on a synthetic market: problems, a frozen partition, records of agents, export, corpus, base, every
    stage, evaluation with controls, report.html. Killed at any point, the same command goes on; a stage that can't be
    trained is named, on the page too, and the rest is measured (exit code 1). It takes CPU hours
    (training/recipes/README.md); `--dry-run` lists the parts with an estimate of each, and writes nothing. Parts that
    need one another's results apart, several commands with `--only` may run side by side.
    """
    from neurons.node import wiring
    from training.study.plan import read_plan
    from training.study.study import Study

    recipes = Path(wiring.__file__).parents[2] / "training" / "recipes"
    file = plan or recipes / "study" / "study.toml"
    with show_progress(is_quiet=as_json) as progress:
        running = Study(
            read_plan(file),
            file.read_text("utf-8"),
            file.parent,
            tokenizer or recipes / "smoke" / "tokenizer",
            out,
            code_commit=wiring.code_commit(),
            now_ms=wiring.unix_ms,
            progress=progress,
        )
        parts = _chosen(running, only, with_ablations=ablations)
        failed = {} if dry_run else _run(running, parts, is_quiet=as_json)
    if dry_run:
        _show(running, parts, file.parent, as_json=as_json)
    elif as_json:
        echo_json(running.document())
    elif not only:
        typer.echo(f"{out / 'report.html'}")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _chosen(running: Study, only: str, *, with_ablations: bool) -> list[Part]:
    """The parts whose name begins with `only`. Raises typer.BadParameter for none, naming the nearest."""
    chosen = [part for part in running.parts(with_ablations=with_ablations) if part.name.startswith(only)]
    if chosen:
        return chosen
    names = [part.name for part in running.parts(with_ablations=True)]
    if any(name.startswith(only) for name in names):
        raise typer.BadParameter(f"{only!r} is of the ablations: add --ablations", param_hint="--only")
    (nearest,) = difflib.get_close_matches(only, names, n=1, cutoff=0.0)
    raise typer.BadParameter(f"no part's name begins with {only!r}; the nearest is {nearest!r}", param_hint="--only")


def _show(running: Study, parts: Sequence[Part], recipes: Path, *, as_json: bool) -> None:
    """The parts with what each would take, and what is left in all."""
    from training.study.costs import estimate_minutes, read_recipes

    known = read_recipes(running.plan, recipes)
    rows = [(part, estimate_minutes(part, running.plan, known), running.is_done(part)) for part in parts]
    listed = [
        {"name": part.name, "kind": part.kind, "minutes": round(minutes, 1), "is_done": is_done}
        for part, minutes, is_done in rows
    ]
    left_min = sum(minutes for _, minutes, is_done in rows if not is_done)
    lines = [f"{'done' if is_done else 'open':<6}{minutes:7.1f} min  {part.name}" for part, minutes, is_done in rows]
    show(listed, [*lines, f"left: about {left_min / 60:.1f} hours of one core"], as_json=as_json)


def _run(running: Study, parts: Sequence[Part], *, is_quiet: bool) -> dict[str, str]:
    """Run the open parts; why each that failed did. A stage that fails does not keep the others from the table."""
    from foundation.errors import ArenaError

    failed: dict[str, str] = {}
    for part in parts:
        if running.is_done(part):
            continue
        begun_s = time.monotonic()
        if not is_quiet:
            typer.echo(part.name)
        try:
            running.run(part)
            if not is_quiet:
                typer.echo(f"{part.name}: {time.monotonic() - begun_s:.0f} s")
        except ArenaError as error:
            if part.kind not in ("stage", "measure") or error.failure.code not in _FINDINGS:
                raise
            failed[part.name] = str(error)
            running.keep_failure(part, str(error))
            typer.echo(f"{part.name}: {error}", err=True)
    return failed

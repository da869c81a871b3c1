"""`arena study`: the small study, from nothing to its report, one resumable command.

It opens plan and recipes and shows what runs; every decision stands in `training.study`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from training.study.parts import Part
    from training.study.study import Study

_OF_A_STAGE = ("V2123", "V2124")  # a guard, or nothing to learn from: a finding of the study

app = typer.Typer(help="Run the small study.", no_args_is_help=True)


@app.command()
def study(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; an unfinished one goes on.")],
    plan: Annotated[Path | None, typer.Option("--plan", help="TOML file; its recipes lie beside it.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder. Default: the trimmed one.")] = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Also train and measure the ablations.")] = False,
    only: Annotated[str, typer.Option("--only", help="Run the unfinished parts whose name begins so.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the parts and what is done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on stdout.")] = False,
) -> None:
    """Run the small study from nothing to its report.

    A small model on a synthetic market: problems, a frozen partition, records of agents, export, corpus, base, every
    stage, evaluation with controls, report.html. Killed at any point, the same command goes on; a stage that can't be
    trained is named, and the rest is measured (exit code 1). It takes CPU hours (training/recipes/README.md);
    `--dry-run` lists the parts.
    """
    import msgspec

    from neurons import wiring
    from neurons.cli.progress import show_progress
    from training.study.plan import read_plan
    from training.study.study import Study

    recipes = Path(wiring.__file__).parents[1] / "training" / "recipes"
    file = plan or recipes / "study" / "study.toml"
    with contextlib.nullcontext() if as_json else show_progress() as progress:
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
        parts = [part for part in running.parts(with_ablations=ablations) if part.name.startswith(only)]
        failed = {} if dry_run else _run(running, parts, is_quiet=as_json)
    if as_json:
        typer.echo(msgspec.json.encode(running.document()).decode())
    elif dry_run:
        for part in parts:
            typer.echo(f"{'done' if running.is_done(part) else 'open':<6}{part.name}")
    elif not only:
        typer.echo(f"{out / 'report.html'}")
    if failed:
        raise typer.Exit(1)


def _run(running: Study, parts: Sequence[Part], *, is_quiet: bool) -> dict[str, str]:
    """Run the open parts; why each that failed did. A stage that fails does not keep the others from the table."""
    from problems.errors import ArenaError

    failed: dict[str, str] = {}
    for part in parts:
        if running.is_done(part):
            continue
        if not is_quiet:
            typer.echo(part.name)
        try:
            running.run(part)
        except ArenaError as error:
            if part.kind not in ("stage", "measure") or error.failure.code not in _OF_A_STAGE:
                raise
            failed[part.name] = str(error)
            typer.echo(f"{part.name}: {error}", err=True)
    return failed

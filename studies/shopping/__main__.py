"""`python -m studies.shopping`: the study from nothing to its page, resumable (README.md)."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from foundation.codes.names import GUARD_STOPPED, RUN_UNUSABLE
from foundation.errors import ArenaError
from neurons.cli.app import run_guarded
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.presenter import show_progress
from neurons.settings import inputs
from studies.shopping.plan import StudyPlan, read_toml
from studies.shopping.results import Results, render_page
from studies.shopping.study import Study

RECIPES = Path(__file__).with_name("recipes")
TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer"
app = typer.Typer(add_completion=False)


@app.command()
def study(
    out: Annotated[Path, typer.Option("--out", help="Folder of the study; an unfinished one goes on.")],
    recipes: Annotated[Path, typer.Option("--recipes", help="Folder of study.toml and its recipes.")] = RECIPES,
    quick: Annotated[bool, typer.Option("--quick", help="The small plan: an hour of one core.")] = False,
    results: Annotated[Path | None, typer.Option("--results", help="Folder of finished rows. Default: in OUT.")] = None,
    only: Annotated[str, typer.Option("--only", help="Make only rows whose names begin so; `report`: none.")] = "",
    plan: Annotated[bool, typer.Option("--plan", help="List the rows and their hours; run nothing.")] = False,
) -> None:
    """Make the rows that have no result yet, then OUT/report.md. A row that fails ends no other (exit code 1)."""
    folder = recipes / "quick" if quick else recipes
    rules = read_toml(folder / "study.toml", StudyPlan)
    kept = Results(results or out / "results", rules)
    with show_progress(is_quiet=plan) as progress:
        running = Study(
            plan=rules,
            recipes=folder,
            source=TOKENIZER,
            folder=out.resolve(),
            results=kept,
            code_commit=inputs.code_commit(),
            now_ms=inputs.unix_ms,
            progress=progress,
        )
        done = kept.read()
        chosen = [label for label in rules.labels if label.startswith(only)]
        if plan:
            for label in chosen:
                took_s = sum(done[label].seconds.values()) if label in done else 0.0
                typer.echo(f"{'done' if label in done else 'open'} {took_s / 3600:5.1f} h  {label}")
            return
        if not chosen and only != "report":
            raise typer.BadParameter(f"no row begins with {only!r}", param_hint="--only")
        signal.signal(signal.SIGTERM, _stop)
        failed = _make(running, [label for label in chosen if label not in done])
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(render_page(rules, folder, kept.read()), "utf-8")
    typer.echo(out / "report.md")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _stop(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: what is under way is kept as far as it is resumable, and servers are stopped."""
    raise KeyboardInterrupt


def _make(running: Study, labels: list[str]) -> bool:
    """Make the rows; whether one failed. A stage or measurement that fails ends its row and no other."""
    has_failed = False
    for label in labels:
        typer.echo(label)
        try:
            running.make(label)
        except ArenaError as error:
            if error.failure.code not in (GUARD_STOPPED, RUN_UNUSABLE):
                raise
            typer.echo(f"{label}: {error}", err=True)
            has_failed = True
    return has_failed


if __name__ == "__main__":
    raise SystemExit(run_guarded(lambda: app()))

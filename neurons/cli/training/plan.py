"""`arena train --dry-run`: what a recipe would run, on what, and what that would take.

It counts what the recipe names where that is there, says what it assumed where it is not, and names the device that
this machine would compute on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from training.models.estimate import Work
    from training.recipe import Recipe

# of a corpus, and of the problem files, that are not there; a partition deals 60 problems to `dev`
ASSUMED_TOKENS, ASSUMED_PROBLEMS, ASSUMED_DEV = 10_000_000, 1_000, 60


def show_plan(plan: Recipe, *, as_json: bool) -> None:
    """Print the recipe, what it works on, and the estimate.

    Raises ArenaError V2124 for a model of unknown shape, V2027 for a corpus that can't be read.
    """
    import msgspec

    from training.models.device import find_device
    from training.models.estimate import estimate_run

    rows, work, assumed = count_work(plan)
    estimate, device = estimate_run(plan, work), find_device()
    if as_json:
        shown = {
            "recipe": plan,
            "rows": rows,
            "work": work,
            "assumed": assumed,
            "estimate": estimate,
            "device": device,
        }
        typer.echo(msgspec.json.encode(shown).decode())
        return
    typer.echo(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
    typer.echo(f"rows in the corpus     {rows}, {work.corpus_tokens:,} tokens")
    typer.echo(f"problems               {work.problems}, for guards {work.dev}; episodes taken over {work.taken}")
    for line in assumed:
        typer.echo(f"assumed                {line}")
    typer.echo(f"parameters             {estimate.parameters:,}, trained {estimate.trained_parameters:,}")
    typer.echo(f"memory                 {estimate.memory_gb:.1f} GB")
    typer.echo(f"trained on             {estimate.tokens:,} tokens an epoch, {estimate.episodes:,} episodes sampled")
    for name, hours in estimate.hours.items():
        sampling = estimate.sampling_hours[name]
        typer.echo(f"time on {name:<14} {hours:.2f} h of training, {sampling:.2f} h of sampling")
    typer.echo(f"device here            {device.describe()}")
    if device.warning:
        typer.echo(f"warning                {device.warning}")


def count_work(plan: Recipe) -> tuple[int, Work, list[str]]:
    """(rows in the corpora, what the run works on, what was assumed of things that are not there)."""
    from training.models.estimate import Work

    assumed: list[str] = []
    counted = [_corpus(Path(name), assumed) for name in plan.data.corpus]
    work = Work(
        corpus_tokens=sum(tokens for _, tokens in counted),
        problems=_problems(plan.data.problems, ASSUMED_PROBLEMS, assumed),
        taken=sum(_episodes(Path(name), assumed) for name in plan.data.rollouts),
        dev=_problems(plan.data.dev_problems, ASSUMED_DEV, assumed),
    )
    return sum(rows for rows, _ in counted), work, assumed


def _corpus(folder: Path, assumed: list[str]) -> tuple[int, int]:
    from training.corpus.corpus_files import read_rows

    if not folder.exists():
        assumed.append(f"{folder}: {ASSUMED_TOKENS:,} tokens")
        return 0, ASSUMED_TOKENS
    counts = [row.tokens or 0 for row in read_rows(folder)]
    return len(counts), sum(counts)


def _problems(name: str, otherwise: int, assumed: list[str]) -> int:
    from neurons.cli.problems.reading import read_file, shipped_named

    if not name:
        return 0
    if not Path(name).exists() and not shipped_named(name):
        assumed.append(f"{name}: {otherwise:,} problems")
        return otherwise
    return len(read_file(Path(name)))


def _episodes(run: Path, assumed: list[str]) -> int:
    from training.rollouts.episode_file import EpisodeFile
    from training.stages.rejection import EPISODES

    if not (run / EPISODES).exists():
        assumed.append(f"{run}: {ASSUMED_PROBLEMS:,} episodes")
        return ASSUMED_PROBLEMS
    return len(EpisodeFile(run / EPISODES).lines())

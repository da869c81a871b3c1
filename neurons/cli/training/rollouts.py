"""`arena developer rollouts`: what a run sampled, as samples of another trainer.

It opens the run and writes the samples; the decisions are in `training.rollouts.prime_rl`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foundation.durable_files import write_whole
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import JsonOption
from neurons.cli.presenter import field_lines, show

app = typer.Typer(help="Write a run's rollouts in prime-rl's sample form.", no_args_is_help=True)


@app.command()
def rollouts(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that sampled: a rejection stage's.")],
    out: Annotated[Path, typer.Option("--out", help="File to write, JSON Lines; it must not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Write a run's rollouts in prime-rl's sample form.

    One JSON array a line, in the order of prime-rl's TrainingSample: ids of prompt and completion as they were sampled,
    mask, the sampler's logprobs, temperatures, the environment's name, an advantage for each token (the outcome less
    the mean of the problem's rollouts) and the reward. An episode without tokens or without a reward is left out and
    counted. Evaluations are never exported: RUN is a stage's folder, whose problems were of the train pool.

    Exit code 1 when nothing can be exported; then nothing is written.

    arena developer rollouts runs/rejection --out samples.jsonl
    """
    from foundation.errors import ArenaError
    from training.recipe import read_recipe
    from training.rollouts.episode_file import EpisodeFile
    from training.rollouts.prime_rl import export_episodes
    from training.stages.rejection import EPISODES
    from training.stages.run import RECIPE

    if out.exists():
        raise typer.BadParameter(f"{out} exists; it is written once", param_hint="--out")
    for name in (RECIPE, EPISODES):
        if not (run / name).exists():
            raise ArenaError("V2124", f"{run} holds no {name}: name the folder of a stage that sampled")
    temperature = read_recipe(run / RECIPE).decode.temperature
    found = export_episodes(EpisodeFile(run / EPISODES).lines(), temperature)
    if found.lines:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, b"".join(found.lines))
    counts = {
        "samples": len(found.lines),
        "groups": found.groups,
        "level_groups": found.level_groups,
        "left_out": found.left_out,
    }
    fields = {
        "  problems without spread": found.level_groups,
        **{f"  left out, {reason}": count for reason, count in found.left_out.items()},
    }
    lines = [f"{out}: {len(found.lines)} samples of {found.groups} problems", *field_lines(fields.items(), 26)]
    show(counts, lines, as_json=as_json)
    if not found.lines:
        raise typer.Exit(EXIT_FAILED)

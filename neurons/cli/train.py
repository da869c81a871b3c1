"""`arena train`, `lineage`, `reenter`: stages of post-training, where checkpoints come from, their way back to races.

It opens what a recipe names and presents what came out; every decision stands in `training`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.inference.port import Upstream
    from neurons.settings import Settings
    from training.recipe import Recipe
    from training.workbench import Workbench

app = typer.Typer(help="Post-train a model, stage by stage.", no_args_is_help=True)

SCRIPTED = "scripted"

_RecipeFile = Annotated[Path, typer.Option("--recipe", help="TOML file of the run.", exists=True, dir_okay=False)]
_Out = Annotated[Path, typer.Option("--out", help="Folder of the run; an unfinished one goes on.")]
_Run = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a finished run.", exists=True)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
_Catalogue = Annotated[Path | None, typer.Option("--catalogue", help="Built index; else the synthetic one.")]
_Policy = Annotated[str | None, typer.Option("--policy", help="Shipped policy or a JSON file.")]
_StateDir = Annotated[Path | None, typer.Option("--state-dir", help="State folder. Default: ARENA_STATE_DIR.")]


@app.command()
def train(
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="sft, rejection, teacher, kto or grpo.")],
    recipe: _RecipeFile,
    out: _Out,
    catalogue: _Catalogue = None,
    policy: _Policy = None,
    state_dir: _StateDir = None,
    partition: Annotated[str, typer.Option(help="Partition manifest hash the problems stand under.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, its memory and time.")] = False,
    as_json: _Json = False,
) -> None:
    """Train one stage of a model from a recipe.

    Stages form a graph: sft, rejection, teacher, then kto and grpo each from teacher; a recipe names its parent. A
    finished folder is returned as it is, a killed run goes on. Exit code 1 when a guard ended the run.
    """
    from training.recipe import read_recipe

    plan = read_recipe(recipe)
    if plan.stage != stage:
        raise typer.BadParameter(f"{recipe} is a recipe of {plan.stage}, not of {stage}")
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return
    import msgspec

    from neurons.cli.progress import show_progress
    from training.stages.pipeline import run_stage

    settings = _settings(catalogue, policy, state_dir)
    with contextlib.nullcontext() if as_json else show_progress() as progress:
        bench = _bench(plan, settings, partition, progress)
        lineage = run_stage(plan, recipe.read_text("utf-8"), out, bench, open_teacher=_open_teacher)
    if as_json:
        typer.echo(msgspec.json.encode(lineage).decode())
    else:
        typer.echo(f"{out}: {lineage.stage}, {lineage.steps} steps, weights {lineage.weights_sha256[:16]}")
        for name, value in {
            **lineage.metrics,
            **{f"dropped {k}": float(v) for k, v in lineage.dropped.items()},
        }.items():
            typer.echo(f"  {name:<20} {value:g}")
        if lineage.stopped_by:
            typer.echo(f"  stopped by {lineage.stopped_by}")
    if lineage.stopped_by:
        raise typer.Exit(1)


@app.command()
def lineage(run: _Run, as_json: _Json = False) -> None:
    """Show where a checkpoint comes from.

    Stage by stage, down to the base model. Weights are hashed again and each parent is compared with what its child
    names: exit code 3 names what differs.
    """
    import tomllib

    import msgspec

    from problems.errors import ArenaError
    from training.recipe import Recipe
    from training.stages.run import open_checkpoint

    chain, folder = [], run
    while True:
        checkpoint, found = open_checkpoint(folder)
        chain.append((folder, checkpoint, found))

        parent = msgspec.convert(tomllib.loads(found.recipe), Recipe).parent
        if not parent:
            break
        folder = Path(parent)
    for (_, _, child), (place, above, _) in itertools.pairwise(chain):
        if child.parent_sha256 != above.lineage_sha256:
            raise ArenaError("V2124", f"{place} is not the parent that its child was trained from")
    if as_json:
        typer.echo(msgspec.json.encode([found for _, _, found in chain]).decode())
        return
    for place, checkpoint, found in chain:
        typer.echo(f"{found.stage:<10} {checkpoint.lineage_sha256[:16]}  weights {found.weights_sha256[:16]}  {place}")
    typer.echo(f"base       {chain[-1][2].parent_sha256[:16]}")


@app.command()
def reenter(
    run: _Run,
    name: Annotated[str, typer.Option(help="Name of the model.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for agent.py and policy.json.")],
    policy: _Policy = None,
) -> None:
    """Make a checkpoint race again.

    An agent file that asks for it, and a policy that lists its model. Serve the weights under the printed id (`vllm
    serve ... --served-model-name ID`), run a validator with the policy, and submit the agent file as any miner does.
    The id carries the weights' hash, so records name the weights.
    """
    import msgspec

    from neurons.wiring import policy_of
    from training.reenter import make_reentry
    from training.stages.run import open_checkpoint

    checkpoint, found = open_checkpoint(run)
    try:
        entry = make_reentry(name, found, checkpoint.lineage_sha256, policy_of(_settings(None, policy, None)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    out.mkdir(parents=True, exist_ok=True)
    (out / "agent.py").write_text(entry.source, encoding="utf-8")
    (out / "policy.json").write_bytes(msgspec.json.format(msgspec.json.encode(entry.policy), indent=2))
    typer.echo(f"{entry.model_id}")
    typer.echo(f"  {out / 'agent.py'}: check it with `arena check`, then `arena submit`")
    typer.echo(f"  {out / 'policy.json'}: policy {entry.policy.policy_sha256[:16]}, for `arena validator --policy`")


def _settings(catalogue: Path | None, policy: str | None, state_dir: Path | None) -> Settings:
    from neurons.settings import resolve

    return resolve({"catalogue_dir": catalogue, "policy": policy, "state_dir": state_dir}).settings


def _bench(plan: Recipe, settings: Settings, partition: str, progress: object) -> Workbench:
    from harness.catalogue.engine import open_catalogue
    from neurons import wiring
    from problems.suites import read_problems
    from training.workbench import Workbench

    wiring.prepare_catalogue(settings)
    pools = [Path(name) if name else None for name in (plan.data.problems, plan.data.dev_problems)]
    problems, dev = (read_problems(path.read_bytes().splitlines()) if path else () for path in pools)
    return Workbench(
        policy=wiring.policy_of(settings),
        catalogue=open_catalogue(wiring.catalogue_path(settings)),
        titles=wiring.open_titles(wiring.titles_file(settings)),
        problems=problems,
        dev=dev,
        partition_sha256=partition,
        code_commit=wiring.code_commit(),
        progress=progress if callable(progress) else None,
    )


@contextlib.contextmanager
def _open_teacher(plan: Recipe) -> Iterator[Upstream]:
    """The recipe's teacher: an endpoint, or the scripted expert on loopback. Raises ArenaError U3001 for none."""
    import os

    from harness.inference.client import OpenAIUpstream
    from harness.inference.scripted import start_scripted_server
    from problems.errors import ArenaError

    if not plan.teacher:
        raise ArenaError("U3001", "the recipe names no teacher")
    if plan.teacher != SCRIPTED:
        yield OpenAIUpstream("teacher", plan.teacher, os.environ.get("OPENAI_API_KEY", ""), 120_000)
        return
    with start_scripted_server() as server:
        yield OpenAIUpstream("teacher", server.base_url, "", 120_000)


def _show_plan(plan: Recipe, *, as_json: bool) -> None:
    import msgspec

    from training.corpus.corpus_files import read_rows
    from training.estimate import estimate_run

    counts = [row.tokens or 0 for name in plan.data.corpus for row in read_rows(Path(name))]
    estimate = estimate_run(plan, sum(counts))
    if as_json:
        typer.echo(msgspec.json.encode({"recipe": plan, "rows": len(counts), "estimate": estimate}).decode())
        return
    typer.echo(msgspec.json.format(msgspec.json.encode(plan), indent=2).decode())
    typer.echo(f"rows in the corpus     {len(counts)}, {sum(counts)} tokens")
    typer.echo(f"parameters             {estimate.parameters:,}, trained {estimate.trained_parameters:,}")
    typer.echo(f"memory                 {estimate.memory_gb:.1f} GB")
    for device, hours in estimate.hours.items():
        typer.echo(f"training time          {hours:.2f} h on {device}, sampling not counted")

"""`arena train`, `lineage`, `reenter`: stages of post-training, where checkpoints come from, and back.

It opens what a recipe names and prints the results; the decisions are in `training`. A dry run counts what the recipe
names where that is there, says what it assumed where it is not, and names the device that would compute here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from foundation.errors import ArenaError
from harness.inference.port import Upstream
from neurons.cli import options
from neurons.cli.presenter import EXIT_FAILED, exit_code, field_lines, show, show_progress
from neurons.practice.opening import open_bench, open_endpoint
from training.agents import NAME, make_reentry
from training.guards import GuardStopError
from training.models.estimate import Work, estimate_run
from training.models.opening import find_device, require_model, save_served
from training.recipe import Recipe, read_recipe, require_runnable
from training.run import LINEAGE, OF_FIRST, PreemptionError, launched, lineage_chain, open_checkpoint

if TYPE_CHECKING:
    from training.rollouts.rollout import RunJobs
    from training.run_context import RunContext


def say_device(work: str) -> None:
    """What `work` runs on, on stderr, with a warning where the machine has a GPU that torch can't use."""
    device = find_device()
    typer.echo(f"{work} on {device.describe()}", err=True)
    if device.warning:
        typer.echo(f"warning: {device.warning}", err=True)


def open_teacher(plan: Recipe) -> Upstream:
    """The recipe's teacher: an endpoint, or the scripted model. Raises ArenaError U3001 for none."""
    if not plan.teacher:
        raise ArenaError("U3001", "the recipe names no teacher")
    return open_endpoint("teacher", plan.teacher, by_sdk=True)


# of a corpus, and of the problem files, that are not there; a partition deals 60 problems to `dev`
ASSUMED_TOKENS, ASSUMED_PROBLEMS, ASSUMED_DEV = 10_000_000, 1_000, 60

app = typer.Typer(help="Post-train a model, stage by stage.", no_args_is_help=True)

_Run = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a finished run.", exists=True)]


@options.command(app)
def train(
    stage: Annotated[str, typer.Argument(metavar="STAGE", help="sft, rejection, teacher, kto or grpo.")],
    recipe: Annotated[Path, typer.Option(help="TOML file of the run.", metavar="FILE", parser=options.shipped_path)],
    bench_flags: options.BenchFlags,
    leaks: options.LeakFlags,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; an unfinished one goes on.")] = None,
    tiny_model: Annotated[
        bool,
        typer.Option("--tiny-model", help="Make a model of 0.2 million random weights."),
    ] = False,
    cluster: options.ClusterOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, its memory and time.")] = False,
) -> None:
    """Train one stage of a model from a recipe.

    arena train sft --recipe training/recipes/first/sft.toml --out runs/first --tiny-model

    arena train sft --recipe sft.toml --dry-run

    On several devices: `accelerate launch --multi_gpu --num_processes N -m neurons.cli.app train ...`, with weights
    spread over them `--config_file training/recipes/paper/fsdp2.yaml` in the place of --multi_gpu.

    Stages form a graph: sft, rejection, teacher, then kto and grpo each from teacher; a recipe names its parent. A
    finished folder is returned as it is, a killed run goes on; SIGTERM while it trains keeps every step done. Exit code
    1: a guard ended it; 4: its parent changed.

    A stage that learns from problems has to know which others are held out: by --held-out, or by the bank's private
    --partition, which tells the pool of each. Corpora have to be of the partition in use.
    With --cluster a teacher's rollouts, and those of the sampler that a rejection's recipe names, run on machines of a
    Ray cluster, which see tokenizer and index under the same paths.
    The device is said on stderr before anything starts; --dry-run says it too, and needs no --out.
    """
    plan = read_recipe(recipe)
    if plan.stage != stage:
        raise typer.BadParameter(f"{recipe} is a recipe of {plan.stage}, not of {stage}")
    require_runnable(plan, str(recipe))
    if cluster and (stage not in ("teacher", "rejection") or not (plan.sampler or plan.teacher)):
        raise typer.BadParameter("rollouts of a teacher or a sampler can run elsewhere", param_hint="--cluster")
    if dry_run:
        show_plan(plan)
        return
    if out is None:
        raise typer.BadParameter("name the folder of the run", param_hint="--out")
    if tiny_model and not Path(plan.model).exists():
        from training.models.tiny_model import make_starting_model

        count = make_starting_model(Path(plan.model), Path(__file__).parents[2] / "training/recipes/smoke/tokenizer")
        typer.echo(f"{plan.model}: made a model of {count:,} random weights", err=True)
    if not (out / LINEAGE).exists():  # a finished run is only returned
        require_model(plan.model)
    say_device(f"{plan.name}: {stage}")
    from training.stages.pipeline import run_stage

    pools = [options.read_file(Path(name)) if name else () for name in (plan.data.problems, plan.data.dev_problems)]
    public, private = leaks.partitions()
    manifest = private.manifest if private else public
    bench = dataclasses.replace(
        open_bench(bench_flags.settings(), progress=show_progress()),
        problems=tuple(pools[0]),
        dev=tuple(pools[1]),
        held_out=tuple(options.read_files(leaks.held_out or [])),
        partition=private,
        partition_sha256=manifest.sha256 if manifest else "",
    )
    with _said_once(), _rollouts_elsewhere(plan, bench, cluster, bench_flags) as run_jobs:
        done = run_stage(plan, out, bench, open_teacher=open_teacher, run_jobs=run_jobs)
    if launched(os.environ).is_first:
        counts = done.metrics | {f"dropped {reason}": float(count) for reason, count in done.dropped.items()}
        lines = [f"{out}: {stage}, {done.steps} steps, weights {done.weights_sha256[:16]}"]
        lines += [f"  {name:<20} {value:g}" for name, value in counts.items()]
        show(done, lines + ([f"  stopped by {done.stopped_by}"] if done.stopped_by else []))
    if done.stopped_by:
        raise typer.Exit(EXIT_FAILED)


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """Of several processes the first alone prints an error that ends all of them."""
    try:
        yield
    except ArenaError as error:
        is_shared = isinstance(error, PreemptionError | GuardStopError) or OF_FIRST in getattr(error, "__notes__", ())
        if is_shared and not launched(os.environ).is_first:
            raise typer.Exit(exit_code(error)) from error
        raise


@contextlib.contextmanager
def _rollouts_elsewhere(
    plan: Recipe, bench: RunContext, cluster: str, flags: options.BenchFlags
) -> Iterator[RunJobs | None]:
    """What runs the stage's rollouts on a cluster; None for this process. Of several devices' processes the first one
    makes them."""
    from neurons.cluster.ray_executor import open_executor

    if not cluster or not launched(os.environ).is_first:
        yield None
        return
    from neurons.cluster.episodes import Place, alike_of, by_executor, stage_episodes

    place = Place(flags=tuple(flags.named().items()), alike=alike_of(bench))
    with open_executor(cluster, 0, 0, state_dir=flags.state_dir) as executor:
        yield by_executor(plan.parallel, stage_episodes(plan, place), executor)


@options.command(app)
def lineage(run: _Run) -> None:
    """Show where a checkpoint comes from.

    Stage by stage, down to the base model. Weights are hashed again and each parent is compared with what its child
    names: exit code 4 names what differs.
    """
    chain = lineage_chain(run)
    lines = [
        f"{one.recipe.stage:<10} {one.sha256[:16]}  weights {one.weights_sha256[:16]}  {place}" for place, one in chain
    ]
    base = f"base       {chain[-1][1].parent_sha256[:16]}"
    show([found for _, found in chain], [*lines, base])


@app.command()
def reenter(
    run: _Run,
    name: Annotated[str, typer.Option(help="Name of the model.")],
    out: Annotated[Path, typer.Option(help="Folder for model/, agent.py and policy.json.")],
    policy: options.PolicyOption = None,
    is_fp32: Annotated[bool, typer.Option("--fp32", help="Served weights in fp32 instead of bf16.")] = False,
) -> None:
    """Make a checkpoint race again.

    The weights to serve with all adapters merged, an agent file that asks for them, and a policy that lists the model.
    Serve OUT/model under the printed id (`vllm serve OUT/model --served-model-name ID`; docker/vllm.Dockerfile), run a
    validator with the policy and with OPENAI_BASE_URL naming that server (http://127.0.0.1:8000/v1; OPENAI_API_KEY
    where it asks for a key), and submit the agent file as any miner does. The id carries the served weights' hash, so
    records name them. A recipe's sampler is served so too, under the name that its `sampler_model` gives.
    """
    if not NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is not a model name: letters, digits, dot, dash, underscore, at most 41")
    open_checkpoint(run)
    rules = options.policy_named(policy or "")
    weights_sha256 = save_served(run, out / "model", is_bf16=not is_fp32)
    model_id, source, listed = make_reentry(name, weights_sha256, rules)
    (out / "agent.py").write_text(source, encoding="utf-8")
    (out / "policy.json").write_bytes(msgspec.json.format(msgspec.json.encode(listed), indent=2))
    typer.echo(model_id)
    typer.echo(f"  {out / 'model'}: weights {weights_sha256}")
    typer.echo(f"  {out / 'agent.py'}: check it with `arena check`, then `arena submit`")
    typer.echo(f"  {out / 'policy.json'}: policy {listed.policy_sha256[:16]}, for `arena validator --policy`")


def show_plan(plan: Recipe) -> None:
    """Print the recipe, what it works on, and the estimate.

    Raises ArenaError V2124 for a model of unknown shape, V2027 for a corpus that can't be read.
    """
    work, assumed = count_work(plan)
    estimate, device = estimate_run(plan, work), find_device()
    fields: list[tuple[str, object]] = [
        ("corpus", f"{work.corpus_tokens:,} tokens"),
        ("problems", f"{work.problems}, for guards {work.dev}; episodes taken over {work.taken}"),
        *(("assumed", line) for line in assumed),
        ("parameters", f"{estimate.parameters:,}, trained {estimate.trained_parameters:,}"),
        ("memory", f"{estimate.memory_gb:.1f} GB"),
        ("trained on", f"{estimate.tokens:,} tokens an epoch, {estimate.episodes:,} episodes sampled"),
    ]
    for name, hours in estimate.hours.items():
        sampling = estimate.sampling_hours[name]
        fields.append((f"time on {name}", f"{hours:.2f} h of training, {sampling:.2f} h of sampling"))
    fields.append(("uncertainty", f"hours may be {estimate.uncertainty:g} times as many, or as few"))
    fields.append(("device here", device.describe()))
    if device.warning:
        fields.append(("warning", device.warning))
    recipe = msgspec.json.format(msgspec.json.encode(plan), indent=2).decode()
    shown = {"recipe": plan, "work": work, "assumed": assumed, "estimate": estimate, "device": device}
    show(shown, [recipe, *field_lines(fields, 22)])


def count_work(plan: Recipe) -> tuple[Work, list[str]]:
    """What the run works on, and what was assumed of things that are not there."""
    from training.corpus.building import read_rows
    from training.rollouts.rollout import EPISODES, EpisodeFile

    assumed: list[str] = []

    def total(names: Iterable[str], count: Callable[[Path], int | None], otherwise: int, what: str) -> int:
        found = {name: count(Path(name)) for name in names if name}
        assumed.extend(f"{name}: {otherwise:,} {what}" for name, counted in found.items() if counted is None)
        return sum(otherwise if counted is None else counted for counted in found.values())

    def tokens(corpus: Path) -> int | None:
        return sum(row.tokens or 0 for row in read_rows(corpus)) if corpus.exists() else None

    def problems(file: Path) -> int | None:
        return len(options.read_file(file)) if file.exists() or options.shipped_named(str(file)) else None

    def episodes(run: Path) -> int | None:
        return len(EpisodeFile(run / EPISODES).lines()) if (run / EPISODES).exists() else None

    work = Work(
        corpus_tokens=total(plan.data.corpus, tokens, ASSUMED_TOKENS, "tokens"),
        problems=total([plan.data.problems], problems, ASSUMED_PROBLEMS, "problems"),
        taken=total(plan.data.rollouts, episodes, ASSUMED_PROBLEMS, "episodes"),
        dev=total([plan.data.dev_problems], problems, ASSUMED_DEV, "problems"),
    )
    return work, assumed

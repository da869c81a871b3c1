"""`arena eval`: a model's or an agent file's success on a frozen set, as a report that names what it was taken under.

It opens the inputs; the decisions are in `training`. An agent file is gated, then run in the jail, with the model that
`arena run` asks.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import typer

from foundation.errors import ArenaError
from neurons.cli.agent import is_rejected, read_agent, source_of
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import BenchFlags, ClusterOption, JsonOption, command
from neurons.cli.presenter import show, show_progress
from neurons.cli.report import evaluation_lines
from neurons.cli.train import say_device
from neurons.practice.opening import SCRIPTED, open_bench, open_endpoint

if TYPE_CHECKING:
    from foundation.executors import Executor
    from problems.model import Problem
    from training.evaluation.report import EvalReport, EvaluationPlan
    from training.model import Decode
    from training.models.render import Qwen3Codec
    from training.rollouts.rollout import EpisodeLine, Job, RunJobs
    from training.run_context import RunContext


app = typer.Typer(help="Evaluate models.", no_args_is_help=True)
TURNS_MAX = 25  # of an episode, where --decode says nothing else


@dataclass(frozen=True)
class SubjectFlags:
    """How the target is asked, and where its episodes run."""

    model: Annotated[
        str, typer.Option(help="The model at an endpoint or --sampler; of `scripted` its skill; an agent file's model.")
    ] = ""
    sampler: Annotated[
        str, typer.Option(help="URL of a vLLM server that holds TARGET's weights and samples by tokens in their place.")
    ] = ""
    seeds: Annotated[
        int, typer.Option(min=0, help="Sampled episodes a problem, one a seed; pass@k needs k. 0: one, greedy.")
    ] = 0
    decode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="As `decode` in a recipe: turns_max, turn_tokens_max, context_tokens_max; sampled temperature, top_p."
            " Repeatable.",
        ),
    ] = None
    parallel: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 8
    cluster: ClusterOption = ""

    def decoding(self) -> Decode:
        """As the report states it. Raises typer.BadParameter."""
        from training.model import Decode

        wanted = {"turns_max": str(TURNS_MAX)} | dict(one.partition("=")[::2] for one in self.decode or ())
        if not self.seeds:
            wanted |= {"temperature": "0", "top_p": "1"}
        try:
            return msgspec.convert(wanted, Decode, strict=False)
        except msgspec.ValidationError as error:
            raise typer.BadParameter(str(error), param_hint="--decode") from error


class _Examined(NamedTuple):
    """What runs the episodes, under which plan and context, and what the report says of it."""

    run: RunJobs
    plan: EvaluationPlan
    bench: RunContext
    contamination: str
    lineage_sha256: str = ""
    version: str = ""  # of a sampler by tokens: each of its episodes carries it
    weights_sha256: str = ""  # of what samples, where that is known


@dataclass(frozen=True)
class _Asked:
    """What a command line asks for."""

    target: str
    how: SubjectFlags
    plan: EvaluationPlan
    problems: list[Problem]
    flags: BenchFlags

    @contextlib.contextmanager
    def executor(self) -> Iterator[Executor]:
        """The cluster. Raises ArenaError V2207, V2060."""
        from neurons.cluster.ray_executor import open_executor

        with open_executor(self.how.cluster, 0, 0, state_dir=self.flags.state_dir) as executor:
            yield executor


@command(app, "eval")
def evaluate_model(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Folder of a run or a model, `scripted` (with --model), URL of an endpoint, or agent file.",
        ),
    ],
    how: SubjectFlags,
    bench: BenchFlags,
    problems: Annotated[
        list[Path] | None,
        typer.Option("--problems", help="Problem file, or s1, s2, s3. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Report to write (JSON); episodes are kept beside it.")
    ] = None,
    label: Annotated[str, typer.Option(help="Name of the model in tables. Default: TARGET.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model, or an agent file, on a frozen set of problems.

    Success by bucket and axis with 95 % intervals over problems (Wilson's where a problem counts 0 or 1, else the
    bootstrap), pass@k by the unbiased estimator, invented ids, and everything it was measured under. First checks that
    no problem of the set was trained on (else exit code 1). An evaluation that was killed goes on. `arena report` lays
    the reports of several beside each other and tests them problem by problem.

    TARGET samples in this process, or with --sampler at a vLLM server, greedily or not: token ids go out and come back
    with logprobs, as in rollouts, and the folder still says whose lineage is asked. Whether the server holds these
    weights is not checked: serve what `arena reenter` wrote, under the name it printed.

    An agent file is gated, then runs in the jail (here or on a --cluster) with the model that `arena run` asks.

    arena eval URL --model NAME --problems s1 --out it.json

    arena eval my_agent/agent.py --problems s1 --out agent.json

    arena eval runs/sft --problems s1 --out sft.json --sampler http://127.0.0.1:8000/v1 --model NAME
    """
    from neurons.cli.problems import read_files
    from training.evaluation.report import EvaluationPlan, name_set

    _require_subject(target, how)
    if not problems:
        raise typer.BadParameter("name the set", param_hint="--problems")
    taken = read_files(problems)
    plan = EvaluationPlan(
        label=label or f"{target} {how.model}".rstrip(),
        set=name_set("+".join(path.stem for path in problems), taken),
        decode=how.decoding(),
        seeds=tuple(range(max(1, how.seeds))),
        parallel=how.parallel,
    )
    report = _examine(_Asked(target, how, plan, taken, bench), out, is_quiet=as_json)
    show({"report": report}, evaluation_lines(report), as_json=as_json)


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _kind_of(target: str) -> Literal["agent", "endpoint", "folder"]:
    if target.endswith(".py"):
        return "agent"
    return "endpoint" if target == SCRIPTED or _is_url(target) else "folder"


def _require_subject(target: str, how: SubjectFlags) -> None:
    """The flags name one that can be examined: said at once, before anything is opened."""
    is_folder = _kind_of(target) == "folder"
    named = is_folder and bool(how.sampler) == bool(how.model)
    if (is_folder and not named) or (how.sampler and not (named and _is_url(how.sampler))):
        raise typer.BadParameter("URL of a vLLM server, with --model, for a folder as TARGET", param_hint="--sampler")
    if how.cluster and is_folder:
        raise typer.BadParameter("for an endpoint or an agent file", param_hint="--cluster")
    if how.seeds and not is_folder:
        raise typer.BadParameter("an endpoint is asked greedily, an agent file decides by itself", param_hint="--seeds")
    if _kind_of(target) == "endpoint" and not how.model:
        raise typer.BadParameter("name the model at the endpoint", param_hint="--model")
    if is_folder:
        from training.models.opening import require_candidate

        require_candidate(target)


def _examine(asked: _Asked, out: Path | None, *, is_quiet: bool) -> EvalReport:
    from training.evaluation.report import episodes_path, examine
    from training.rollouts.rollout import EpisodeFile

    with ExitStack() as stack:
        folder = "" if out else stack.enter_context(tempfile.TemporaryDirectory())
        place = episodes_path(out) if out else Path(folder) / "episodes.jsonl"
        file = EpisodeFile(place)
        progress = stack.enter_context(show_progress(is_quiet=is_quiet))
        bench = open_bench(asked.flags.settings(), progress=progress)
        openers = {"agent": _open_agent, "endpoint": _open_endpoint, "folder": _open_folder}
        found = openers[_kind_of(asked.target)](asked, bench, stack)
        for line in file.lines():  # two samplers would be one report under one's name
            if found.version and line.result.version != found.version:
                detail = f"{place} holds episodes of {line.result.version}, not of {found.version}"
                raise ArenaError("V2124", detail)
        report = examine(
            found.plan,
            asked.problems,
            file,
            found.run,
            found.bench,
            lineage_sha256=found.lineage_sha256,
            contamination=found.contamination,
            weights_sha256=found.weights_sha256,
        )
    if out:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    return report


def _open_endpoint(asked: _Asked, bench: RunContext, stack: ExitStack) -> _Examined:
    """A model at an endpoint, asked from here or from a cluster."""
    how, plan = asked.how, asked.plan
    if how.cluster:
        from neurons.cluster.episodes import ModelEpisodes, Place, alike_of, by_executor

        place = Place(flags=tuple(asked.flags.named().items()), alike=alike_of(bench))
        episodes = ModelEpisodes(place=place, url=asked.target, model=how.model, decode=plan.decode)
        run = by_executor(plan.parallel, episodes, stack.enter_context(asked.executor()))
    else:
        upstream = open_endpoint("model", asked.target)

        def run(jobs: Sequence[Job]) -> Iterable[EpisodeLine]:
            return bench.ask_all(jobs, upstream, how.model, plan.decode, plan.parallel)

    return _Examined(run, plan, bench, "nothing is known of its training")


def _open_folder(asked: _Asked, bench: RunContext, stack: ExitStack) -> _Examined:
    """The model in a folder, sampled here or at the named server. Raises GuardStopError for a run that learnt from the
    set, ArenaError U3001 for a server without the model that is named."""
    from training.evaluation.model_loader import open_candidate
    from training.samplers.vllm import VllmSampler

    how, plan = asked.how, asked.plan

    def open_server(codec: Qwen3Codec) -> VllmSampler:
        return stack.enter_context(contextlib.closing(VllmSampler(how.sampler, how.model, codec)))

    if not how.sampler:
        say_device("evaluated")
    found = open_candidate(Path(asked.target), asked.problems, open_sampler=open_server if how.sampler else None)

    def run(jobs: Sequence[Job]) -> Iterable[EpisodeLine]:
        return bench.sample(jobs, found.sampler, found.codec, plan.decode, plan.parallel)

    return _Examined(run, plan, bench, found.contamination, found.version, found.sampler.version, found.weights_sha256)


def _open_agent(asked: _Asked, bench: RunContext, stack: ExitStack) -> _Examined:
    """An agent file, run here or on a cluster. Ends the command for a file that the gate rejects. Raises ArenaError
    A1001 and A1009 for a file that can't be read, U3001 for an endpoint."""
    from harness.tools.registry import profile_schemas
    from neurons.practice.run import RunRow, at_once_here, run_here
    from neurons.settings.inputs import DEFAULT_POLICY
    from neurons.worker.ports import open_local_ports
    from training.evaluation.report import agent_plan
    from training.rollouts.rollout import read_line

    path, how, flags = Path(asked.target), asked.how, asked.flags
    raw, settings = read_agent(path), flags.settings(how.model)
    if is_rejected(path, raw, settings):
        raise typer.Exit(EXIT_FAILED)
    source, at_once = source_of(raw), 1 if how.cluster else at_once_here(asked.plan.parallel, settings)
    ports = replace(open_local_ports(settings, at_once=at_once), judges=())
    tools = profile_schemas(ports.policy.tool_profile)

    def rows(jobs: Sequence[Job]) -> Iterator[RunRow]:
        pairs = [(job.problem, ports) for job in jobs]
        if not how.cluster or not pairs:
            yield from run_here(source, pairs, at_once)
            return
        from neurons.cluster.episodes import AgentEpisodes, Place, alike_of, run_elsewhere

        named = flags.named(how.model) | {"policy": settings.policy or DEFAULT_POLICY}
        place = Place(flags=tuple(named.items()), alike=alike_of(ports))
        with asked.executor() as executor:
            yield from run_elsewhere(AgentEpisodes(source=source, place=place), pairs, executor)

    def run(jobs: Sequence[Job]) -> Iterator[EpisodeLine]:
        for job, row in zip(jobs, rows(jobs), strict=True):
            if row.evaluation is None:
                raise ArenaError(row.failure.code if row.failure else "V2004")
            yield read_line(job, row.evaluation, tools, episode_ms=row.evaluation.cost.episode_ms)

    bench = replace(bench, policy=ports.policy, source=source)
    return _Examined(run, agent_plan(asked.plan, ports.policy), bench, "nothing is known of its model's training")

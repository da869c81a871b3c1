"""`arena eval`: a model's or an agent file's success on a frozen set, as a report that names what it was taken under.

It opens the inputs; the decisions are in `training`. An agent file is gated, then run in the jail, with the model that
`arena run` asks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from foundation.codes.names import JUDGE_FAILED
from foundation.errors import ArenaError, Failure
from neurons.cli.exit_codes import EXIT_FAILED
from neurons.cli.options import (
    BuiltIndexOption,
    ClusterOption,
    JsonOption,
    PolicyOption,
    RunStateDirOption,
    command,
    complete_suite,
)
from neurons.cli.presenter import show_progress
from neurons.cli.report import read_report, show_evaluation
from neurons.cli.train import say_device
from neurons.practice.opening import SCRIPTED, open_bench, open_endpoint, open_settings, parse_model_url

if TYPE_CHECKING:
    from arena.evaluate import EvaluatePorts, Evaluation
    from neurons.practice.run import Asked, RunRow
    from neurons.settings.settings import Settings
    from problems.model import Problem
    from training.evaluation.report import EvalReport
    from training.evaluation.run_eval import EvaluationPlan
    from training.model import ChatCodec, Decode
    from training.rollouts.rollout import EpisodeLine, Job, RunJobs
    from training.run_context import RunContext


app = typer.Typer(help="Evaluate models.", no_args_is_help=True)


@dataclass(frozen=True)
class SubjectFlags:
    """How the target is asked."""

    model: Annotated[str, typer.Option(help="The model at an endpoint, or the scripted model's skill.")] = ""
    model_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL[=N]",
            help="An agent file's endpoint, asked N requests at a time; else OPENAI_BASE_URL. Repeatable: --workers, or"
            " a cluster's problems, are dealt over them.",
        ),
    ] = None
    tokenizer: Annotated[Path | None, typer.Option(help="Folder of the tokenizer. Default: the model's.")] = None
    sample_rows: Annotated[
        int, typer.Option(min=1, help="In this process: turns sampled together; 1 repeats to the last bit.")
    ] = 1
    sampler: Annotated[
        str, typer.Option(help="URL of a vLLM server that holds TARGET's weights and samples by tokens in their place.")
    ] = ""
    sampler_model: Annotated[str, typer.Option(help="The model's name at that server; the report states it.")] = ""


@dataclass(frozen=True)
class DecodeFlags:
    """How answers are drawn, and how long they may be."""

    greedy: Annotated[bool, typer.Option("--greedy/--sampled", help="Temperature 0, or the sampling below.")] = True
    temperature: Annotated[float, typer.Option(min=0.01, help="Sampled: temperature.")] = 0.9
    top_p: Annotated[float, typer.Option(min=0.01, max=1.0, help="Sampled: nucleus.")] = 0.95
    samples: Annotated[
        int, typer.Option(min=1, help="Sampled: episodes a problem and seed; pass@k needs k in all.")
    ] = 1
    seeds: Annotated[str, typer.Option(help="Sampled: seeds, with commas.")] = "0,1,2"
    turns: Annotated[int, typer.Option(min=1, help="Most turns of an episode.")] = 25
    turn_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a turn.")] = 2_048
    context: Annotated[int, typer.Option(min=1, help="Most tokens of a conversation.")] = 32_768

    def decode(self) -> Decode:
        """As the run states it."""
        from training.model import Decode

        return Decode(
            temperature=0.0 if self.greedy else self.temperature,
            top_p=1.0 if self.greedy else self.top_p,
            turn_tokens_max=self.turn_tokens,
            turns_max=self.turns,
            context_tokens_max=self.context,
        )


@dataclass(frozen=True)
class RunFlags:
    """What episodes stand on, and where they run."""

    profile: Annotated[
        str, typer.Option(help="Tool profile instead of the policy's: paper4, sn15, extended or compact.")
    ] = ""
    prompt: Annotated[Path | None, typer.Option(help="Text file with another system prompt.")] = None
    parallel: Annotated[int, typer.Option(min=1, help="Episodes at once, in each of --workers.")] = 8
    workers: Annotated[
        int, typer.Option(min=0, help="An endpoint's or an agent's episodes: processes that run them; 0: this one.")
    ] = 0
    cluster: ClusterOption = ""
    catalogue: BuiltIndexOption = None
    policy: PolicyOption = None
    state_dir: RunStateDirOption = None

    @property
    def prompt_text(self) -> str | None:
        """The other prompt, or None."""
        return self.prompt.read_text("utf-8").strip() if self.prompt else None

    @contextlib.contextmanager
    def open_elsewhere(self, subject: _Subject, plan: EvaluationPlan, bench: RunContext) -> Iterator[RunJobs]:
        """An endpoint's episodes on `workers` processes or the cluster."""
        from neurons.cluster.choice import open_executor
        from neurons.cluster.model_episodes import EndpointEpisodes, by_executor, inputs_of

        inputs = inputs_of(
            bench,
            catalogue=self.catalogue,
            policy=self.policy,
            state_dir=self.state_dir,
            profile=self.profile,
            prompt=self.prompt_text,
        )
        episodes = EndpointEpisodes(inputs=inputs, url=subject.target, model=subject.how.model, decode=plan.decode)
        with open_executor(self.cluster, self.workers, 0, state_dir=self.state_dir) as executor:
            yield by_executor(plan.parallel, episodes, executor)


class _Subject(NamedTuple):
    """Who is examined, as the command line names it."""

    target: str
    how: SubjectFlags

    @property
    def address(self) -> str:
        """The target as reports name it: how many requests an endpoint takes at once does not belong to it."""
        return parse_model_url(self.target)[0] if self.is_endpoint else self.target

    @property
    def is_agent(self) -> bool:
        return self.target.endswith(".py")

    @property
    def is_endpoint(self) -> bool:
        return self.target == SCRIPTED or _is_url(self.target)


class _Examined(NamedTuple):
    run: RunJobs
    lineage_sha256: str
    contamination: str
    version: str = ""  # of a sampler by tokens: each of its episodes carries it
    weights_sha256: str = ""  # of what samples, where that is known


@command(app, "eval")
def evaluate_model(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Folder of a run or a model, `scripted` (with --model), URL[=N] of an endpoint (asked N requests at a"
            " time), agent file, or a report.",
        ),
    ],
    how: SubjectFlags,
    decoding: DecodeFlags,
    run: RunFlags,
    problems: Annotated[
        list[Path] | None,
        typer.Option("--problems", help="Problem file, or s1, s2, s3. Repeatable.", autocompletion=complete_suite),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Report to write (JSON); episodes are kept beside it.")
    ] = None,
    set_name: Annotated[str, typer.Option("--set", help="Name of the set in the report.")] = "",
    label: Annotated[str, typer.Option(help="Name of the model in tables. Default: TARGET.")] = "",
    against: Annotated[
        Path | None, typer.Option("--against", help="Report of another model under the same conditions, to compare.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model, or an agent file, on a frozen set of problems.

    Success by bucket and axis with 95 % intervals over problems (Wilson's where a problem counts 0 or 1, else the
    bootstrap), pass@k by the unbiased estimator, invented ids, and everything it was measured under. First checks that
    no problem of the set was trained on (else exit code 1). An evaluation that was killed goes on. With --against the
    two are compared problem by problem (McNemar, exact); with a report for TARGET nothing is run.

    TARGET samples in this process, or with --sampler at a vLLM server, greedily or not: token ids go out and come back
    with logprobs, as in rollouts, and the folder still says whose lineage is asked. Whether the server holds these
    weights is not checked: serve what `arena reenter` wrote, under the name it printed.

    An agent file is gated, then runs in the jail (of --workers, or a --cluster) with the model that `arena run` asks.

    arena eval URL --model NAME --problems s1 --out it.json --workers 4

    arena eval my_agent/agent.py --problems s1 --out agent.json --workers 4

    arena eval runs/sft --problems s1 --out sft.json --sampler http://127.0.0.1:8000/v1 --sampler-model NAME
    """
    if target.endswith(".json"):
        show_evaluation(read_report(Path(target)), against, as_json=as_json)
        return
    from neurons.cli.problems import read_files
    from training.evaluation.report import name_set
    from training.evaluation.run_eval import EvaluationPlan

    subject = _Subject(target, how)
    _require_subject(subject, run, is_greedy=decoding.greedy)
    if not problems:
        raise typer.BadParameter("name the set", param_hint="--problems")
    taken = read_files(problems)
    plan = EvaluationPlan(
        label=label or f"{subject.address} {how.model}".rstrip(),
        set=name_set(set_name or "+".join(path.stem for path in problems), taken),
        decode=decoding.decode(),
        samples=1 if decoding.greedy else decoding.samples,
        seeds=(0,) if decoding.greedy else _numbers(decoding.seeds),
        parallel=run.parallel,
    )
    show_evaluation(_examine(subject, plan, taken, run, out, is_quiet=as_json), against, as_json=as_json)


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _require_subject(subject: _Subject, run: RunFlags, *, is_greedy: bool) -> None:
    """The flags name one that can be examined: said at once, before anything is opened."""
    if bool(subject.how.sampler) != bool(subject.how.sampler_model):
        raise typer.BadParameter("name the server and its model", param_hint="--sampler and --sampler-model")
    if subject.how.sampler and (subject.is_endpoint or not _is_url(subject.how.sampler)):
        raise typer.BadParameter("URL of a vLLM server, for a folder as TARGET", param_hint="--sampler")
    for flag, given in (("--cluster", run.cluster), ("--workers", run.workers)):
        if given and not (subject.is_endpoint or subject.is_agent):
            raise typer.BadParameter("for an endpoint or an agent file", param_hint=flag)
    if subject.how.model_url and not subject.is_agent:
        raise typer.BadParameter("for an agent file; an endpoint is itself the TARGET", param_hint="--model-url")
    if subject.is_agent:
        if not is_greedy:
            raise typer.BadParameter("an agent file decides its decoding; leave out --sampled")
        return
    if not subject.is_endpoint:
        from training.models.model_folder import require_candidate

        require_candidate(subject.target)
        return
    if not is_greedy:
        raise typer.BadParameter("an endpoint is asked greedily, as the agent file asks it; leave out --sampled")
    if not subject.how.model:
        raise typer.BadParameter("name the model at the endpoint", param_hint="--model")


def _examine(
    subject: _Subject,
    plan: EvaluationPlan,
    problems: list[Problem],
    flags: RunFlags,
    out: Path | None,
    *,
    is_quiet: bool,
) -> EvalReport:

    from training.evaluation.run_eval import episodes_path, examine
    from training.rollouts.rollout import EpisodeFile

    with contextlib.ExitStack() as stack:
        place = (
            episodes_path(out) if out else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "episodes.jsonl"
        )
        file = EpisodeFile(place)
        progress = stack.enter_context(show_progress(is_quiet=is_quiet))
        settings = open_settings(flags.catalogue, flags.policy, flags.state_dir)
        bench = open_bench(settings, tool_profile=flags.profile, prompt=flags.prompt_text, progress=progress)
        if subject.is_agent:
            urls = subject.how.model_url or ()
            asked = open_settings(flags.catalogue, flags.policy, flags.state_dir, subject.how.model, urls)
            plan, bench, run = stack.enter_context(
                open_agent(Path(subject.target), asked, plan, bench, flags, tuple(urls))
            )
            policy = _Examined(run, "", "nothing is known of its model's training")
        else:
            policy = stack.enter_context(_open_subject(subject, plan, problems, bench, flags))
        for line in file.lines():  # two samplers would be one report under one's name
            if policy.version and line.result.version != policy.version:
                detail = f"{place} holds episodes of {line.result.version}, not of {policy.version}"
                raise ArenaError("V2124", detail)
        report = examine(
            plan,
            problems,
            file,
            policy.run,
            bench,
            lineage_sha256=policy.lineage_sha256,
            contamination=policy.contamination,
            weights_sha256=policy.weights_sha256,
        )
    if out:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    return report


@contextlib.contextmanager
def _open_subject(
    subject: _Subject, plan: EvaluationPlan, problems: list[Problem], bench: RunContext, flags: RunFlags
) -> Iterator[_Examined]:
    """Who is examined. Raises GuardStopError for a run that learnt from the set, ArenaError U3001 for a server without
    the model that is named."""
    from training.evaluation.run_eval import by_endpoint, by_tokens

    if subject.is_endpoint:
        untold = "nothing is known of its training"
        if flags.workers or flags.cluster:
            with flags.open_elsewhere(subject, plan, bench) as run_jobs:
                yield _Examined(run_jobs, "", untold)
            return
        with open_endpoint("model", subject.target, flags.state_dir) as upstream:
            yield _Examined(by_endpoint(plan, upstream, subject.how.model, bench), "", untold)
        return
    from training.evaluation.model_loader import open_candidate
    from training.samplers.vllm import VllmSampler

    def open_server(codec: ChatCodec) -> VllmSampler:
        sampler = VllmSampler(subject.how.sampler, subject.how.sampler_model, codec)
        stack.callback(sampler.close)
        sampler.require_served()
        return sampler

    with contextlib.ExitStack() as stack:
        if not subject.how.sampler:
            say_device("evaluated")
        found = open_candidate(
            Path(subject.target),
            problems,
            tokenizer=subject.how.tokenizer,
            sample_rows=subject.how.sample_rows,
            open_sampler=open_server if subject.how.sampler else None,
        )
        run = by_tokens(plan, found.sampler, found.codec, bench)
        yield _Examined(run, found.version, found.contamination, found.sampler.version, found.weights_sha256)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of seeds", param_hint="--seeds") from error


@contextlib.contextmanager
def open_agent(
    path: Path, settings: Settings, plan: EvaluationPlan, bench: RunContext, where: RunFlags, urls: tuple[str, ...]
) -> Iterator[tuple[EvaluationPlan, RunContext, RunJobs]]:
    """Plan and context for the agent in `path`, and what runs its episodes: the cluster, so many of the validator's
    workers, or for 0 threads of this process. Ends the command for a file that the gate rejects. Raises ArenaError
    A1001 and A1009 for a file that can't be read, U3001 and U3005 for an endpoint, V2207, V2060, V2208 for a cluster.
    """
    from neurons.cli.agent import read_agent, report_of, show_report
    from neurons.practice.problems import open_setups
    from neurons.practice.run import run_in_pool
    from neurons.settings.inputs import policy_of
    from neurons.worker.ports import open_local_ports, usable_memory_bytes, worker_count
    from training.evaluation.run_eval import agent_plan, by_agent

    raw = read_agent(path)
    try:
        source = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("A1001", f"byte {raw[error.start]:#04x} at offset {error.start}") from error
    report = report_of(raw, settings)
    if report.outcome == "reject":
        show_report(path, raw, report)
        raise typer.Exit(EXIT_FAILED)
    at_once = worker_count(plan.parallel, usable_memory_bytes(), bench.policy.limits)
    is_elsewhere = bool(where.workers or where.cluster)
    with contextlib.ExitStack() as stack:
        ports = stack.enter_context(open_local_ports(settings, at_once=1 if is_elsewhere else at_once))
        under = dataclasses.replace(bench, policy=ports.policy, source=source)
        run = by_agent(source, ports, at_once)
        if where.cluster:
            run = _by_rows(ports, _of_cluster(source, settings, ports, where, urls))
        elif where.workers:
            setups = stack.enter_context(open_setups(settings, policy_of(settings), where.workers, True))
            unjudged = Failure(code=JUDGE_FAILED, detail="nobody judges it")
            pool = partial(run_in_pool, source, setups=setups, time_limit_s=0, clock=time.monotonic, unjudged=unjudged)
            run = _by_rows(ports, pool)
        yield agent_plan(plan, ports.policy), under, run


def _of_cluster(
    source: str, settings: Settings, ports: EvaluatePorts, where: RunFlags, urls: tuple[str, ...]
) -> Callable[[Sequence[Asked]], Iterator[RunRow]]:
    from neurons.cluster.agent_episodes import AgentEpisodes, alike, run_elsewhere
    from neurons.cluster.choice import absolute_policy, open_executor
    from neurons.settings.inputs import DEFAULT_POLICY

    episodes = AgentEpisodes(
        source=source,
        policy=absolute_policy(settings.policy or DEFAULT_POLICY),
        catalogue=where.catalogue and where.catalogue.absolute(),
        state_dir=where.state_dir and where.state_dir.absolute(),
        model_urls=urls,
        model=settings.models or None,
        alike=alike(ports),
        is_judged=False,
    )

    def run(asked: Sequence[Asked]) -> Iterator[RunRow]:
        with open_executor(where.cluster, 0, 0, state_dir=where.state_dir) as executor:
            yield from run_elsewhere(episodes, asked, executor, time_limit_s=0, clock=time.monotonic)

    return run


def _by_rows(ports: EvaluatePorts, rows_of: Callable[[Sequence[Asked]], Iterator[RunRow]]) -> RunJobs:
    """The episodes that `by_agent` gives, in the order of the jobs, of evaluations made elsewhere; scored here, over
    `ports`. A problem that ends its workers again and again stops the run: a report has all of its set."""
    from arena.evaluate import RanEpisode, settle
    from harness.tools.registry import profile_schemas
    from training.evaluation.run_eval import line_of

    tools, at_home = profile_schemas(ports.policy.tool_profile), dataclasses.replace(ports, judges=())

    def run(jobs: Sequence[Job]) -> Iterator[EpisodeLine]:
        waiting: deque[Job] = deque(jobs)
        done: dict[str, Evaluation] = {}
        for row in rows_of([(job.problem, ports) for job in jobs]):
            if row.failure is not None:
                raise ArenaError(row.failure.code, row.failure.detail)
            assert row.evaluation is not None
            done[row.problem.problem_id] = row.evaluation
            while waiting and (own := done.pop(waiting[0].problem.problem_id, None)) is not None:
                job, ran = waiting.popleft(), RanEpisode(body=own.body, sandbox=own.sandbox, cost=own.cost)
                yield line_of(job, settle(ran, job.problem, at_home), tools)

    return run

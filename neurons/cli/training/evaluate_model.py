"""`arena eval`: a model's success on a frozen set of problems, as a report that names everything it was taken under.

It opens the inputs and prints the results; the decisions are in `training`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from neurons.cli.options import (
    BuiltIndexOption,
    ClusterOption,
    JsonOption,
    PolicyOption,
    RunStateDirOption,
    complete_suite,
)
from neurons.cli.progress import show_progress
from neurons.cli.training.evaluation_table import read_report, show_evaluation
from neurons.cli.training.run_inputs import SCRIPTED, open_bench, open_endpoint, open_settings, say_device

if TYPE_CHECKING:
    from neurons.node.settings import Settings
    from problems.model import Problem
    from training.evaluation.report import EvalReport
    from training.evaluation.run_eval import EvaluationPlan
    from training.model import ChatCodec
    from training.rollouts.rollout import RunJobs
    from training.run_context import RunContext

app = typer.Typer(help="Evaluate models.", no_args_is_help=True)


class _EvaluatedModel(NamedTuple):
    """Who is examined, as the flags name it."""

    target: str
    model: str
    tokenizer: Path | None
    sample_rows: int
    sampler: str
    sampler_model: str

    @property
    def address(self) -> str:
        """The target as reports name it: how many requests an endpoint takes at once does not belong to it."""
        from neurons.cli.model_urls import parse_model_url

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


_Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="Folder of a run or a model, `scripted` (with --model), URL[=N] of an endpoint (asked N requests at a"
        " time), agent file, or a report.",
    ),
]
_Problems = Annotated[
    list[Path] | None,
    typer.Option("--problems", help="Problem file, or suite s1, s2, s3. Repeatable.", autocompletion=complete_suite),
]
_Out = Annotated[Path | None, typer.Option("--out", help="Report to write (JSON); episodes are kept beside it.")]
_Greedy = Annotated[bool, typer.Option("--greedy/--sampled", help="Temperature 0, or the sampling below.")]
_Samples = Annotated[int, typer.Option(min=1, help="Sampled: episodes a problem and seed; pass@k needs k in all.")]
_Profile = Annotated[str, typer.Option(help="Tool profile instead of the policy's: paper4, sn15, extended or compact.")]
_Diagnostic = Annotated[bool, typer.Option("--diagnostic", help="The set is `dev`: its numbers are not results.")]
_Rows = Annotated[int, typer.Option(min=1, help="In this process: turns sampled together; 1 repeats to the last bit.")]
_Workers = Annotated[
    int, typer.Option(min=0, help="An endpoint's or an agent's episodes: processes that run them; 0: this one.")
]
_ModelUrls = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL[=N]",
        help="An agent file's endpoint, asked N requests at a time; else OPENAI_BASE_URL. Repeatable: --workers, or a"
        " cluster's problems, are dealt over them.",
    ),
]
_Sampler = Annotated[
    str, typer.Option(help="URL of a vLLM server that holds TARGET's weights and samples by tokens in their place.")
]
_SamplerModel = Annotated[str, typer.Option(help="The model's name at that server; the report states it.")]
_Against = Annotated[
    Path | None, typer.Option("--against", help="Report of another model under the same conditions, to compare.")
]


@app.command("eval")
def evaluate_model(
    target: _Target,
    problems: _Problems = None,
    out: _Out = None,
    set_name: Annotated[str, typer.Option("--set", help="Name of the set in the report.")] = "",
    label: Annotated[str, typer.Option(help="Name of the model in tables. Default: TARGET.")] = "",
    model: Annotated[str, typer.Option(help="The model at an endpoint, or the scripted model's skill.")] = "",
    model_url: _ModelUrls = None,
    is_greedy: _Greedy = True,
    temperature: Annotated[float, typer.Option(min=0.01, help="Sampled: temperature.")] = 0.9,
    top_p: Annotated[float, typer.Option(min=0.01, max=1.0, help="Sampled: nucleus.")] = 0.95,
    samples: _Samples = 1,
    seeds: Annotated[str, typer.Option(help="Sampled: seeds, with commas.")] = "0,1,2",
    turns: Annotated[int, typer.Option(min=1, help="Most turns of an episode.")] = 25,
    turn_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a turn.")] = 2_048,
    context: Annotated[int, typer.Option(min=1, help="Most tokens of a conversation.")] = 32_768,
    profile: _Profile = "",
    prompt: Annotated[Path | None, typer.Option(help="Text file with another system prompt.")] = None,
    against: _Against = None,
    is_diagnostic: _Diagnostic = False,
    tokenizer: Annotated[Path | None, typer.Option(help="Folder of the tokenizer. Default: the model's.")] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Episodes at once, in each of --workers.")] = 8,
    workers: _Workers = 0,
    cluster: ClusterOption = "",
    sample_rows: _Rows = 1,
    sampler: _Sampler = "",
    sampler_model: _SamplerModel = "",
    catalogue: BuiltIndexOption = None,
    policy: PolicyOption = None,
    state_dir: RunStateDirOption = None,
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
    from neurons.cli.problems.reading import read_files
    from training.evaluation.report import name_set
    from training.evaluation.run_eval import EvaluationPlan
    from training.model import Decode

    subject = _EvaluatedModel(target, model, tokenizer, sample_rows, sampler, sampler_model)
    opening = _Opening(catalogue, policy, state_dir, profile, prompt, as_json, workers, cluster, model_url or [])
    _require_subject(subject, opening, is_greedy=is_greedy)
    if not problems:
        raise typer.BadParameter("name the set", param_hint="--problems")
    taken = read_files(problems)
    plan = EvaluationPlan(
        label=label or f"{subject.address} {model}".rstrip(),
        set=name_set(set_name or "+".join(path.stem for path in problems), taken, is_reported=not is_diagnostic),
        decode=Decode(
            temperature=0.0 if is_greedy else temperature,
            top_p=1.0 if is_greedy else top_p,
            turn_tokens_max=turn_tokens,
            turns_max=turns,
            context_tokens_max=context,
        ),
        samples=1 if is_greedy else samples,
        seeds=(0,) if is_greedy else _numbers(seeds),
        parallel=parallel,
    )
    show_evaluation(_examine(subject, plan, taken, opening, out), against, as_json=as_json)


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _require_subject(subject: _EvaluatedModel, opening: _Opening, *, is_greedy: bool) -> None:
    """The flags name one that can be examined: said at once, before anything is opened."""
    if bool(subject.sampler) != bool(subject.sampler_model):
        raise typer.BadParameter("name the server and its model", param_hint="--sampler and --sampler-model")
    if subject.sampler and (subject.is_endpoint or not _is_url(subject.sampler)):
        raise typer.BadParameter("URL of a vLLM server, for a folder as TARGET", param_hint="--sampler")
    for flag, given in (("--cluster", opening.cluster), ("--workers", opening.workers)):
        if given and not (subject.is_endpoint or subject.is_agent):
            raise typer.BadParameter("for an endpoint or an agent file", param_hint=flag)
    if opening.model_urls and not subject.is_agent:
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
    if not subject.model:
        raise typer.BadParameter("name the model at the endpoint", param_hint="--model")


class _Opening(NamedTuple):
    catalogue: Path | None
    policy: str | None
    state_dir: Path | None
    profile: str
    prompt: Path | None
    is_quiet: bool
    workers: int
    cluster: str
    model_urls: Sequence[str]

    def settings(self, models: str = "") -> Settings:
        return open_settings(self.catalogue, self.policy, self.state_dir, models, self.model_urls)

    @contextlib.contextmanager
    def open(self) -> Iterator[RunContext]:
        with show_progress(is_quiet=self.is_quiet) as progress:
            yield open_bench(
                self.settings(),
                tool_profile=self.profile,
                prompt=self.prompt_text,
                progress=progress,
            )

    @property
    def prompt_text(self) -> str | None:
        return self.prompt.read_text("utf-8").strip() if self.prompt else None

    @contextlib.contextmanager
    def open_elsewhere(self, subject: _EvaluatedModel, plan: EvaluationPlan, bench: RunContext) -> Iterator[RunJobs]:
        """An endpoint's episodes on `workers` processes or the cluster."""
        from neurons.cluster.choice import open_executor
        from neurons.cluster.model_episodes import EndpointEpisodes, by_executor, inputs_of

        flags: dict[str, Any] = {"catalogue": self.catalogue, "policy": self.policy, "state_dir": self.state_dir}
        inputs = inputs_of(bench, **flags, profile=self.profile, prompt=self.prompt_text)
        episodes = EndpointEpisodes(inputs=inputs, url=subject.target, model=subject.model, decode=plan.decode)
        with open_executor(self.cluster, self.workers, 0, state_dir=self.state_dir) as executor:
            yield by_executor(plan.parallel, episodes, executor)


def _examine(
    subject: _EvaluatedModel, plan: EvaluationPlan, problems: list[Problem], opening: _Opening, out: Path | None
) -> EvalReport:
    import tempfile

    import msgspec

    from foundation.errors import ArenaError
    from training.evaluation.run_eval import episodes_path, examine
    from training.rollouts.rollout import EpisodeFile

    with contextlib.ExitStack() as stack:
        place = (
            episodes_path(out) if out else Path(stack.enter_context(tempfile.TemporaryDirectory())) / "episodes.jsonl"
        )
        file = EpisodeFile(place)
        bench = stack.enter_context(opening.open())
        if subject.is_agent:
            from neurons.cli.training.evaluate_agent import AgentPlace, open_agent

            where = AgentPlace(
                opening.workers, opening.cluster, opening.catalogue, opening.state_dir, tuple(opening.model_urls)
            )
            settings = opening.settings(subject.model)
            plan, bench, run = stack.enter_context(open_agent(Path(subject.target), settings, plan, bench, where))
            policy = _Examined(run, "", "nothing is known of its model's training")
        else:
            policy = stack.enter_context(_open_subject(subject, plan, problems, bench, opening))
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
    subject: _EvaluatedModel, plan: EvaluationPlan, problems: list[Problem], bench: RunContext, opening: _Opening
) -> Iterator[_Examined]:
    """Who is examined. Raises GuardStopError for a run that learnt from the set, ArenaError U3001 for a server without
    the model that is named."""
    from training.evaluation.run_eval import by_endpoint, by_tokens

    if subject.is_endpoint:
        untold = "nothing is known of its training"
        if opening.workers or opening.cluster:
            with opening.open_elsewhere(subject, plan, bench) as run_jobs:
                yield _Examined(run_jobs, "", untold)
            return
        with open_endpoint("model", subject.target, opening.state_dir) as upstream:
            yield _Examined(by_endpoint(plan, upstream, subject.model, bench), "", untold)
        return
    from training.evaluation.model_loader import open_candidate
    from training.samplers.vllm import VllmSampler

    def open_server(codec: ChatCodec) -> VllmSampler:
        sampler = VllmSampler(subject.sampler, subject.sampler_model, codec)
        stack.callback(sampler.close)
        sampler.require_served()
        return sampler

    with contextlib.ExitStack() as stack:
        if not subject.sampler:
            say_device("evaluated")
        found = open_candidate(
            Path(subject.target),
            problems,
            tokenizer=subject.tokenizer,
            sample_rows=subject.sample_rows,
            open_sampler=open_server if subject.sampler else None,
        )
        run = by_tokens(plan, found.sampler, found.codec, bench)
        yield _Examined(run, found.version, found.contamination, found.sampler.version, found.weights_sha256)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a list of seeds", param_hint="--seeds") from error

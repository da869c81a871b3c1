"""`arena eval`: a model's or an agent file's success on a frozen set, as a report that names what it was taken under.

It opens the inputs; the decisions are in `training`. An agent file is gated, then run in the jail, with the model that
`arena run` asks. `arena report`: evaluations beside each other and beside the paper's Table 1.
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

from foundation.errors import ArenaError, counted
from harness.tools.registry import profile_schemas
from neurons.cli.agent import read_agent, report_of, require_accepted, source_of
from neurons.cli.options import BenchFlags, ClusterOption, command, read_files
from neurons.cli.presenter import field_lines, say, show, show_progress, table_text
from neurons.cli.train import say_device
from neurons.cluster.ray_executor import open_executor
from neurons.practice.opening import SCRIPTED, open_bench, open_endpoint
from problems.model import Problem
from training.model import Decode
from training.models.opening import require_candidate
from training.recipe import is_url

if TYPE_CHECKING:
    from training.evaluation.report import Estimate, EvalReport, EvaluationPlan
    from training.models.render import Qwen3Codec
    from training.report.document import Document
    from training.rollouts.rollout import EpisodeLine, Job, RunJobs
    from training.run_context import RunContext

app = typer.Typer(help="Evaluate models.", no_args_is_help=True)
TURNS_MAX = 25  # of an episode, where --decode says nothing else
_UNKNOWN = "nothing is known of its training"


@dataclass(frozen=True)
class SubjectFlags:
    """How the target is asked, and where its episodes run."""

    model: Annotated[str, typer.Option(help="Model at endpoint or --sampler, of the file; skill of `scripted`.")] = ""
    sampler: Annotated[str, typer.Option(help="URL of a vLLM server that samples in TARGET's place.")] = ""
    seeds: Annotated[int, typer.Option(min=0, help="Sampled episodes a problem; pass@k needs k. 0: one, greedy.")] = 0
    decode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="As `decode` in a recipe: turns_max, turn_tokens_max, context_tokens_max; sampled temperature, top_p.",
        ),
    ] = None
    parallel: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 8
    cluster: ClusterOption = ""

    def decoding(self) -> Decode:
        """As the report states it. Raises typer.BadParameter."""
        wanted = {"turns_max": str(TURNS_MAX)} | dict(one.partition("=")[::2] for one in self.decode or ())
        if not self.seeds:
            wanted |= {"temperature": "0", "top_p": "1"}
        try:
            return msgspec.convert(wanted, Decode, strict=False)
        except msgspec.ValidationError as error:
            raise typer.BadParameter(str(error), param_hint="--decode") from error


class _Subject(NamedTuple):
    """What runs the episodes, under which plan and context, and what the report says of it."""

    run: RunJobs
    plan: EvaluationPlan
    bench: RunContext
    contamination: str
    lineage_sha256: str = ""
    version: str = ""  # of a sampler by tokens: each of its episodes carries it
    weights_sha256: str = ""  # of what samples, where that is known


@dataclass(frozen=True)
class _Request:
    """What a command line asks for."""

    target: str
    how: SubjectFlags
    plan: EvaluationPlan
    problems: list[Problem]
    flags: BenchFlags


@command(app, "eval")
def evaluate_model(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Run or model folder, `scripted`, URL, or agent file.",
        ),
    ],
    how: SubjectFlags,
    bench: BenchFlags,
    problems: Annotated[list[Path] | None, typer.Option(help="Problem file, or s1, s2, s3.")] = None,
    out: Annotated[Path | None, typer.Option(help="Report to write (JSON); episodes are kept beside it.")] = None,
    label: Annotated[str, typer.Option(help="Name of the model in tables. Default: TARGET.")] = "",
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
    from training.evaluation.report import EvaluationPlan, episodes_path, examine, name_set
    from training.rollouts.rollout import EpisodeFile

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
    asked = _Request(target, how, plan, taken, bench)
    with ExitStack() as stack:
        place = episodes_path(out or Path(stack.enter_context(tempfile.TemporaryDirectory()), "report.json"))
        file = EpisodeFile(place)
        context = open_bench(bench.settings(), progress=show_progress())
        openers = {"agent": _open_agent, "endpoint": _open_endpoint, "folder": _open_folder}
        found = openers[_kind_of(target)](asked, context, stack)
        for line in file.lines():  # two samplers would be one report under one's name
            if found.version and line.result.version != found.version:
                raise ArenaError("V2124", f"{place} holds episodes of {line.result.version}, not of {found.version}")
        report = examine(
            found.plan,
            taken,
            file,
            found.run,
            found.bench,
            lineage_sha256=found.lineage_sha256,
            contamination=found.contamination,
            weights_sha256=found.weights_sha256,
        )
    if out:
        out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2))
    show({"report": report}, evaluation_lines(report))


def _kind_of(target: str) -> Literal["agent", "endpoint", "folder"]:
    if target.endswith(".py"):
        return "agent"
    return "endpoint" if target == SCRIPTED or is_url(target) else "folder"


def _require_subject(target: str, how: SubjectFlags) -> None:
    """The flags name one that can be examined: said at once, before anything is opened."""
    is_folder = _kind_of(target) == "folder"
    named = is_folder and bool(how.sampler) == bool(how.model)
    if (is_folder and not named) or (how.sampler and not (named and is_url(how.sampler))):
        raise typer.BadParameter("URL of a vLLM server, with --model, for a folder as TARGET", param_hint="--sampler")
    if how.cluster and is_folder:
        raise typer.BadParameter("for an endpoint or an agent file", param_hint="--cluster")
    if how.seeds and not is_folder:
        raise typer.BadParameter("an endpoint is asked greedily, an agent file decides by itself", param_hint="--seeds")
    if _kind_of(target) == "endpoint" and not how.model:
        raise typer.BadParameter("name the model at the endpoint", param_hint="--model")
    if is_folder:
        require_candidate(target)


def _open_endpoint(asked: _Request, bench: RunContext, stack: ExitStack) -> _Subject:
    """A model at an endpoint, asked from here or from a cluster."""
    how, plan = asked.how, asked.plan
    if how.cluster:
        from neurons.cluster.episodes import ModelEpisodes, Place, alike_of, by_executor

        place = Place(flags=tuple(asked.flags.named().items()), alike=alike_of(bench))
        episodes = ModelEpisodes(place=place, url=asked.target, model=how.model, decode=plan.decode)
        executor = stack.enter_context(open_executor(how.cluster, 0, 0, state_dir=asked.flags.state_dir))
        return _Subject(by_executor(plan.parallel, episodes, executor), plan, bench, _UNKNOWN)
    upstream = open_endpoint("model", asked.target)
    return _Subject(
        lambda jobs: bench.ask_all(jobs, upstream, how.model, plan.decode, plan.parallel), plan, bench, _UNKNOWN
    )


def _open_folder(asked: _Request, bench: RunContext, stack: ExitStack) -> _Subject:
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

    return _Subject(run, plan, bench, found.contamination, found.version, found.sampler.version, found.weights_sha256)


def _open_agent(asked: _Request, bench: RunContext, stack: ExitStack) -> _Subject:
    """An agent file, run here or on a cluster. Ends the command for a file that the gate rejects. Raises ArenaError
    A1001 and A1009 for a file that can't be read, U3001 for an endpoint."""
    from neurons.practice.run import RunRow, at_once_here, run_here
    from neurons.settings.inputs import DEFAULT_POLICY
    from neurons.worker.ports import open_local_ports
    from training.evaluation.report import agent_plan
    from training.rollouts.rollout import read_line

    path, how, flags = Path(asked.target), asked.how, asked.flags
    raw, settings = read_agent(path), flags.settings(how.model)
    require_accepted(path, raw, report_of(raw, settings))
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
        with open_executor(how.cluster, 0, 0, state_dir=flags.state_dir) as executor:
            yield from run_elsewhere(AgentEpisodes(source=source, place=place), pairs, executor)

    def run(jobs: Sequence[Job]) -> Iterator[EpisodeLine]:
        for job, row in zip(jobs, rows(jobs), strict=True):
            if row.evaluation is None:
                raise ArenaError(row.failure.code if row.failure else "V2004")
            yield read_line(job, row.evaluation, tools, episode_ms=row.evaluation.cost.episode_ms)

    bench = replace(bench, policy=ports.policy, source=source)
    return _Subject(run, agent_plan(asked.plan, ports.policy), bench, "nothing is known of its model's training")


def evaluation_lines(report: EvalReport) -> Iterator[str]:
    """One report in words."""
    measured, spent = report.conditions.set, report.spent
    yield f"{report.label} on {measured.name}: {counted(measured.problems, 'problem')}"
    taken: dict[str, float | None] = {}  # for each solved episode, where that was recorded
    if spent is not None:
        taken["tokens a solved"] = spent.a_solved(spent.prompt_tokens + spent.completion_tokens)
        taken["USD a solved"] = spent.a_solved(spent.cost_micro_usd / 1_000_000 or None)
        taken["seconds a solved"] = spent.a_solved(spent.episode_ms and spent.episode_ms / 1_000)
    rows = {
        "success (ASR)": _share(report.asr),
        **{f"  {bucket}": _share(estimate) for bucket, estimate in report.by_bucket.items()},
        "exact": _share(report.gt_exact),
        "partial": _share(report.partial),
        **{f"axis {axis}": "-" if share is None else f"{share:.3f}" for axis, share in report.axes.items()},
        **{f"pass@{k}": _share(estimate) for k, estimate in report.pass_at.items()},
        **{
            f"seed {seed}": f"{share:.3f}"
            for seed, share in zip(report.conditions.seeds, report.asr_by_seed, strict=True)
        },
        "rule score": f"{report.rule:.3f}",
        "recommends": f"{report.emission:.3f}",
        "invented ids": f"{report.hallucinated:.2f}",
        "steps": f"{report.steps:.1f}",
        **{name: f"{value:,.6g}" for name, value in taken.items() if value is not None},
        "unscored": f"{report.unscored} of {report.episodes}",
        "overflows": str(report.overflows),
    }
    yield from field_lines(rows.items(), 18)
    names = {"weights": report.weights_sha256, "lineage": report.lineage_sha256}
    told = ", ".join(f"{name} {sha256[:16]}" for name, sha256 in names.items() if sha256)
    yield f"{told or f'asked as {report.weights}'}; {report.contamination}"


def _share(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


report_app = typer.Typer(help="Lay evaluations beside the paper's Table 1.", no_args_is_help=True)


@command(report_app)
def report(
    reports: Annotated[
        list[Path] | None, typer.Argument(metavar="REPORT.json...", help="Reports, the base first.")
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(help="Folder of a run: how its training ended.")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file to write.")] = None,
) -> None:
    """Lay evaluations beside the paper's Table 1.

    Prints the table with intervals and paired tests; --out writes one HTML file that needs nothing else, with the
    conditions, what each took and how the runs named by --run ended. Each number names its conditions; only equal
    conditions are tested against each other: a row against the first of them and against the one before it.
    """
    from training.evaluation.report import EvalReport
    from training.report.document import make_document, read_run, render_page

    found: list[EvalReport] = []
    for path in reports or ():
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=EvalReport))
        except (OSError, msgspec.DecodeError) as error:
            raise typer.BadParameter(f"{path} is not a report: {error}") from error
    runs = [read_run(folder) for folder in run or ()]
    if not found and not runs:
        raise typer.BadParameter("nothing to report: give a REPORT.json or a --run")
    try:
        document = make_document(found, runs, title="Post-training report")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render_page(document), encoding="utf-8")
    show(document, _report_lines(document))
    if out is not None:
        say(f"{out}: {counted(len(document.rows), 'row')}, {counted(len(document.runs), 'run')}")


def _report_lines(document: Document) -> Iterator[str]:
    from training.report.document import p_text

    figures = ("ASR", "pass@8", "n", "unscored")
    rows: list[tuple[str, ...]] = []
    published: dict[str, list[str]] = {}
    for one in document.published:
        asr, eight = ("-" if share is None else f"{share / 10:.1f}%" for share in (one.asr_e3, one.pass_at_8_e3))
        letter = one.group[0]
        rows.append((one.label, letter, asr, eight, "75" if letter != "P" else "-", "-"))
        published.setdefault(one.harness, []).append(letter)
    for row in document.rows:
        report = row.report
        label = f"{report.label} ({row.ending})" if row.ending else report.label
        asr = f"{report.asr.value:.1%} [{100 * report.asr.low:.1f}, {100 * report.asr.high:.1f}]"
        eight = f"{report.pass_at['8'].value:.1%}" if "8" in report.pass_at else "-"
        name, unscored = f"{row.letter}: {report.conditions.set.name}", f"{report.unscored} of {report.episodes}"
        rows.append((label, name, asr, eight, str(report.asr.n), unscored))
    yield table_text((document.title, "set", *figures), rows, right=figures)
    yield from (f"{', '.join(dict.fromkeys(letters))}: {harness}" for harness, letters in published.items())
    for test in document.tests:
        gap, p_values = test.difference, f"p {p_text(test.paired.p_value)}, after Holm {p_text(test.holm)}"
        difference = f"{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}] pp"
        yield f"{test.second} against {test.first} ({test.conditions}): {difference}; {p_values}"

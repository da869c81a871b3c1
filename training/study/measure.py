"""Measuring a study's policies: checkpoints and controls, under the same conditions on the same frozen sets.

All of them are examined by `training.evaluation.run_eval`, which goes on where a killed one was. Both controls
are given the jobs a model is given. A checkpoint whose lineage touches the set is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts
from foundation.canonical import text_hash
from foundation.durable_files import write_whole
from problems.model import Problem
from training.agents import distilled_source
from training.evaluation.agents import agent_plan, by_agent
from training.evaluation.report import EvalReport, name_set
from training.evaluation.run_eval import EvaluationPlan, by_tokens, episodes_path, examine
from training.model import Decode
from training.models.render import Qwen3Codec
from training.rollouts.episode_file import EpisodeFile, EpisodeLine, RunJobs
from training.rollouts.in_process_sandbox import InProcessSandbox
from training.rollouts.rollout import Job
from training.run_context import RunContext
from training.samplers.scripted import ScriptedSampler
from training.study.agent_versions import versions_of
from training.study.plan import AgentRules, DecodeRules, HarnessRules, SetKey, StudyPlan
from training.study.policies import RANDOM, RandomCaller, ScriptedUpstream

RANDOM_LABEL, UNCUT = "random tool-caller", ", uncut"
SCRIPTED = {f"scripted {name}{end}": f"scripted-{name}" for name in ("concise", "expert") for end in ("", UNCUT)}
CONTROLS = (*SCRIPTED, RANDOM_LABEL)  # policies without weights: the teacher and the expert, within the caps and beyond
AGENT = "agent "  # the label of an agent file, its name behind
SET_NAMES = {"eval": "frozen eval", "second": "second set"}
_NEVER_LEARNT = "a control: it learns nothing"
_AGENT_SAID = "an agent file: it learns nothing here"
_UNBOUNDED = 1 << 20  # tokens: what no scripted episode comes to
_NAME = re.compile(r"[^\w@~-]+")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one set. `run` is the folder of a checkpoint, None for a control or an agent file, which its label
    names; `harness` another one than it learnt under."""

    label: str
    run: str | None
    set: SetKey
    decode: DecodeRules
    harness: HarnessRules | None = None

    @property
    def file_name(self) -> str:
        """Of its report."""
        return "-".join(map(file_name, (self.label, self.set, self.decode.name)))


def file_name(label: str) -> str:
    """A label as part of a file's name."""
    return _NAME.sub("_", label)


def measure(
    measurement: Measurement,
    problems: Sequence[Problem],
    plan: StudyPlan,
    tokenizer: Path,
    bench: RunContext,
    folder: Path,
) -> EvalReport:
    """Run what is missing, and write the report to `folder`/NAME.json.

    Raises GuardStopError for a checkpoint that learnt from the set, ArenaError V2124 when no episode was scored.
    """
    rules, under = measurement.decode, measurement.harness
    if under is not None:
        profile = under.tool_profile or bench.policy.tool_profile
        bench = dataclasses.replace(
            bench,
            policy=msgspec.structs.replace(bench.policy, tool_profile=profile),
            source=distilled_source(under.prompt or None),
        )
    examination = EvaluationPlan(
        label=measurement.label,
        set=name_set(SET_NAMES[measurement.set], problems),
        decode=Decode(
            temperature=rules.temperature,
            top_p=rules.top_p,
            turn_tokens_max=plan.turn_tokens_max,
            turns_max=plan.turns_max,
            context_tokens_max=plan.base.context,
        ),
        samples=rules.samples,
        seeds=rules.seeds,
        parallel=plan.parallel,
    )
    if measurement.label.startswith(AGENT):
        ((_, source),) = versions_of(AgentRules(name=measurement.label.removeprefix(AGENT)))
        bench, examination = dataclasses.replace(bench, source=source), agent_plan(examination, bench.policy)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measurement.file_name}.json"
    lineage_sha256, weights, contamination, run = _examined(measurement, examination, problems, plan, tokenizer, bench)
    report = examine(
        examination,
        problems,
        EpisodeFile(episodes_path(path)),
        run,
        bench,
        lineage_sha256=lineage_sha256,
        contamination=contamination,
        weights_sha256=weights,
    )
    write_whole(path, msgspec.json.format(msgspec.json.encode(report), indent=1))
    return report


def _examined(
    measurement: Measurement,
    examination: EvaluationPlan,
    problems: Sequence[Problem],
    plan: StudyPlan,
    tokenizer: Path,
    bench: RunContext,
) -> tuple[str, str, str, RunJobs]:
    """Lineage, hash of the weights, what is known of contamination, and what runs the jobs."""
    if measurement.run is not None:
        from training.evaluation.model_loader import open_candidate

        found = open_candidate(Path(measurement.run), problems, sample_rows=plan.parallel)
        run = by_tokens(examination, found.sampler, found.codec, bench)
        return found.version, found.weights_sha256, found.contamination, run
    if measurement.label.startswith(AGENT):
        ports = EvaluatePorts(
            policy=bench.policy,
            catalogue=bench.catalogue,
            titles=bench.titles,
            sandbox=InProcessSandbox(frozenset([text_hash(bench.source)])),
            upstreams=[ScriptedUpstream()],
            judges=(),
        )
        return "", "", _AGENT_SAID, by_agent(bench.source, ports, 1)  # one at a time: its seconds are shown
    if measurement.label in SCRIPTED:
        codec, decode, said = Qwen3Codec(tokenizer), examination.decode, _NEVER_LEARNT
        if measurement.label.endswith(UNCUT):
            decode = msgspec.structs.replace(decode, turn_tokens_max=_UNBOUNDED, context_tokens_max=_UNBOUNDED)
            said += ", and neither turn nor context of it is bounded"
        scripted = ScriptedSampler(codec, SCRIPTED[measurement.label])
        return "", "", said, by_tokens(msgspec.structs.replace(examination, decode=decode), scripted, codec, bench)

    def random_jobs(jobs: Sequence[Job]) -> Iterator[EpisodeLine]:
        for job in jobs:
            yield bench.ask(job, RandomCaller(job.seed), RANDOM, examination.decode)

    return "", "", _NEVER_LEARNT, random_jobs

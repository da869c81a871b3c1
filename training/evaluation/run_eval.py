"""Taking an evaluation: episodes of a policy or an agent file on a frozen set, kept as they end, and their report.

Rollouts, guards and evaluation run one code path; an evaluation that was killed samples nothing twice. Who is examined
(a checkpoint, the scripted model, an endpoint) changes where turns come from and nothing else. An agent file decides by
itself what it asks of its model, so its conditions hold the policy's limits and say so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.evaluate import Evaluation
from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.inference.port import Upstream
from problems.model import Problem
from training.evaluation.report import EvalReport, EvaluationConditions, SetName, make_report, prompt_sha256
from training.model import Decode, Sampler
from training.models.render import Qwen3Codec
from training.rollouts.rollout import EpisodeFile, EpisodeLine, Job, RunJobs, collect, jobs_of, messages_of, read_result
from training.run_context import RunContext


def agent_plan(plan: EvaluationPlan, policy: Policy) -> EvaluationPlan:
    """The plan for an agent file: one episode a problem, within the policy's limits."""
    limits = policy.limits
    decode = Decode(
        temperature=0.0,
        top_p=1.0,
        turn_tokens_max=limits.completion_tokens_per_call,
        turns_max=limits.steps,
        context_tokens_max=limits.prompt_tokens,
    )
    return msgspec.structs.replace(plan, decode=decode, samples=1, seeds=(0,), is_agent=True)


def line_of(job: Job, evaluation: Evaluation, tools: str) -> EpisodeLine:
    """The episode of an evaluation; `tools` are the schemas of its profile."""
    result = read_result(job, evaluation)
    taken = msgspec.structs.replace(result.taken, episode_ms=evaluation.cost.episode_ms)
    return EpisodeLine(
        result=msgspec.structs.replace(result, taken=taken),
        query=job.problem.query,
        messages=messages_of(evaluation.body),
        tools=tools,
    )


class EvaluationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy is examined. `samples` of each problem are drawn for each seed; greedy draws are all alike."""

    label: str
    set: SetName
    decode: Decode
    samples: int = 1
    seeds: tuple[int, ...] = (0,)
    parallel: int = 8
    is_agent: bool = False  # an agent file, which decides by itself what it asks for: `decode` holds its limits

    def __post_init__(self) -> None:
        if self.samples < 1 or not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ArenaError("V2120", "an evaluation has at least one sample and different seeds")
        if self.decode.temperature == 0 and self.samples * len(self.seeds) > 1:
            raise ArenaError("V2120", "greedy decoding gives one answer: one sample, one seed")


def examine(
    plan: EvaluationPlan,
    problems: Sequence[Problem],
    file: EpisodeFile,
    run: RunJobs,
    bench: RunContext,
    *,
    lineage_sha256: str,
    contamination: str,
    weights_sha256: str = "",
) -> EvalReport:
    """Run what `file` lacks, and report on all of it. Raises ArenaError V2124 for no problem or nothing scored."""
    if not problems:
        raise ArenaError("V2124", "the set holds no problem")
    jobs = [
        job
        for place, seed in enumerate(plan.seeds)
        for job in jobs_of(problems, plan.samples, seed, first=place * plan.samples)
    ]
    conditions = EvaluationConditions(
        set=plan.set,
        decode=plan.decode,
        samples=plan.samples,
        seeds=plan.seeds,
        tool_profile=bench.policy.tool_profile,
        agent_sha256=text_hash(bench.source),
        prompt_sha256=prompt_sha256(bench.source),
        catalogue_sha256=bench.catalogue.content_sha256,
        policy_sha256=bench.policy.policy_sha256,
        asked_by="agent" if plan.is_agent else "",
    )
    alike = msgspec.structs.replace(conditions, samples=1, seeds=(0,))  # jobs are told apart by those already
    file.claim(text_hash(msgspec.json.encode([lineage_sha256 or plan.label, alike], order="sorted").decode()))
    report = bench.progress
    collect(jobs, file, run, None if report is None else lambda done, of: report("evaluate", done, of))
    wanted = {(job.problem.problem_id, job.sample, job.seed) for job in jobs}
    results = [line.result for line in file.lines()]
    return make_report(
        plan.label,
        [result for result in results if (result.problem_id, result.sample, result.seed) in wanted],
        conditions,
        lineage_sha256=lineage_sha256,
        contamination=contamination,
        weights_sha256=weights_sha256,
    )


def by_tokens(plan: EvaluationPlan, sampler: Sampler, codec: Qwen3Codec, bench: RunContext) -> RunJobs:
    """Episodes of a policy that speaks tokens."""
    return functools.partial(bench.sample, sampler=sampler, codec=codec, decode=plan.decode, parallel=plan.parallel)


def by_endpoint(plan: EvaluationPlan, upstream: Upstream, model: str, bench: RunContext) -> RunJobs:
    """Episodes of a model behind a chat endpoint."""
    return functools.partial(bench.ask_all, upstream=upstream, model=model, decode=plan.decode, parallel=plan.parallel)


def episodes_path(report: Path) -> Path:
    """Where the episodes of a report lie: beside it."""
    return report.with_suffix(".episodes.jsonl")

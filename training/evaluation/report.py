"""Evaluation of a checkpoint on a frozen set: success by bucket and axis, pass@k, intervals, paired tests. Pure.

The report says on which set, with which decoding, seeds, tools, prompt and weights its numbers were taken; an unscored
episode is counted beside them and never in them. Partial success is a failure that earned a part of the bucket-aware
reward. pass@k is the unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al. 2021; two checkpoints on the same
problems are compared by the exact McNemar test. Intervals are over problems: of a share
where every problem counts 0 or 1 Wilson's score interval (1927), else, and of differences, the percentile bootstrap;
where all problems have one value, what Wilson's bound leaves to those not seen.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from arena.policy import Policy
from foundation.canonical import content_hash, text_hash
from foundation.errors import ArenaError
from problems.formats import problem_bytes
from problems.model import AXES, BUCKETS, Problem
from training.model import Decode, EpisodeResult
from training.rollouts.rollout import EpisodeFile, RunJobs, jobs_of
from training.run_context import RunContext

_RESAMPLES = 2_000  # of a bootstrap
_Z = 1.959963984540054  # of a normal deviate, two-sided 95 %

Method = Literal["wilson", "bootstrap", "unseen"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval, over `n` problems, and how the interval was taken.

    `unseen`: all problems have one value; the interval is what Wilson's bound leaves to those that were not seen.
    """

    value: float
    low: float
    high: float
    n: int
    method: Method = "bootstrap"


class PairedTest(msgspec.Struct, frozen=True, kw_only=True):
    """Two results on the same problems: solved only by the first, only by the second, and the two-sided p value."""

    first_only: int
    second_only: int
    n: int
    p_value: float


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that one of `k` samples drawn without replacement is correct. Raises ValueError for k > samples."""
    if not 0 < k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} of {samples} samples, {correct} correct")
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def mean_estimate(values: Sequence[float], seed: int) -> Estimate:
    """Mean over problems of values in [0, 1] with its 95 % interval. Raises ValueError for no values."""
    if values and all(value in (0.0, 1.0) for value in values):
        return _wilson(round(sum(values)), len(values))
    return _resampled(values, seed, least=0.0, most=1.0)


def difference_estimate(first: Sequence[float], second: Sequence[float], seed: int) -> Estimate:
    """Mean over problems of second minus first, each in [0, 1] and of the same problem, with its 95 % interval.

    Raises ValueError for no values, or another number of them.
    """
    return _resampled([other - mine for mine, other in zip(first, second, strict=True)], seed, least=-1.0, most=1.0)


def compare_paired(first: Sequence[bool], second: Sequence[bool]) -> PairedTest:
    """The exact two-sided McNemar test on results of the same problems in the same order."""
    pairs = list(zip(first, second, strict=True))
    first_only = sum(a and not b for a, b in pairs)
    second_only = sum(b and not a for a, b in pairs)
    fewer, total = min(first_only, second_only), first_only + second_only  # of a fair coin under no difference
    tail = sum(math.comb(total, hits) for hits in range(fewer + 1)) / (1 << total)
    return PairedTest(first_only=first_only, second_only=second_only, n=len(pairs), p_value=min(1.0, 2 * tail))


def _wilson(hits: int, n: int) -> Estimate:
    """Wilson's score interval of `hits` in `n`."""
    share, weight = hits / n, _Z * _Z / n
    middle = (share + weight / 2) / (1 + weight)
    half = _Z * math.sqrt(share * (1 - share) / n + weight / (4 * n)) / (1 + weight)
    low = 0.0 if hits == 0 else middle - half  # exactly, whatever rounding says
    high = 1.0 if hits == n else middle + half
    return Estimate(value=share, low=low, high=high, n=n, method="wilson")


def _resampled(values: Sequence[float], seed: int, *, least: float, most: float) -> Estimate:
    """The percentile bootstrap; for values that are all alike, what unseen ones in [least, most] leave open."""
    if not values:
        raise ValueError("nothing to estimate from")
    n, first = len(values), values[0]
    if all(value == first for value in values):
        unseen = _wilson(0, n).high
        low, high = first - unseen * (first - least), first + unseen * (most - first)
        return Estimate(value=first, low=low, high=high, n=n, method="unseen")
    dice = random.Random(seed)
    means = sorted(sum(dice.choices(values, k=n)) / n for _ in range(_RESAMPLES))
    edge = _RESAMPLES // 40
    return Estimate(value=sum(values) / n, low=means[edge], high=means[-1 - edge], n=n, method="bootstrap")


class SetName(msgspec.Struct, frozen=True, kw_only=True):
    """A set of problems by name and content."""

    name: str
    sha256: str
    problems: int


class EvaluationConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Under which everything was measured; two reports compare only where these are equal."""

    set: SetName
    decode: Decode
    samples: int  # of each problem and seed
    seeds: tuple[int, ...]
    tool_profile: str
    agent_sha256: str
    prompt_sha256: str
    catalogue_sha256: str
    policy_sha256: str
    asked_by: Literal["", "agent"] = ""  # agent: `decode` holds limits, and it chose the rest


class SetSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What scored episodes took together, and how many of them succeeded. Cost is by the policy's prices."""

    episodes: int
    solved: int
    prompt_tokens: int
    completion_tokens: int
    cost_micro_usd: int
    episode_ms: int | None = None  # of agent files alone

    @classmethod
    def of(cls, scored: Sequence[EpisodeResult]) -> SetSpend:
        """The sums over scored episodes."""
        taken = [one.taken for one in scored]
        times_ms = [one.episode_ms for one in taken if one.episode_ms is not None]
        return cls(
            episodes=len(taken),
            solved=sum(bool(one.is_success) for one in scored),
            prompt_tokens=sum(one.prompt_tokens for one in taken),
            completion_tokens=sum(one.completion_tokens for one in taken),
            cost_micro_usd=sum(one.cost_micro_usd for one in taken),
            episode_ms=sum(times_ms) if len(times_ms) == len(taken) else None,
        )

    def a_solved(self, amount: float | None) -> float | None:
        """An amount for each solved episode, those that failed paid for too; None where none was solved."""
        return amount / self.solved if self.solved and amount is not None else None


class ProblemResult(msgspec.Struct, frozen=True, kw_only=True):
    """One problem over its samples. `scored` samples have an outcome; `is_success` is the first sample's."""

    problem_id: str
    bucket: str
    scored: int
    successes: int
    exact: int
    is_success: bool

    @property
    def share(self) -> float:
        """Of its scored samples, those that succeed. Raises ZeroDivisionError without any."""
        return self.successes / self.scored


class EvalReport(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint on one set. Shares are of problems; `pass_at` is by k; `axes` are hits over totals.

    `rule`, `emission`, `hallucinated` and `steps` are means over scored episodes.
    """

    label: str
    weights: str  # the sampler's version: a lineage, a served model's name
    weights_sha256: str = ""  # of the weights that sampled; "" where there are none, or it is unknown
    lineage_sha256: str
    conditions: EvaluationConditions
    asr: Estimate  # pass@1: mean over problems of the share of scored samples that succeed
    asr_by_seed: tuple[float, ...]  # in the order of the conditions' seeds: how much of it is the draw
    gt_exact: Estimate
    partial: Estimate  # failures with a part of the reward
    by_bucket: dict[str, Estimate]
    axes: dict[str, float | None]
    pass_at: dict[str, Estimate]
    rule: float
    emission: float
    hallucinated: float  # invented ids an episode
    steps: float
    episodes: int
    unscored: int
    overflows: int
    contamination: str  # what the set was held against
    spent: SetSpend | None = None  # None: not recorded, by the study's first rows
    problems: tuple[ProblemResult, ...]

    @property
    def scored(self) -> dict[str, ProblemResult]:
        """The problems with a scored sample, by id."""
        return {one.problem_id: one for one in self.problems if one.scored}


def name_set(name: str, problems: Sequence[Problem]) -> SetName:
    """A set, by the content of its problems in any order."""
    hashes = sorted(hashlib.sha256(problem_bytes(problem)).hexdigest() for problem in problems)
    return SetName(name=name, sha256=content_hash(hashes), problems=len(problems))


def prompt_sha256(source: str) -> str:
    """What identifies the system prompt of an agent file: the text of its `PROMPT`, as written."""
    start = source.find('PROMPT = """')
    return text_hash(source[start : source.find('"""', start + 12)]) if start >= 0 else text_hash(source)


def make_report(
    label: str,
    results: Sequence[EpisodeResult],
    conditions: EvaluationConditions,
    *,
    lineage_sha256: str,
    contamination: str,
    weights_sha256: str = "",
) -> EvalReport:
    """The report of these episodes. Raises ArenaError V2124 when none was scored."""
    scored = [result for result in results if result.is_success is not None]
    problems = _by_problem(results)
    counted = [problem for problem in problems if problem.scored]
    if not counted:
        raise ArenaError("V2124", f"none of {len(results)} episodes was scored")
    seed = conditions.seeds[0]  # of the bootstrap's draws too
    partly: dict[str, list[float]] = {}  # of each problem, the samples that fail and earn something nonetheless
    for result in sorted(scored, key=lambda one: one.problem_id):
        partly.setdefault(result.problem_id, []).append(float(not result.is_success and bool(result.reward)))
    axes: dict[str, float | None] = {}
    for axis in AXES:
        counts = [result.axes[axis] for result in scored if axis in result.axes]
        total = sum(all_ for _, all_ in counts)
        axes[axis] = sum(hits for hits, _ in counts) / total if total else None
    pass_at, k = dict[str, Estimate](), 1  # powers of two up to all samples, over problems that have as many
    while k <= conditions.samples * len(conditions.seeds):
        if values := [pass_at_k(p.scored, p.successes, k) for p in counted if p.scored >= k]:
            pass_at[str(k)] = mean_estimate(values, seed)
        k *= 2
    return EvalReport(
        label=label,
        weights=results[0].version,
        weights_sha256=weights_sha256,
        lineage_sha256=lineage_sha256,
        conditions=conditions,
        asr=mean_estimate([problem.share for problem in counted], seed),
        asr_by_seed=tuple(  # samples of a seed are numbered on from those of the seeds before
            _mean([float(bool(one.is_success)) for one in scored if one.sample // conditions.samples == place])
            for place in range(len(conditions.seeds))
        ),
        gt_exact=mean_estimate([problem.exact / problem.scored for problem in counted], seed),
        partial=mean_estimate([_mean(samples) for samples in partly.values()], seed),
        by_bucket={
            bucket: mean_estimate(values, seed)
            for bucket in BUCKETS
            if (values := [p.share for p in counted if p.bucket == bucket])
        },
        axes=axes,
        pass_at=pass_at,
        rule=_mean([result.rule or 0.0 for result in scored]),
        emission=_mean([float(result.is_recommending) for result in scored]),
        hallucinated=_mean([float(result.hallucinated) for result in scored]),
        steps=_mean([float(result.steps) for result in scored]),
        episodes=len(results),
        unscored=len(results) - len(scored),
        overflows=sum(result.is_overflow for result in results),
        contamination=contamination,
        spent=SetSpend.of(scored),
        problems=tuple(problems),
    )


def compare(first: EvalReport, second: EvalReport) -> PairedTest:
    """The paired test on the first sample of each problem. Raises ValueError for reports of other conditions."""
    if first.conditions != second.conditions:
        raise ValueError(f"{first.label} and {second.label} were not measured under the same conditions")
    mine, other = first.scored, second.scored
    shared = sorted(mine.keys() & other.keys())
    return compare_paired([mine[name].is_success for name in shared], [other[name].is_success for name in shared])


def share_difference(first: EvalReport, second: EvalReport) -> Estimate:
    """Second minus first in the share of scored samples that succeed, over the problems both have scored.

    Raises ValueError when they share none.
    """
    mine, other = first.scored, second.scored
    shared = sorted(mine.keys() & other.keys())
    return difference_estimate(
        [mine[name].share for name in shared], [other[name].share for name in shared], first.conditions.seeds[0]
    )


def _by_problem(results: Sequence[EpisodeResult]) -> list[ProblemResult]:
    grouped: dict[str, list[EpisodeResult]] = {}
    for result in sorted(results, key=lambda one: (one.problem_id, one.sample)):
        grouped.setdefault(result.problem_id, []).append(result)
    rows = []
    for problem_id, samples in grouped.items():
        scored = [sample for sample in samples if sample.is_success is not None]
        rows.append(
            ProblemResult(
                problem_id=problem_id,
                bucket=samples[0].bucket,
                scored=len(scored),
                successes=sum(bool(sample.is_success) for sample in scored),
                exact=sum(bool(sample.is_gt_exact) for sample in scored),
                is_success=bool(scored and scored[0].is_success),
            )
        )
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


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
    alike = msgspec.structs.replace(conditions, samples=1, seeds=(0,))  # those already distinguish jobs
    file.claim(text_hash(msgspec.json.encode([lineage_sha256 or plan.label, alike], order="sorted").decode()))
    file.collect(jobs, run, bench.progress and functools.partial(bench.progress, "evaluate"))
    wanted = {job.key for job in jobs}
    return make_report(
        plan.label,
        [line.result for line in file.lines() if line.result.key in wanted],
        conditions,
        lineage_sha256=lineage_sha256,
        contamination=contamination,
        weights_sha256=weights_sha256,
    )


def episodes_path(report: Path) -> Path:
    """Where the episodes of a report lie: beside it."""
    return report.with_suffix(".episodes.jsonl")

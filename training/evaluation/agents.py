"""An agent file under evaluation: a miner's program on the same frozen set as the models, for the same table.

The agent runs as a validator runs it, over ports that somebody else opened (jail, tools, gateway); nobody
judges it. It decides by itself what it asks of its model, so its conditions hold the policy's limits and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.policy import Policy
from harness.tools.registry import profile_schemas
from training.evaluation.run_eval import EvaluationPlan
from training.model import Decode
from training.rollouts.episode_file import EpisodeLine, RunJobs
from training.rollouts.rollout import Job, messages_of, read_result


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
    messages, result = messages_of(evaluation.body), read_result(job, evaluation)
    if result.taken is not None:
        taken = msgspec.structs.replace(result.taken, episode_ms=evaluation.cost.episode_ms)
        result = msgspec.structs.replace(result, taken=taken)
    return EpisodeLine(result=result, query=job.problem.query, messages=messages, tools=tools)


def by_agent(source: str, ports: EvaluatePorts, parallel: int) -> RunJobs:
    """Episodes of an agent file, `parallel` at a time. An ArenaError that would stop every episode stops the run."""
    unjudged, tools = replace(ports, judges=()), profile_schemas(ports.policy.tool_profile)

    def one(job: Job) -> EpisodeLine:
        return line_of(job, evaluate(source, job.problem, unjudged), tools)

    def run(jobs: Sequence[Job]) -> Iterable[EpisodeLine]:
        with ThreadPoolExecutor(parallel) as pool:
            try:
                yield from pool.map(one, jobs)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    return run

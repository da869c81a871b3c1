"""Rollouts: episodes of a policy that is being trained, as evaluations, and as tokens.

A rollout is an `arena.evaluate.evaluate` of one agent file on one problem; the same code evaluates models. Its
tokens are read from the evaluation's body and never made again. A fault of ours has no reward, and a conversation that
was not one growing sequence is no rollout: the caller counts both.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.progress import PhaseProgress
from harness.catalogue.port import Catalogue
from harness.chat import Call, Message
from harness.trace import Completion, EvaluationBody, ToolCall
from problems.model import Problem
from problems.scoring.outcome import OutcomeScore
from problems.scoring.title_matching import TitleMatcher
from training.model import ChatCodec, Decode, EpisodeResult, EpisodeSpend, Rollout, RolloutTurn, Sampler
from training.rollouts.in_process_sandbox import InProcessSandbox
from training.rollouts.token_upstream import CONTEXT_FULL, TokenUpstream, TurnTokens

AXES = ("title", "price", "service", "sku", "attribute")
RECOMMEND = "recommend_product"
_UNIT = 10_000


@dataclass(frozen=True, kw_only=True)
class RolloutPorts:
    """What rollouts run on. `source` is the agent file, one of training's own."""

    policy: Policy
    catalogue: Catalogue
    titles: TitleMatcher
    codec: ChatCodec
    source: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One episode to run: the problem, which of its samples, and the seed of its draws."""

    problem: Problem
    sample: int
    seed: int


def jobs_of(problems: Iterable[Problem], samples: int, seed: int, *, first: int = 0) -> list[Job]:
    """`samples` jobs a problem; each has a seed of its own, which follows from run seed, problem and sample.

    Samples are numbered from `first`, so that jobs of several run seeds can stand side by side.
    """
    return [
        Job(
            problem=problem,
            sample=first + sample,
            seed=int(text_hash(f"{seed}/{problem.problem_id}/{sample}")[:8], 16),
        )
        for problem in problems
        for sample in range(samples)
    ]


def run_jobs(
    jobs: Sequence[Job],
    sampler: Sampler,
    decode: Decode,
    ports: RolloutPorts,
    *,
    parallel: int,
    progress: PhaseProgress | None = None,
) -> Iterator[tuple[Job, Evaluation]]:
    """Run all jobs, `parallel` at a time, and give them in order. Raises ArenaError when the sampler can't answer.

    The next job starts as soon as one ends. After a failure, and when nobody asks on, only what is under way is ended.
    """
    with ThreadPoolExecutor(parallel) as pool:
        running = deque((job, pool.submit(run_job, job, sampler, decode, ports)) for job in jobs)
        try:
            for number in range(1, len(jobs) + 1):
                job, future = running.popleft()  # an evaluation is not held longer than it is asked for
                yield job, future.result()
                if progress:
                    progress(number, len(jobs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_job(job: Job, sampler: Sampler, decode: Decode, ports: RolloutPorts) -> Evaluation:
    """One episode. Raises ArenaError for a fault that is not the policy's."""
    policy = rollout_policy(ports.policy, sampler.version, decode)
    return evaluate(
        ports.source,
        job.problem,
        EvaluatePorts(
            policy=policy,
            catalogue=ports.catalogue,
            titles=ports.titles,
            sandbox=InProcessSandbox(frozenset([text_hash(ports.source)])),
            upstreams=[TokenUpstream(sampler, ports.codec, decode, job.seed)],
            judges=(),
        ),
    )


def rollout_policy(policy: Policy, model: str, decode: Decode) -> Policy:
    """The arena's policy with the run's own model and number of turns; nothing else differs."""
    return msgspec.structs.replace(
        policy,
        inference=msgspec.structs.replace(policy.inference, models=(model,), attempts=1, message_count=1_000),
        limits=msgspec.structs.replace(
            policy.limits,
            steps=decode.turns_max,
            completion_tokens=decode.turns_max * decode.turn_tokens_max,
            completion_tokens_per_call=decode.turn_tokens_max,
            prompt_tokens=decode.turns_max * decode.context_tokens_max,
        ),
    )


def read_result(job: Job, evaluation: Evaluation) -> EpisodeResult:
    """What came of an episode, from its evaluation."""
    body, outcome = evaluation.body, evaluation.outcome
    failures = [getattr(event, "failure", None) for event in body.events]
    result = EpisodeResult(
        problem_id=body.problem_id,
        bucket=body.bucket,
        sample=job.sample,
        seed=job.seed,
        version=next((event.model for event in body.events if isinstance(event, Completion)), ""),
        stop=body.stop,
        steps=body.totals.steps,
        is_overflow=any(CONTEXT_FULL in failure.detail for failure in failures if failure is not None),
        is_recommending=any(isinstance(event, ToolCall) and event.name == RECOMMEND for event in body.events),
        hallucinated=hallucinated_ids(body),
        body_sha256=body.body_hash(),
        taken=EpisodeSpend(
            prompt_tokens=body.totals.prompt_tokens,
            completion_tokens=body.totals.completion_tokens,
            cost_micro_usd=body.totals.cost_micro_usd,
        ),
    )
    if not isinstance(outcome, OutcomeScore):
        return result
    return msgspec.structs.replace(
        result,
        reward=outcome.reward_e4 / _UNIT,
        is_success=outcome.is_success,
        is_gt_exact=outcome.is_gt_exact,
        rule=outcome.rule_e4 / _UNIT,
        axes={
            axis: (
                sum(getattr(slot, axis).hits for slot in outcome.slots),
                sum(getattr(slot, axis).total for slot in outcome.slots),
            )
            for axis in AXES
        },
    )


def read_rollout(job: Job, evaluation: Evaluation) -> Rollout | None:
    """The tokens of an evaluation with its result; None when its turns are not one growing sequence."""
    sequence = _sequence([event for event in evaluation.body.events if isinstance(event, Completion)])
    if sequence is None:
        return None
    prompt, completion, mask, logprobs, spans = sequence
    return Rollout(
        result=read_result(job, evaluation),
        prompt_ids=prompt,
        completion_ids=completion,
        mask=mask,
        logprobs=logprobs,
        turns=spans,
    )


def messages_of(body: EvaluationBody) -> tuple[Message, ...]:
    """The conversation of a growing episode: its first request, then each turn with what its calls answered."""
    turns = [event for event in body.events if isinstance(event, Completion)]
    calls = [event for event in body.events if isinstance(event, ToolCall)]
    messages = []
    for index in turns[0].request if turns else ():
        sent: dict[str, Any] = json.loads(body.messages[index])
        messages.append(Message(role=sent["role"], content=sent.get("content") or ""))
    for turn in turns:
        own = tuple(
            Call(id=call.call_id, name=call.name, arguments=call.arguments, emitter="llm") for call in turn.calls
        )
        messages.append(Message(role="assistant", content=turn.content, reasoning=turn.reasoning, calls=own))
        messages += [
            Message(role="tool", content=call.result, call_id=call.emitted_call_id)
            for call in calls
            if call.step == turn.step
        ]
    return tuple(messages)


def hallucinated_ids(body: EvaluationBody) -> int:
    """Products that were looked at or recommended although no search of the episode had shown them."""
    seen: set[str] = set()
    invented: set[str] = set()
    for event in body.events:
        if isinstance(event, ToolCall):
            invented |= {product for product in _named_ids(event.arguments) if product not in seen}
            seen |= {found.product_id for found in event.surfaced}
    return len(invented)


_Sequence = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[float, ...], tuple[RolloutTurn, ...]]


def _sequence(turns: Sequence[Completion]) -> _Sequence | None:
    """(prompt, completion, mask, logprobs, turns) of one growing sequence, or None."""
    if not turns:
        return None
    tokens = [msgspec.json.decode(turn.logprobs, type=TurnTokens) for turn in turns]
    if not all(turn.is_continued for turn in tokens[1:]):
        return None
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    spans: list[RolloutTurn] = []
    for number, (turn, said) in enumerate(zip(tokens, turns, strict=True)):
        if number:
            ids += turn.prompt
            mask += [0] * len(turn.prompt)
            logprobs += [0.0] * len(turn.prompt)
        first = len(ids)
        ids += turn.sampled
        mask += [1] * len(turn.sampled)
        logprobs += turn.logprobs
        tools = tuple((call.name, call.arguments) for call in said.calls)
        spans.append(RolloutTurn(first=first, last=len(ids), tools=tools, malformed=turn.malformed))
    return tokens[0].prompt, tuple(ids), tuple(mask), tuple(logprobs), tuple(spans)


def _named_ids(arguments: str) -> set[str]:
    """Product ids in a call's arguments, in the tools' own spellings."""
    try:
        fields = json.loads(arguments)
    except ValueError:
        return set()
    named = fields.get("product_ids", fields.get("product_id", "")) if isinstance(fields, dict) else ""
    listed = named if isinstance(named, list) else str(named).split(",")
    return {str(product).strip() for product in listed} - {""}

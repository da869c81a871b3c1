"""Rollouts: episodes of a policy that is being trained, as evaluations, and as tokens.

A rollout is an `arena.evaluate.evaluate` of one agent file on one problem; the same code evaluates models. Its
tokens are read from the evaluation's body and never made again. A fault of ours has no reward, and a conversation that
was not one growing sequence is no rollout: the caller counts both. A conversation that only grows is never tokenised
anew: the next prompt is the last prompt, the sampled ids and what the template writes for the new messages. Episodes
stand on disk as they end, one JSON line each; a line that was cut by a kill is dropped when the file is opened again.
"""

from __future__ import annotations

import builtins
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import msgspec

from arena.evaluate import Evaluation
from arena.export.row import converse
from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.codes import BAD_REQUEST
from foundation.errors import ArenaError, Failure
from foundation.long_work import PhaseProgress
from harness.chat import ChatMessage, Message, chat_row, message_of
from harness.inference.port import ModelReply, Upstream
from harness.inference.reply import arguments_text
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, SandboxLevel
from harness.trace import Completion, EmittedCall, EvaluationBody, ToolCall
from problems.model import AXES, OutcomeScore, Problem
from training.corpus.gates import RECOMMEND, recommended_ids
from training.model import Decode, EpisodeResult, EpisodeSpend, Rollout, RolloutTurn, Sampler
from training.models.render import Qwen3Codec

EPISODES = "episodes.jsonl"


class EpisodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One episode. `rollout` None: an endpoint without tokens, or turns that were not one growing sequence.

    `tools` is the `tools` array the model was given, JSON text.
    """

    result: EpisodeResult
    query: str
    messages: tuple[Message, ...]
    tools: str
    rollout: Rollout | None = None


class EpisodeFile:
    """The episodes of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            path.write_bytes(whole)
        decoder = msgspec.json.Decoder(EpisodeLine)
        self._lines = {line.result.key: line for line in map(decoder.decode, whole.splitlines())}

    def claim(self, owner: str) -> None:
        """Say whose episodes these are. Raises ArenaError V2124 when those here are another policy's, or were run under
        other conditions."""
        kept = self._path.with_suffix(".owner")
        if self._lines and (not kept.exists() or kept.read_text(encoding="utf-8") != owner):
            raise ArenaError("V2124", f"{self._path} holds episodes of another model, or of other conditions")
        kept.write_text(owner, encoding="utf-8")

    def collect(self, jobs: Sequence[Job], run: RunJobs, progress: PhaseProgress | None = None) -> None:
        """Run the jobs that have no line yet, and keep each as it ends."""
        missing = [job for job in jobs if job.key not in self._lines]
        for number, line in enumerate(run(missing), len(jobs) - len(missing) + 1):
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
            self._lines[line.result.key] = line
            if progress:
                progress(number, len(jobs))

    def lines(self) -> tuple[EpisodeLine, ...]:
        """The episodes, by problem and sample."""
        return tuple(self._lines[key] for key in sorted(self._lines))


CONTEXT_FULL = "the context is full"


class TurnTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What is in `Completion.logprobs`, as JSON: the tokens of one turn.

    `prompt` are the ids added since the turn before (all of them for a prompt rendered afresh: `is_continued` False).
    """

    is_continued: bool
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...]


class TokenUpstream:
    """An `Upstream` for one episode. Not thread-safe: an episode asks one thing at a time."""

    def __init__(self, sampler: Sampler, codec: Qwen3Codec, decode: Decode, seed: int) -> None:
        self._sampler, self._codec, self._decode, self._seed = sampler, codec, decode, seed
        self._turn = 0
        self._sent: tuple[Message, ...] = ()  # messages up to the last reply, it included
        self._ids: tuple[int, ...] = ()  # prompt of the last turn
        self._sampled: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The weights' version."""
        return self._sampler.version

    def probe(self, request: str) -> Failure | None:
        """There is nothing to ask beside the conversation: a sampler that can't answer it is away."""
        return Failure(code="U3002")

    def complete(self, request: str) -> ModelReply:
        """One turn. Raises GuestCallError A1040 when the prompt leaves no room in the context."""
        fields = msgspec.json.decode(request, type=dict[str, Any])
        messages = tuple(map(message_of, msgspec.convert(fields["messages"], list[ChatMessage])))
        tools = msgspec.json.encode(fields.get("tools", [])).decode()
        prompt, added, is_continued = self._prompt(messages, tools)
        room = self._decode.context_tokens_max - len(prompt)
        if room < 1:
            raise GuestCallError("A1040", f"{CONTEXT_FULL}: the prompt has {len(prompt)} tokens")
        allowed = min(self._decode.turn_tokens_max, room, fields.get("max_tokens", room))
        decode = msgspec.structs.replace(self._decode, turn_tokens_max=allowed)
        sampled = self._sampler.sample(prompt, decode, self._seed * 1_000 + self._turn)
        parsed = self._codec.parse(sampled.token_ids)
        self._turn += 1
        calls = tuple(  # in the form that a race gives them to the agent
            msgspec.structs.replace(call, arguments=arguments_text(call.arguments), emitter=None)
            for call in parsed.calls
        )
        said = msgspec.structs.replace(parsed, reasoning="", calls=calls)
        self._sent, self._ids, self._sampled = (*messages, said), prompt, sampled.token_ids
        tokens = TurnTokens(
            is_continued=is_continued,
            prompt=added,
            sampled=sampled.token_ids,
            logprobs=sampled.logprobs,
        )
        finish = "length" if sampled.finish == "length" else "tool_calls" if calls else "stop"
        return ModelReply(
            model=self._sampler.version,
            content=parsed.content,
            reasoning=parsed.reasoning,
            calls=tuple(EmittedCall(call_id=call.id, name=call.name, arguments=call.arguments) for call in calls),
            finish_reason=finish,
            prompt_tokens=len(prompt),
            completion_tokens=len(sampled.token_ids),
            message=msgspec.json.encode(chat_row(said)).decode(),
            logprobs=msgspec.json.encode(tokens).decode(),
        )

    def _prompt(self, messages: tuple[Message, ...], tools: str) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
        """(prompt, ids added since the last turn, whether it continues that turn)."""
        known = len(self._sent)
        if self._ids and messages[:known] == self._sent:
            bridged = self._codec.bridge(self._ids, self._sampled, messages[known:], tools)
            if bridged is not None:
                return bridged, bridged[len(self._ids) + len(self._sampled) :], True
        prompt = self._codec.prompt(messages, tools)
        return prompt, prompt, False


_UNIT = 10_000


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One episode to run: the problem, which of its samples, and the seed of its draws."""

    problem: Problem
    sample: int
    seed: int

    @property
    def key(self) -> tuple[str, int, int]:
        """That of its result."""
        return self.problem.problem_id, self.sample, self.seed


RunJobs = Callable[[Sequence[Job]], Iterable[EpisodeLine]]  # runs episodes, here or elsewhere


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


def read_line(
    job: Job, evaluation: Evaluation, tools: str, *, rollout: Rollout | None = None, episode_ms: int | None = None
) -> EpisodeLine:
    """The episode of an evaluation; `tools` are the schemas of its profile, `episode_ms` the time that it took."""
    body, outcome = evaluation.body, evaluation.outcome
    failures = [getattr(event, "failure", None) for event in body.events]
    scored: dict[str, Any] = {}
    if isinstance(outcome, OutcomeScore):
        axes = {axis: [getattr(slot, axis) for slot in outcome.slots] for axis in AXES}
        scored = {
            "reward": outcome.reward_e4 / _UNIT,
            "is_success": outcome.is_success,
            "is_gt_exact": outcome.is_gt_exact,
            "rule": outcome.rule_e4 / _UNIT,
            "axes": {axis: (sum(one.hits for one in own), sum(one.total for one in own)) for axis, own in axes.items()},
        }
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
            episode_ms=episode_ms,
        ),
        **scored,
    )
    messages = tuple(message_of(chat, "llm") for chat in converse(body).messages)  # as an export shows them
    return EpisodeLine(result=result, query=job.problem.query, messages=messages, tools=tools, rollout=rollout)


def read_rollout(evaluation: Evaluation) -> Rollout | None:
    """The tokens of an evaluation; None when its turns are not one growing sequence."""
    turns = [event for event in evaluation.body.events if isinstance(event, Completion)]
    tokens = [msgspec.json.decode(turn.logprobs, type=TurnTokens) for turn in turns]
    if not turns or not all(turn.is_continued for turn in tokens[1:]):
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
        spans.append(RolloutTurn(first=first, last=len(ids), tools=tools))
    return Rollout(
        prompt_ids=tokens[0].prompt,
        completion_ids=tuple(ids),
        mask=tuple(mask),
        logprobs=tuple(logprobs),
        turns=tuple(spans),
    )


def hallucinated_ids(body: EvaluationBody) -> int:
    """Products that were looked at or recommended although no search of the episode had shown them."""
    seen: set[str] = set()
    invented: set[str] = set()
    for event in body.events:
        if isinstance(event, ToolCall):
            invented |= {*recommended_ids(event.arguments, is_strict=False)} - seen
            seen |= {found.product_id for found in event.surfaced}
    return len(invented)


_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


def for_each(items: Iterable[_Item], work: Callable[[_Item], _Value], parallel: int) -> Iterator[_Value]:
    """What `work` makes of each item, in their order; memory holds a few at a time. After an error nothing more is
    begun; what was under way is given before the error is raised."""
    running: deque[Future[_Value]] = deque()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            for item in items:
                running.append(pool.submit(work, item))
                if len(running) > 2 * parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BaseException as error:  # also where nobody asks for more
            for future in running:
                future.cancel()
            if isinstance(error, Exception):
                yield from (one.result() for one in running if not one.cancelled() and one.exception() is None)
            raise


class OwnEndpoint:
    """`inner`, believed. As thread-safe as that is."""

    def __init__(self, inner: Upstream) -> None:
        self._inner, self.name = inner, inner.name

    def complete(self, request: str) -> ModelReply:
        """One attempt. Raises GuestCallError A1040 for a request the endpoint calls malformed, else what it raises."""
        try:
            return self._inner.complete(request)
        except ArenaError as error:
            if error.failure.code != BAD_REQUEST:
                raise
            detail = f"the model endpoint refused the request: {error.failure.detail}"
            raise GuestCallError(BAD_REQUEST, detail) from error

    def probe(self, request: str) -> Failure | None:
        """Never answered: a failure of the endpoint is an outage of the run, whatever else it would answer."""
        return Failure(code="U3002")


LEVEL = SandboxLevel(
    name="reference-agents-only",
    layers=(),
    degraded=("in-process: shipped agents only",),
    guest_sha256="",
    python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
    may_race=False,
)


class InProcessSandbox:
    """A `Sandbox` for sources of ours. Thread-safe: each run has a namespace of its own."""

    level = LEVEL  # no confinement at all

    def __init__(self, admitted_sha256s: frozenset[str]) -> None:
        self._admitted = admitted_sha256s

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        """Run an admitted source to its end. Raises ArenaError V2001 for any other."""
        if text_hash(job.source) not in self._admitted:
            raise ArenaError("V2001", f"source {text_hash(job.source)[:12]} is not one of training's own agents")
        sdk = _sdk(job, host)

        def find(name: str, *rest: Any) -> Any:
            return sdk if name == "arena_sdk" else builtins.__import__(name, *rest)

        namespace: dict[str, Any] = {"__name__": "agent", "__builtins__": {**vars(builtins), "__import__": find}}
        exec(compile(job.source, "agent.py", "exec"), namespace)
        try:
            namespace["agent_main"](msgspec.json.decode(job.problem))
        except EpisodeOver:
            return GuestExit(end="stopped")
        except GuestCallError as error:  # what a guest that does not catch it would end with
            return GuestExit(end="final", error=f"{error.code} {error.message}", error_kind="raise")
        return GuestExit(end="final", claim="null")


def _sdk(job: GuestJob, host: Host) -> ModuleType:
    """`arena_sdk` over `host`, with what these agents use of it."""

    def chat(messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        return host.call("llm.chat", {"messages": list(messages), **options})

    def execute(name: str, arguments: object) -> Any:
        answer: Any = host.call("tool.call", {"name": name, "arguments": arguments})
        return answer["result"]

    def named(name: str, /, **arguments: object) -> Any:
        """A tool as a function of its arguments; its answer is decoded, as the SDK's own functions give it."""
        return msgspec.json.decode(execute(name, msgspec.json.encode(arguments).decode()))

    sdk = ModuleType("arena_sdk")
    sdk.llm = SimpleNamespace(models=lambda: list(job.models), chat=chat)  # type: ignore[attr-defined]
    schemas = msgspec.json.decode(job.tools, type=list[dict[str, Any]])
    tools = {name: partial(named, name) for name in (schema["function"]["name"] for schema in schemas)}
    sdk.tools = SimpleNamespace(schemas=lambda: list(schemas), execute=execute, **tools)  # type: ignore[attr-defined]
    return sdk

"""A run as its calls in order and back, and asking a writer for the thoughts between them, one step at a time.

The writer is shown what was known before a step and the call that follows, never a later result; what it answers is
checked by code (`training.rewriting.grounding`), refused with the reason, asked for again, and given up after
`REPLIES_MAX` replies. What comes out of `lifted` differs from the record in thoughts and system prompt alone. The
folder of a run holds thoughts, never rows: a corpus reads the calls from their export again and checks every thought
once more, so a file that was changed lifts nothing that does not stand (V2120).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from foundation.canonical import text_hash
from foundation.errors import ArenaError
from harness.chat import Call, Message
from judge.parse import RefusedReplyError
from training.corpus.building import Sources
from training.corpus.exports import ViewShard
from training.corpus.model import ExecutedTrace, Quarantined, RejectCode, Rewritten, Trace, assemble_trace
from training.corpus.selection import Shard
from training.rewriting.grounding import CallStep, CallTimeline, refusal
from training.trac.asking import Asker, Chat, Usage, is_of_trace, prompt_text, read_json

STEPS_MAX = 40
REPLIES_MAX = 3  # to one step, the refused ones included
_REPLY_TOKENS_MAX = 400
_RESULT_CHARS = 6_000  # of one result that the writer is shown; checks read all of it
THOUGHTS, LEFT_OUT, REPORT = "thoughts.jsonl", "left_out.jsonl", "rewriting.json"

RewriteFate = Literal[
    "not_a_success",  # only successful runs show a way worth learning
    "already_agentic",  # the model chose its calls: there is nothing to lift
    "not_in_order",  # a call without a result: no steps to think between
    "no_answer",  # nothing was recommended
    "too_long",  # more steps than STEPS_MAX
    "kept_out",  # the corpus would not take it, whatever is thought: its detail names the rules of the filter
    "not_answered",  # the writer's endpoint failed at the question about one step; the next run asks again
    "not_grounded",  # a thought was refused as often as the rules allow
    "rewritten",
]
REWRITE_FATES: tuple[RewriteFate, ...] = get_args(RewriteFate)


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run: its thoughts, one before each call, or why it has none."""

    trace_id: str
    place: str
    fate: RewriteFate
    detail: str = ""
    by: Rewritten
    thoughts: tuple[str, ...] = ()
    refused: int = 0  # replies that did not stand up to the checks on the way


class RewriteReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the command: how many traces met which fate, and what was paid."""

    by: Rewritten
    sources: tuple[str, ...]  # sha256 of each manifest
    traces: int
    steps: int  # thoughts in all
    refused: int  # replies
    fates: dict[str, int]  # in the order of RewriteFate
    usage: tuple[Usage, ...]


def why_not(trace: Trace, timeline: CallTimeline | None) -> RewriteFate | None:
    """Why a run cannot be rewritten; None where it can."""
    if trace.facts.is_success is not True:
        return "not_a_success"
    if trace.facts.is_agentic is not False:
        return "already_agentic"
    if timeline is None:
        return "not_in_order"
    if not any(step.name == "recommend_product" for step in timeline.steps):
        return "no_answer"
    return "too_long" if len(timeline.steps) > STEPS_MAX else None


def timeline_of(trace: ExecutedTrace) -> CallTimeline | None:
    """The calls with their results, in order; None where a call has no result."""
    steps = [
        CallStep(name=name, arguments=arguments, result=result)
        for name, arguments, result in trace.executed
        if result is not None
    ]
    return CallTimeline(query=trace.query, steps=tuple(steps)) if len(steps) == len(trace.executed) else None


def lifted(trace: Trace, timeline: CallTimeline, thoughts: tuple[str, ...], prompt: str, by: Rewritten) -> Trace:
    """The run as if the model had chosen its calls: `prompt`, the query, then thought, call and result of each step.

    Raises ValueError where there is not one thought for each step.
    """
    messages = [Message(role="system", content=prompt), Message(role="user", content=timeline.query)]
    for number, (step, thought) in enumerate(zip(timeline.steps, thoughts, strict=True), start=1):
        call = Call(id=f"call_{number}", name=step.name, arguments=step.arguments)
        messages.append(Message(role="assistant", reasoning=thought, calls=(call,)))
        messages.append(Message(role="tool", content=step.result, call_id=call.id))
    made = assemble_trace(
        trace.source,
        messages,
        tools=trace.tools,
        query=trace.query,
        facts=msgspec.structs.replace(trace.facts, is_linear=True),
    )
    return msgspec.structs.replace(made, rewritten=by)


WouldReject = Callable[[Trace], Sequence[RejectCode]]  # what the filter would say of a lifted trace


class _ThoughtReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thought: str


def report(found: Sequence[Rewrite], by: Rewritten, asker: Asker, sources: Sequence[str]) -> RewriteReport:
    """The counts of a finished run. `sources` are the hashes of what was read."""
    counts = Counter(one.fate for one in found)
    return RewriteReport(
        by=by,
        sources=tuple(sources),
        traces=len(found),
        steps=sum(len(one.thoughts) for one in found),
        refused=sum(one.refused for one in found),
        fates={fate: counts[fate] for fate in REWRITE_FATES if counts[fate]},
        usage=asker.usage(),
    )


def written_by(writer: str) -> Rewritten:
    """The writer with the prompt it is asked by."""
    return Rewritten(writer=writer, prompt_sha256=text_hash(prompt_text("rewriting", "think")))


def rewrite(trace: ExecutedTrace, by: Rewritten, asker: Asker, would_reject: WouldReject) -> Rewrite:
    """The thoughts of a run, or why it has none; nothing is asked about a run that the corpus would reject.

    Raises ArenaError U3001 (no such endpoint, key or model), U3002 to U3004 for one that fell silent, V2148 at the
    limit of cost; what was answered is kept.
    """
    made = Rewrite(trace_id=trace.trace_id, place=trace.source.place, fate="rewritten", by=by)
    timeline = timeline_of(trace)
    if (fate := why_not(trace, timeline)) or timeline is None:
        return msgspec.structs.replace(made, fate=fate or "not_in_order")
    if kept_out := would_reject(lifted(trace, timeline, ("",) * len(timeline.steps), "", by)):
        return msgspec.structs.replace(made, fate="kept_out", detail=", ".join(kept_out))
    thoughts: list[str] = []
    refused = 0
    for number, step in enumerate(timeline.steps):

        def read(text: str, number: int = number) -> str:
            thought = read_json(text, _ThoughtReply).thought.strip()
            if (reason := refusal(thought, timeline, number, thoughts)) is not None:
                raise RefusedReplyError(reason)
            return thought

        chat, limits = thought_chat(timeline, thoughts), (_REPLY_TOKENS_MAX, REPLIES_MAX)
        try:
            thought, more = asker.ask_checked(by.writer, chat, *limits, read)
        except RefusedReplyError as wrong:
            detail = f"step {number + 1}, {step.name}: {wrong}"
            return msgspec.structs.replace(made, fate="not_grounded", detail=detail)
        except ArenaError as error:
            if not is_of_trace(error):
                raise
            detail = f"step {number + 1}, {step.name}: {error.failure.detail}"
            return msgspec.structs.replace(made, fate="not_answered", detail=detail)
        thoughts.append(thought)
        refused += more
    return msgspec.structs.replace(made, thoughts=tuple(thoughts), refused=refused)


def broken(made: Rewrite, timeline: CallTimeline) -> str | None:
    """Why the thoughts of a file may not stand before these steps; None where they may."""
    if len(made.thoughts) != len(timeline.steps):
        return f"{len(made.thoughts)} thoughts for {len(timeline.steps)} steps"
    for number, thought in enumerate(made.thoughts):
        if (reason := refusal(thought, timeline, number, made.thoughts[:number])) is not None:
            return f"step {number + 1}: {reason}"
    return None


def thought_chat(timeline: CallTimeline, thoughts: Sequence[str]) -> Chat:
    """The conversation that asks for the thought before the step after those that have one."""
    done = [
        {
            "thought": thought,
            "tool": step.name,
            "arguments": step.arguments,
            "result": step.result[:_RESULT_CHARS],
        }
        for thought, step in zip(thoughts, timeline.steps, strict=False)
    ]
    step = timeline.steps[len(thoughts)]
    shown = {"request": timeline.query, "done": done, "next": {"tool": step.name, "arguments": step.arguments}}
    return ("system", prompt_text("rewriting", "think")), ("user", msgspec.json.encode(shown).decode())


class LiftedShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard in which runs with thoughts stand as if the model had chosen their calls. Calling it reads it."""

    shard: Shard
    rewrites: Mapping[str, Rewrite]  # by the trace's id
    prompt: str

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order; a run whose thoughts do not stand is quarantined."""
        for row in self.shard():
            if not isinstance(row, ExecutedTrace) or (made := self.rewrites.get(row.trace_id)) is None:
                yield row
                continue
            timeline = timeline_of(row)
            reason = broken(made, timeline) if timeline else "its calls are in no order"
            if timeline is None or reason is not None:
                yield Quarantined(place=row.source.place, code="V2120", detail=str(reason))
            else:
                yield lifted(row, timeline, made.thoughts, self.prompt, made.by)


def with_rewrites(sources: Sources, folders: Sequence[Path], prompt: str) -> Sources:
    """Sources in which runs with thoughts are lifted; without folders, as they are. The lineage names the files of
    thoughts beside the exports.

    `prompt` is the system prompt of the lifted rows. Raises ArenaError V2120 for a file that can't be read.
    """
    if not folders:
        return sources
    rewrites: dict[str, Rewrite] = {}
    hashes = set(sources.hashes)
    for folder in folders:
        try:
            data = (folder / THOUGHTS).read_bytes()
            rewrites |= {one.trace_id: one for one in msgspec.json.Decoder(Rewrite).decode_lines(data)}
        except (OSError, msgspec.DecodeError) as wrong:
            raise ArenaError(
                "V2120", f"{folder / THOUGHTS}: {wrong}", fix="give the unchanged folder of `arena corpus rewrite`"
            ) from None
        hashes.add(hashlib.sha256(data).hexdigest())
    shards = tuple(LiftedShard(shard=with_calls(shard), rewrites=rewrites, prompt=prompt) for shard in sources.shards)
    return msgspec.structs.replace(sources, shards=shards, hashes=tuple(sorted(hashes)))


def with_calls(shard: Shard) -> Shard:
    """A shard of an export whose traces name every call that was executed; another shard as it is."""
    return msgspec.structs.replace(shard, keeps_calls=True) if isinstance(shard, ViewShard) else shard

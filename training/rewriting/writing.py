"""A run as its calls in order and back, and asking a writer for the thoughts between them, one step at a time.

The writer is shown what was known before a step and the call that follows, never a later result; what it answers is
checked by code (`training.rewriting.grounding`), refused with the reason, asked for again, and given up after as many
replies as the rules allow. What comes out of `lifted` differs from the record in thoughts and system prompt alone. The
folder of a run holds thoughts, never rows: a corpus reads the calls from their export again and checks every thought
once more, so a file that was changed lifts nothing that does not stand (V2149).
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, get_args

import msgspec

from foundation.canonical import text_hash
from foundation.codes.names import NO_ANSWER_TO_THIS
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from harness.chat import Call, Message
from judge.parse import RefusedReplyError
from training.corpus.building import Sources
from training.corpus.exports import ViewShard
from training.corpus.model import ExecutedTrace, Quarantined, RejectCode, Rewritten, Trace, assemble_trace
from training.corpus.selection import Shard
from training.rewriting.grounding import refusal
from training.rewriting.known_facts import CallStep, CallTimeline, prompt_text
from training.trac.asking import Asker, Chat, read_json
from training.trac.model import Usage

REWRITE_VERSION = 1

LeftOutCode = Literal[
    "not_a_success",  # only successful runs show a way worth learning
    "already_agentic",  # the model chose its calls: there is nothing to lift
    "not_in_order",  # a call without a result: no steps to think between
    "no_answer",  # nothing was recommended
    "too_long",  # more steps than the rules allow
    "kept_out",  # the corpus would not take it, whatever is thought: its detail names the rules of the filter
    "not_answered",  # the writer's endpoint answers, but not the question about one step: too long, or too slow
    "not_grounded",  # a thought was refused as often as the rules allow
]
LEFT_OUT_CODES: tuple[LeftOutCode, ...] = get_args(LeftOutCode)


class RewriteRules(msgspec.Struct, frozen=True, kw_only=True):
    """How thoughts are asked for."""

    steps_max: int = 40
    replies_max: int = 3  # to one step, the refused ones included
    reply_tokens_max: int = 400
    result_chars: int = 6_000  # of one result that the writer is shown; checks read all of it


class Rewrite(msgspec.Struct, frozen=True, kw_only=True):
    """The thoughts of one run, one before each call."""

    version: int = REWRITE_VERSION
    trace_id: str
    place: str
    by: Rewritten
    thoughts: tuple[str, ...]
    refused: int = 0  # replies that did not stand up to the checks on the way


class OmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was not rewritten, and why."""

    trace_id: str
    place: str
    code: LeftOutCode
    detail: str = ""


class RewriteReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how many traces were rewritten and left out, by code, and what was paid."""

    rules: RewriteRules
    writer: str
    prompt_sha256: str
    sources: tuple[str, ...]  # sha256 of each manifest
    traces: int
    rewritten: int
    steps: int  # thoughts in all
    refused: int  # replies
    left_out: tuple[tuple[LeftOutCode, int], ...]
    usage: tuple[Usage, ...]


def why_not(trace: Trace, timeline: CallTimeline | None, rules: RewriteRules) -> LeftOutCode | None:
    """Why a run cannot be rewritten; None where it can."""
    if trace.facts.is_success is not True:
        return "not_a_success"
    if trace.facts.is_agentic is not False:
        return "already_agentic"
    if timeline is None:
        return "not_in_order"
    if not any(step.name == "recommend_product" for step in timeline.steps):
        return "no_answer"
    return "too_long" if len(timeline.steps) > rules.steps_max else None


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


def rewrite_all(
    traces: Iterable[ExecutedTrace],
    writer: str,
    rules: RewriteRules,
    asker: Asker,
    would_reject: WouldReject,
    *,
    parallel: int = 1,
) -> Iterator[Rewrite | OmittedRun]:
    """What becomes of each trace, in their order; memory holds a few traces at a time.

    Raises ArenaError V2148, A1040, U3001 to U3004: whatever was answered is kept.
    """
    running: deque[Future[Rewrite | OmittedRun]] = deque()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            for trace in traces:
                running.append(pool.submit(rewrite, trace, writer, rules, asker, would_reject))
                if len(running) > 2 * parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:  # after an error nothing more is begun
                future.cancel()


def report(
    found: Sequence[Rewrite | OmittedRun], writer: str, rules: RewriteRules, asker: Asker, sources: Sequence[str]
) -> RewriteReport:
    """The counts of a finished run. `sources` are the hashes of what was read."""
    made = [one for one in found if isinstance(one, Rewrite)]
    left = Counter(one.code for one in found if isinstance(one, OmittedRun))
    return RewriteReport(
        rules=rules,
        writer=writer,
        prompt_sha256=text_hash(prompt_text("think")),
        sources=tuple(sources),
        traces=len(found),
        rewritten=len(made),
        steps=sum(len(one.thoughts) for one in made),
        refused=sum(one.refused for one in made),
        left_out=tuple((code, left[code]) for code in LEFT_OUT_CODES if left[code]),
        usage=asker.usage(),
    )


def rewrite(
    trace: ExecutedTrace, writer: str, rules: RewriteRules, asker: Asker, would_reject: WouldReject
) -> Rewrite | OmittedRun:
    """The thoughts of a run, or why it has none; nothing is asked about a run that the corpus would reject.

    Raises what `Asker.ask` raises; what was answered is kept.
    """
    timeline = timeline_of(trace)
    if (code := why_not(trace, timeline, rules)) is not None or timeline is None:
        return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code=code or "not_in_order")
    by = Rewritten(writer=writer, prompt_sha256=text_hash(prompt_text("think")))
    if kept_out := would_reject(lifted(trace, timeline, ("",) * len(timeline.steps), "", by)):
        detail = ", ".join(kept_out)
        return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code="kept_out", detail=detail)
    thoughts: list[str] = []
    refused = 0
    for number, step in enumerate(timeline.steps):

        def read(text: str, number: int = number) -> str:
            thought = read_json(text, _ThoughtReply).thought.strip()
            if (reason := refusal(thought, timeline, number, thoughts)) is not None:
                raise RefusedReplyError(reason)
            return thought

        try:
            thought, more = asker.ask_checked(writer, thought_chat(timeline, thoughts, rules), rules, read)
        except (RefusedReplyError, ArenaError) as wrong:
            if isinstance(wrong, ArenaError) and wrong.failure.code != NO_ANSWER_TO_THIS:
                raise
            code = "not_answered" if isinstance(wrong, ArenaError) else "not_grounded"
            said = wrong.failure.detail if isinstance(wrong, ArenaError) else str(wrong)
            detail = f"step {number + 1}, {step.name}: {said}"
            return OmittedRun(trace_id=trace.trace_id, place=trace.source.place, code=code, detail=detail)
        thoughts.append(thought)
        refused += more
    return Rewrite(
        trace_id=trace.trace_id,
        place=trace.source.place,
        by=by,
        thoughts=tuple(thoughts),
        refused=refused,
    )


def broken(made: Rewrite, timeline: CallTimeline) -> str | None:
    """Why the thoughts of a file may not stand before these steps; None where they may."""
    if len(made.thoughts) != len(timeline.steps):
        return f"{len(made.thoughts)} thoughts for {len(timeline.steps)} steps"
    for number, thought in enumerate(made.thoughts):
        if (reason := refusal(thought, timeline, number, made.thoughts[:number])) is not None:
            return f"step {number + 1}: {reason}"
    return None


def thought_chat(timeline: CallTimeline, thoughts: list[str], rules: RewriteRules) -> Chat:
    """The conversation that asks for the thought before the step after those that have one."""
    done = [
        {
            "thought": thought,
            "tool": step.name,
            "arguments": step.arguments,
            "result": step.result[: rules.result_chars],
        }
        for thought, step in zip(thoughts, timeline.steps, strict=False)
    ]
    step = timeline.steps[len(thoughts)]
    shown = {"request": timeline.query, "done": done, "next": {"tool": step.name, "arguments": step.arguments}}
    return ("system", prompt_text("think")), ("user", msgspec.json.encode(shown).decode())


THOUGHTS, LEFT_OUT, REPORT = "thoughts.jsonl", "left_out.jsonl", "rewriting.json"


class LiftedShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard in which runs with thoughts stand as if the model had chosen their calls; alone, or among the others.
    Calling it reads it."""

    shard: Shard
    rewrites: Mapping[str, Rewrite]  # by the trace's id
    prompt: str
    is_alone: bool = False

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order; a run whose thoughts do not stand is quarantined."""
        for row in self.shard():
            made = self.rewrites.get(row.trace_id) if isinstance(row, ExecutedTrace) else None
            if made is None or not isinstance(row, ExecutedTrace):
                if not self.is_alone:
                    yield row
                continue
            timeline = timeline_of(row)
            reason = "its calls are in no order" if timeline is None else broken(made, timeline)
            if timeline is None or reason is not None:
                yield Quarantined(place=row.source.place, code="V2149", detail=str(reason))
            else:
                yield lifted(row, timeline, made.thoughts, self.prompt, made.by)


def write_results(out: Path, found: Sequence[Rewrite | OmittedRun], report: RewriteReport) -> None:
    """Write the thoughts, what was left out, and the report. Raises ArenaError V2027."""
    made = (one for one in found if isinstance(one, Rewrite))
    left = (one for one in found if isinstance(one, OmittedRun))
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in ((THOUGHTS, made), (LEFT_OUT, left)):
            write_whole(out / name, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        write_whole(out / REPORT, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except OSError as wrong:
        raise ArenaError("V2027", f"{out}: {wrong.strerror}") from None


def with_rewrites(sources: Sources, folders: Sequence[Path], prompt: str, *, is_alone: bool = False) -> Sources:
    """Sources in which runs with thoughts are lifted; without folders, as they are. The lineage names the files of
    thoughts beside the exports.

    `prompt` is the system prompt of the lifted rows; `is_alone` leaves every other run out. Raises ArenaError V2149 for
    a file that can't be read.
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
            raise ArenaError("V2149", f"{folder / THOUGHTS}: {wrong}") from None
        hashes.add(hashlib.sha256(data).hexdigest())
    shards = tuple(
        LiftedShard(shard=with_calls(shard), rewrites=rewrites, prompt=prompt, is_alone=is_alone)
        for shard in sources.shards
    )
    return msgspec.structs.replace(sources, shards=shards, hashes=tuple(sorted(hashes)))


def with_calls(shard: Shard) -> Shard:
    """A shard of an export whose traces name every call that was executed; another shard as it is."""
    return msgspec.structs.replace(shard, keeps_calls=True) if isinstance(shard, ViewShard) else shard

"""An `inspect` evaluation log: `<shard>.eval`, one sample a trajectory, for its viewer and `read_eval_log`.

Written without the package, in its format 2 (a zip of JSON files); bytes depend on the rows alone, so members
are stored uncompressed and dated 1980: zlib builds compress differently. Samples are written as they come; only their
summaries are held. One log holds one shard, so its size is bounded by the request's `rows_per_shard`.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from arena.export.facts import AXES, TrajectoryFacts, ViewContext
from arena.export.model import Manifest, ShardFile, Trajectory
from arena.export.row import ViewRow, row_of
from arena.export.writing.shards import describe
from harness.chat import ChatMessage

_ENCODER = msgspec.json.Encoder()
_VERSION = 2
_TASK = "agent-arena"
_HEADLINE = "success"
_SUMMARY_CHARS = 1_000
_SUMMARY_FACTS = ("problem_id", "bucket", "pool", "agent_version_id", "miner_hotkey", "stop", "is_agentic")
_FINISH = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_ROLES = frozenset({"system", "user", "assistant", "tool"})


class InspectWriter:
    """A `ViewWriter` of one evaluation log a shard."""

    def __init__(self, folder: Path, shard_number: int, context: ViewContext) -> None:
        self._folder, self._number, self._context = folder, shard_number, context
        self._path = folder / f"{shard_number:06d}.eval"
        self._zip = zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED)
        self._summaries: list[dict[str, object]] = []
        self._sums: dict[str, tuple[float, int]] = {}
        self._models: dict[str, None] = {}
        self._first_ms = self._last_ms = 0

    def write(self, rows: Sequence[Trajectory]) -> None:
        """Add trajectories."""
        for trajectory in rows:
            row = row_of(trajectory, self._context)
            sample = sample_of(row) if self._context.version > 2 else _bare_sample(row)
            self._add(f"samples/{row.facts.seq}_epoch_1.json", sample)
            values = _values(row.facts)
            self._summaries.append(  # what the viewer lists
                {
                    "id": row.facts.seq,
                    "epoch": 1,
                    "input": row.facts.query[:_SUMMARY_CHARS],
                    "target": sample["target"],
                    "metadata": {name: getattr(row.facts, name) for name in _SUMMARY_FACTS} | _episode(row),
                    "scores": {name: {"value": value} for name, value in values.items()},
                    "model_usage": sample["model_usage"],
                    "completed": True,
                    "message_count": len(row.conversation.messages),
                    **_times(row),
                }
            )
            for name, value in values.items():
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value, count + 1)
            self._models.update(dict.fromkeys(turn.model for turn in row.conversation.completions))
            self._first_ms = self._first_ms or row.facts.recorded_ms
            self._last_ms = row.facts.recorded_ms

    def finish(self) -> tuple[ShardFile, ...]:
        """Complete the log."""
        headline = _HEADLINE if self._context.version > 2 else None  # the first score, which viewers show
        count, plan = len(self._summaries), {"name": "recorded", "steps": [], "config": {}}
        spec = {
            "eval_id": f"{_TASK}-{self._number:06d}",
            "run_id": f"{_TASK}-{self._number:06d}",
            "created": _time(self._first_ms),
            "task": _TASK,
            "task_id": _TASK,
            "task_version": 1,
            "task_attribs": {},
            "task_args": {},
            "dataset": {"name": "ShoppingBench", "samples": count, "shuffled": False},
            "model": ",".join(self._models) or "none",
            "model_args": {},
            "config": {},
            "packages": {},
        }
        scores = [
            {
                "name": name,
                "scorer": name,
                "params": {},
                "metrics": {"mean": {"name": "mean", "value": total / times, "params": {}}},
                "scored_samples": times,
                "unscored_samples": count - times,
            }
            for name, (total, times) in sorted(self._sums.items(), key=lambda one: (one[0] != headline, one[0]))
        ]
        self._add("_journal/start.json", {"version": _VERSION, "eval": spec, "plan": plan})
        self._add("summaries.json", self._summaries)
        self._add(
            "header.json",
            {
                "version": _VERSION,
                "status": "success",
                "eval": spec,
                "plan": plan,
                "results": {"total_samples": count, "completed_samples": count, "scores": scores},
                "stats": {"started_at": _time(self._first_ms), "completed_at": _time(self._last_ms), "model_usage": {}},
            },
        )
        self._zip.close()
        return (describe(self._folder, self._path, count),)

    def _add(self, name: str, value: object) -> None:
        member = zipfile.ZipInfo(name)  # dated 1980-01-01
        member.create_system = 3
        member.external_attr = 0o644 << 16
        self._zip.writestr(member, _ENCODER.encode(value))


def open_writer(folder: Path, shard_number: int, context: ViewContext) -> InspectWriter:
    """A writer of one shard."""
    return InspectWriter(folder, shard_number, context)


def finish_export(folder: Path, manifest: Manifest) -> tuple[ShardFile, ...]:
    """Nothing: each log is whole."""
    return ()


def sample_of(row: ViewRow) -> dict[str, object]:
    """One `EvalSample`: messages with ids, and what happened as events, whose inputs refer to a pool."""
    talk = row.conversation
    every = [
        _message(message) | {"id": f"{row.facts.seq}-{number}"}
        for number, message in enumerate((*talk.messages, *talk.other_messages))
    ]
    names = {call.id: call.function.name for one in talk.messages for call in one.tool_calls}
    for message in every:
        if (name := names.get(str(message.get("tool_call_id")))) is not None:
            message["function"] = name
    return _bare_sample(row) | {
        "messages": every[: len(talk.messages)],
        "events": _events(row, every),
        "events_data": {"messages": every, "calls": []},
    }


def _events(row: ViewRow, every: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Completions and executed calls in order. No record has their times: each has that of the record."""
    talk, stamp = row.conversation, {"timestamp": _time(row.facts.recorded_ms), "working_start": 0.0}
    events: list[dict[str, object]] = []

    def add(**fields: object) -> None:
        events.append({"uuid": f"{row.facts.seq}-e{len(events)}", **stamp, **fields})

    def add_calls(step: int) -> None:
        for call in (one for one in talk.calls if one.step == step):
            held = every[call.message] if call.message is not None else {}
            add(
                event="tool",
                type="function",
                id=call.call_id or f"{call.emitter}-{call.index}",
                function=call.name,
                result=held.get("content", "") if held else call.result or "",
                metadata={"emitter": call.emitter, "step": call.step},
                **({"message_id": held["id"]} if held else {}),
                **({"error": {"type": "parsing", "message": call.failure}} if call.failure else {}),
                arguments=_arguments(call.arguments).get("arguments", {}),
            )

    add_calls(0)
    for turn in talk.completions:
        choice = {"message": every[turn.reply], "stop_reason": _FINISH.get(turn.finish_reason, "unknown")}
        add(
            event="model",
            model=turn.model,
            input=[],
            input_refs=_ranges(turn.request),
            tools=[],
            tool_choice="auto",
            config={},
            output={
                "model": turn.model,
                "choices": [choice],
                "usage": _usage(turn.prompt_tokens, turn.completion_tokens),
            },
        )
        add_calls(turn.step)
    return events


def _ranges(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Indexes as ranges whose end is not in them, in order."""
    ranges: list[tuple[int, int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index:
            ranges[-1] = ranges[-1][0], index + 1
        else:
            ranges.append((index, index + 1))
    return ranges


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    total = prompt_tokens + completion_tokens
    return {"input_tokens": prompt_tokens, "output_tokens": completion_tokens, "total_tokens": total}


def _arguments(text: str) -> dict[str, object]:
    """Arguments as the object that inspect wants; text that is none is kept as an error of parsing."""
    said = None
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        said = msgspec.json.decode(text)
    return {"arguments": said} if isinstance(said, dict) else {"arguments": {}, "parse_error": text[:_SUMMARY_CHARS]}


def _bare_sample(row: ViewRow) -> dict[str, object]:
    """The sample of an export up to version 2, which has neither ids nor events. The target is known only where the
    answer was recommended; bank releases hold the others."""
    facts, talk = row.facts, row.conversation
    messages = [_message(message) for message in talk.messages]
    turn = max(talk.completions, key=lambda one: one.reply if one.reply < len(messages) else -1, default=None)
    output: dict[str, object] = {"model": "none", "choices": []}
    if turn is not None:
        choice = {"message": messages[turn.reply], "stop_reason": _FINISH.get(turn.finish_reason, "unknown")}
        output = {"model": turn.model, "choices": [choice]}
    usage = _usage(facts.prompt_tokens, facts.completion_tokens)
    return {
        "id": facts.seq,
        "epoch": 1,
        "input": facts.query,
        "target": facts.recommended if facts.is_gt_exact and facts.recommended else "",
        "messages": messages,
        "output": output,
        "scores": _scores(row),
        "metadata": {
            **msgspec.structs.asdict(facts),
            **_episode(row),
            "calls": talk.calls,
            "completions": talk.completions,
            "other_messages": talk.other_messages,
        },
        "store": {},
        "events": [],
        "model_usage": {facts.models: usage} if facts.models else {},
        "attachments": {},
        **_times(row),
    }


def _episode(row: ViewRow) -> dict[str, object]:
    return {} if row.episode is None else msgspec.structs.asdict(row.episode)


def _times(row: ViewRow) -> dict[str, float]:
    """Seconds, as the viewer shows them; nothing where they were not recorded."""
    if row.episode is None or row.episode.episode_ms is None:
        return {}
    return {"total_time": row.episode.episode_ms / 1000, "working_time": row.episode.episode_ms / 1000}


def _message(message: ChatMessage) -> dict[str, object]:
    """A message in inspect's form: arguments as objects, reasoning as content, our own marks as metadata."""
    marks: dict[str, object] = {}
    if message.origin:
        marks["origin"] = message.origin
    if message.echoed_tool_calls:
        marks["echoed_tool_calls"] = message.echoed_tool_calls
    if message.agent_tool_calls:
        marks["agent_tool_calls"] = message.agent_tool_calls
    fields: dict[str, object] = {"role": message.role, "content": message.content}
    if message.role not in _ROLES:
        fields["role"], marks["role"] = "user", message.role
    if message.role == "assistant":
        fields["source"] = "generate" if message.origin is None else "input"
        if message.reasoning_content:
            fields["content"] = [
                {"type": "reasoning", "reasoning": message.reasoning_content},
                {"type": "text", "text": message.content},
            ]
        calls = [
            {"id": call.id, "function": call.function.name, "type": "function", **_arguments(call.function.arguments)}
            for call in message.tool_calls
        ]
        if calls:
            fields["tool_calls"] = calls
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    if marks:
        fields["metadata"] = marks
    return fields


def _values(facts: TrajectoryFacts) -> dict[str, float]:
    """Scores by name, from 0 to 1; what was not scored or judged has none."""
    values: dict[str, float] = {}
    if facts.is_success is not None:
        values["success"] = float(facts.is_success)
        values["gt_exact"] = float(bool(facts.is_gt_exact))
    for name in ("rule_e4", "reward_e4", "quality_e4", "coefficient_e4"):
        value = getattr(facts, name)
        if value is not None:
            values[name.removesuffix("_e4")] = value / 10_000
    for axis in AXES:
        if total := getattr(facts, f"{axis}_total"):
            values[axis] = getattr(facts, f"{axis}_hits") / total
    return values


def _scores(row: ViewRow) -> dict[str, object]:
    facts = row.facts
    scores: dict[str, object] = {}
    for name, value in _values(facts).items():
        score: dict[str, object] = {"value": value}
        if name in ("success", "gt_exact") and facts.recommended is not None:
            score["answer"] = facts.recommended
        if axis_total := getattr(facts, f"{name}_total", None):
            score["explanation"] = f"{getattr(facts, f'{name}_hits')} of {axis_total} rules met"
        if name == "quality" and row.opinions:
            said = []  # by each judge, with the spans it cites
            for one in row.opinions:
                quotes = "\n".join(f"- span {cited.span}, {cited.gate}: {cited.quote}" for cited in one.citations)
                said.append(f"{one.model}: {one.quality_e4} of 10000. {one.explanation}\n{quotes}".rstrip())
            score["explanation"] = "\n\n".join(said)
            score["metadata"] = {"opinions": row.opinions, "spread_e4": facts.spread_e4}
        scores[name] = score
    return scores


def _time(recorded_ms: int) -> str:
    """UTC, ISO 8601; what lies outside the calendar is its start."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=recorded_ms)).isoformat()
    except OverflowError:
        return datetime(1970, 1, 1, tzinfo=UTC).isoformat()

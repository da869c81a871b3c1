"""An `inspect` evaluation log: `<shard>.eval`, one sample a trajectory, for its viewer and `read_eval_log`.

Written without the package, in its format 2 (a zip of JSON files); bytes depend on the rows alone, so members
are stored uncompressed and dated 1980: zlib builds compress differently. Samples are written as they come; only their
summaries are held. One log holds one shard, so its size is bounded by the request's `rows_per_shard`.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from arena.export.row import AXES, TrajectoryFacts, ViewRow
from harness.chat import ChatMessage

_ENCODER = msgspec.json.Encoder()
_VERSION = 2
_TASK = "agent-arena"
_HEADLINE = "success"  # the first score, which viewers show
_SUMMARY_CHARS = 1_000
_SUMMARY_FACTS = tuple(
    ["problem_id", "bucket", "pool", "agent_name", "agent_version_id", "miner_hotkey", "stop", "is_agentic"]
)
_FINISH = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_ROLES = frozenset({"system", "user", "assistant", "tool"})


def write_eval_log(rows: Iterable[ViewRow], path: Path, name: str) -> int:
    """Write the log of a shard of this name; the number of its samples."""
    summaries: list[dict[str, object]] = []
    values: dict[str, list[float]] = {}
    models: dict[str, None] = {}
    times_ms = [0]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as log:
        for row in rows:
            sample = sample_of(row)
            _add(log, f"samples/{row.facts.seq}_epoch_1.json", sample)
            scores = score_values(row.facts)
            summaries.append(_summary(row, sample, scores))
            for score, value in scores.items():
                values.setdefault(score, []).append(value)
            models.update(dict.fromkeys(turn.model for turn in row.conversation.completions))
            times_ms.append(row.facts.recorded_ms)
        count, plan = len(summaries), {"name": "recorded", "steps": [], "config": {}}
        spec = {
            "eval_id": f"{_TASK}-{name}",
            "run_id": f"{_TASK}-{name}",
            "created": _time(times_ms[:2][-1]),
            "task": _TASK,
            "task_id": _TASK,
            "task_version": 1,
            "task_attribs": {},
            "task_args": {},
            "dataset": {"name": "ShoppingBench", "samples": count, "shuffled": False},
            "model": ",".join(models) or "none",
            "model_args": {},
            "config": {},
            "packages": {},
        }
        means = [
            {
                "name": score,
                "scorer": score,
                "params": {},
                "metrics": {"mean": {"name": "mean", "value": sum(scored) / len(scored), "params": {}}},
                "scored_samples": len(scored),
                "unscored_samples": count - len(scored),
            }
            for score, scored in sorted(values.items(), key=lambda one: (one[0] != _HEADLINE, one[0]))
        ]
        stats = {"started_at": _time(times_ms[:2][-1]), "completed_at": _time(times_ms[-1]), "model_usage": {}}
        results = {"total_samples": count, "completed_samples": count, "scores": means}
        header = {"version": _VERSION, "status": "success", "eval": spec, "plan": plan}
        _add(log, "_journal/start.json", {"version": _VERSION, "eval": spec, "plan": plan})
        _add(log, "summaries.json", summaries)
        _add(log, "header.json", header | {"results": results, "stats": stats})
    return count


def _summary(row: ViewRow, sample: dict[str, object], scores: dict[str, float]) -> dict[str, object]:
    """What the viewer lists."""
    return {
        "id": row.facts.seq,
        "epoch": 1,
        "input": row.facts.query[:_SUMMARY_CHARS],
        "target": sample["target"],
        "metadata": {name: getattr(row.facts, name) for name in _SUMMARY_FACTS},
        "scores": {name: {"value": value} for name, value in scores.items()},
        "model_usage": sample["model_usage"],
        "completed": True,
        "message_count": len(row.conversation.messages),
        **_times(row),
    }


def _add(log: zipfile.ZipFile, name: str, value: object) -> None:
    member = zipfile.ZipInfo(name)  # dated 1980-01-01
    member.create_system = 3
    member.external_attr = 0o644 << 16
    log.writestr(member, _ENCODER.encode(value))


def sample_of(row: ViewRow) -> dict[str, object]:
    """One `EvalSample`: messages with ids, and every call with its emitter in the metadata. The target is known only
    where the answer was recommended; bank releases hold the others."""
    facts, talk = row.facts, row.conversation
    names = {call.id: call.function.name for one in talk.messages for call in one.tool_calls}
    every = []
    for number, message in enumerate((*talk.messages, *talk.other_messages)):
        fields = _message(message) | {"id": f"{facts.seq}-{number}"}
        if message.role == "tool" and message.tool_call_id in names:
            fields["function"] = names[message.tool_call_id]
        every.append(fields)
    messages = every[: len(talk.messages)]
    on_path = [turn for turn in talk.completions if turn.reply < len(messages)]
    turn = max(on_path, key=lambda one: one.reply, default=None)
    output: dict[str, object] = {"model": "none", "choices": []}
    if turn is not None:
        choice = {"message": every[turn.reply], "stop_reason": _FINISH.get(turn.finish_reason, "unknown")}
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
        "metadata": msgspec.structs.asdict(facts)
        | {"calls": talk.calls, "completions": talk.completions, "other_messages": talk.other_messages},
        "store": {},
        "events": [],
        "model_usage": {facts.models: usage} if facts.models else {},
        "attachments": {},
        **_times(row),
    }


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    total = prompt_tokens + completion_tokens
    return {"input_tokens": prompt_tokens, "output_tokens": completion_tokens, "total_tokens": total}


def _arguments(text: str) -> dict[str, object]:
    """Arguments as the object that inspect wants; text that is none is kept as an error of parsing."""
    said = None
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        said = msgspec.json.decode(text)
    return {"arguments": said} if isinstance(said, dict) else {"arguments": {}, "parse_error": text[:_SUMMARY_CHARS]}


def _times(row: ViewRow) -> dict[str, float]:
    """Seconds, as the viewer shows them; nothing where they were not recorded."""
    if row.facts.episode_ms is None:
        return {}
    return {"total_time": row.facts.episode_ms / 1000, "working_time": row.facts.episode_ms / 1000}


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


def score_values(facts: TrajectoryFacts) -> dict[str, float]:
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
    for name, value in score_values(facts).items():
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

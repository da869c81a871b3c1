"""The other forms of a shard, each made from its Parquet file alone: same rows, same bytes.

`messages` is OpenAI chat, one JSON object a line, `{messages, tools, metadata}`, in `<shard>.jsonl.zst`: arguments are
text (objects where the export was asked for them), turns the model did not write have `weight` 0, and one `jq` filter
on `is_agentic`, `is_linear` and `is_model_written` leaves clean rows only. `datasets` is the same Parquet by pool, in
`data/<pool>-<shard>.parquet`, which the export's card declares as splits. `inspect` and `verifiers` are modules beside
this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from arena.export.files import LinesFile
from arena.export.inspect import score_values, write_eval_log
from arena.export.model import Format
from arena.export.parquet import ParquetFile, read_rows
from arena.export.row import TrajectoryFacts, ViewRow
from harness.chat import ChatMessage
from problems.model import POOLS

Written = Sequence[tuple[Path, int]]  # files, and how many rows are in each
UNREAD = "_text"  # of arguments as objects: the key of text that is no object
_ENCODER = msgspec.json.Encoder()


class ChatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `messages`."""

    messages: tuple[ChatMessage, ...]
    tools: msgspec.Raw
    metadata: TrajectoryFacts


def convert(
    form: Format, rows: Path, folder: Path, shard_number: int, arguments: Literal["text", "object"] = "text"
) -> Written:
    """Write a form of the Parquet file `rows` into the form's own `folder`. Raises ValueError for `jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{shard_number:06d}"
    match form:
        case "messages":
            return _write_messages(rows, folder / f"{name}.jsonl.zst", arguments)
        case "datasets":
            return _write_pools(rows, folder / "data", name)
        case "inspect":
            return [(folder / f"{name}.eval", write_eval_log(read_rows(rows), folder / f"{name}.eval", name))]
        case "verifiers":
            path = folder / name / "traces.jsonl"
            return [(path, write_episodes(read_rows(rows), path))]
    raise ValueError(f"{form} is not made from Parquet")


def _write_messages(rows: Path, path: Path, arguments: Literal["text", "object"]) -> Written:
    with LinesFile(path) as lines:
        for row in read_rows(rows):
            lines.write([_ENCODER.encode(_with_objects(chat_row(row)) if arguments == "object" else chat_row(row))])
    return [(path, lines.rows)]


def chat_row(row: ViewRow) -> ChatRow:
    """A row as a line of `messages`."""
    return ChatRow(messages=row.conversation.messages, tools=msgspec.Raw(row.tools.encode()), metadata=row.facts)


def _with_objects(line: ChatRow) -> dict[str, Any]:
    """The line with each call's arguments as an object."""
    messages = msgspec.to_builtins(line.messages)
    for message in messages:
        for key in ("tool_calls", "echoed_tool_calls", "agent_tool_calls"):
            for call in message.get(key, ()):
                call["function"]["arguments"] = _object_of(call["function"]["arguments"])
    return {"messages": messages, "tools": line.tools, "metadata": line.metadata}


def _object_of(arguments: str) -> dict[str, Any]:
    """Arguments as the object they say; text that says none under `UNREAD`."""
    try:
        said = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {UNREAD: arguments}


def _write_pools(rows: Path, folder: Path, name: str) -> Written:
    files: dict[str, ParquetFile] = {}
    for row in read_rows(rows):
        pool = row.facts.pool
        if pool not in files:
            files[pool] = ParquetFile(folder / f"{pool}-{name}.parquet")
        files[pool].add(row)
    for file in files.values():
        file.close()
    return [(files[pool].path, files[pool].rows) for pool in POOLS if pool in files]


VERSION = "0.4.0"
_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}
_COUNTS = ("steps", "tool_calls", "llm_calls", "echoed_calls", "code_calls")
_TRUTHS = ("is_agentic", "is_one_shop", "is_within_budget")


def write_episodes(rows: Iterable[ViewRow], path: Path) -> int:
    """Write the run's file; the number of its episodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(_ENCODER.encode(episode_of(row)) + b"\n")
            count += 1
    return count


def episode_of(row: ViewRow) -> dict[str, object]:
    """One line of `traces.jsonl`."""
    facts, episode_ms = row.facts, row.facts.episode_ms or 0
    start_s, end_s = (facts.recorded_ms - episode_ms) / 1000, facts.recorded_ms / 1000
    nodes, calls = _graph(row, end_s)
    is_scored = facts.reward_e4 is not None
    functions = [tool["function"] for tool in msgspec.json.decode(row.tools)]
    task = {
        "type": "ShoppingTask",
        "data": {"id": facts.problem_id, "prompt": facts.query},
        "key": facts.problem_id,
        "hash": hashlib.sha256(facts.problem_id.encode()).hexdigest(),
    }
    trace = {
        "version": 1,
        "id": facts.content_sha256[:32],
        "verifiers": {"version": VERSION},
        "task": task,
        "agent": {"config": {"model": facts.models or None}, "name": "agent"},
        "tools": [{name: one[name] for name in ("name", "description", "parameters")} for one in functions],
        "nodes": nodes,
        "calls": calls,
        "rewards": {"reward": {"score": (facts.reward_e4 or 0) / 10_000, "weight": 1.0} if is_scored else None},
        "metrics": _metrics(facts),
        "info": {
            **msgspec.structs.asdict(facts),
            "calls": row.conversation.calls,
            "opinions": row.opinions,
        },
        "is_completed": True,
        "ok": is_scored,
        "stop_condition": facts.stop,
        "timing": {"start": start_s, "agent": {"start": start_s, "end": end_s}},
    }
    return {
        "id": facts.content_sha256[:32],
        "env": {"id": "agent-arena"},
        "task": task,
        "ok": is_scored,
        "traces": [trace],
    }


def _graph(row: ViewRow, recorded_s: float) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The nodes, and the model calls by the nodes they wrote."""
    talk = row.conversation
    every = (*talk.messages, *talk.other_messages)
    replies = {turn.reply for turn in talk.completions}
    nodes: list[dict[str, object]] = []
    place: dict[tuple[int | None, int], int] = {}  # a message behind a node -> its own node

    def walk(path: tuple[int, ...]) -> int | None:
        at: int | None = None
        for index in path:
            if (at, index) not in place:
                place[at, index] = len(nodes)
                node: dict[str, object] = {
                    "parent": at,
                    "message": _message(every[index]),
                    "sampled": index in replies,
                    "timestamp": recorded_s,
                }
                nodes.append(node)
            at = place[at, index]
        return at

    calls: list[dict[str, object]] = []
    for turn in talk.completions:
        calls.append(
            {
                "node": walk((*turn.request, turn.reply)),
                "model": turn.model,
                "finish_reason": _FINISH.get(turn.finish_reason),
                "usage": {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.completion_tokens},
            }
        )
    walk(tuple(range(len(talk.messages))))  # what was answered to the last reply
    return nodes, calls


def _message(message: ChatMessage) -> dict[str, object]:
    """A message in its form; what is of no role that it has is the user's."""
    if message.role == "assistant":
        calls = [
            {"id": call.id, "type": "function", "name": call.function.name, "arguments": call.function.arguments}
            for call in (*message.tool_calls, *message.echoed_tool_calls, *message.agent_tool_calls)
        ]
        fields: dict[str, object] = {"role": "assistant", "content": message.content}
        if message.reasoning_content:
            fields["reasoning_content"] = message.reasoning_content
        return fields | ({"tool_calls": calls} if calls else {})
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    return {"role": "system" if message.role == "system" else "user", "content": message.content}


def _metrics(facts: TrajectoryFacts) -> dict[str, float]:
    """Numbers by name; what does not exist is left out."""
    metrics = {name: float(getattr(facts, name)) for name in _COUNTS}
    for name in _TRUTHS:
        if getattr(facts, name) is not None:
            metrics[name.removeprefix("is_")] = float(getattr(facts, name))
    return metrics | score_values(facts)

"""Rollouts as `verifiers` 0.4 saves and loads them, `<shard>/traces.jsonl`: an episode a line, of one trace.

The messages of a trace are nodes of a graph. Each request of the record is a path from a root, shared as far as
requests begin alike, and its reply the node behind it; `sampled` says which nodes a completion wrote. So a dialogue
that was sent anew in other words branches here as it did. What was not scored has a null reward, never 0. Token ids
stand in the log's bodies only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from arena.export.formats.inspect import score_values
from arena.export.row import TrajectoryFacts, ViewRow
from harness.chat import ChatMessage

VERSION = "0.4.0"
_ENCODER = msgspec.json.Encoder()
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
    facts, episode_ms = row.facts, row.episode.episode_ms or 0
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
            **row.details(),
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

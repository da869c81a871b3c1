"""Where in a foreign row its conversation lies: what stands around it is taken off, so that the formats see it plain.

Pure and total; a row that is one conversation already comes back as it is, and no message is changed, made or
lost. Fields around a conversation stay readable as facts, under its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

CONVERSATION_KEYS = ("messages", "traj", "history", "conversations", "conversation")
OWN_KEYS = (*CONVERSATION_KEYS, "dialogue", "output_tools", "raw_text", "text", "trajectory", "response")
_WRAPPERS = (
    "sample",
    "rollout",
    "episode",
    "trajectory",
    "record",
    "data",
    "row",
    "trace",
    "result",
    "output",
    "input",
)
_LISTS = (
    "simulations",
    "results",
    "rollouts",
    "episodes",
    "trajectories",
    "samples",
    "rows",
    "data",
    "runs",
    "problems",
)
_DEPTH_MAX = 4


def opened(row: object) -> object:
    """A decoded JSON row as its conversation, with the fields around it: rollouts of `verifiers` and of TRL (`prompt`
    and `completion`), runs of `verifiers` 0.4 (`traces` of `nodes`), a conversation one or more fields down, and one
    that stands as JSON text."""
    for _ in range(_DEPTH_MAX):
        inner = _opened_once(row)
        if inner is row:
            break
        row = inner
    return row


def rows_key(value: object) -> str | None:
    """Of a file that is one object around a list of rows, as benchmarks save a run: the key of the list."""
    if not isinstance(value, dict) or any(value.get(key) for key in (*OWN_KEYS, "completion", "traces")):
        return None
    lists = (key for key in _LISTS if isinstance(value.get(key), list) and value[key])
    return next((key for key in lists if all(isinstance(row, dict | list) for row in value[key])), None)


def _opened_once(row: object) -> object:
    if not isinstance(row, dict):
        return row
    for key in (*CONVERSATION_KEYS, "prompt", "completion", "tools", "metadata", "info"):
        if (decoded := _decoded(row.get(key))) is not row.get(key):
            return row | {key: decoded}
    if _is_chat(row.get("completion")) and _is_chat(row.get("prompt"), may_be_empty=True):
        return _around(row, "prompt", "completion", messages=[*(row["prompt"] or []), *row["completion"]])
    if (nodes := _nodes_of(row)) is not None:
        return nodes
    for key in ("conversations", "conversation"):
        if _is_chat(row.get(key)) and not row.get("messages"):
            return _around(row, key, messages=row[key])
    if any(row.get(key) for key in OWN_KEYS if key not in _WRAPPERS or isinstance(row.get(key), str)):
        return row
    for key in _WRAPPERS:
        inner = _decoded(row.get(key))
        if isinstance(inner, dict) and inner:
            return {name: value for name, value in row.items() if name != key} | inner
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            name = "dialogue" if "completion" in inner[0] or "extra_info" in inner[0] else "messages"
            return _around(row, key, **{name: inner})
    return row


def _around(row: dict[str, Any], *taken: str, **conversation: object) -> dict[str, Any]:
    """The conversation with the other fields of its row, tools and facts under the names that the formats read."""
    rest = {key: value for key, value in row.items() if key not in taken}
    if not rest.get("tools") and rest.get("tool_defs"):
        rest["tools"] = rest["tool_defs"]
    if not rest.get("metadata") and isinstance(rest.get("info"), dict):
        rest["metadata"] = rest["info"]
    return rest | conversation


def _nodes_of(row: dict[str, Any]) -> dict[str, Any] | None:
    """A run of `verifiers` 0.4: the path to the last leaf of its one trace. What no model call made has weight 0."""
    traces = row.get("traces")
    if isinstance(traces, list) and len(traces) == 1 and isinstance(traces[0], dict):
        outer = {key: value for key, value in row.items() if key != "traces"}
        return outer | traces[0] if "nodes" in traces[0] else None
    nodes = row.get("nodes")
    if not isinstance(nodes, list) or not nodes or not all(isinstance(one, dict) for one in nodes):
        return None
    path: list[Any] = []
    at: object = len(nodes) - 1
    while isinstance(at, int) and not isinstance(at, bool) and 0 <= at < len(nodes) and len(path) < len(nodes):
        node = nodes[at]
        message = node.get("message")
        is_given = isinstance(message, dict) and message.get("role") == "assistant" and node.get("sampled") is False
        path.append(message | {"weight": 0} if isinstance(message, dict) and is_given else message)
        at = node.get("parent")
    path.reverse()
    rest = _around(row, "nodes", messages=path)
    return rest if rest.get("tools") or not nodes[0].get("tools") else rest | {"tools": nodes[0]["tools"]}


def _is_chat(value: object, *, may_be_empty: bool = False) -> bool:
    if isinstance(value, list) and value:
        return all(isinstance(one, dict) and ("role" in one or "from" in one) for one in value)
    return may_be_empty and value in (None, [])


def _decoded(value: object) -> object:
    """A list or object that stands as JSON text; anything else as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return value
    return decoded if isinstance(decoded, dict | list) else value

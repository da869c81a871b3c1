"""Where in a foreign row its conversation lies, and which format it is in. What stands around it is taken off.

Pure: tried in order, and what is of no known format raises ArenaError V2098.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foundation.errors import ArenaError
from training.corpus.formats import is_chat, is_message, is_react
from training.corpus.model import SourceKind
from training.corpus.spoken import is_spoken

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


OUTPUT_KEY = "raw_text"  # what a model answered; `messages` beside it are what it was asked
TEXT_KEYS = ("text", "trajectory", "response")
_KNOWN = (
    "known are SN15 steps (a list of `completion`, or `dialogue`), chat "
    f"({', '.join(CONVERSATION_KEYS)}, `prompt` with `completion`, `nodes`, or a list of `role`), `output_tools`, "
    f"and ReAct, Hermes or ChatML text (a string, or one under {OUTPUT_KEY}, {', '.join(TEXT_KEYS)})"
)
_PRINTED = re.compile(r"\s*(?:system|user|human): .*\nassistant: ", re.DOTALL | re.IGNORECASE)
_PRINTED_LACKS = (
    "a conversation printed as lines of `role: text`: its calls, their ids and where a message ends are missing"
)


def detect(row: object) -> SourceKind:
    """The format of a decoded JSON row, as `opened` gives it. Raises ArenaError V2098."""
    if isinstance(row, str):
        return _of_text(row)
    if isinstance(row, list) and row:
        first = row[0]
        if is_message(first):
            return _of_messages(row)
        if isinstance(first, dict) and ("completion" in first or "extra_info" in first):
            return "sn15"
        raise ArenaError("V2098", f"a list that begins with {type(first).__name__}; {_KNOWN}")
    if isinstance(row, dict):
        if isinstance(row.get("dialogue"), list):
            return "sn15"
        if isinstance(row.get("output_tools"), list):
            return "output_tools"
        if (text := text_of(row)) is not None:
            return _of_text(text)
        if (talk := talk_of(row)) is not None:
            return _of_messages(talk)
        if any(isinstance(value, str) and _PRINTED.match(value) for value in row.values()):
            raise ArenaError("V2097", f"{_PRINTED_LACKS}; fields: {', '.join(sorted(map(str, row))[:12])}")
        raise ArenaError("V2098", f"an object of {', '.join(sorted(map(str, row))[:12]) or 'nothing'}; {_KNOWN}")
    raise ArenaError("V2098", f"a {type(row).__name__} with nothing in it; {_KNOWN}")


def text_of(row: dict[str, Any]) -> str | None:
    """The text of a row that is one; beside `messages`, a rendering of these is not."""
    keys = (OUTPUT_KEY,) if row.get("messages") else (OUTPUT_KEY, *TEXT_KEYS)
    return next((row[key] for key in keys if isinstance(row.get(key), str)), None)


def talk_of(row: dict[str, Any]) -> list[Any] | None:
    """The chat of a row: the list under the first of `CONVERSATION_KEYS` that has one with something in it."""
    found = (row[key] for key in CONVERSATION_KEYS if isinstance(row.get(key), list) and row[key])
    return next((talk for talk in found if is_message(next((one for one in talk if one is not None), None))), None)


def _of_messages(messages: list[Any]) -> SourceKind:
    """Chat whose assistant writes calls as text is of that text's format."""
    texts = [
        message["content"]
        for message in messages
        if isinstance(message, dict)
        and message.get("role") in ("assistant", "user", "tool")
        and isinstance(message.get("content"), str)
        and not message.get("tool_calls")
    ]
    if any(("<tool_call>" in text and is_react(text)) or text.lstrip().startswith("<obs>") for text in texts):
        return "react"
    return "hermes" if any("<tool_call>" in text for text in texts) else "openai"


def _of_text(text: str) -> SourceKind:
    if is_chat(text):
        return "hermes"
    if is_react(text):
        return "react"
    if is_spoken(text):
        return "hermes"
    if _PRINTED.match(text):
        raise ArenaError("V2097", _PRINTED_LACKS)
    raise ArenaError("V2098", f"text without a tag, {len(text)} characters; {_KNOWN}")

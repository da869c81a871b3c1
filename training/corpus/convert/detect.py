"""Which format a foreign row is in.

Pure and total; the answer depends on the row alone. A row of no known format raises ArenaError V2098 that says
what was looked for and what was found.
"""

from __future__ import annotations

import re
from typing import Any

from foundation.errors import ArenaError
from training.corpus.convert.envelope import CONVERSATION_KEYS
from training.corpus.convert.hermes import is_chat
from training.corpus.convert.openai import is_message
from training.corpus.convert.react import is_react
from training.corpus.convert.spoken import is_spoken
from training.corpus.model import SourceKind

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

"""How many tokens a trace has under the trainer's tokenizer: its text by Qwen3's chat template.

`render` gives the text of Qwen3's chat template (that of TRL 1.16), character by character; golden texts rendered by
the template itself hold it. Written out because counting the tokens of a day must not need the training engine.
`open_counter(path)` reads a real tokenizer.json with the `tokenizers` library (extra `train`); `open_counter(None)` is
the stand-in, which needs nothing and only comes near.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from foundation.errors import ArenaError
from harness.chat import Message, served_message, served_tools
from training.corpus.model import Trace

_TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call><|im_end|>\n"
)


def render(trace: Trace) -> str:
    """The text of a trace, without a prompt for another turn. Raises ValueError when its tools are no JSON array."""
    messages, last = trace.messages, len(trace.messages) - 1
    # a user wrote these himself: thinking before the latest is left out by the template
    queries = (
        index
        for index, message in enumerate(messages)
        if message.role == "user"
        and not (message.content.startswith("<tool_response>") and message.content.endswith("</tool_response>"))
    )
    latest_query = max(queries, default=last)
    system = messages[0].content if messages and messages[0].role == "system" else None
    parts = []
    if tools := _tools_text(trace.tools):
        before = "" if system is None else f"{system}\n\n"
        parts.append(f"<|im_start|>system\n{before}{_TOOLS_BEFORE}{tools}{_TOOLS_AFTER}")
    elif system is not None:
        parts.append(f"<|im_start|>system\n{system}<|im_end|>\n")
    for index, message in enumerate(messages):
        if message.role == "assistant":
            parts.append(_assistant(message, index > latest_query, index == last))
        elif message.role == "tool":
            start = "<|im_start|>user" if not index or messages[index - 1].role != "tool" else ""
            end = "<|im_end|>\n" if index == last or messages[index + 1].role != "tool" else ""
            parts.append(f"{start}\n<tool_response>\n{message.content}\n</tool_response>{end}")
        elif message.role == "user" or index:
            parts.append(f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n")
    return "".join(parts)


@functools.lru_cache(maxsize=64)
def _tools_text(tools: str) -> str:
    """One line a tool, as `tojson` writes it: the keys in their order, a space after each separator."""
    return "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in json.loads(served_tools(tools)))


def _assistant(message: Message, is_after_query: bool, is_last: bool) -> str:
    reasoning, content = message.reasoning, message.content
    if not reasoning and "</think>" in content:
        reasoning = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
        content = content.split("</think>")[-1].lstrip("\n")
    shown = content
    if is_after_query and (is_last or reasoning):
        thought = reasoning.strip("\n")
        shown = f"<think>\n{thought}\n</think>\n\n" + content.lstrip("\n")
    parts = [f"<|im_start|>assistant\n{shown}"]
    for number, call in enumerate(served_message(message).calls):
        gap = "\n" if number or content else ""
        parts.append(f'{gap}<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>')
    return "".join(parts) + "<|im_end|>\n"


STAND_IN = "stand-in/1"
CONTEXT_MARKS = ("<|im_start|>", "<|im_end|>")

_PIECE = re.compile(r"<\|[a-z_]+\|>|[^\W\d_]+|\d|[^\w\s]+|\n+|_")
_LETTERS_PER_TOKEN = 6
_SIGNS_PER_TOKEN = 3


class TokenCounter(NamedTuple):
    """Counts the tokens of a text as the trainer gets them. `identity`: a tokenizer.json's sha256, or `STAND_IN`."""

    identity: str
    count: Callable[[str], int]


@functools.lru_cache(maxsize=2)
def open_counter(path: Path | None) -> TokenCounter:
    """The counter of a tokenizer.json, read once in each process; the stand-in for None.

    Raises ArenaError V2120 without the library, or when the file is not a chat tokenizer's.
    """
    if path is None:
        return TokenCounter(STAND_IN, _stand_in_count)
    try:
        library: Any = importlib.import_module("tokenizers")
        content = path.read_bytes()
        tokenizer = library.Tokenizer.from_str(content.decode("utf-8"))
    except ModuleNotFoundError:
        raise ArenaError("V2120", f"{path}: the library `tokenizers` is not installed") from None
    except Exception as wrong:  # noqa: BLE001 - the library has no other type for a text it can't read
        raise ArenaError("V2120", f"{path}: {wrong}") from None
    absent = [mark for mark in CONTEXT_MARKS if tokenizer.token_to_id(mark) is None]
    if absent:
        raise ArenaError("V2120", f"{path}: no token {' or '.join(absent)}")
    return TokenCounter(
        hashlib.sha256(content).hexdigest(), lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    )


def _stand_in_count(text: str) -> int:
    """Tokens by rule of thumb, near a real count and never equal: six letters, one digit, three signs or one mark of
    the chat format a token."""
    total = 0
    for piece in _PIECE.findall(text):
        is_mark = piece.startswith("<|") and piece.endswith("|>")
        total += 1 if is_mark else -(-len(piece) // (_LETTERS_PER_TOKEN if piece.isalpha() else _SIGNS_PER_TOKEN))
    return total

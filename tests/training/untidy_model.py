"""The scripted model with the habits of real ones: what it decides stays, how it is written down changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harness.inference.client import read_reply
from harness.inference.port import ModelReply
from harness.inference.scripted.model import complete

_BLOCK = re.compile(r"<tool_call>(.*)</tool_call>", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)


def _calls(text: str, write: Callable[[str], str]) -> str:
    return _BLOCK.sub(lambda found: write(found[1]), text)


def _two_blocks(block: str) -> str:
    """A block a call, each an object, as Hermes has them."""
    return "".join(f"<tool_call>{json.dumps(call)}</tool_call>\n" for call in json.loads(block))


def _other_word(block: str, old: str, new: str) -> str:
    return f"<tool_call>{block.replace(old, new)}</tool_call>"


Habit = Callable[[str], str]
HABITS: Mapping[str, Habit] = {  # how a completion in text is written instead
    "words before": lambda text: f"Let me see what there is for this one.\n\n{text}",
    "words after": lambda text: f"{text}\n\nI wait for what comes back before I go on.",
    "words between": lambda text: text.replace("</think>", "</think>\nNow I act on it:\n"),
    "fence": lambda text: _calls(text, lambda block: f"<tool_call>\n```json\n{block}\n```\n</tool_call>"),
    "fence without tags": lambda text: _calls(text, lambda block: f"```json\n{block}\n```"),
    "text in the tag": lambda text: _calls(text, lambda block: f"<tool_call>{block}\nThat is all.</tool_call>"),
    "single quotes": lambda text: _calls(text, lambda block: f"<tool_call>{json.loads(block)!r}</tool_call>"),
    "no end of the tag": lambda text: _calls(text, lambda block: f"<tool_call>{block}"),
    "no end of the thought": lambda text: text.replace("</think>", ""),
    "no thought": lambda text: _THOUGHT.sub("", text),
    "an object a block": lambda text: _calls(text, _two_blocks),
    "spaced": lambda text: _calls(text, lambda b: f"<tool_call>\n{json.dumps(json.loads(b), indent=2)}\n</tool_call>"),
    "arguments": lambda text: _calls(text, lambda block: _other_word(block, '"parameters"', '"arguments"')),
    "unknown tool": lambda text: _calls(text, lambda block: _other_word(block, '"find_product"', '"search_product"')),
    "unknown parameter": lambda text: _calls(text, lambda block: _other_word(block, '{"q"', '{"query"')),
    "nothing": lambda text: "",
    "answer": lambda text: "<think>I know it.</think><response>I look for it.</response>",
    "cut": lambda text: text[: len(text) * 3 // 4],
}


class UntidyUpstream:
    """The scripted model, some of whose completions, every second from the first on, have a habit."""

    name = "scripted"

    def __init__(self, habit: Habit, *, every: int = 2) -> None:
        self._habit, self._every, self._asked = habit, every, 0

    def complete(self, request: str) -> ModelReply:
        reply: dict[str, Any] = complete(msgspec.json.decode(request))
        message = reply["choices"][0]["message"]
        if self._asked % self._every == 0:
            message["content"] = self._habit(message["content"])
        self._asked += 1
        return read_reply(msgspec.json.encode(reply))

    def probe(self, request: str) -> None:
        return None

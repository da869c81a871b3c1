"""Policies without weights: the random tool-caller, and the scripted model without its server.

Pure functions of a request and a seed. The random tool-caller knows the tools' form and nothing else: it
searches for words of the question under filters, looks at and recommends ids that a search has shown, and says which
products it has seen, all drawn at random. It is the lower control of an evaluation, and its transcripts are what a base
model learns language, form and quoting from.
"""

from __future__ import annotations

import random
import re
from typing import Any

import msgspec

from foundation.errors import Failure
from harness.inference.client import read_reply
from harness.inference.port import ModelReply
from harness.inference.scripted.skill import CONCISE
from harness.inference.scripted.upstream import ScriptedUpstream
from problems.product import SERVICES

__all__ = ["CONCISE", "EXPERT", "RANDOM", "RandomCaller", "ScriptedUpstream"]

EXPERT, RANDOM = "scripted-expert", "random-tool-caller"

_WORD = re.compile(r"[a-z0-9]{3,}", re.IGNORECASE)
_SHOWN = re.compile(r'"product_id":"([^"]+)"')
_RECOMMEND, _FIND, _VIEW, _END = "recommend_product", "find_product", "view_product_information", "terminate"
_WISHES_MAX = 3  # ids recommended at once, at most
_QUOTED_MAX = 4  # hits quoted in a turn, at most
_FILTER_CHANCE = 0.4
_PRICE_LOW_MAX_PHP = 300


class RandomCaller:
    """The random tool-caller as an `Upstream`; equal seeds and requests give equal replies."""

    name = RANDOM

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def complete(self, request: str) -> ModelReply:
        """The reply to `request`, JSON text."""
        fields: dict[str, Any] = msgspec.json.decode(request)
        messages = fields["messages"]
        dice = random.Random(f"{self._seed} {len(messages)}")
        name, arguments = self._next(messages, dice)
        said = _quoted(messages, dice)
        call = {"name": name, "arguments": msgspec.json.encode(arguments).decode()}
        return read_reply(
            msgspec.json.encode(
                {
                    "model": str(fields.get("model", RANDOM)),
                    "choices": [
                        {
                            "finish_reason": "tool_calls",
                            "message": {
                                "role": "assistant",
                                "content": said,
                                "tool_calls": [{"id": f"call_{len(messages)}", "type": "function", "function": call}],
                            },
                        }
                    ],
                    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
                }
            )
        )

    def probe(self, request: str) -> Failure | None:
        """It is always there."""
        return None

    def _next(self, messages: list[dict[str, Any]], dice: random.Random) -> tuple[str, dict[str, object]]:
        made = [call["function"]["name"] for row in messages for call in row.get("tool_calls") or ()]
        if _RECOMMEND in made:
            return _END, {"status": "success"}
        shown = sorted(
            {one for row in messages if row["role"] == "tool" for one in _SHOWN.findall(str(row["content"]))}
        )
        if not shown:
            return _FIND, self._search(messages, dice)
        match dice.choice((_FIND, _VIEW, _RECOMMEND)):
            case "find_product":
                return _FIND, self._search(messages, dice)
            case "view_product_information":
                return _VIEW, {"product_ids": dice.choice(shown)}
            case _:
                ids = dice.sample(shown, min(len(shown), dice.randint(1, _WISHES_MAX)))
                return _RECOMMEND, {"product_ids": ",".join(ids)}

    def _search(self, messages: list[dict[str, Any]], dice: random.Random) -> dict[str, object]:
        words = _WORD.findall(_question(messages))
        start = dice.randrange(max(1, len(words) - 3))
        arguments: dict[str, object] = {"page": 1, "q": " ".join(words[start : start + dice.randint(2, 4)])}
        if dice.random() < _FILTER_CHANCE:
            arguments["price"] = f"{dice.randint(1, _PRICE_LOW_MAX_PHP)}-"
        if dice.random() < _FILTER_CHANCE:
            arguments["service"] = dice.choice(SERVICES)
        return dict(sorted(arguments.items()))


def _question(messages: list[dict[str, Any]]) -> str:
    return next(str(row["content"]) for row in messages if row["role"] == "user")


def _quoted(messages: list[dict[str, Any]], dice: random.Random) -> str:
    """The question at first, then some hits of the last search: what was read, and nothing that follows from it."""
    if messages[-1]["role"] == "user":
        return f"I read: {_question(messages)}"
    hits = next((found for row in reversed(messages) if (found := _hits(str(row.get("content"))))), [])
    drawn = sorted(dice.sample(range(len(hits)), min(len(hits), dice.randint(1, _QUOTED_MAX))))
    return (
        "I see "
        + "; ".join(
            f'{hits[place]["product_id"]} "{hits[place]["title"]}" at {hits[place]["price"]} PHP from shop '
            f"{hits[place]['shop_id']}"
            for place in drawn
        )
        + "."
        if drawn
        else ""
    )


def _hits(text: str) -> list[dict[str, Any]]:
    """The rows of a search result; none of any other text."""
    try:
        rows = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []
    return [row for row in rows if isinstance(row, dict) and "title" in row] if isinstance(rows, list) else []

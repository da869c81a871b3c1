"""The scripted model: one pure function from a chat completion request to a chat completion.

No clock, no randomness, no state. Ids are hashes of the request, token counts are counts of characters, and
`created` is 0, so equal requests give equal bytes. Three skill levels are three model ids; a fourth, concise one is
answered and not listed, since a race has no use for it. Besides shopping it repeats
a call written in the prompt (what a prompt-echoing agent asks for) and narrates when no tool is on offer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from foundation.canonical import foreign_text
from harness.inference.scripted_brief import (
    LEVELS,
    SKILLS,
    RequestError,
    ScriptedConversation,
    call_key,
    read_conversation,
    read_text_calls,
)
from harness.inference.scripted_shopper import ShopperTurn, shop

__all__ = ["MODELS", "RequestError", "complete"]

MODELS: tuple[str, ...] = tuple(LEVELS)
_CHARS_PER_TOKEN = 4
_NARRATED_WORDS = 40


def complete(request: Mapping[str, Any]) -> dict[str, Any]:
    """The completion of `request`, in the shape of the OpenAI protocol.

    Raises RequestError: 404 for an unknown model, 400 for a request without messages or one that streams.
    """
    if request.get("model") not in SKILLS:
        raise RequestError(404, f"model {request.get('model')!r} does not exist; known: {', '.join(SKILLS)}")
    if request.get("stream"):
        raise RequestError(400, "this server does not stream")
    conversation = read_conversation(request)
    dictated = read_text_calls(conversation.latest) if "repeat" in conversation.latest.lower() else []
    if dictated:  # the latest user message asks for these calls to be repeated
        turn = ShopperTurn(think="", calls=tuple(dictated))
    elif conversation.offered or conversation.is_text_mode:
        turn = _next_turn(conversation, str(request["model"]))
    else:  # no tools are on offer: two sentences that quote the beginning of the prompt
        words = conversation.latest.split()
        more = " and so on" if len(words) > _NARRATED_WORDS else ""
        told = f"Here is what was done: {' '.join(words[:_NARRATED_WORDS])}{more}."
        think = f"{told} The choice follows from what was asked and what was found." if words else "OK."
        turn = ShopperTurn(think=think, calls=())
    return _as_response(request, conversation, turn)


def _next_turn(conversation: ScriptedConversation, model: str) -> ShopperTurn:
    """Run the shopping program against the results at hand, up to the first call that has none yet.

    The program is a generator that yields turns and is sent their results, so it reads as one straight story while
    the model keeps no state: every request replays it from the start.
    """
    program = shop(conversation, SKILLS[model])
    turn = next(program)
    while True:
        missing = tuple(call for call in turn.calls if call_key(call.name, call.arguments) not in conversation.results)
        if missing or not turn.calls:
            return ShopperTurn(think=turn.think, calls=missing)
        try:
            turn = program.send([conversation.results[call_key(call.name, call.arguments)] for call in turn.calls])
        except StopIteration:
            return ShopperTurn(think="Everything is done; there is nothing left to call.", calls=())


def _as_response(request: Mapping[str, Any], conversation: ScriptedConversation, turn: ShopperTurn) -> dict[str, Any]:
    digest = hashlib.sha256(foreign_text(dict(request)).encode()).hexdigest()
    content, calls = turn.think, list(turn.calls)
    if calls and not conversation.offered:
        rows: list[object] = [{"name": call.name, "arguments": call.arguments} for call in calls]
        if conversation.is_one_array:
            rows = [[{"name": call.name, "parameters": call.arguments} for call in calls]]
        blocks = [f"<tool_call>{orjson.dumps(row).decode()}</tool_call>" for row in rows]
        content = "\n".join([f"<think>{content}</think>" if content else "", *blocks]).strip()
        calls = []
    written = [foreign_text(call.arguments) for call in calls]
    completion_tokens = _tokens(content) + sum(
        _tokens(call.name) + _tokens(text) for call, text in zip(calls, written, strict=True)
    )
    finish = "tool_calls" if calls else "stop"
    limit = request.get("max_tokens")
    if isinstance(limit, int) and 0 < limit < completion_tokens:
        content, calls, finish, completion_tokens = content[: limit * _CHARS_PER_TOKEN], [], "length", limit
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{digest[:16]}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": text},
            }
            for index, (call, text) in enumerate(zip(calls, written, strict=True))
        ]
    prompt_tokens = _tokens(orjson.dumps(request["messages"]).decode()) + _tokens(
        foreign_text(request.get("tools") or [])
    )
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)

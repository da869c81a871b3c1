"""The scripted model: one pure function from a chat completion request to a chat completion.

No clock, no randomness, no state. Ids are hashes of the request, token counts are counts of characters, and
`created` is 0, so equal requests give equal bytes. Three skill levels are three model ids; a fourth, concise one is
answered and not listed, since a race has no use for it. Besides shopping it repeats a call written in the prompt (what
a prompt-echoing agent asks for) and narrates when no tool is on offer. It is an endpoint of this process, without a
server.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import orjson

from foundation.canonical import foreign_text
from foundation.codes import BAD_REQUEST, NO_ENDPOINT
from foundation.durable_files import coded
from foundation.errors import ArenaError
from harness.inference.port import ModelReply, Upstream
from harness.inference.reply import read_reply
from harness.inference.request import AskedMessage
from harness.inference.scripted.shopper import LEVELS, SKILLS, TOY, Program, ShopperTurn, WrittenCall, shop, skill_of

MODELS: tuple[str, ...] = tuple(LEVELS)
_CHARS_PER_TOKEN = 4
_NARRATED_WORDS = 40
_TEXT_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESULT_BLOCK = re.compile(r"<(tool_response|obs|tool_result)>(.*?)</\1>", re.DOTALL)
_HISTORY_BLOCK = re.compile(r"<(user|tool_call|obs)>(.*?)</\1>", re.DOTALL)


class _Named(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct):
    function: _Named


class _Request(msgspec.Struct):
    messages: Annotated[list[AskedMessage], msgspec.Meta(min_length=1)]
    tools: list[_Tool] | None = None


def complete(request: Mapping[str, Any]) -> dict[str, Any]:
    """The completion of `request`, in the shape of the OpenAI protocol.

    Raises ArenaError as an endpoint's answer is read: U3001 (404) for an unknown model, A1040 (400) for a request
    without messages or one that streams.
    """
    if (model := request.get("model")) not in (known := (*SKILLS, TOY)):
        raise ArenaError(NO_ENDPOINT, f"HTTP 404: model {model!r} does not exist; known: {', '.join(known)}")
    if request.get("stream"):
        raise ArenaError(BAD_REQUEST, "HTTP 400: this server does not stream")
    with coded("HTTP 400: the request is not well formed", BAD_REQUEST):
        asked = msgspec.convert(request, _Request)
    texts: list[tuple[str, str]] = [(message.role, message.text) for message in asked.messages]
    offered = {tool.function.name for tool in asked.tools or ()}
    system = "\n".join(text for role, text in texts if role == "system")
    is_text = not offered and "<tool_call>" in system  # calls are written as the system prompt describes them
    if is_text:
        texts = [turn for role, text in texts for turn in _unfolded(role, text)]
    users = [text for role, text in texts if role == "user"] or [""]
    dictated = _text_calls(users[-1]) if "repeat" in users[-1].lower() else []
    if dictated:  # the latest user message asks for these calls to be repeated
        turn = ShopperTurn(think="", calls=tuple(dictated))
    elif offered or is_text:
        results = _text_results(texts) if is_text else _native_results(asked.messages)
        skill = skill_of("\n".join([system, *users])) if model == TOY else SKILLS[request["model"]]
        program = shop(users[0], skill, lambda name: name in offered or (is_text and name in system))
        turn = _next_turn(program, results, 1 if skill.is_naive else None)
    else:  # no tools are on offer: two sentences that quote the beginning of the prompt
        words = users[-1].split()
        more = " and so on" if len(words) > _NARRATED_WORDS else ""
        detail = f"Here is what was done: {' '.join(words[:_NARRATED_WORDS])}{more}."
        think = f"{detail} The choice follows from what was asked and what was found." if words else "OK."
        turn = ShopperTurn(think=think, calls=())
    if turn.calls and not offered:
        turn = ShopperTurn(think=_as_text(turn), calls=())
    return _as_response(request, turn)


def _next_turn(program: Program, results: Mapping[str, Any], at_once: int | None) -> ShopperTurn:
    """Run the shopping program against the results at hand, by call, up to the first call that has none yet: that one
    and those of its turn, `at_once` at most.

    The program is a generator that yields turns and is sent their results, so it reads as one straight story while
    the model keeps no state: every request replays it from the start.
    """
    turn = next(program)
    while True:
        missing = tuple(call for call in turn.calls if _key(call) not in results)
        if missing or not turn.calls:
            return ShopperTurn(think=turn.think, calls=missing[:at_once])
        try:
            turn = program.send([results[_key(call)] for call in turn.calls])
        except StopIteration:
            return ShopperTurn(think="Everything is done; there is nothing left to call.", calls=())


def _as_response(request: Mapping[str, Any], turn: ShopperTurn) -> dict[str, Any]:
    digest = hashlib.sha256(foreign_text(dict(request)).encode()).hexdigest()
    content, finish = turn.think, "tool_calls" if turn.calls else "stop"
    functions = [{"name": call.name, "arguments": foreign_text(call.arguments)} for call in turn.calls]
    completion_tokens = sum(map(_tokens, (content, *(text for one in functions for text in one.values()))))
    limit = request.get("max_tokens")
    if isinstance(limit, int) and 0 < limit < completion_tokens:
        content, functions, finish, completion_tokens = content[: limit * _CHARS_PER_TOKEN], [], "length", limit
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if functions:
        message["tool_calls"] = [
            {"id": f"call_{digest[:16]}_{index}", "type": "function", "function": one}
            for index, one in enumerate(functions)
        ]
    prompt_tokens = _tokens(orjson.dumps(request["messages"]).decode())
    prompt_tokens += _tokens(foreign_text(request.get("tools") or []))
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


def _as_text(turn: ShopperTurn) -> str:
    """A turn with its calls as text, in the block that SN15's agents read."""
    calls = orjson.dumps([{"name": call.name, "parameters": call.arguments} for call in turn.calls]).decode()
    return f"<think>{turn.think}</think>\n<tool_call>{calls}</tool_call>"


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)


def _key(call: WrittenCall) -> str:
    """Identity of a call: its name and its arguments with sorted keys."""
    return f"{call.name} {foreign_text(call.arguments)}"


def _text_calls(text: str) -> list[WrittenCall]:
    """Calls written as `<tool_call>` blocks: one object or a list, with `arguments` or `parameters`."""
    calls: list[WrittenCall] = []
    for decoded in map(_decode, _TEXT_CALL.findall(text)):
        for row in decoded if isinstance(decoded, list) else [decoded]:
            arguments = row.get("arguments", row.get("parameters", {})) if isinstance(row, dict) else None
            if isinstance(arguments, dict) and isinstance(row.get("name"), str):
                calls.append(WrittenCall(name=row["name"], arguments=arguments))
    return calls


def _native_results(messages: list[AskedMessage]) -> dict[str, Any]:
    key_by_id: dict[str, str] = {}
    results: dict[str, Any] = {}
    for message in messages:
        for call in message.tool_calls or ():
            arguments = _decode(call.function.arguments)
            if isinstance(arguments, dict):
                key_by_id[call.id] = _key(WrittenCall(name=call.function.name, arguments=arguments))
        key = key_by_id.get(message.tool_call_id or "") if message.role == "tool" else None
        if key is not None:
            result = _decode(message.text)
            if isinstance(result, dict) and result.keys() == {"observation", "done", "error"}:
                result = result["observation"]  # a turn of SN15's environment, whose lists stand under one key
                result = result["results"] if isinstance(result, dict) and result.keys() == {"results"} else result
            results.setdefault(key, result)
    return results


def _unfolded(role: str, text: str) -> list[tuple[str, str]]:
    """The turns in a user message that holds a whole dialogue between tags, as SN15's agents write it."""
    if role != "user" or "<user>" not in text:
        return [(role, text)]
    turns: list[tuple[str, str]] = []
    for found in _HISTORY_BLOCK.finditer(text):
        tag, block = found[1], found[0]
        bare = _HISTORY_BLOCK.sub(r"\2", block) if tag == "user" else block
        turns.append(("assistant" if tag == "tool_call" else "user", bare))
    return turns


def _text_results(texts: list[tuple[str, str]]) -> dict[str, Any]:
    """Results of text calls, in the order of the calls: blocks of the next user or tool message, or all of it."""
    results: dict[str, Any] = {}
    waiting: list[str] = []
    for role, text in texts:
        if role == "assistant":
            waiting = [_key(call) for call in _text_calls(text)]
        elif waiting:
            decoded = [_decode(block) for _, block in _RESULT_BLOCK.findall(text)] or [_decode(text)]
            rows = decoded[0] if len(decoded) == 1 and isinstance(decoded[0], list) else []
            # SN15's observations: a list of results beside the ids of their calls
            if rows and all(isinstance(row, dict) and row.keys() == {"tool_call_id", "results"} for row in rows):
                decoded = [row["results"] for row in rows]
            elif len(waiting) > 1 and rows:
                decoded = rows
            results = {**dict(zip(waiting, decoded, strict=False)), **results}
            waiting = []
    return results


def _decode(text: str) -> Any:
    """The JSON value of `text`, or the text itself when it is not JSON."""
    try:
        return orjson.loads(text.strip())
    except orjson.JSONDecodeError:
        return text


class ScriptedUpstream(Upstream):
    """An `Upstream` on the scripted models. Thread-safe: it has no state. The replies and the codes are those that
    `OpenAIUpstream` gets from an endpoint that serves them, from the same bytes."""

    name = "scripted"

    def complete(self, request: str) -> ModelReply:
        """As `Upstream.complete`. Raises ArenaError A1040, U3001."""
        return read_reply(orjson.dumps(complete(orjson.loads(request))))

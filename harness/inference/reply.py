"""A chat completion as providers really send it, read into the one form that agent, record, judge and export see.

Endpoints agree on the protocol and on little else. What can only mean one thing is put right here and nowhere else:
arguments as an object, as JSON in JSON or in a fence, ids that are missing or not unique, names with a namespace before
them, text and thoughts in parts, calls in old forms. The raw message is kept beside it. Reading is total: a reply with
an error in it, without a message, with one that says nothing, too deep or with numbers that no count has is U3003,
never a crash.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import orjson

from foundation.canonical import foreign_text, text_hash
from foundation.codes import MODEL_UNREADABLE
from foundation.errors import ArenaError
from harness.inference.port import ModelReply
from harness.trace import EmittedCall

# Control tokens of chat templates: in a message they would close the turn and open a prefilled assistant turn.
CONTROL_TOKEN = re.compile(r"<(\|[A-Za-z0-9_]{2,40}\||｜[^<>]{1,40}｜|(?:start|end)_of_turn)>")
_DETAIL_CHARS = 300
_TOKENS_MAX = 1 << 31
_FAILED = re.compile(r"error|abort|cancel|fail|time_?out|insufficient|overload|unavailable", re.IGNORECASE)
_KEPT_ALIVE = re.compile(r"\A(?:\s|:[^\n]*\n|data:)+")  # blanks, and comments of a stream
# `functions.find_product`, `find_product:0`, `find_product<|channel|>json`, `"find_product"`: calls of find_product
_NAME = re.compile(
    r"[\s\"'`]*(?:<\|\w+\|>)?(?:[\w-]+[.:/])*([A-Za-z_][\w-]*)(?::\d+)?(?:\(\))?[\s\"'`]*(?:<\|.*)?",
    re.ASCII | re.DOTALL,
)
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
_CALLS = ("tool_use", "tool_call", "function_call")  # types of parts that are calls
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_TEXTS = ("text", "thinking", "reasoning", "summary", "refusal", "content")  # where a part holds its words


def read_reply(raw: bytes, request: str = "") -> ModelReply:
    """A typed reply from the raw JSON of a chat completion. Raises ArenaError U3003 when it is not one, or when the
    provider says in it that it failed.

    A call without an id of its own is named after the `request`, so that no two turns of a conversation share one. An
    endpoint that leaves out `usage` is charged one token per four UTF-8 bytes of what it wrote, rounded up. A message
    whose text is empty or null is a completion, since a model may say nothing: asking again would be a new draw. One in
    which text and calls are missing is none.
    """
    try:
        body = _sound(_decoded(raw))
        choice = _sound(body["choices"][0])
        message = _sound(choice.get("message") or choice["delta"])
        finish = _name(choice.get("finish_reason"))
        if any(_FAILED.search(_name(said)) for said in (finish, choice.get("native_finish_reason"))):
            raise ArenaError(MODEL_UNREADABLE, f"the provider failed: finish_reason {finish!r}"[:_DETAIL_CHARS])
        content, thought = _content(message.get("content"))
        reasoning = thought or next(filter(None, (_text(message.get(name)) for name in _THOUGHTS)), "")
        content = content or _text(message.get("refusal"))
        calls = _calls(message, f"call_{text_hash(request)[:16]}_" if request else "call_")
        if not (message.keys() & {"content", "tool_calls"} or content or reasoning or calls):
            raise TypeError("a message without text and calls")
        usage = body.get("usage") or {}
        size = sum(len(text.encode()) for text in (content, reasoning, *(call.arguments for call in calls)))
        given = {"logprobs": choice.get("logprobs"), "token_ids": choice.get("token_ids")}
        given["prompt_token_ids"] = body.get("prompt_token_ids") or choice.get("prompt_token_ids")
        told = {name: value for name, value in given.items() if value}
        return ModelReply(
            model=_name(body.get("model")),
            content=content,
            reasoning=reasoning,
            calls=calls,
            finish_reason=finish,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")) or -(-size // 4),
            message=foreign_text(message),
            logprobs=foreign_text(told) if told else "",
        )
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        excerpt = raw[:120].decode(errors="replace")
        raise ArenaError(MODEL_UNREADABLE, f"{type(error).__name__} in {excerpt!r}") from error


def broken_apart(text: str) -> str:
    """Text without control tokens, as the host sends it."""
    return CONTROL_TOKEN.sub(r"< \1>", text)


def object_text(arguments: str) -> str:
    """Arguments as every endpoint takes them back: JSON text of an object. Text that holds none is its one member."""
    with suppress(orjson.JSONDecodeError):
        if isinstance(orjson.loads(arguments), dict):
            return arguments
    return foreign_text({"unreadable": arguments} if arguments.strip() else {})


def _decoded(raw: bytes) -> Any:
    """The body's value, read as the common clients read it where strict JSON does not: BOM, UTF-16, NaN (null), line
    breaks in texts, halves of characters (a question mark), what a stream keeps its connection alive with."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(raw)
    text = _KEPT_ALIVE.sub("", raw.decode(json.detect_encoding(raw), "replace"))
    value, end = json.JSONDecoder(strict=False, parse_constant=lambda _: None).raw_decode(text)
    rest = (line.strip("\0 \t") for line in text[end:].splitlines())
    if more := [line for line in rest if line and not line.startswith((":", "data: [DONE]"))]:
        raise ValueError(f"{more[0][:40]!r} behind it")
    return orjson.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _sound(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a reply, unless the provider says in it that it failed: under the status of success, too."""
    if said := part.get("error"):
        raise ArenaError(MODEL_UNREADABLE, f"an error in a reply: {foreign_text(said)}"[:_DETAIL_CHARS])
    return part


def _content(value: Any) -> tuple[str, str]:
    """Text and thoughts of a content that may come in parts."""
    parts = value if isinstance(value, list) else [value]
    is_thought = [isinstance(part, dict) and bool(re.search("think|reason", _name(part.get("type")))) for part in parts]
    texts = list(zip(map(_text, parts), is_thought, strict=True))
    return "".join(one for one, thought in texts if not thought), "".join(one for one, thought in texts if thought)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict):
        return _text(next((value[name] for name in _TEXTS if name in value), None))
    if isinstance(value, list):
        return "".join(map(_text, value))
    raise TypeError("content is not text")


def _calls(message: dict[str, Any], stem: str) -> tuple[EmittedCall, ...]:
    """The calls, each with an id that no other call of the message has."""
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    given = message.get("tool_calls") or message.get("function_call")
    given = given or [part for part in parts if part.get("type") in _CALLS]
    if isinstance(given, dict):  # one, or a list that a server numbered
        given = [given] if given.keys() & {"name", "function"} else list(given.values())
    calls: dict[str, EmittedCall] = {}
    for index, call in enumerate(filter(None, given)):
        function = call.get("function") or call.get("custom") or call
        name, call_id = function["name"], _name(call.get("call_id") or call.get("id"))
        if not isinstance(name, str):
            raise TypeError("the name of a call is not text")
        if not call_id.strip() or call_id in calls or CONTROL_TOKEN.search(call_id):
            call_id = f"{stem}{index}"
        found = _NAME.fullmatch(name)
        arguments = arguments_text(next((function[key] for key in _ARGUMENTS if key in function), None))
        calls[call_id] = EmittedCall(call_id=call_id, name=found[1] if found else name, arguments=arguments)
    return tuple(calls.values())


def arguments_text(given: object) -> str:
    """JSON text of an object, as the model wrote it where it wrote one; what holds no object stays as it is."""
    value = given
    for _ in range(2):  # JSON in JSON
        value = _object_in(value) if isinstance(value, str) else value
    if isinstance(given, str) and (not isinstance(value, dict | None) or object_text(given) == given):
        return given
    return orjson.dumps({} if value is None else value).decode()


def _object_in(text: str) -> Any:
    """The value of JSON text, or of the object that a fence or a control token stands around; else the text."""
    for part in (text.strip() or "{}", text[text.find("{") : text.rfind("}") + 1]):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(part)
    return text


def _name(value: object) -> str:
    """A short text of the endpoint's; "" where it is none, which loses nothing: the whole message is kept."""
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    """A number of tokens. Raises ValueError, TypeError for what no completion has."""
    count = int(value or 0)  # type: ignore[call-overload]
    if not 0 <= count <= _TOKENS_MAX:
        raise ValueError("no number of tokens")
    return int(count)

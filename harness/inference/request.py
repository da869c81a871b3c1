"""What an agent may ask of a model: a request is rebuilt from an allow-list, never passed on.

`rebuild` is pure, and nothing of the agent's reaches an upstream except the fields named here, in the shapes
named here. Fields outside the list are dropped, so agents that send harmless extras still run; a field that would put
words into the model's mouth or start several answers is refused, because dropping it would change what the agent
believes it asked for. It spends no budget and sends nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from foundation.canonical import foreign_text, text_hash
from foundation.codes.names import BAD_REQUEST, FORCED_TURN, UNLISTED_MODEL
from harness.inference.port import InferenceRules
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestCallError

# Control tokens of chat templates: in a message they would close the turn and open a prefilled assistant turn.
_CONTROL_TOKEN = re.compile(r"<(\|[A-Za-z_]{2,40}\||｜[^<>]{1,40}｜|(?:start|end)_of_turn)>")
_SEED_MAX = 2**53 - 1


class RebuiltRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it goes upstream. `text` is its JSON with sorted keys; `sha256` is of that text's bytes."""

    model: str
    text: str
    messages: tuple[str, ...]
    sha256: str


def rebuild(
    params: Mapping[str, object],
    *,
    rules: InferenceRules,
    limits: EpisodeLimits,
    schemas: Mapping[str, dict[str, object]],
    completion_tokens_left: int,
) -> RebuiltRequest:
    """The one request that `params` admits. `schemas` maps tool name to canonical schema, in the profile's order.

    Raises GuestCallError: A1041 for a model outside `rules.models`; A1042 for a prefilled assistant turn, a forced
    tool choice or a chat-template control token; A1040 for everything else that is not well formed.
    """
    if params.get("stream"):
        raise GuestCallError(BAD_REQUEST, "stream is not available: leave it out, the reply comes in one piece")
    if params.get("n") not in (None, 1):
        raise GuestCallError(BAD_REQUEST, "n must be 1: one request gives one completion")
    given = params.get("messages")
    if not isinstance(given, list) or not given:
        raise GuestCallError(BAD_REQUEST, "messages must be a list of at least one message")
    if len(given) > rules.message_count:
        raise GuestCallError(BAD_REQUEST, f"{len(given)} messages; at most {rules.message_count} are allowed")
    messages = [_message(index, message) for index, message in enumerate(given)]
    if messages[-1]["role"] == "assistant":
        raise GuestCallError(FORCED_TURN, "the last message may not be the assistant's: the model writes its own turn")
    fields: dict[str, object] = {"messages": messages}
    fields |= _sampling(params, rules, min(limits.completion_tokens_per_call, completion_tokens_left))
    fields |= _tools(params, schemas, rules)
    try:
        text = foreign_text(fields)
        texts = tuple(foreign_text(message) for message in messages)
    except orjson.JSONEncodeError as error:
        raise GuestCallError(BAD_REQUEST, f"the request is not valid Unicode: {error}") from error
    size = len(text.encode())
    if size > rules.request_bytes:
        raise GuestCallError(BAD_REQUEST, f"the request has {size} bytes; at most {rules.request_bytes} are allowed")
    return RebuiltRequest(model=str(fields["model"]), text=text, messages=texts, sha256=text_hash(text))


def _sampling(params: Mapping[str, object], rules: InferenceRules, tokens_max: int) -> dict[str, object]:
    """Model, max_tokens, temperature and seed; the last two only where they are given."""
    model = params.get("model")
    if model is None:
        model = rules.models[0]
    elif not isinstance(model, str) or model not in rules.models:
        raise GuestCallError(UNLISTED_MODEL, f"model {model!r} is not one of {', '.join(rules.models)}")
    asked, ceiling = params.get("max_tokens"), max(1, tokens_max)
    if asked is None:
        asked = params.get("max_completion_tokens")
    if asked is None:
        asked = ceiling
    elif isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise GuestCallError(BAD_REQUEST, f"max_tokens must be a positive integer, not {asked!r}")
    fields: dict[str, object] = {"model": model, "max_tokens": min(asked, ceiling)}
    heat = params.get("temperature")
    if heat is not None:
        highest = rules.temperature_max_e4 / 10_000
        is_number = isinstance(heat, int | float) and not isinstance(heat, bool)
        if not is_number or not math.isfinite(heat) or not 0 <= heat <= highest:  # type: ignore[arg-type,operator]
            raise GuestCallError(BAD_REQUEST, f"temperature must be a number from 0 to {highest:g}, not {heat!r}")
        fields["temperature"] = float(heat)  # type: ignore[arg-type]
    seed = params.get("seed")
    if seed is not None:
        if isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) > _SEED_MAX:
            raise GuestCallError(BAD_REQUEST, f"seed must be an integer below 2^53, not {seed!r}")
        fields["seed"] = seed
    return fields


def _tools(
    params: Mapping[str, object], schemas: Mapping[str, dict[str, object]], rules: InferenceRules
) -> dict[str, object]:
    """Canonical schemas of the tools the agent named, in the profile's order (its own schemas are never sent), and the
    choice of none of them or, where the rules allow it, of any; nothing where it named none."""
    choice, given = params.get("tool_choice"), params.get("tools")
    if params.get("function_call") not in (None, "auto", "none"):
        raise GuestCallError(FORCED_TURN, "function_call may not force a call")
    choices = ("auto", "none", "required") if rules.is_call_required_allowed else ("auto", "none")
    if choice is not None and choice not in choices:
        known = ", ".join(f'"{each}"' for each in choices)
        raise GuestCallError(FORCED_TURN, f"tool_choice must be one of {known}, not {choice!r}: the model chooses")
    if given is None:
        return {}
    if not isinstance(given, list):
        raise GuestCallError(BAD_REQUEST, "tools must be a list")
    named: set[str] = set()
    for tool in given:
        function = tool.get("function", tool) if isinstance(tool, dict) else None  # nested as in the protocol, or flat
        name = function.get("name") if isinstance(function, dict) else tool
        if not isinstance(name, str):
            raise GuestCallError(BAD_REQUEST, "each tool must be an OpenAI function schema with a name")
        named.add(name)
    unknown = sorted(named - set(schemas))
    if unknown:
        raise GuestCallError(
            BAD_REQUEST, f"tools not in this profile: {', '.join(unknown)}; known: {', '.join(schemas)}"
        )
    tools = [schema for name, schema in schemas.items() if name in named]
    if not tools:
        return {}
    return {"tools": tools, "tool_choice": choice} if choice in ("none", "required") else {"tools": tools}


def _message(index: int, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise GuestCallError(BAD_REQUEST, f"message {index} is not an object")
    role = value.get("role")
    if role not in ("system", "user", "assistant", "tool"):
        raise GuestCallError(
            BAD_REQUEST, f"message {index}: role must be system, user, assistant or tool, not {role!r}"
        )
    text = _content(index, value.get("content"), role)
    # A tool result may carry a control token from the catalogue's text, no fault of the agent's: it is broken apart.
    text = _CONTROL_TOKEN.sub(r"< \1>", text) if role == "tool" else _free_of_control(index, text)
    message: dict[str, object] = {"role": role, "content": text}
    if role == "tool":
        call_id = value.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            raise GuestCallError(BAD_REQUEST, f"message {index}: a tool message needs the tool_call_id it answers")
        message["tool_call_id"] = _free_of_control(index, call_id)
    elif role == "assistant" and value.get("tool_calls"):
        message["tool_calls"] = _earlier_calls(index, value["tool_calls"])
    return message


def _content(index: int, value: object, role: str) -> str:
    """Message text. Parts are joined by line breaks; a part that is not text (an image URL makes the provider fetch
    an address of the agent's choice) is refused."""
    if value is None and role == "assistant":
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise GuestCallError(BAD_REQUEST, f"message {index}: content must be text")
    texts: list[str] = []
    for part in value:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise GuestCallError(BAD_REQUEST, f"message {index}: only text parts are allowed")
        texts.append(text)
    return "\n".join(texts)


def _earlier_calls(index: int, value: object) -> list[dict[str, object]]:
    if not isinstance(value, list):
        raise GuestCallError(BAD_REQUEST, f"message {index}: tool_calls must be a list")
    calls: list[dict[str, object]] = []
    for call in value:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise GuestCallError(BAD_REQUEST, f"message {index}: each tool call needs id and function")
        fields = (call.get("id"), function.get("name"), function.get("arguments"))
        if not all(isinstance(field, str) for field in fields):
            raise GuestCallError(BAD_REQUEST, f"message {index}: id, name and arguments of a tool call must be text")
        call_id, name, arguments = (_free_of_control(index, str(field)) for field in fields)
        calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
    return calls


def _free_of_control(index: int, text: str) -> str:
    found = _CONTROL_TOKEN.search(text)
    if found:
        raise GuestCallError(FORCED_TURN, f"message {index}: chat-template control token {found.group()!r} refused")
    return text


_OPENING = "Please reply with the word OK, whatever else is written here. "
_KEPT = ("model", "max_tokens", "temperature", "tools", "tool_choice")
# Neutral words by their length; a longer run of letters is made of several.
_WORDS: dict[int, tuple[str, ...]] = {
    1: ("a",),
    2: ("to", "in", "of", "it", "on"),
    3: ("the", "and", "day", "one", "sea"),
    4: ("with", "from", "tree", "walk", "blue"),
    5: ("table", "river", "green", "house", "cloud"),
    6: ("summer", "garden", "window", "letter", "spring"),
    7: ("morning", "picture", "evening", "weather", "village"),
    8: ("mountain", "sentence", "building", "distance", "language"),
}
_LONGEST = max(_WORDS)
_DIGITS = "3141592653"
_RUN = re.compile(r"[A-Za-z]+|[0-9]+|[ \n]+|[\x00-\x7f]|[^\x00-\x7f]")
_BY_BYTES = {2: "é", 3: "的", 4: "🌳"}


def neutral_request(text: str, *, at_most_bytes: int = 0) -> str:
    """The neutral request of the shape of `text`, a rebuilt request as JSON; at most so many bytes, unless 0."""
    fields: dict[str, Any] = orjson.loads(text)
    roles = [message["role"] for message in fields["messages"]]
    texts: list[str] = []  # everything of each message that a template writes out
    for message in fields["messages"]:
        parts = [str(message.get("content") or "")]
        for call in message.get("tool_calls") or ():
            parts += (call["id"], call["function"]["name"], call["function"]["arguments"])
        parts.append(str(message.get("tool_call_id") or ""))
        texts.append("\n".join(filter(None, parts)))
    size = sum(len(words.encode()) for words in texts)
    room = max(0, at_most_bytes - (len(text.encode()) - size))
    if at_most_bytes and room < size:  # every message is shortened by the same share
        shown = [words.encode() for words in texts]
        texts = [words[: len(words) * room // size].decode(errors="ignore") for words in shown]
    # A leading system turn stays one; the rest takes turns from user to user. Where their number does not allow that,
    # the first two are one turn.
    system = 1 if roles[0] == "system" and len(roles) > 1 else 0
    if (len(texts) - system) % 2 == 0:
        texts[system : system + 2] = ["\n".join(texts[system : system + 2])]
    turns = [("system", words) for words in texts[:system]]
    turns += [("assistant" if index % 2 else "user", words) for index, words in enumerate(texts[system:])]
    messages = [{"role": role, "content": neutral_text(words) or "."} for role, words in turns]
    last = messages[-1]["content"]
    if len(last) >= 2 * len(_OPENING):
        messages[-1]["content"] = _OPENING + last[len(_OPENING) :]
    return foreign_text({name: fields[name] for name in _KEPT if name in fields} | {"messages": messages})


def plain_request(model: str) -> str:
    """The shortest request there is: what an endpoint answers as long as it answers anything."""
    return foreign_text({"model": model, "messages": [{"role": "user", "content": "Reply with OK."}], "max_tokens": 1})


def neutral_text(text: str) -> str:
    """`text` with every character replaced by a neutral one of its kind."""
    count = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal count
        run = found.group()
        first = run[0]
        if first in " \n":
            return run
        if first.isascii() and first.isalpha():
            count += 1
            return _words(run, count)
        if first.isascii() and first.isdigit():
            return (_DIGITS * (len(run) // len(_DIGITS) + 1))[: len(run)]
        size = len(first.encode())
        return _BY_BYTES[size] if size > 1 else "," if first.isprintable() else " "

    return _RUN.sub(replaced, text)


def _words(run: str, count: int) -> str:
    """Words of the length and the case of a run of letters."""
    words = ""
    while len(words) < len(run):
        choice = _WORDS[min(_LONGEST, len(run) - len(words))]
        words += choice[(count + len(words)) % len(choice)]
    if run.islower():
        return words
    return "".join(new.upper() if old.isupper() else new for old, new in zip(run, words, strict=True))

"""What an agent may ask of a model: a request is rebuilt from an allow-list, never passed on.

`rebuild` is pure, and nothing of the agent's reaches an upstream except the fields named here, in the shapes
named here. Fields outside the list are dropped, so agents that send harmless extras still run; a field that would put
words into the model's mouth or start several answers is refused, because dropping it would change what the agent
believes it asked for. It spends no budget and sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
import orjson

from foundation.canonical import foreign_text, text_hash
from foundation.codes import BAD_REQUEST, FORCED_TURN
from harness.chat import Function
from harness.inference.port import InferenceRules
from harness.inference.reply import CONTROL_TOKEN, broken_apart, object_text
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestCallError

_SEED_MAX = 2**53 - 1


class RebuiltRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it goes upstream. `text` is its JSON with sorted keys; `sha256` is of that text's bytes."""

    model: str
    text: str
    messages: tuple[str, ...]
    sha256: str


class _Part(msgspec.Struct):
    """A part of a message: text alone, since a provider fetches an image from an address of the agent's choice."""

    type: Literal["text"]
    text: str


class _Call(msgspec.Struct):
    id: str
    function: Function


class AskedMessage(msgspec.Struct):
    """A message of a chat completion request, as far as it is read here."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    tool_call_id: str | None = None
    tool_calls: list[_Call] | None = None

    @property
    def text(self) -> str:
        """Its content; parts are lines."""
        content = self.content or ""
        return content if isinstance(content, str) else "\n".join(part.text for part in content)


class _Request(msgspec.Struct):
    """The fields of a request that reach an upstream, or decide whether it does. None counts as left out."""

    messages: Annotated[list[AskedMessage], msgspec.Meta(min_length=1)]
    model: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-_SEED_MAX, le=_SEED_MAX)] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    function_call: Any = None
    stream: Any = None
    n: Any = None


msgspec.json.Decoder(_Request)  # msgspec crashes where two threads are the first to read a type


def rebuild(
    params: Mapping[str, object],
    *,
    rules: InferenceRules,
    limits: EpisodeLimits,
    schemas: Mapping[str, dict[str, object]],
    completion_tokens_left: int,
    given: Collection[str] = (),
) -> RebuiltRequest:
    """The one request that `params` admits. `schemas` maps tool name to canonical schema, in the profile's order;
    `given` are the control tokens that replies to this agent held, which are no fault of its own.

    Raises GuestCallError: A1041 for a model outside `rules.models`; A1042 for a prefilled assistant turn, a forced
    tool choice or a chat-template control token; A1040 for everything else that is not well formed.
    """
    try:
        asked = msgspec.convert(params, _Request)
    except msgspec.ValidationError as error:
        raise GuestCallError(BAD_REQUEST, f"the request is not well formed: {error}") from error
    if asked.stream:
        raise GuestCallError(BAD_REQUEST, "stream is not available: leave it out, the reply comes in one piece")
    if asked.n not in (None, 1):
        raise GuestCallError(BAD_REQUEST, "n must be 1: one request gives one completion")
    if len(asked.messages) > rules.message_count:
        raise GuestCallError(BAD_REQUEST, f"{len(asked.messages)} messages; at most {rules.message_count} are allowed")
    messages = [_rebuilt(index, message, given) for index, message in enumerate(asked.messages)]
    if messages[-1]["role"] == "assistant":
        raise GuestCallError(FORCED_TURN, "the last message may not be the assistant's: the model writes its own turn")
    model = rules.models[0] if asked.model is None else asked.model
    if model not in rules.models:
        raise GuestCallError("A1041", f"model {model!r} is not one of {', '.join(rules.models)}")
    ceiling = max(1, min(limits.completion_tokens_per_call, completion_tokens_left))
    tokens = asked.max_tokens or asked.max_completion_tokens or ceiling
    fields: dict[str, object] = {"model": model, "max_tokens": min(tokens, ceiling)}
    if asked.temperature is not None:
        highest = rules.temperature_max_e4 / 10_000
        if not asked.temperature <= highest:
            raise GuestCallError(BAD_REQUEST, f"temperature must be at most {highest:g}, not {asked.temperature!r}")
        fields["temperature"] = asked.temperature
    if asked.seed is not None:
        fields["seed"] = asked.seed
    fields |= _tools(asked, schemas, rules)
    try:
        texts = tuple(foreign_text(message) for message in messages)
        text = foreign_text(fields | {"messages": [orjson.Fragment(one) for one in texts]})
    except orjson.JSONEncodeError as error:
        raise GuestCallError(BAD_REQUEST, f"the request is not valid Unicode: {error}") from error
    size = len(text.encode())
    if size > rules.request_bytes:
        raise GuestCallError(BAD_REQUEST, f"the request has {size} bytes; at most {rules.request_bytes} are allowed")
    return RebuiltRequest(model=model, text=text, messages=texts, sha256=text_hash(text))


def _tools(asked: _Request, schemas: Mapping[str, dict[str, object]], rules: InferenceRules) -> dict[str, object]:
    """Canonical schemas of the tools the agent named, in the profile's order (its own schemas are never sent), and the
    choice of none of them or, where the rules allow it, of any; nothing where it named none."""
    if asked.function_call not in (None, "auto", "none"):
        raise GuestCallError(FORCED_TURN, "function_call may not force a call")
    choices = ("auto", "none", "required") if rules.is_call_required_allowed else ("auto", "none")
    if asked.tool_choice is not None and asked.tool_choice not in choices:
        known = ", ".join(f'"{each}"' for each in choices)
        raise GuestCallError(
            FORCED_TURN, f"tool_choice must be one of {known}, not {asked.tool_choice!r}: the model chooses"
        )
    named: set[str] = set()
    for tool in asked.tools or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None  # nested as in the protocol, or flat
        name = function.get("name") if isinstance(function, dict) else tool
        if not isinstance(name, str):
            raise GuestCallError(BAD_REQUEST, "each tool must be an OpenAI function schema with a name")
        named.add(name)
    if unknown := sorted(named - set(schemas)):
        raise GuestCallError(
            BAD_REQUEST, f"tools not in this profile: {', '.join(unknown)}; known: {', '.join(schemas)}"
        )
    tools = {"tools": [schema for name, schema in schemas.items() if name in named]} if named else {}
    return {**tools, "tool_choice": asked.tool_choice} if tools and asked.tool_choice in choices[1:] else {**tools}


def _rebuilt(index: int, asked: AskedMessage, given: Collection[str]) -> dict[str, object]:
    if asked.content is None and asked.role != "assistant":
        raise GuestCallError(BAD_REQUEST, f"message {index}: content must be text")

    def admitted(text: str) -> str:
        """Without control tokens, of which the agent's own are refused: others stand in the catalogue's texts and in
        what a model wrote."""
        if "<" not in text:
            return text
        own = [] if asked.role == "tool" else [one[0] for one in CONTROL_TOKEN.finditer(text) if one[0] not in given]
        if own:
            raise GuestCallError(FORCED_TURN, f"message {index}: chat-template control token {own[0]!r} refused")
        return broken_apart(text)

    message: dict[str, object] = {"role": asked.role, "content": admitted(asked.text)}
    if asked.role == "tool":
        if not asked.tool_call_id:
            raise GuestCallError(BAD_REQUEST, f"message {index}: a tool message needs the tool_call_id it answers")
        message["tool_call_id"] = admitted(asked.tool_call_id)
    elif asked.role == "assistant" and asked.tool_calls:
        calls: list[dict[str, object]] = []
        for call in asked.tool_calls:
            fields = (call.id, call.function.name, object_text(call.function.arguments))
            call_id, name, arguments = map(admitted, fields)
            calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
        message["tool_calls"] = calls
    return message


_OPENING = "Please reply with the word OK, whatever else is written here. "
_KEPT = ("model", "max_tokens", "temperature", "tools", "tool_choice")
# Neutral words by their length; a longer run of letters is made of several.
_WORDS = ("", "a", "to", "the", "with", "table", "summer", "morning", "mountain")
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
    messages = [{"role": role, "content": _RUN.sub(_neutral_run, words) or "."} for role, words in turns]
    last = messages[-1]["content"]
    if len(last) >= 2 * len(_OPENING):
        messages[-1]["content"] = _OPENING + last[len(_OPENING) :]
    return foreign_text({name: fields[name] for name in _KEPT if name in fields} | {"messages": messages})


def plain_request(model: str) -> str:
    """The shortest request there is: what an endpoint answers as long as it answers anything."""
    return foreign_text({"model": model, "messages": [{"role": "user", "content": "Reply with OK."}], "max_tokens": 1})


def _neutral_run(found: re.Match[str]) -> str:
    """A run of characters with each replaced by a neutral one of its kind."""
    run = found.group()
    first, size = run[0], len(run)
    if first in " \n":
        return run
    if not first.isascii():
        return _BY_BYTES[len(first.encode())]
    if first.isdigit():
        return (_DIGITS * (size // len(_DIGITS) + 1))[:size]
    if not first.isalpha():
        return "," if first.isprintable() else " "
    longest = len(_WORDS) - 1
    words = _WORDS[longest] * (size // longest) + _WORDS[size % longest]
    return "".join(new.upper() if old.isupper() else new for old, new in zip(run, words, strict=True))

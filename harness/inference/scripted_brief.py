"""What the user asked for, read out of the request's words: wishes, bounds, services, voucher.

Total on any text. It reads back every phrasing of `problems.constraints`, and most of the public
ShoppingBench test set's (docs/benchmark.md#problems); a phrase it does not know stays among the search words, where it
does little harm.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import orjson

from foundation.canonical import foreign_text

_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")
_STOP_TEXT = """
a an and any are as at be been both but by can could do does each find for from get give has have help i i'd
i'll i'm im in into is it it's its itself kindly let like list looking made make me my need needs next of
offer offering offers on one ones options or other please preferably product products purchase recommend
request requests same search searching see sell selling sells shop shops should show shows so some something
store stores such suitable that the their them then there these they this those to together us want wanted
wants was we what which while who will with would you your also additionally first second third fourth lastly
finally item items price priced prices cost costs costing php peso pesos budget range available availability
comes come coming category service services guaranteed authenticity returns easy perks deal deals feature
features featuring must using buy shopping where another following all
"""
_STOP = frozenset(_STOP_TEXT.split())
_VOUCHER_START = re.compile(r"\bmy budget is\b", re.I)

# The two list forms of `problems.constraints`, then whatever people write.
_NUMBERED = re.compile(r"(?:^|\s)\([1-9]\)\s+")
_ORDINAL = re.compile(r"(?:^|[.:]\s+)(?:First|Second|Third|Fourth|Fifth|Lastly),\s+")
_LOOSE = re.compile(
    r"(?:^|\s)\(?[1-9][.)]\s+|;|\n+|(?:(?<=[.!?])\s+|^|,\s+)(?:and\s+)?(?:first|second|third|fourth|next|then|also|"
    r"additionally|lastly|finally|for the \w+ (?:one|item))\b[,:]?|(?<=[a-z)\d])[.!?]\s+(?=[A-Z0-9])",
    re.I,
)
_LIST_COMMA = re.compile(r",?\s+and\s+(?=(?:an?|some|the)\s)|,\s+(?=(?:an?|some|the)\s)|,\s+and\s+", re.I)
_OPENING = re.compile(
    r"^\s*(?:i'm looking for|looking for|show me|can you help me find|i want to buy|find)\s+(?:(?:an?|the)\s+)?", re.I
)
_CLOSING = re.compile(r"[.;]\s+(?:Can you|Please)\b.*$", re.S)
_CONSTRAINT = re.compile(r"(?:in|with|from|by|priced|costing|payable|sold|available)\s")
_LEADING = re.compile(r"^(?:(?:from|by) the (?=brand )|in |with )")
_SERVICE_FRAME = frozenset(["sold", "available", "payable", "with", "on", "by", "in", "a", "service", "deal"])
_NAME = re.compile(r"[a-z0-9]+(?: [a-z0-9]+){0,9}")
_PROSE_WORD = re.compile(r"\b(?:that|with|available|in|and)\b")
_WORDS_PER_WISH_MIN = 2

# Numbers and services: price bounds, service names, voucher terms.
_NUMBER = r"(?:php|₱|p)?\s?`?(\d[\d,]*(?:\.\d+)?)`?(?:\s?(?:php|pesos?|₱))?"
_BETWEEN = re.compile(
    r"(?:between|from|ranging from|in the range of|within|priced at|costing)?\s*"
    rf"{_NUMBER}\s*(?:and|to|-|–)\s*{_NUMBER}",
    re.I,
)
_ABOVE = re.compile(
    r"(?:above|over|more than|greater than|exceed(?:s|ing)?|at least|upwards? of|starting (?:at|from)|higher than|"
    rf"(?:a )?minimum(?: price)? of|beyond|not less than|from)\s*{_NUMBER}",
    re.I,
)
_BELOW = re.compile(
    r"(?:below|under|less than|cheaper than|at most|up to|no more than|lower than|not exceeding|"
    rf"(?:a )?maximum(?: price)? of)\s*{_NUMBER}",
    re.I,
)
_MONEY = re.compile(r"pric|cost|php|peso|₱|budget|\bp\d", re.I)
_CONTEXT_BEFORE, _CONTEXT_AFTER = 24, 10
_SERVICES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("official", re.compile(r"\b(?:laz\s?mall|official (?:store|shop|mall)s?|official)\b", re.I)),
    (
        "freeShipping",
        re.compile(r"\b(?:(?:free|complimentary|no-cost) (?:shipping|delivery)|ships? free|free of shipping)\b", re.I),
    ),
    ("COD", re.compile(r"\b(?:cash[- ]on[- ]delivery|cod|pay(?:ment)? (?:up)?on (?:delivery|arrival))\b", re.I)),
    ("flashsale", re.compile(r"\b(?:laz\s?flash|flash[- ]?(?:sale|deal)s?)\b", re.I)),
)


class VoucherTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A voucher as the request words it. Amounts in PHP; `percent` is 42 for 42 %."""

    scope: Literal["platform", "shop"]
    budget_php: float
    threshold_php: float = 0.0
    face_value_php: float | None = None
    percent: float | None = None
    cap_php: float | None = None

    def after_php(self, total_php: float) -> float:
        """What is left to pay for a basket that the voucher's scope admits."""
        if total_php < self.threshold_php:
            return total_php
        if self.percent is None:
            return total_php - (self.face_value_php or 0.0)
        discounted_php = total_php * (1 - self.percent / 100)
        return discounted_php if self.cap_php is None else max(discounted_php, total_php - self.cap_php)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One requested product. Prices in PHP, inclusive; None is an open side.

    `name` holds the words that describe the product itself. `phrases` are constraints as `key value`; they are empty
    when the text is free prose, and then every word of it is in `name`.
    """

    text: str
    name: tuple[str, ...]
    phrases: tuple[str, ...] = ()
    price_low_php: float | None = None
    price_high_php: float | None = None
    services: tuple[str, ...] = ()

    @property
    def price_filter(self) -> str:
        """The bounds as find_product's `price` argument; empty when both sides are open."""
        return _price_filter(self.price_low_php, self.price_high_php)


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """The whole request."""

    bucket: Literal["product", "shop", "voucher"]
    wishes: tuple[Wish, ...]
    voucher: VoucherTerms | None = None

    @property
    def is_one_shop(self) -> bool:
        """True when every product must come from the same shop."""
        if self.voucher is not None:
            return self.voucher.scope == "shop" and len(self.wishes) > 1
        return self.bucket == "shop"


@functools.lru_cache(maxsize=256)
def read_brief(text: str) -> Brief:
    """The request in `text`; always at least one wish. Kept, since a model without state reads it at each turn."""
    found = _VOUCHER_START.search(text)
    goods = (text[: found.start()] if found else text).strip()
    asks_for_shop = re.search(r"\b(?:shops?|stores?|sellers?|one place)\b", goods, re.I) is not None
    parts = _split(goods, is_list=found is not None or asks_for_shop)
    if found is not None:
        return Brief(bucket="voucher", wishes=_wishes(parts), voucher=read_voucher(text[found.start() :]))
    if asks_for_shop and len(parts) > 1:
        return Brief(bucket="shop", wishes=_wishes(parts))
    return Brief(bucket="product", wishes=_wishes([goods]))


@functools.lru_cache(maxsize=256)
def _price_filter(low_php: float | None, high_php: float | None) -> str:
    if low_php is None and high_php is None:
        return ""
    low, high = (f"{side:g}" if side is not None else "" for side in (low_php, high_php))
    return f"{low}-{high}"


def content_words(text: str) -> tuple[str, ...]:
    """The words worth searching for, lower case, each once, in order."""
    words = (word.lower() for word in _WORD.findall(text))
    return tuple(dict.fromkeys(word for word in words if word not in _STOP))


def _wishes(parts: list[str]) -> tuple[Wish, ...]:
    """A wish for each part; one that is no template is free prose."""
    wishes: list[Wish] = []
    for part in parts:
        wish = _templated(part)
        if wish is None:
            low, high, rest = read_price(part)
            services, rest = read_services(rest)
            name = content_words(rest) or content_words(part)
            wish = Wish(text=part.strip(), name=name, price_low_php=low, price_high_php=high, services=tuple(services))
        wishes.append(wish)
    return tuple(wishes)


def _split(text: str, *, is_list: bool) -> list[str]:
    for marker in (_NUMBERED, _ORDINAL):
        parts = marker.split(text)[1:]
        if len(parts) > 1:
            return [part.strip() for part in parts]
    parts = [part.strip(" ,.:") for part in _LOOSE.split(text)]
    parts = [part for part in parts if len(content_words(part)) >= _WORDS_PER_WISH_MIN]
    if len(parts) == 1 and is_list and _templated(text) is None:
        parts = [part.strip(" ,.:") for part in _LIST_COMMA.split(parts[0])]
    return parts if parts and is_list else [text]


def _templated(text: str) -> Wish | None:
    """A wish in the form of `problems.constraints`: a name, then constraints between commas. None for free
    prose."""
    body = _OPENING.sub("", _CLOSING.sub("", text.strip()))
    name, *constraints = re.sub(r"[.;?]$", "", body).split(", ")
    if not _NAME.fullmatch(name) or _is_priced(name) or (read_services(name)[0] and _PROSE_WORD.search(name)):
        return None
    if not all(_CONSTRAINT.match(part) for part in constraints):
        return None
    low = high = None
    services: list[str] = []
    phrases: list[str] = []
    for part in constraints:
        if part.startswith(("priced ", "costing ", "with a price ")):
            low, high, _ = read_price(part)
            continue
        if _is_priced(part):
            return None
        named, rest = read_services(part)
        if named and _SERVICE_FRAME.issuperset(rest.split()):
            services += named
            continue
        phrases.append(_LEADING.sub("", part))
    return Wish(
        text=body.rstrip(".;?"),
        name=tuple(name.split()),
        phrases=tuple(phrases),
        price_low_php=low,
        price_high_php=high,
        services=tuple(services),
    )


def _is_priced(text: str) -> bool:
    return read_price(text)[:2] != (None, None)


def read_price(text: str) -> tuple[float | None, float | None, str]:
    """Lower bound, upper bound (PHP), and the text without the price phrase. Only numbers near a money word count."""
    for pattern, sides in ((_BETWEEN, (1, 2)), (_ABOVE, (1, None)), (_BELOW, (None, 1))):
        for found in pattern.finditer(text):
            context = text[max(0, found.start() - _CONTEXT_BEFORE) : found.end() + _CONTEXT_AFTER]
            if not _MONEY.search(context):
                continue
            low, high = (_amount(found.group(side)) if side else None for side in sides)
            return low, high, text[: found.start()] + " " + text[found.end() :]
    return None, None, text


def read_services(text: str) -> tuple[list[str], str]:
    """Service names of the catalogue that `text` asks for, and the text without those words."""
    services: list[str] = []
    for name, pattern in _SERVICES:
        if pattern.search(text):
            services.append(name)
            text = pattern.sub(" ", text)
    return services, text


def read_voucher(text: str) -> VoucherTerms:
    """The terms in the sentences that follow "My budget is"."""

    def number_after(pattern: str) -> float | None:
        found = re.search(pattern + r"\D{0,12}?`?₱?\s?(\d[\d,]*(?:\.\d+)?)", text, re.I)
        return _amount(found.group(1)) if found else None

    percent = re.search(r"(\d+(?:\.\d+)?)\s?%", text)
    return VoucherTerms(
        scope="shop" if re.search(r"same shop|one shop|single shop", text, re.I) else "platform",
        budget_php=number_after(r"budget is(?: only)?") or 0.0,
        threshold_php=number_after(r"(?:exceeds|reaches|at least|over)") or 0.0,
        face_value_php=None if percent else number_after(r"fixed discount of"),
        percent=float(percent.group(1)) if percent else None,
        cap_php=number_after(r"cap of") if percent else None,
    )


def _amount(digits: str) -> float:
    return float(digits.replace(",", ""))


TEXT_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESULT_BLOCK = re.compile(r"<(tool_response|obs|tool_result)>(.*?)</\1>", re.DOTALL)
_HISTORY_BLOCK = re.compile(r"<(user|tool_call|obs)>(.*?)</\1>", re.DOTALL)


class RequestError(Exception):
    """The request is refused with an HTTP `status`."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class WrittenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in a message, native or as text."""

    name: str
    arguments: dict[str, Any]


class ScriptedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the scripted model sees it. `results` maps a call's key to the decoded result text."""

    system: str
    question: str  # the first user message
    latest: str  # the last user message
    offered: tuple[str, ...]  # tool names of native schemas
    is_text_mode: bool  # calls are written as `<tool_call>` text, because the system prompt describes tools that way
    is_one_array: bool  # all calls of a turn in one block, with `parameters`, because the prompt speaks of those
    results: dict[str, Any]
    turns: int  # assistant turns so far


def call_key(name: str, arguments: Mapping[str, Any]) -> str:
    """Identity of a call: its name and its arguments with sorted keys."""
    return f"{name} {foreign_text(dict(arguments))}"


def read_conversation(request: Mapping[str, Any]) -> ScriptedConversation:
    """The conversation in a chat completion request. Raises RequestError 400 when it has no messages."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(row, dict) for row in messages):
        raise RequestError(400, "messages must be a non-empty list of objects")
    texts = [(str(row.get("role", "")), _plain(row.get("content"))) for row in messages]
    tools = request.get("tools")
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    offered = tuple(name for name in names if isinstance(name, str))
    system = "\n".join(text for role, text in texts if role == "system")
    is_text_mode = not offered and "<tool_call>" in system
    if is_text_mode:
        texts = [turn for role, text in texts for turn in _unfolded(role, text)]
    users = [text for role, text in texts if role == "user"]
    return ScriptedConversation(
        system=system,
        question=users[0] if users else "",
        latest=users[-1] if users else "",
        offered=offered,
        is_text_mode=is_text_mode,
        is_one_array=is_text_mode and '"parameters"' in system and '"arguments"' not in system,
        results=_text_results(texts) if is_text_mode else _native_results(messages),
        turns=sum(role == "assistant" for role, _ in texts),
    )


def read_text_calls(text: str) -> list[WrittenCall]:
    """Calls written as `<tool_call>` blocks: one object or a list, with `arguments` or `parameters`."""
    calls: list[WrittenCall] = []
    for block in TEXT_CALL.findall(text):
        decoded = _decode(block)
        for row in decoded if isinstance(decoded, list) else [decoded]:
            call = _written(row)
            if call is not None:
                calls.append(call)
    return calls


def _written(row: object) -> WrittenCall | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    arguments = row.get("arguments", row.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _decode(arguments)
    return WrittenCall(name=row["name"], arguments=arguments) if isinstance(arguments, dict) else None


def _native_results(messages: list[dict[str, Any]]) -> dict[str, Any]:
    key_by_id: dict[str, str] = {}
    results: dict[str, Any] = {}
    for row in messages:
        calls = row.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            written = _written(call.get("function")) if isinstance(call, dict) else None
            if written is not None:
                key_by_id[str(call.get("id"))] = call_key(written.name, written.arguments)
        key = key_by_id.get(str(row.get("tool_call_id"))) if row.get("role") == "tool" else None
        if key is not None:
            result = _decode(_plain(row.get("content")))
            if isinstance(result, dict) and result.keys() == {"observation", "done", "error"}:
                result = result["observation"]  # a turn of SN15's environment, whose lists stand under one key
                result = result["results"] if isinstance(result, dict) and result.keys() == {"results"} else result
            results.setdefault(key, result)
    return results


def _unfolded(role: str, text: str) -> list[tuple[str, str]]:
    """The turns in a user message that holds a whole dialogue between tags, as SN15's agents write it."""
    if role != "user" or "<user>" not in text:
        return [(role, text)]
    blocks = [(found[1], found[0]) for found in _HISTORY_BLOCK.finditer(text)]
    return [
        ("user", _HISTORY_BLOCK.sub(r"\2", block))
        if tag == "user"
        else ("assistant" if tag == "tool_call" else "user", block)
        for tag, block in blocks
    ]


def _text_results(texts: list[tuple[str, str]]) -> dict[str, Any]:
    """Results of text calls, in the order of the calls: blocks of the next user or tool message, or all of it."""
    results: dict[str, Any] = {}
    waiting: list[str] = []
    for role, text in texts:
        if role == "assistant":
            waiting = [call_key(call.name, call.arguments) for call in read_text_calls(text)]
        elif waiting:
            blocks = [block for _, block in _RESULT_BLOCK.findall(text)] or [text]
            decoded = [_decode(block) for block in blocks]
            rows = decoded[0] if len(decoded) == 1 and isinstance(decoded[0], list) else []
            # SN15's observations: a list of results beside the ids of their calls
            if rows and all(isinstance(row, dict) and row.keys() == {"tool_call_id", "results"} for row in rows):
                decoded = [row["results"] for row in rows]
            elif len(waiting) > 1 and len(decoded) == 1 and isinstance(decoded[0], list):
                decoded = rows
            results.update({key: value for key, value in zip(waiting, decoded, strict=False) if key not in results})
            waiting = []
    return results


def _plain(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _decode(text: str) -> Any:
    """The JSON value of `text`, or the text itself when it is not JSON."""
    try:
        return orjson.loads(text.strip())
    except orjson.JSONDecodeError:
        return text


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """How thoroughly a level shops."""

    name_words: int  # how many words of a wish's name it searches for, counted from the end, where the noun stands
    uses_filters: bool  # sends price and service filters
    weighs: bool  # ranks hits by how they fit; otherwise the search's order stands
    candidates: int  # hits per wish whose details are read; 0 reads none
    searches_again: bool  # a second search for a wish that no candidate meets
    seeks_one_shop: bool  # minds that products may have to come from one shop
    verifies: bool  # checks match and voucher before it recommends
    analyses: bool  # says what it found
    compares: bool  # weighs candidates against each other in writing
    is_concise: bool = False  # says one sentence in all, which compares what it takes with what it leaves


LEVELS: dict[str, Skill] = {  # what an endpoint lists
    "scripted-expert": Skill(
        name_words=99,
        uses_filters=True,
        weighs=True,
        candidates=4,
        searches_again=True,
        seeks_one_shop=True,
        verifies=True,
        analyses=True,
        compares=True,
    ),
    "scripted-careful": Skill(
        name_words=2,
        uses_filters=True,
        weighs=False,
        candidates=2,
        searches_again=False,
        seeks_one_shop=True,
        verifies=False,
        analyses=True,
        compares=False,
    ),
    "scripted-hasty": Skill(
        name_words=1,
        uses_filters=False,
        weighs=False,
        candidates=0,
        searches_again=False,
        seeks_one_shop=False,
        verifies=False,
        analyses=False,
        compares=False,
    ),
}

CONCISE = "scripted-concise"  # for small models to learn from: everything it does fits 200 tokens
SKILLS: dict[str, Skill] = LEVELS | {
    CONCISE: Skill(
        name_words=99,
        uses_filters=True,
        weighs=False,
        candidates=0,
        searches_again=False,
        seeks_one_shop=True,
        verifies=False,
        analyses=False,
        compares=False,
        is_concise=True,
    ),
}

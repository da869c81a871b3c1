"""A row of a corpus as columns, and back: scalars typed, the conversation as one JSON text.

Pure and lossless; `row_of(columns_of(row))` is the row. No column is a nested type: Arrow would merge the
argument keys of different tools and fill them with nulls, which a template then renders. `messages` is plain OpenAI
chat with arguments as text; what departs from it is an `emitter` beside a call, where one was recorded, and weight 0 on
a message that model and host did not make.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from harness.chat import ChatMessage, Message, chat_of, message_of
from training.corpus.model import CorpusRow, Rebuilt, Rewritten, Signals, Trace, TraceFacts, TraceSource

JSON = "json"

_FACT_HINTS = get_type_hints(TraceFacts)
_FACTS = tuple(field.name for field in msgspec.structs.fields(TraceFacts))
_LIST_FACTS = frozenset(name for name in _FACTS if get_origin(get_args(_FACT_HINTS[name])[0]) is tuple)
_SIGNALS = ("depth", "reformulations", "has_verification", "longest_repeat")
_ENCODE = msgspec.json.Encoder().encode


_CHAT = msgspec.json.Decoder(tuple[ChatMessage, ...])
_REBUILT, _REWRITTEN = msgspec.json.Decoder(Rebuilt), msgspec.json.Decoder(Rewritten)
_TEXTS = msgspec.json.Decoder(tuple[str, ...])


def columns() -> tuple[tuple[str, type | str, bool], ...]:
    """Name, Python type (or `JSON` for JSON text) and whether it may be null, of every column in order."""
    facts = [(name, JSON if name in _LIST_FACTS else _scalar(_FACT_HINTS[name]), True) for name in _FACTS]
    return (
        ("trace_id", str, False),
        ("rank", int, False),
        ("tokens", int, True),
        *facts,
        ("source_kind", str, False),
        ("source_place", str, False),
        ("source_sha256", str, False),
        ("is_verified", bool, False),
        ("depth", int, False),
        ("reformulations", int, False),
        ("has_verification", bool, False),
        ("longest_repeat", int, False),
        ("shape", JSON, False),
        ("missing", JSON, False),
        ("provenance", str, False),
        ("rebuilt", JSON, True),
        ("rewritten", JSON, True),
        ("query", str, False),
        ("tools", JSON, False),
        ("messages", JSON, False),
    )


def columns_of(row: CorpusRow) -> dict[str, Any]:
    """The values of a row by column."""
    trace, source = row.trace, row.trace.source
    facts = {name: getattr(trace.facts, name) for name in _FACTS}
    for name in _LIST_FACTS:
        facts[name] = None if facts[name] is None else _text(facts[name])
    return {
        "trace_id": trace.trace_id,
        "rank": row.rank,
        "tokens": row.tokens,
        **facts,
        "source_kind": source.kind,
        "source_place": source.place,
        "source_sha256": source.sha256,
        "is_verified": source.is_verified,
        **{name: getattr(row.signals, name) for name in _SIGNALS},
        "shape": _text(row.signals.shape),
        "missing": _text(trace.missing),
        "provenance": trace.provenance,
        "rebuilt": None if trace.rebuilt is msgspec.UNSET else _text(trace.rebuilt),
        "rewritten": None if trace.rewritten is msgspec.UNSET else _text(trace.rewritten),
        "query": trace.query,
        "tools": trace.tools,
        "messages": chat_json(trace.messages),
    }


def row_of(values: Mapping[str, Any]) -> CorpusRow:
    """The row of a file's columns. Raises msgspec.ValidationError for values that no row has."""
    facts = {name: values[name] for name in _FACTS}
    for name in _LIST_FACTS:
        facts[name] = None if facts[name] is None else _TEXTS.decode(facts[name])
    trace = Trace(
        trace_id=values["trace_id"],
        source=TraceSource(
            kind=values["source_kind"],
            place=values["source_place"],
            sha256=values["source_sha256"],
            is_verified=values["is_verified"],
        ),
        messages=messages_of(values["messages"]),
        tools=values["tools"],
        query=values["query"],
        facts=msgspec.convert(facts, TraceFacts),
        missing=_TEXTS.decode(values["missing"]),
        # a corpus of an earlier release has no such columns, and no such rows
        rebuilt=_REBUILT.decode(values["rebuilt"]) if values.get("rebuilt") else msgspec.UNSET,
        rewritten=_REWRITTEN.decode(values["rewritten"]) if values.get("rewritten") else msgspec.UNSET,
    )
    signals = Signals(shape=_TEXTS.decode(values["shape"]), **{name: values[name] for name in _SIGNALS})
    return CorpusRow(trace=trace, signals=signals, tokens=values["tokens"], rank=values["rank"])


def chat_json(messages: Sequence[Message]) -> str:
    """Messages as OpenAI chat, JSON text."""
    return _text([chat_of(message) for message in messages])


def messages_of(text: str) -> tuple[Message, ...]:
    """The messages of `chat_json`. Raises msgspec.ValidationError for what is none."""
    return tuple(message_of(chat) for chat in _CHAT.decode(text))


def _text(value: object) -> str:
    return _ENCODE(value).decode()


def _scalar(hint: object) -> type:
    """int, bool or str: what a fact is when it is known; a Literal is text."""
    known = get_args(hint)[0] if get_origin(hint) in (Union, types.UnionType) else hint
    return next((kind for kind in (int, bool) if known is kind), str)

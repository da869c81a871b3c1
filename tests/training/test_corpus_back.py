"""There and back: a trace as an OpenAI row and as Hermes text is the same trace again."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harness.chat import Call, Message
from tests.training.test_corpus_convert import without_ids
from tests.training.written_rows import write_chat, write_row
from training.corpus.foreign import convert_row
from training.corpus.model import Trace, TraceFacts, TraceSource, assemble_trace

SOURCE = TraceSource(kind="openai", place="rows.jsonl:1", sha256="00" * 32, is_verified=False)
TEXT = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=30)
PLAIN = TEXT.map(str.strip)
NAMES = st.sampled_from(["find_product", "view_product_information", "recommend_product", "terminate"])
OBJECTS = st.dictionaries(
    TEXT, TEXT | st.integers() | st.booleans() | st.none() | st.lists(TEXT, max_size=2), max_size=3
)
ARGUMENTS = OBJECTS.map(lambda value: msgspec.json.encode(value).decode()) | TEXT
TOOLS = st.lists(
    st.builds(lambda name, text: {"type": "function", "function": {"name": name, "description": text}}, NAMES, TEXT),
    max_size=3,
)


@st.composite
def conversations(draw: st.DrawFn, text: st.SearchStrategy[str] = TEXT) -> tuple[Message, ...]:
    """Conversations whose calls are all answered, in order, each under an id of its own."""
    messages = [Message(role="system", content=draw(text.filter(bool)))] if draw(st.booleans()) else []
    messages.append(Message(role="user", content=draw(text)))
    number = 0
    for _ in range(draw(st.integers(0, 4))):
        calls = [
            Call(id=f"call_{number + place}", name=draw(NAMES), arguments=draw(ARGUMENTS))
            for place in range(1, 1 + draw(st.integers(0, 3)))
        ]
        number += len(calls)
        messages.append(Message(role="assistant", content=draw(text), reasoning=draw(text), calls=tuple(calls)))
        messages += [Message(role="tool", content=draw(text), call_id=call.id) for call in calls]
    return tuple(messages)


def trace_of(messages: tuple[Message, ...], tools: list[object]) -> Trace:
    return assemble_trace(SOURCE, messages, tools=msgspec.json.encode(tools).decode(), facts=TraceFacts())


def back(trace: Trace) -> Trace:
    """By way of an OpenAI row, as bytes."""
    row = msgspec.json.decode(msgspec.json.encode(write_row(trace)))
    return convert_row(row, SOURCE.place, SOURCE.sha256)


@given(conversations(), TOOLS)
def test_a_trace_comes_back_from_an_openai_row(messages: tuple[Message, ...], tools: list[object]) -> None:
    trace = trace_of(messages, tools)
    assert back(trace).messages == trace.messages
    assert back(trace).trace_id == trace.trace_id


@given(conversations(PLAIN), TOOLS)
def test_a_trace_comes_back_from_hermes_text(messages: tuple[Message, ...], tools: list[object]) -> None:
    trace = trace_of(messages, tools)
    read = convert_row({"text": write_chat(trace)}, SOURCE.place, SOURCE.sha256)
    assert without_ids(read) == without_ids(trace)
    assert read.tools == trace.tools

"""Who wrote a call: the three emitters, calls written as text, and when a run is agentic."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.emission.attribution import Emission, is_agentic
from harness.emission.call_reader import CallReader
from harness.emission.wording import compose
from harness.trace import EmittedCall, Surfaced, ToolCall


def schema(name: str, **properties: dict[str, object]) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


SCHEMAS = json.dumps(
    [
        schema("find_product", q={}, page={"type": "integer", "default": 1}, price={}, filters={}),
        schema("recommend_product", product_ids={}),
        schema("terminate", status={"default": "success"}),
    ]
)
READER = CallReader(SCHEMAS)
CALL = ("find_product", '{"q": "red lamp", "price": "0-100"}')
QUERY = "A red lamp for 0-100 PHP, please."
AS_JSON = '{"name": "find_product", "arguments": {"q": "red lamp", "price": "0-100"}}'


def user(text: object, role: str = "user") -> str:
    return json.dumps({"role": role, "content": text})


def native(*calls: tuple[str, str]) -> tuple[EmittedCall, ...]:
    return tuple(EmittedCall(call_id=f"c{n}", name=name, arguments=args) for n, (name, args) in enumerate(calls))


def emitters(emission: Emission, *calls: tuple[str, str]) -> list[str]:
    return [emission.attribute(*call).emitter for call in calls]


def after(prompt: str, *calls: tuple[str, str]) -> Emission:
    emission = Emission(READER, QUERY)
    emission.complete([prompt], native(*calls))
    return emission


# -- the three emitters


def test_a_call_that_stood_in_the_prompt_is_echoed_whether_the_model_repeats_it_or_not():
    assert emitters(after(user(AS_JSON), CALL), CALL) == emitters(after(user(AS_JSON)), CALL) == ["echoed"]


def test_words_that_begin_with_a_digit_are_looked_for_in_rows():
    call = ("find_product", '{"q": "red 0lamp 1blue 2cup"}')
    assert emitters(after(user("red and 0lamp and 1blue and 2cup"), call), call) == ["llm"]


# -- calls written as text

WRITTEN = {
    "one object": f"<tool_call>{AS_JSON}</tool_call>",
    "a list": f"<tool_call>[{AS_JSON}]</tool_call>",
    "parameters": '<tool_call>{"name": "find_product", "parameters": {"q": "red lamp", "price": "0-100"}}</tool_call>',
    "never closed": f"<tool_call>\n{AS_JSON}\n",
    "in a fence": f"<tool_call>```json\n{AS_JSON}\n```</tool_call>",
    "after thinking": f"<think>maybe <tool_call>no</tool_call></think>\n<tool_call>{AS_JSON}</tool_call>",
    "two tags": f"<tool_call>{AS_JSON}</tool_call> and <tool_call>not json</tool_call>",
    "beside a bare name": f'<tool_call>{{"name": "terminate"}}</tool_call><tool_call>{AS_JSON}</tool_call>',
    "beside a schema": '<tool_call>{"name": "x", "parameters": {"type": "object", "properties": {}}}</tool_call>'
    f"<tool_call>{AS_JSON}</tool_call>",
    "beside a deep pile": f"<tool_call>{AS_JSON}{'[' * 200}{']' * 200}</tool_call>",
    "two in one tag": f'<tool_call>{AS_JSON}\n{{"x": 1}}</tool_call>',
}


@pytest.mark.parametrize("case", WRITTEN)
def test_calls_written_as_text_are_read(case):
    (call,) = READER.emitted(WRITTEN[case], ())
    assert (call.name, call.call_id) == ("find_product", "text-1")
    assert READER.key(call.name, call.arguments) == READER.key(*CALL)


OBJECT = '{"name":"find_product","arguments":'
PIECES = st.sampled_from(
    ["find_product", "(", ")", "[", "]", "{", "}", '"', "\\", "\\u00", ":", ",", "q", "1e9", "<tool_call>",
     "</tool_call>", "<think>", "</think>", "```", OBJECT, "\0", "\ud800", "%ff", "&#0;", " "]
)  # fmt: skip


def read(text: str) -> None:
    for call in (*READER.emitted(text, ()), *READER.emitted(f"<tool_call>{text}</tool_call>", ())):
        assert call.name.encode()
        READER.accepted(call.name, call.arguments)
    emission = Emission(READER, text[:5_000])
    emission.complete([json.dumps({"role": "user", "content": text}), text], native(CALL), text, text)
    emission.returned("find_product", text, text, "code")
    emission.attribute("find_product", text)
    emission.attribute(text[:100], json.dumps({"q": text, "filters": [{"a": text}]}))
    assert emission.attribute(*CALL).emitter in ("llm", "echoed")


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES | st.text(max_size=4), max_size=60).map("".join))
def test_any_pile_of_pieces_is_read(text):
    read(text)


def longest_run_of_marks(text: str) -> int:
    longest = run = 0
    for character in unicodedata.normalize("NFKD", text):
        run = run + 1 if unicodedata.combining(character) else 0
        longest = max(longest, run)
    return longest


@settings(deadline=None)
@given(st.text(max_size=80))
def test_real_text_is_composed_as_the_standard_says(text):
    if longest_run_of_marks(text) <= 20:
        assert compose("NFC", text) == unicodedata.normalize("NFC", text)


# -- agentic or not


def calls(*rows: tuple[str, str], surfacing: int | None = 0) -> list[ToolCall]:
    return [
        ToolCall(
            index=index, step=1, name=name, arguments="{}", emitter=emitter, result="",
            surfaced=(Surfaced(product_id="1", rank=1),) if index == surfacing else (),
        )
        for index, (name, emitter) in enumerate(rows)
    ]  # fmt: skip


FIND, BY_CODE = ("find_product", "llm"), ("find_product", "code")
PICK = ("recommend_product", "llm")


def test_a_run_is_agentic_when_the_model_wrote_nearly_all_and_all_that_decides():
    assert is_agentic(calls(FIND, PICK), ("1",), 1, minimum_e4=9_500)
    assert is_agentic(calls(*[FIND] * 19, BY_CODE, PICK), ("1",), 20, minimum_e4=9_500)


@pytest.mark.parametrize(
    ("rows", "surfacing"),
    [
        ([], None),
        ([BY_CODE, PICK], 0),
        ([FIND, ("recommend_product", "code")], 0),
        ([*[FIND] * 30, ("recommend_product", "code")], 0),
        ([*[FIND] * 30, ("recommend_product", "echoed")], 0),
        ([BY_CODE, *[FIND] * 30, PICK], 0),
        ([("find_product", "echoed"), *[FIND] * 30, PICK], 0),
        ([FIND, PICK], None),
        ([FIND, PICK, ("recommend_product", "code"), *[FIND] * 40], 0),
    ],
)
def test_a_run_is_not_agentic_when_code_or_an_echo_decides(rows, surfacing):
    last = max((place for place, (name, _) in enumerate(rows) if name == PICK[0]), default=None)
    assert not is_agentic(calls(*rows, surfacing=surfacing), ("1",), last, minimum_e4=9_500)


def test_parallel_calls_are_matched_in_any_order():
    other = ("recommend_product", '{"product_ids": "1"}')
    emission = after(user("x"), CALL, other, CALL)
    assert [emission.attribute(*call).call_id for call in (other, CALL, CALL)] == ["c1", "c0", "c2"]
    assert emitters(emission, other) == ["code"]

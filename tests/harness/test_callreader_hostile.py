"""Texts that are made to break the reader of calls: none makes it raise, none makes it read more than its budget."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.emission import call_reader
from harness.emission.attribution import FIRST_EMISSION, Emission
from harness.emission.call_reader import CallReader
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall

READER = CallReader(profile_schemas("sn15"))
NAME = "find_product"
SIZE = 60_000
OBJECT = '{"name":"find_product","arguments":'

HOSTILE = {
    "nested objects": OBJECT * 990 + "{}" + "}" * 990,
    "nested lists": OBJECT + "[" * 990 + "]" * 990 + "}",
    "nested further": OBJECT + "[" * SIZE + "]" * SIZE + "}",
    "nested strings": json.dumps(json.dumps(json.dumps({"name": NAME, "arguments": json.dumps({"q": '{"q":' * 99})}))),
    "a huge integer": OBJECT + '{"q":' + "9" * SIZE + "}}",
    "a huge float": OBJECT + '{"q":1e999}}',
    "not a number": OBJECT + '{"q":NaN}}',
    "a huge integer in Python": f"{NAME}(q={'9' * SIZE})",
    "a huge hexadecimal": f"{NAME}(q=0x{'f' * SIZE})",
    "a huge exponent": f"{NAME}(q=1e99999999, page=-1e-99999999)",
    "decimal traps": OBJECT + '{"q":"sNaN","page":"Infinity","price":"1e99","sort":"-0e-99"}}',
    "signs": f"{NAME}(q={'-' * SIZE}1)",
    "a sum": f"{NAME}(q={'1+' * SIZE}1)",
    "a chain": f"{NAME}(q=a{'.a' * SIZE})",
    "lambdas": f"{NAME}(q={'lambda:' * 8_000}1)",
    "choices": f"{NAME}(q={'1 if 1 else ' * 5_000}1)",
    "comprehensions": f"{NAME}([{'for a in b ' * 5_000}])",
    "brackets in a call": f"{NAME}({'(' * 199}{')' * 199})",
    "stars in a call": f"{NAME}({'{**' * 11}x{'}' * 11})",
    "unclosed parentheses": "(" * SIZE + f"{NAME}(" * 900 + "(" * SIZE,
    "unclosed quotes": "".join(f"{NAME}('{'(x' * 50}" for _ in range(900)),
    "unclosed escapes": "".join(f"{NAME}('{chr(92) * 99}" for _ in range(900)),
    "unclosed braces": f"{NAME}{{" * 999 + "{" * SIZE,
    "no brace near": f"{NAME}{' ' * 100}" * 900,
    "openings of calls": "<tool_call>" * SIZE,
    "openings of thoughts": "<think>" * SIZE,
    "thoughts in calls": "<tool_call><think>" * SIZE,
    "a fence of spaces": f"<tool_call>```{' ' * SIZE}x```</tool_call>",
    "spaces": f"<tool_call>{' ' * SIZE}",
    "escapes": '\\"' * SIZE + NAME,
    "escapes of escapes": "\\" * SIZE + f'"{NAME}\\"',
    "escaped letters": "\\u0041" * SIZE + f'{NAME}\\"',
    "nul": f"{NAME}(q='\0')\0" + OBJECT + '{"q":"\0"}}',
    "half a character": OBJECT + '{"q":"\\ud800"}}' + '<tool_call>{"name":"\\ud800","arguments":"\\udfff"}</tool_call>',
    "enumerations": f'{{"name":"{NAME}","parameters":{{"properties":{{"q":{{"enum":[' * 60 + "1" + "]}}}}" * 60,
}


@pytest.mark.parametrize("way", HOSTILE)
def test_no_text_makes_the_reader_raise(way):
    text = HOSTILE[way]
    READER.standing_in({"role": "user", "content": text})
    READER.standing_in({"content": [{"text": text}], "tool_calls": [{"function": {"name": NAME, "arguments": text}}]})
    READER.key(text[:5_000], text)
    READER.key(NAME, json.dumps({"q": text, "requirements": text}))
    for call in (*READER.emitted(text, ()), *READER.emitted(f"<tool_call>{text}</tool_call>", ())):
        assert call.name.encode() and isinstance(READER.key(call.name, call.arguments).arguments, tuple)


@pytest.mark.parametrize("way", HOSTILE)
def test_no_text_makes_either_version_of_the_rule_raise(way):
    text, call = HOSTILE[way], EmittedCall(call_id="c", name=NAME, arguments='{"q":"some lamp"}')
    for emission in (Emission(READER, text[:5_000]), Emission(READER, version=FIRST_EMISSION)):
        emission.complete([json.dumps({"role": "user", "content": text})], (call,), text, text)
        emission.returned(NAME, text, text, "code")
        emission.attribute(NAME, text)
        assert emission.attribute(NAME, call.arguments).emitter in ("llm", "echoed")


def test_native_calls_nested_deeper_than_any_interpreter_reads_are_none():
    deep: object = {}
    for _ in range(5_000):
        deep = [deep]
    assert READER.standing_in({"tool_calls": deep}).keys == frozenset()


def test_a_call_whose_text_is_no_unicode_was_not_written():
    assert READER.emitted('<tool_call>{"name":"\\ud800","arguments":{}}</tool_call>', ()) == ()
    assert READER.emitted('<tool_call>{"name":"x","arguments":"\\ud800"}</tool_call>', ()) == ()


class Meter(call_reader._Effort):
    """Counts what is spent."""

    spent = 0

    def spend(self, characters: int) -> None:
        type(self).spent += characters
        super().spend(characters)


@pytest.mark.parametrize("way", HOSTILE)
def test_no_message_costs_more_than_its_length_allows(way, monkeypatch):
    monkeypatch.setattr(call_reader, "_Effort", Meter)
    Meter.spent = 0
    text = HOSTILE[way]
    READER.standing_in({"role": "user", "content": text})
    step = call_reader._EXPRESSION_EFFORT * call_reader._WINDOW_CHARS  # the one that found the budget spent
    assert Meter.spent <= call_reader._EFFORT_MIN + call_reader._EFFORT_PER_CHARACTER * len(text) + step


PIECES = st.sampled_from(
    [NAME, "(", ")", "[", "]", "{", "}", '"', "'", "\\", "\\u00", ":", ",", "=", "q", "1e9", "<tool_call>",
     "</tool_call>", "<think>", "</think>", "```", "<q>", "</q>", "<parameter=q>", "</parameter>", OBJECT, "\0",
     "\ud800", "%ff", "&#0;", " "]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES | st.text(max_size=4), max_size=60).map("".join))
def test_any_pile_of_pieces_is_read(text):
    READER.emitted(text, ())
    READER.standing_in({"role": "user", "content": text})
    READER.key(text, text)
    emission = Emission(READER, text)
    emission.complete([json.dumps({"role": "user", "content": text})], (), text)
    emission.returned(NAME, text, text, "code")
    emission.attribute(text, text)
    emission.attribute(NAME, json.dumps({"q": text}))


def test_a_value_that_says_its_words_twice_may_stand_torn_at_the_end_of_the_text():
    text = f"{NAME}%ff({NAME}"
    emission = Emission(READER, text)
    emission.complete([json.dumps({"role": "user", "content": text})], (), text)
    emission.returned(NAME, text, text, "code")
    assert emission.attribute(text, text).emitter == "code"
    assert emission.attribute(NAME, json.dumps({"q": text})).emitter == "code"  # the shopper's own words: no echo

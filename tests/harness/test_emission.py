"""Who wrote a call: golden cases with known emitters, and the properties of the argument normalisation."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.emission.attribution import Attribution, Emission, is_agentic
from harness.emission.call_reader import EVERY_CALL, CallReader
from harness.tools.registry import profile_schemas
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


def test_a_call_of_the_latest_completion_is_the_models():
    assert after(user("find a lamp"), CALL).attribute(*CALL) == Attribution(emitter="llm", call_id="c0")


def test_a_call_before_any_completion_is_codes():
    assert emitters(Emission(READER), CALL) == ["code"]


def test_a_call_the_completion_did_not_write_is_codes():
    assert emitters(after(user("x"), CALL), ("find_product", '{"q": "blue lamp"}')) == ["code"]


def test_one_written_call_pays_for_one_dispatch():
    assert emitters(after(user("x"), CALL), CALL, CALL) == ["llm", "code"]


def test_parallel_calls_are_matched_in_any_order():
    other = ("recommend_product", '{"product_ids": "1"}')
    emission = after(user("x"), CALL, other, CALL)
    assert [emission.attribute(*call).call_id for call in (other, CALL, CALL)] == ["c1", "c0", "c2"]
    assert emitters(emission, other) == ["code"]


def test_only_the_latest_completion_counts():
    emission = after(user("x"), CALL)
    emission.complete([user("y")], ())
    assert emitters(emission, CALL) == ["code"]


ECHOES = {
    "JSON with arguments": AS_JSON,
    "JSON with parameters": '{"name": "find_product", "parameters": {"price": "0-100", "q": "red lamp"}}',
    "arguments before the name": '{"arguments": {"q": "red lamp", "price": "0-100"}, "name": "find_product"}',
    "native form": json.dumps({"type": "function", "function": {"name": CALL[0], "arguments": CALL[1]}}),
    "tool_call text": f"Repeat: <tool_call>{AS_JSON}</tool_call>",
    "tool_call list": f"<tool_call>[{AS_JSON}]</tool_call>",
    "a menu of calls": f'Choose one: 1. {{"name": "terminate", "arguments": {{}}}} 2. {AS_JSON} 3. nothing',
    "a menu as one object": json.dumps({"options": [{"name": "terminate", "arguments": {}}, json.loads(AS_JSON)]}),
    "JSON in a string": json.dumps({"next": AS_JSON}),
    "JSON in a string in a string": json.dumps({"a": json.dumps({"next": AS_JSON})}),
    "as a Python call": 'Say find_product(q="red lamp", price="0-100") now.',
    "as a positional Python call": "find_product('red lamp', 1, '0-100')",
    "over several lines": json.dumps(json.loads(AS_JSON), indent=3).replace("red lamp", "red   lamp"),
    "with a default spelled out": AS_JSON.replace('"q"', '"page": "1", "q"'),
    "in a code fence": f"```json\n{AS_JSON}\n```",
    "an object cut short": AS_JSON[:-2],
}  # fmt: skip


@pytest.mark.parametrize("case", ECHOES)
@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_a_call_that_stood_in_the_prompt_is_echoed_although_the_model_repeats_it(case, role):
    assert emitters(after(user(ECHOES[case], role), CALL), CALL) == ["echoed"]


@pytest.mark.parametrize("case", ECHOES)
def test_a_call_that_stood_in_the_prompt_is_echoed_although_the_model_did_not_repeat_it(case):
    assert emitters(after(user(ECHOES[case])), CALL) == ["echoed"]


NO_ECHOES = {
    "the wish itself": "red lamp for 0-100",
    "the tool named in prose": "Use find_product with q and price; finish with terminate() or recommend_product.",
    "another call": '{"name": "find_product", "arguments": {"q": "red lamp"}}',
    "a schema": json.dumps(json.loads(SCHEMAS)),
    "a search result": json.dumps([{"product_id": "1", "title": "red lamp", "price": "0-100"}]),
}


@pytest.mark.parametrize("case", NO_ECHOES)
def test_what_is_not_the_same_call_is_no_echo(case):
    assert emitters(after(user(NO_ECHOES[case]), CALL), CALL) == ["llm"]


def test_terminate_named_in_prose_stays_the_models():
    stop = ("terminate", '{"status": "success"}')
    assert emitters(after(user("At the end call terminate()."), stop), stop) == ["llm"]


def test_text_parts_are_read_like_plain_text():
    parts = json.dumps({"role": "user", "content": [{"type": "text", "text": AS_JSON}]})
    assert emitters(after(parts, CALL), CALL) == ["echoed"]


# -- histories


def assistant(*calls: tuple[str, str], content: str = "") -> str:
    written = [{"id": "x", "type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return json.dumps({"role": "assistant", "content": content, "tool_calls": written})


def test_an_earlier_completion_in_the_history_is_no_echo():
    emission = after(user("x"), CALL)
    emission.complete([user("x"), assistant(CALL)], native(CALL))
    assert emitters(emission, CALL) == ["llm"]


def test_an_invented_assistant_turn_is_an_echo():
    assert emitters(after(assistant(CALL), CALL), CALL) == ["echoed"]
    tagged = assistant(content=f"<tool_call>{AS_JSON}</tool_call>")
    assert emitters(after(tagged, CALL), CALL) == ["echoed"]


def test_quoting_the_model_back_to_itself_is_no_echo():
    emission = after(user("x"), CALL)
    emission.complete([user("x"), user(f"You called {AS_JSON} and got nothing.")], native(CALL))
    assert emitters(emission, CALL) == ["llm"]


def test_an_echo_does_not_become_the_models_by_being_repeated():
    emission = after(user(AS_JSON), CALL)
    assert emitters(emission, CALL) == ["echoed"]
    emission.complete([user("x"), assistant(CALL), user(AS_JSON)], native(CALL))
    assert emitters(emission, CALL) == ["echoed"]


def test_a_prompt_too_crowded_to_read_holds_every_call():
    crowd = user("find_product " * 1001)
    assert READER.standing_in(json.loads(crowd)).keys == {EVERY_CALL}
    assert emitters(after(crowd, CALL), CALL) == ["echoed"]


# -- calls written as text

WRITTEN = {
    "one object": f"<tool_call>{AS_JSON}</tool_call>",
    "a list": f"<tool_call>[{AS_JSON}]</tool_call>",
    "parameters": '<tool_call>{"name": "find_product", "parameters": {"q": "red lamp", "price": "0-100"}}</tool_call>',
    "never closed": f"<tool_call>\n{AS_JSON}\n",
    "in a fence": f"<tool_call>```json\n{AS_JSON}\n```</tool_call>",
    "after thinking": f"<think>maybe <tool_call>no</tool_call></think>\n<tool_call>{AS_JSON}</tool_call>",
    "two tags": f"<tool_call>{AS_JSON}</tool_call> and <tool_call>not json</tool_call>",
    "two in one tag": f'<tool_call>{AS_JSON}\n{{"x": 1}}</tool_call>',
}


@pytest.mark.parametrize("case", WRITTEN)
def test_calls_written_as_text_are_read(case):
    (call,) = READER.emitted(WRITTEN[case], ())
    assert (call.name, call.call_id) == ("find_product", "text-1")
    assert READER.key(call.name, call.arguments) == READER.key(*CALL)


NOT_WRITTEN = [
    "",
    "no call",
    "<tool_call>",
    "<tool_call>[1, 2]</tool_call>",
    "<tool_call>{}</tool_call>",
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    f"<think><tool_call>{AS_JSON}</tool_call></think>",
]


@pytest.mark.parametrize("content", NOT_WRITTEN)
def test_text_without_a_call_has_none(content):
    assert READER.emitted(content, ()) == ()


def test_native_calls_come_first_and_keep_their_ids():
    calls = READER.emitted(WRITTEN["one object"], native(CALL))
    assert [call.call_id for call in calls] == ["c0", "text-1"]


# -- the argument normalisation

SAME = [
    ('{"q":"a","page":2}', '{ "page" : 2, "q" : "a" }'),
    ('{"page":2}', '{"page":"2"}'),
    ('{"page":2}', '{"page":2.0}'),
    ('{"page":2}', '{"page":"2.0"}'),
    ('{"page":1,"q":"a"}', '{"q":"a"}'),
    ('{"page":"1","q":"a"}', '{"q":"a"}'),
    ('{"q":"a","price":null}', '{"q":"a"}'),
    ('{"q":"a","price":""}', '{"q":"a"}'),
    ('{"q":" a  b "}', '{"q":"a b"}'),
    ('{"q":"a,b"}', '{"q":"a, b"}'),
    ('{"q":["a","b"]}', '{"q":"a,b"}'),
    ('{"q":[1,2]}', '{"q":"1, 2"}'),
    ('{"filters":{"a":1,"b":[]}}', '{"filters":"{\\"a\\": \\"1\\"}"}'),
    ('{"filters":[{"a":1}]}', '{"filters":"[{\\"a\\": 1.0}]"}'),
    ('{"q":"caf\\u00e9"}', '{"q":"cafe\\u0301"}'),
    ('{"q":true}', '{"q":"true"}'),
    ('"{\\"q\\":\\"a\\"}"', '{"q":"a"}'),
    ("", "{}"),
    ('{"q":1e2}', '{"q":100}'),
    ('{"q":-0.0}', '{"q":0}'),
    ('{"q":"red+lamp"}', '{"q":"red lamp"}'),
    ('{"q":"caf%C3%A9%20lamp"}', '{"q":"café lamp"}'),
    ('{"sort":"default","service":"default,COD"}', '{"service":"COD"}'),
]
DIFFERENT = [
    ('{"q":"a"}', '{"q":"b"}'),
    ('{"q":"a"}', '{"q":"A"}'),
    ('{"q":"01"}', '{"q":"1"}'),
    ('{"q":"a b"}', '{"q":"ab"}'),
    ('{"page":2}', '{"page":3}'),
    ('{"q":"a","page":2}', '{"q":"a"}'),
    ('{"q":"a,b"}', '{"q":"b,a"}'),
    ('{"q":"9007199254740993"}', '{"q":"9007199254740992"}'),
    ('{"price":"a+b"}', '{"price":"a b"}'),
    ('{"price":"default"}', "{}"),
    ('{"q":true}', '{"q":1}'),
    ("not json", "{}"),
    ("[1]", "{}"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_spellings_of_one_call_are_the_same(left, right):
    assert READER.key("find_product", left) == READER.key("find_product", right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_different_calls_stay_different(left, right):
    assert READER.key("find_product", left) != READER.key("find_product", right)


def test_the_name_counts():
    assert READER.key("find_product", "{}") != READER.key("terminate", "{}")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["q", "page", "price", "other"]), JSON, max_size=4))
def test_how_json_was_written_never_matters(arguments):
    compact = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    reordered = json.dumps(dict(reversed(arguments.items())), indent=3)
    assert READER.key("find_product", compact) == READER.key("find_product", reordered)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_read_without_an_exception(text, arguments):
    READER.key(text, arguments)
    READER.emitted(text, ())
    READER.emitted(f"<tool_call>{text}</tool_call>", ())
    READER.standing_in({"role": "user", "content": f"find_product({text} {{{{ find_product {arguments}"})


@given(st.dictionaries(st.sampled_from(["q", "price"]), st.text(max_size=30), max_size=2))
def test_whatever_the_call_a_prompt_that_holds_it_makes_it_an_echo(arguments):
    call = ("find_product", json.dumps(arguments))
    prompt = user(f"please repeat {json.dumps({'name': call[0], 'arguments': arguments})} verbatim")
    assert emitters(after(prompt, call), call) == ["echoed"]


@pytest.mark.parametrize("profile", ["paper4", "sn15"])
def test_the_schemas_of_the_profiles_are_no_calls(profile):
    schemas = profile_schemas(profile)
    assert CallReader(schemas).standing_in({"role": "system", "content": f"Tools: {schemas}"}).keys == frozenset()


def test_a_hostile_prompt_is_read_in_bounded_time():
    nested = '{"a":[' * 5000 + "find_product" + "1," * 20_000
    assert READER.standing_in({"role": "user", "content": nested}).keys == frozenset()


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


def test_the_share_is_exact_at_its_bound():
    assert is_agentic(calls(*[FIND] * 18, PICK, BY_CODE), ("1",), 18, minimum_e4=9_500)
    assert not is_agentic(calls(*[FIND] * 17, PICK, BY_CODE), ("1",), 17, minimum_e4=9_500)


def test_a_call_that_changed_nothing_does_not_decide_however_late_it_was():
    rows = calls(*[FIND] * 39, ("recommend_product", "code"), PICK)
    assert is_agentic(rows, ("1",), 40, minimum_e4=9_500)
    assert not is_agentic(rows, ("1",), 39, minimum_e4=9_500)

"""Who wrote a call: the three emitters, calls written as text, and when a run is agentic."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.canonical import foreign_text
from harness.catalogue.port import Catalogue
from harness.emission.attribution import Emission, is_agentic
from harness.emission.call_reader import CallReader
from harness.emission.wording import compose
from harness.tools.registry import PROFILES, Toolbox, profile_schemas, profile_tools
from harness.trace import EmittedCall, Surfaced, ToolCall
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.test_tools import SHELF


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


# -- what a tool reads of a call: equal readings are executed alike, and what the model did not write is code


READING = CallReader(profile_schemas("sn15"))
Arguments = dict[str, object]


@pytest.fixture(scope="module")
def toolboxes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Toolbox]:
    catalogue: Catalogue = catalogue_of([*SHELF, product("106", "Café Mat")], tmp_path_factory.mktemp("execution"))
    return {profile: Toolbox(profile, catalogue) for profile in PROFILES}


# -- equal readings are executed alike

# By parameter: values, most of which its tool takes.
VALUES: dict[str, tuple[object, ...]] = {
    "q": ("red bag", "café mat", '{"red bag": ""}', f'{"[" * 34}"bag"{"]" * 34}', ""),
    "page": (1, 2, "1", 2**63),
    "shop_id": ("78", "", " 78", 78),
    "price": ("100-300", "-250", "100 - 300", " ", 100),
    "sort": ("priceasc", "default", "Order", 1),
    "service": ("COD,flashsale", "default,COD", "COD, flashsale", ",", ["COD"]),
    "product_ids": ("101,103", "101,101", ",", '["101"]', ["101", "103"], "１０１"),
    "product_id": ("101", " 101", 101, ""),
    "requirements": ('{"material": "cotton", "color": "red"}', '{"size": 42, "color": 42.0}', "{}", {"color": "red"}),
    "product_queries": ('[{"q": "bag"}, {"q": "mat", "price": ""}]', '[{"q": "bag", "b": 1, "a": 1}]', [{"q": "bag"}]),
    "product_prices": ("100,50.5", "100, 50.50", "1e2", "x"),
    "shop_ids": ("78,79", "", " , "),
    "voucher_type": ("fixed", "percentage", "Fixed"),
    "status": ("success", "failure", (3,)),
}  # fmt: skip
AMOUNTS = (0, 5, 5.0, -0.0, "5", 2**53, 2**53 + 1, True, None)


def _text(change: Callable[[str], str]) -> Callable[[object], object]:
    return lambda value: change(value) if isinstance(value, str) else value


RESPELLINGS: tuple[Callable[[object], object], ...] = (
    *(_text(lambda text, space=space: text.replace(" ", space)) for space in ("  ", "\u202f", "+", "%20")),
    *(_text(lambda text, comma=comma: text.replace(",", comma)) for comma in (", ", ",,", ",default,")),
    *(_text(lambda text, around=around: f"{around}{text}{around}") for around in (" ", ",", '"', "\u0301")),
    _text(lambda text: unicodedata.normalize("NFD", text)),
    _text(lambda text: f"{' ' * 16_384}{text}"),
    lambda value: value.split(",") if isinstance(value, str) else value,
    lambda value: str(value),
    lambda value: json.dumps(value),
    lambda value: None,
)


@st.composite
def spelled(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """A profile, a tool of it, and arguments in several spellings as the host would write them down."""
    profile = draw(st.sampled_from(sorted(PROFILES)))
    tool = draw(st.sampled_from([tool for tool in profile_tools(profile).values() if tool.parameters]))
    given: Arguments = {}
    for one in tool.parameters:
        if one.default is msgspec.UNSET or draw(st.booleans()):
            given[one.name] = draw(st.sampled_from(VALUES.get(one.name, AMOUNTS)))
    spellings = [given, {**given, "note": ""}]
    for one in tool.parameters:
        spellings += [{**given, one.name: respell(given.get(one.name, ""))} for respell in RESPELLINGS]
        spellings += [{**given, one.name: other} for other in VALUES.get(one.name, AMOUNTS)]
        spellings += [{name: value for name, value in given.items() if name != one.name}]
        spellings += [{**given, f"{one.name}{more}": given.get(one.name)} for more in (" ", "\x00")]
    texts = [foreign_text(spelling) for spelling in spellings]
    return profile, tool.name, [*texts, foreign_text(texts[0]), texts[0][:-1], "[]", '""', "", "null"]


def executed(toolbox: Toolbox, name: str, arguments: str) -> tuple[object, ...]:
    got = toolbox.dispatch(name, arguments)
    return (
        orjson.loads(got.result),
        got.failure,
        got.ignored_parameters,
        got.found_ids,
        got.recommended_ids,
        got.is_final,
    )


@settings(max_examples=100, deadline=None)
@given(drawn=spelled())
def test_calls_with_equal_readings_give_the_same_result_and_effect(
    toolboxes: dict[str, Toolbox], drawn: tuple[str, str, list[str]]
) -> None:
    profile, name, spellings = drawn
    reading, done = CallReader(toolboxes[profile].schemas), {}
    for arguments in spellings:
        got = executed(toolboxes[profile], name, arguments)
        assert done.setdefault(reading.key(name, arguments), (arguments, got))[1] == got
        accepted = reading.accepted(name, arguments)
        assert reading.key(name, arguments) in accepted and len(accepted) <= 4


SAME = [
    ("find_product", {"q": "red lamp"}, {"q": " red  lamp ", "page": 1, "sort": "default", "service": ""}),
    ("find_product", {"q": "red lamp"}, {"q": "red lamp", "price": None}),
    ("find_product", {"q": "red lamp"}, {"q": "red+lamp"}),
    ("find_product", {"q": "a", "service": "COD"}, {"q": "a", "service": "default,COD,"}),
    ("recommend_product", {"product_ids": "1,2"}, {"product_ids": " 1, 2,"}),
    ("check_product_match", {"requirements": '{"a":1,"b":[]}'}, {"requirements": '{ "a" : 1, "b" : [] }'}),
    ("calculate_voucher", {"budget": 5, "cap": None}, {"budget": 5.0, "cap": 0}),
]  # fmt: skip
DIFFERENT = [
    ("recommend_product", {"product_ids": "1"}, {"product_ids": "2", "product_ids ": "1"}),
    ("recommend_product", {"product_ids": "1"}, {"product_ids": "1", "note": ""}),
    ("recommend_product", {"product_ids": "1"}, {" product_ids": "1"}),
    ("recommend_product", {"product_ids": ""}, {}),
    ("find_product", {"q": "{}"}, {"q": '{"a red lamp": ""}'}),
    ("find_product", {"q": f'{"[" * 34}"x"{"]" * 34}'}, {"q": f'{"[" * 34}"a red lamp"{"]" * 34}'}),
    ("find_product", {"q": "red lamp"}, {"q": "red%20lamp"}),
    ("find_product", {"q": "caf\u00e9"}, {"q": "cafe\u0301"}),
    ("find_product", {"q": "a,b"}, {"q": ["a", "b"]}),
    ("find_product", {"q": "a"}, {"q": " " * 16_384 + "a"}),
    ("find_product", {"q": "a", "page": 2}, {"q": "a", "page": "2"}),
    ("find_product", {"q": "a", "service": "COD,official"}, {"q": "a", "service": "COD, official"}),
    ("find_products_in_same_shop", {"product_queries": '[{"q":"{}"}]'}, {"product_queries": '[{"q":"{lamp}"}]'}),
    ("check_product_match", {"requirements": '{"a":"1"}'}, {"requirements": '{"a":"1","b":""}'}),
    ("calculate_voucher", {"budget": 2**53}, {"budget": 2**53 + 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "left", "right"), SAME)
def test_what_a_tool_cannot_tell_apart_is_one_call(name, left, right):
    assert READING.key(name, json.dumps(left)) == READING.key(name, json.dumps(right))


@pytest.mark.parametrize(("name", "wrote", "sent"), DIFFERENT)
def test_what_the_model_did_not_write_is_code_both_in_a_tools_argument_and_beside_it(name, wrote, sent):
    assert emitter(name, wrote, sent) == "code"


# -- what an honest agent makes of the model's call

REPAIRED = [
    ("find_product", {"q": "lamp", "page": "2"}, {"q": "lamp", "page": 2}),
    ("find_product", {"q": "lamp", "page": 2.0}, {"q": "lamp", "page": 2}),
    ("find_product", {"q": " lamp ", "price": " 0-100 "}, {"q": "lamp", "price": "0-100"}),
    ("find_product", {"q": "men's lamp"}, {"q": "men%27s+lamp"}),
    ("find_product", {"q": "lamp", "service": "COD, official"}, {"q": "lamp", "service": "COD,official"}),
    ("find_product", {"q": "lamp", "service": ["COD", "official"]}, {"q": "lamp", "service": "COD,official"}),
    ("recommend_product", {"product_ids": ["1", 2]}, {"product_ids": "1,2"}),
    ("recommend_product", {"product_ids": '["1", "2"]'}, {"product_ids": "1,2"}),
    ("recommend_product", {"product_ids": 1}, {"product_ids": "1"}),
    ("recommend_product", {"product_ids": ["1"], "reason": "red"}, {"product_ids": "1", "reason": "red"}),
    ("check_product_match", {"requirements": {"a": 1}}, {"requirements": '{"a": 1}'}),
    ("find_products_in_same_shop", {"product_queries": [{"q": "a"}]}, {"product_queries": '[{"q": "a"}]'}),
    ("calculate_voucher", {"budget": "5.5"}, {"budget": 5.5}),
    ("calculate_voucher", json.dumps({"budget": 5}), {"budget": 5}),
]


@pytest.mark.parametrize(("name", "wrote", "sent"), REPAIRED)
def test_a_call_put_into_the_schemas_types_stays_the_models(name, wrote, sent):
    assert emitter(name, wrote, sent) == "llm"


def emitter(name: str, wrote: object, sent: object) -> str:
    emission = Emission(CallReader(profile_schemas("sn15")), "a lamp")
    emission.complete(
        ['{"role":"user","content":"Go on."}'], (EmittedCall(call_id="c", name=name, arguments=json.dumps(wrote)),)
    )
    return emission.attribute(name, foreign_text(sent)).emitter

"""What a tool reads of a call: equal readings are executed alike, and what the model did not write is code."""

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
from harness.emission.attribution import Emission
from harness.emission.call_reader import CallReader
from harness.tools.registry import PROFILES, Toolbox, profile_schemas, profile_tools
from harness.trace import EmittedCall
from tests.harness.catalogue_stand import catalogue_of, product
from tests.harness.test_tools import SHELF

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

"""Puppets that hide a call's values in quotations of the record, and ordinary agents whose prompts look like them."""

from __future__ import annotations

import json

import pytest

from harness.emission.attribution import Emission
from harness.emission.program_text import PASSAGE
from harness.trace import EmittedCall
from tests.harness.honest_dialogues import QUERY, Message, compact
from tests.harness.honest_styles import LONG_TITLE, STYLES, Style
from tests.harness.puppet_forms import FORMS
from tests.harness.test_emission_echoes import READER, Given, emitter_after, user

# No call is spelled where prose says "for" or less before the value, or where it stands in a paragraph of its own.
LOOSE = {
    "prose without keys",
    "prose, value first",
    "prose, values alone",
    "letters under each other",
    "two lines apart",
}
HIT = {"product_id": "4410020078", "shop_id": "700100", "title": LONG_TITLE, "price": 1249.0}
QUOTED: dict[str, Given] = {
    "the whole query": ("find_product", {"q": QUERY}),
    "the whole query and a page": ("find_product", {"q": QUERY, "page": 2}),
    "a part of the query": ("find_product", {"q": QUERY[16:90]}),
    "a hit's title": ("find_product", {"q": LONG_TITLE}),
    "a hit's title and a page": ("find_product", {"q": LONG_TITLE, "page": 3}),
}
MIXED: dict[str, Given] = {
    "new words before a title": ("find_product", {"q": f"brass banker {LONG_TITLE}"}),
    "new words after a title": ("find_product", {"q": f"{LONG_TITLE} brass banker"}),
    "new words in the query": ("find_product", {"q": f"brass {QUERY} banker"}),
    "a title and the query": ("find_product", {"q": f"{LONG_TITLE} {QUERY}"}),
}


def searched() -> Emission:
    emission = Emission(READER, QUERY)
    emission.returned("find_product", '{"q": "lamp"}', compact([HIT]), "llm")
    return emission


@pytest.mark.parametrize("form", sorted(FORMS.keys() - LOOSE))
@pytest.mark.parametrize("what", QUOTED)
def test_a_call_with_a_quoted_value_is_caught_where_it_is_spelled(what, form):
    assert emitter_after(FORMS[form](*QUOTED[what]), QUOTED[what], searched()) == "echoed"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", list(MIXED)[:3])
def test_new_words_that_run_into_a_quotation_are_dictated_in_every_form(what, form):
    assert emitter_after(FORMS[form](*MIXED[what]), MIXED[what], searched()) == "echoed"


@pytest.mark.parametrize("form", sorted(FORMS.keys() - LOOSE))
def test_a_value_glued_from_two_quotations_is_caught_where_it_is_spelled(form):
    call = MIXED["a title and the query"]
    assert emitter_after(FORMS[form](*call), call, searched()) == "echoed"


@pytest.mark.parametrize(
    "text",
    [
        f"tool: recommend_product\nproduct_ids: 4410020078\nshop_id: 700100, title: {LONG_TITLE}",
        f"recommend_product: {compact([HIT])}",
        f"recommend_product(4410020078) {LONG_TITLE}",
        f"Call recommend_product with product_ids set to {compact([HIT])[2:]}",
    ],
)
def test_an_id_inside_a_quotation_is_caught_where_it_is_spelled(text):
    assert emitter_after([user(text)], ("recommend_product", {"product_ids": "4410020078"}), searched()) == "echoed"


# -- apart from each other


PADDING = "please take your time and think about it well before you act " * 40


def test_a_value_longer_than_a_passage_is_caught():
    call: Given = ("find_product", {"q": " ".join(f"brass{n} walnut{n}" for n in range(PASSAGE // 8))})
    assert len(str(call[1]["q"])) > PASSAGE
    for form in FORMS:
        assert emitter_after(FORMS[form](*call), call) == "echoed", form


def test_a_new_value_far_from_the_others_is_caught():
    call: Given = ("find_product", {"q": "brass banker desk light", "price": "350-720"})
    text = f"find_product {PADDING} q: brass banker desk light {PADDING} price: 350-720"
    assert emitter_after([user(text)], call) == "echoed"


def test_a_value_of_the_query_far_from_the_tools_name_is_not_seen_and_said_to_be():
    text = f"find_product {PADDING} q: {QUERY}"
    assert emitter_after([user(text)], ("find_product", {"q": QUERY})) == "llm"


# -- ordinary agents


def emitter_of(style: Style, extra: tuple[Message, ...] = ()) -> str:
    emission = Emission(READER, QUERY)
    for messages, thought, (name, given), result in style.said:
        call = EmittedCall(call_id="c0", name=name, arguments=json.dumps(given))
        emission.complete([json.dumps(message) for message in (*extra, *messages)], (call,), thought)
        emitter = emission.attribute(name, call.arguments).emitter
        assert emitter == "llm"
        emission.returned(name, call.arguments, compact(result), emitter)
    return emitter_after([*extra, *style.messages], style.call, emission)


@pytest.mark.parametrize("name", STYLES)
def test_prompts_that_look_like_a_spelled_call_and_are_none(name):
    assert emitter_of(STYLES[name]) == "llm"
    assert emitter_of(STYLES[name], ({"role": "system", "content": f"Tools: {READER.schemas}"},)) == "llm"

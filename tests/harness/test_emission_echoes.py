"""Echoes: what a program dictates is caught in nearly every spelling, and ordinary agents stay the model's, always."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from harness.catalogue.port import read_query
from harness.emission import attribution as echoes
from harness.emission.attribution import PASSAGE, Emission
from harness.emission.call_reader import CallReader
from harness.emission.wording import words_of
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall
from tests.harness import honest_dialogues

SCHEMAS = profile_schemas("sn15")
READER = CallReader(SCHEMAS)
Given = tuple[str, dict[str, object]]
DICTATED: Given = ("find_product", {"q": "brass banker desk light", "page": 2})
OF_A_RESULT: Given = ("recommend_product", {"product_ids": "4410020078"})
HIT = {"product_id": "4410020078", "shop_id": "700100", "title": honest_dialogues.LONG_TITLE, "price": 1249.0}


def emitter_after(messages: Sequence[dict[str, object]], call: Given, emission: Emission | None = None) -> str:
    """The emitter of a call that the model writes as its answer to `messages`."""
    emission = emission or Emission(READER, honest_dialogues.QUERY)
    name, arguments = call[0], json.dumps(call[1])
    emission.complete([json.dumps(m) for m in messages], (EmittedCall(call_id="c", name=name, arguments=arguments),))
    return emission.attribute(name, arguments).emitter


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def searched() -> Emission:
    """After a search by the model that found one product."""
    emission = Emission(READER, honest_dialogues.QUERY)
    emission.returned("find_product", '{"q": "lamp"}', honest_dialogues.compact([HIT]), "llm")
    return emission


# -- puppets

ALL = set(honest_dialogues.FORMS)
BESIDE_ITS_NAME = ALL - {"prose, values alone", "prose, value first"}
SPELLED = BESIDE_ITS_NAME - {"prose without keys", "letters under each other", "two lines apart"}
# By what is dictated: the calls, the forms, and how many of all these pairs are not seen.
PUPPETS: dict[str, tuple[list[Given], set[str], int]] = {
    "values of the program's own": (
        [
            DICTATED,
            ("recommend_product", {"product_ids": "9910020078"}),
            ("calculate_voucher", {"product_prices": "1000,2500", "voucher_type": "fixed", "discount_value": 4000,
                                   "threshold": 12000, "budget": 7250}),
            ("find_product", {"q": f"brass banker {honest_dialogues.LONG_TITLE}"}),
            ("find_product", {"q": f"{honest_dialogues.LONG_TITLE} brass banker"}),
            ("find_product", {"q": f"brass {honest_dialogues.QUERY} banker"}),
            ("find_product", {"q": " ".join(f"brass{n} walnut{n}" for n in range(PASSAGE // 8))}),
        ],
        ALL, 0,
    ),
    "one short word": ([("find_product", {"q": "lantern"})], ALL - {"prose, values alone"}, 0),
    "the query's own words": ([("find_product", {"q": "reading lamp", "price": "0-1500"})], BESIDE_ITS_NAME, 3),
    "an id that a search returned": ([OF_A_RESULT], BESIDE_ITS_NAME, 3),
    "whole quotations": (
        [
            ("find_product", {"q": honest_dialogues.QUERY}),
            ("find_product", {"q": honest_dialogues.QUERY, "page": 2}),
            ("find_product", {"q": honest_dialogues.QUERY[16:90]}),
            ("find_product", {"q": honest_dialogues.LONG_TITLE}),
            ("find_product", {"q": honest_dialogues.LONG_TITLE, "page": 3}),
            ("find_product", {"q": f"{honest_dialogues.LONG_TITLE} {honest_dialogues.QUERY}"}),
        ],
        SPELLED, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PUPPETS)
def test_a_dictated_call_is_caught_in_every_form_but_few(what):
    calls, forms, unseen = PUPPETS[what]
    missed = [
        (form, call)
        for form in sorted(forms)
        for call in calls
        if emitter_after(honest_dialogues.FORMS[form](*call), call, searched()) != "echoed"
    ]
    assert len(missed) <= unseen, missed


def test_a_new_value_far_from_the_others_is_caught_and_one_of_the_query_is_not():
    padding = "please take your time and think about it well before you act " * 40
    call: Given = ("find_product", {"q": "brass banker desk light", "price": "350-720"})
    text = f"find_product {padding} q: brass banker desk light {padding} price: 350-720"
    assert emitter_after([user(text)], call) == "echoed"
    assert (
        emitter_after(
            [user(f"find_product {padding} q: {honest_dialogues.QUERY}")],
            ("find_product", {"q": honest_dialogues.QUERY}),
        )
        == "llm"
    )


# -- ordinary agents

PROMPTS = ("", f"\nTools: {SCHEMAS}", json.dumps(json.loads(SCHEMAS), indent=2))


@pytest.mark.parametrize("name", honest_dialogues.DIALOGUES)
def test_ordinary_agents_write_no_echo(name):
    is_native = name.startswith("native") or name == "own words quoted"
    for prompt in PROMPTS:
        emission = Emission(READER, honest_dialogues.QUERY)
        for number, step in enumerate(honest_dialogues.STEPS):
            messages = honest_dialogues.DIALOGUES[name](honest_dialogues.STEPS[:number])
            messages[0] = {**messages[0], "content": f"{messages[0]['content']}{prompt}"}
            calls = tuple(
                EmittedCall(call_id=f"call_{number}_{n}", name=tool, arguments=json.dumps(given))
                for n, (tool, given) in enumerate(step.calls)
            )
            said = step.thought if is_native else honest_dialogues.written(step)
            emission.complete([json.dumps(message, sort_keys=True) for message in messages], calls, said)
            for call, result in zip(calls, step.results, strict=True):
                emitter = emission.attribute(call.name, call.arguments).emitter
                assert emitter == "llm", (number, call)
                emission.returned(call.name, call.arguments, honest_dialogues.compact(result), emitter)


# -- what stays the program's, and what the model's


def test_a_forged_result_is_the_programs_and_a_recorded_one_is_not():
    result = '[{"title": "brass banker desk light 2"}]'
    shown = [user(honest_dialogues.QUERY), {"role": "tool", "tool_call_id": "c", "content": result}]
    assert emitter_after(shown, DICTATED) == "echoed"
    emission = Emission(READER, honest_dialogues.QUERY)
    emission.returned("find_product", '{"q": "lamp"}', result, "llm")
    assert emitter_after(shown, DICTATED, emission) == "llm"


@pytest.mark.parametrize("emitter", ["code", "echoed"])
def test_what_a_result_repeats_of_the_programs_arguments_is_the_programs(emitter):
    emission = Emission(READER, honest_dialogues.QUERY)
    arguments = json.dumps({"product_id": "1", "requirements": json.dumps({"brass banker desk light": 2})})
    result = json.dumps({"matched": False, "mismatches": ["brass banker desk light"]})
    emission.returned("check_product_match", arguments, result, emitter)
    quoted = [user("Look at this: " + result + " and use brass banker desk light with find_product on page 2.")]
    assert emitter_after(quoted, DICTATED, emission) == "echoed"


def dictated(sent: str, wrote: str, prompt: str) -> str:
    """Who wrote the search `sent`, after a prompt that dictated one, where the model wrote `wrote`."""
    emission = Emission(READER, honest_dialogues.QUERY)
    call = EmittedCall(call_id="c", name="find_product", arguments=json.dumps({"q": wrote}))
    emission.complete([json.dumps(user(prompt))], [call], "")
    return emission.attribute("find_product", json.dumps({"q": sent})).emitter


# What a search reads as a blank and a prompt as the beginning of an escape, before words that an escape can begin with.
@pytest.mark.parametrize("sent", ["brass\\nova lamp", "brass nova\\t lamp", "{brass} \\nova (lamp)"])
def test_a_dictated_search_is_an_echo_however_the_program_sends_what_the_tool_reads_the_same(sent):
    plain = " ".join(read_query(sent).split())
    assert dictated(sent, plain, f"find_product, q: {plain}") == "echoed"
    assert dictated(plain, sent, f"find_product, q: {plain}") == "echoed"  # the prompt asked the model to write it so
    assert dictated(plain, sent, f"find_product, q: {sent}") == "echoed"
    assert dictated(sent, plain, "Search for whatever suits.") == "llm"


def test_a_run_that_asks_for_more_searching_than_any_honest_one_has_echoes_alone(monkeypatch):
    crowd = user("find_product " + " ".join(f"w{n} w{n + 1} w{n + 2}" for n in range(60)) * 60)
    call: Given = ("find_product", {"q": "gooseneck lantern"})
    assert emitter_after([crowd], call) == "llm"
    monkeypatch.setattr(echoes, "_BUDGET", 1_000)
    assert emitter_after([crowd], call) == "echoed"


# -- words


def emitter_of(style: honest_dialogues.Style, extra: tuple[honest_dialogues.Message, ...] = ()) -> str:
    emission = Emission(READER, honest_dialogues.QUERY)
    for messages, thought, (name, given), result in style.said:
        call = EmittedCall(call_id="c0", name=name, arguments=json.dumps(given))
        emission.complete([json.dumps(message) for message in (*extra, *messages)], (call,), thought)
        emitter = emission.attribute(name, call.arguments).emitter
        assert emitter == "llm"
        emission.returned(name, call.arguments, honest_dialogues.compact(result), emitter)
    return emitter_after([*extra, *style.messages], style.call, emission)


@pytest.mark.parametrize("name", honest_dialogues.STYLES)
def test_prompts_that_look_like_a_spelled_call_are_no_echo(name):
    assert emitter_of(honest_dialogues.STYLES[name]) == "llm"
    assert emitter_of(honest_dialogues.STYLES[name], ({"role": "system", "content": f"Tools: {SCHEMAS}"},)) == "llm"


SAME = [
    ("Red-Lamp", "red lamp"), ("r\u200bed", "red"), ("ＲＥＤ", "red"), ("caf\u00e9", "CAFE"), ("&quot;a&quot;", '"a"'),
    ("%2572ed", "red"), ("\\u0072ed", "red"), ("\\\\nred", "red"), ("1,249.0", "1 249"), ("899.50", "899.5"),
    ("v1.10.0", "v1 10 0"), ("None", "null"), ("\\162ed", "red"), ("\x1b[31mred\x1b[0m", "red"), ("rеd", "red"),
    ("<b>r</b><b>ed</b>", "r ed"),
    ("\u0585\u0578\u03f2\u0269\u04bd\u01c0\uab47\u03b7", "oncielrn"), ("\u03b2\u04cf\u0432\u03c4\u03bc", "blbtm"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), SAME)
def test_spellings_of_the_same_words(left, right):
    assert words_of(left) == words_of(right)


def test_a_completion_that_copied_its_request_clears_nothing():
    emission = Emission(READER, honest_dialogues.QUERY)
    plan = f"First find_product with q brass banker desk light and page 2, since it is {'very ' * 9}nice."
    emission.complete([json.dumps(user(plan))], (), plan)
    later = [user(honest_dialogues.QUERY), {"role": "assistant", "content": plan}, user("Go on.")]
    assert emitter_after(later, DICTATED, emission) == "echoed"


@pytest.mark.parametrize("form", sorted(honest_dialogues.OF_WORDS))
def test_a_search_of_several_words_is_caught_word_by_word_and_set_together(form):
    for text in ("brass banker desk light", "walnut gooseneck lantern", "cabinet edison bulb dimmer"):
        call: Given = ("find_product", {"q": text})
        assert emitter_after(honest_dialogues.OF_WORDS[form](*call), call) == "echoed"

"""Echoes: what a program dictates is caught in any spelling, and ordinary agents stay the model's."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from harness.catalogue.requests import read_query
from harness.emission import dictation
from harness.emission.attribution import EMISSION, FIRST_EMISSION, Emission, emitters_of, version_of
from harness.emission.call_reader import CallReader
from harness.tools.registry import profile_schemas
from harness.trace import EmittedCall, EvaluationBody
from tests.harness.emission_echo_generator import PUPPET_CALLS, is_native
from tests.harness.honest_dialogues import DIALOGUES, QUERY, STEPS, compact, written
from tests.harness.puppet_forms import FORMS, MISSED, MISSED_OF_WORDS, OF_WORDS
from tests.judge.bodies import body_of, completion, search

SCHEMAS = profile_schemas("sn15")
READER = CallReader(SCHEMAS)
Given = tuple[str, dict[str, object]]
DICTATED: Given = ("find_product", {"q": "brass banker desk light", "page": 2})
NEAR_QUERY: Given = ("find_product", {"q": "reading lamp", "price": "0-1500"})
ONE_WORD: Given = ("find_product", {"q": "lantern"})
OF_A_RESULT: Given = ("recommend_product", {"product_ids": "4410020078"})


def emitter_after(messages: Sequence[dict[str, object]], call: Given, emission: Emission | None = None) -> str:
    """The emitter of a call that the model writes as its answer to `messages`."""
    emission = emission or Emission(READER, QUERY)
    name, arguments = call[0], json.dumps(call[1])
    emission.complete([json.dumps(m) for m in messages], (EmittedCall(call_id="c", name=name, arguments=arguments),))
    return emission.attribute(name, arguments).emitter


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


NEW_WORDS = ("walnut", "brass", "banker", "gooseneck", "olive", "velvet", "teapot", "garden")


# -- puppets


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", [*PUPPET_CALLS.values(), DICTATED], ids=lambda call: call[0])
def test_a_call_with_values_of_the_programs_own_is_caught_in_every_form(form, call):
    assert emitter_after(FORMS[form](*call), call) == "echoed"


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"prose, values alone"}))
def test_a_call_with_one_short_word_of_the_programs_own_is_caught_beside_its_tools_name(form):
    assert emitter_after(FORMS[form](*ONE_WORD), ONE_WORD) == "echoed"


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"prose, values alone", "prose, value first"}))
def test_a_call_in_the_querys_own_words_is_caught_where_it_is_spelled_out(form):
    assert emitter_after(FORMS[form](*NEAR_QUERY), NEAR_QUERY) == "echoed"


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"prose, values alone", "prose, value first"}))
def test_an_id_that_a_search_returned_is_caught_where_the_recommendation_is_spelled_out(form):
    emission = Emission(READER, QUERY)
    emission.returned("find_product", '{"q": "lamp"}', '[{"product_id": "4410020078"}]', "llm")
    assert emitter_after(FORMS[form](*OF_A_RESULT), OF_A_RESULT, emission) == "echoed"


@pytest.mark.parametrize("form", OF_WORDS)
@pytest.mark.parametrize("text", ["brass banker desk light", "walnut gooseneck lantern", "cabinet edison bulb dimmer"])
def test_a_search_of_several_words_is_caught_word_by_word_and_set_together(form, text):
    call = ("find_product", {"q": text})
    assert emitter_after(OF_WORDS[form](*call), call) == "echoed"


def test_words_of_the_programs_in_clauses_of_their_own_are_no_search():
    prompt = f"{QUERY}\nSellers say crimson for red. Some call a lamp a light. Metal is often brass."
    assert emitter_after([user(prompt)], ("find_product", {"q": "crimson brass light"})) == "llm"


@pytest.mark.parametrize("form", [*MISSED.values(), *MISSED_OF_WORDS.values()], ids=[*MISSED, *MISSED_OF_WORDS])
def test_a_coded_hint_is_not_seen_and_said_to_be(form):
    assert emitter_after(form(*DICTATED), DICTATED) == "llm"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.lists(st.sampled_from(NEW_WORDS), min_size=2, unique=True),
    st.integers(1, 5),
)
def test_no_form_hides_a_search_of_several_new_words(form, words, page):
    call = ("find_product", {"q": " ".join(words), "page": page})
    assert emitter_after(FORMS[form](*call), call) == "echoed"


def test_the_same_call_with_a_word_changed_by_the_model_is_the_models():
    assert emitter_after(FORMS["YAML"](*DICTATED), ("find_product", {"q": "steel bracket"})) == "llm"


# -- ordinary agents

PROMPTS = {
    "as it is": "",
    "with schemas": f"\nTools: {SCHEMAS}",
    "with indented schemas": json.dumps(json.loads(SCHEMAS), indent=2),
}


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", DIALOGUES)
def test_ordinary_agents_write_no_echo(name, prompt):
    emission = Emission(READER, QUERY)
    for number, step in enumerate(STEPS):
        messages = DIALOGUES[name](STEPS[:number])
        messages[0] = {**messages[0], "content": f"{messages[0]['content']}{PROMPTS[prompt]}"}
        calls = tuple(
            EmittedCall(call_id=f"call_{number}_{n}", name=tool, arguments=json.dumps(given))
            for n, (tool, given) in enumerate(step.calls)
        )
        said = step.thought if is_native(name) else written(step)
        emission.complete([json.dumps(message, sort_keys=True) for message in messages], calls, said)
        for call, result in zip(calls, step.results, strict=True):
            emitter = emission.attribute(call.name, call.arguments).emitter
            assert emitter == "llm", (number, call)
            emission.returned(call.name, call.arguments, compact(result), emitter)


# -- what stays the program's


def test_a_completion_that_copied_its_request_clears_nothing():
    emission = Emission(READER, QUERY)
    plan = f"First find_product with q brass banker desk light and page 2, since it is {'very ' * 9}nice."
    emission.complete([json.dumps(user(plan))], (), plan)
    later = [user(QUERY), {"role": "assistant", "content": plan}, user("Go on.")]
    assert emitter_after(later, DICTATED, emission) == "echoed"


def test_a_plan_of_the_models_own_stays_the_models_however_it_is_quoted():
    emission = Emission(READER, QUERY)
    emission.complete([json.dumps(user(QUERY))], (), "I could look for a brass banker desk light on page 2.")
    assert emitter_after([user("Your plan: brass banker desk light, page 2")], DICTATED, emission) == "llm"


@pytest.mark.parametrize("emitter", ["code", "echoed"])
@pytest.mark.parametrize(
    "leaves", [{"brass banker desk light": 2}, dict.fromkeys(["brass", "banker", "desk", "light"], "2")]
)
def test_what_a_result_repeats_of_the_programs_arguments_is_the_programs(emitter, leaves):
    emission = Emission(READER, QUERY)
    arguments = json.dumps({"product_id": "1", "requirements": json.dumps(leaves)})
    result = json.dumps({"matched": False, "matches": [], "mismatches": list(leaves)})
    emission.returned("check_product_match", arguments, result, emitter)
    quoted = [user("Look at this: " + result + " and use brass banker desk light with find_product on page 2.")]
    assert emitter_after(quoted, DICTATED, emission) == "echoed"


def test_a_forged_result_is_the_programs_and_a_recorded_one_is_not():
    shown = [user(QUERY), {"role": "tool", "tool_call_id": "c", "content": '[{"title": "brass banker desk light 2"}]'}]
    assert emitter_after(shown, DICTATED) == "echoed"
    emission = Emission(READER, QUERY)
    emission.returned("find_product", '{"q": "lamp"}', '[{"title": "brass banker desk light 2"}]', "llm")
    assert emitter_after(shown, DICTATED, emission) == "llm"


def test_a_recorded_call_cannot_lend_its_name_to_other_arguments():
    emission = Emission(READER, QUERY)
    emission.complete(
        [json.dumps(user(QUERY))], (EmittedCall(call_id="c", name="find_product", arguments='{"q":"x"}'),)
    )
    assert emitter_after(FORMS["forged calls"](*DICTATED), DICTATED, emission) == "echoed"


@pytest.mark.parametrize("status", ["success", "failure"])
def test_a_call_that_says_nothing_of_its_own_is_an_echo_only_where_it_is_all_a_message_says(status):
    stop: Given = ("terminate", {"status": status})
    order = json.dumps({"name": "terminate", "arguments": {"status": status}})
    assert emitter_after([user(f"Repeat this: {order}")], stop) == "echoed"
    assert emitter_after([user(f"{'Think well before you act. ' * 40} When all is done: {order}")], stop) == "llm"


HIDDEN: dict[str, Given] = {
    "in a name without a value": ("find_product", {"q": '{"brass banker desk light": ""}'}),
    "in more brackets than are read": ("find_product", {"q": f'{"[" * 34}"brass banker desk light"{"]" * 34}'}),
    "in JSON inside the searches": (
        "find_products_in_same_shop",
        {"product_queries": json.dumps([{"q": '{"brass banker desk light": ""}'}])},
    ),
    "before a name that differs by a blank": ("find_product", {"q": "brass banker desk light", "q ": "lamp"}),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_words_that_a_tool_reads_are_an_echo_wherever_in_the_call_they_stand(way):
    name, arguments = HIDDEN[way]
    order = json.dumps({"name": name, "arguments": arguments})
    assert emitter_after([user(f"{'Take care with every word of it. ' * 9}{order}")], HIDDEN[way]) == "echoed"


# -- versions


def test_a_body_names_its_rule_and_one_that_names_none_is_of_the_first():
    old = body_of(completion(1, "I search."), search(0, 1))
    assert b'"emission"' not in canonical_bytes(old)
    assert version_of(old) == FIRST_EMISSION
    new = msgspec.structs.replace(old, emission=EMISSION)
    assert b'"emission":"emission/4"' in canonical_bytes(new)
    assert msgspec.json.decode(canonical_bytes(new), type=EvaluationBody) == new


def test_emitters_are_attributed_again_by_the_version_that_the_body_names():
    prompt = json.dumps(user("The shopper will love brass banker desk light. Go and look for it."))
    call = EmittedCall(call_id="c", name="find_product", arguments='{"q":"brass banker desk light"}')
    made = body_of(
        completion(1, "", request=(0,), calls=(call,)), search(0, 1, arguments=call.arguments), messages=(prompt,)
    )
    assert emitters_of(made, READER) == ("llm",)
    for later in ("emission/2", "emission/3", EMISSION):
        assert emitters_of(msgspec.structs.replace(made, emission=later), READER) == ("echoed",)
    with pytest.raises(ArenaError, match="V2050"):
        emitters_of(msgspec.structs.replace(made, emission="emission/99"), READER)


def test_a_forged_argument_passes_only_by_the_versions_that_took_it_for_the_models():
    wrote = EmittedCall(call_id="c", name="recommend_product", arguments='{"product_ids":"1"}')
    sent = search(0, 1, name=wrote.name, arguments='{"product_ids":"2","product_ids ":"1"}')
    body = body_of(completion(1, "", request=(0,), calls=(wrote,)), sent, messages=(json.dumps(user(QUERY)),))
    by_version = {
        version: emitters_of(msgspec.structs.replace(body, emission=version), READER)
        for version in ("emission/1", "emission/2", "emission/3", EMISSION)
    }
    assert by_version == {"emission/1": ("llm",), "emission/2": ("llm",), "emission/3": ("code",), EMISSION: ("code",)}


# What a search reads as a blank and a prompt as the beginning of an escape, before words that an escape can begin with.
BLANKED = ("brass\\nova lamp", "brass nova\\t lamp", "brass\\ nova \\lamp", "brass &nova lamp", "{brass} \\nova (lamp)")


def dictated(sent: str, wrote: str, version: str = EMISSION, prompt: str = "find_product, q: brass nova lamp") -> str:
    """Who wrote the search `sent`, after a prompt that dictated one, where the model wrote `wrote`."""
    emission = Emission(READER, QUERY, version=version)
    call = EmittedCall(call_id="c", name="find_product", arguments=json.dumps({"q": wrote}))
    emission.complete([json.dumps(user(prompt))], [call], "")
    return emission.attribute("find_product", json.dumps({"q": sent})).emitter


@pytest.mark.parametrize("sent", BLANKED)
def test_a_dictated_search_is_an_echo_however_the_program_sends_what_the_tool_reads_the_same(sent):
    plain = " ".join(read_query(sent).split())
    assert dictated(sent, plain, prompt=f"find_product, q: {plain}") == "echoed"
    assert dictated(plain, sent, prompt=f"find_product, q: {plain}") == "echoed"  # the model was told to write it so
    assert dictated(sent, sent, prompt=f"find_product, q: {plain}") == "echoed"
    assert dictated(plain, sent, prompt=f"find_product, q: {sent}") == "echoed"
    assert dictated(sent, plain, prompt="Search for whatever suits.") == "llm"


def test_only_the_third_version_looked_for_a_call_as_it_was_sent_alone():
    sent, wrote = BLANKED[0], "brass nova lamp"
    assert [dictated(sent, wrote, version) for version in ("emission/2", "emission/3", EMISSION)] == [
        "code",
        "llm",
        "echoed",
    ]


@given(
    st.lists(st.sampled_from(["brass", "nova", "torch", "raven", "xylo", "u0041", "lamp"]), min_size=3, max_size=5),
    st.lists(st.text(alphabet=' +-&|!(){}[]^"~*?:\\/', min_size=1, max_size=3), min_size=6, max_size=6),
)
def test_query_syntax_changes_no_emitter(words, between):
    sent = "".join(part for pair in zip(between, words, strict=False) for part in pair)
    plain = " ".join(words)
    told = f"find_product, q: {plain}"
    assert dictated(sent, plain, prompt=told) == dictated(plain, plain, prompt=told) == "echoed"


# -- cost


def test_a_run_that_asks_for_more_searching_than_any_honest_one_has_echoes_alone(monkeypatch):
    values = [f"w{n} w{n + 1} w{n + 2}" for n in range(60)]
    crowd = user("find_product " + " ".join(values) * 60)
    call = ("find_product", {"q": ",".join((*values, "gooseneck lantern"))})
    assert emitter_after([crowd], call) == "llm"
    monkeypatch.setattr(dictation, "_BUDGET", 1_000_000)
    assert emitter_after([crowd], call) == "echoed"

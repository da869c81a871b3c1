"""The echo share: what the program put into a request, whatever role it claims, and nothing that was recorded."""

from __future__ import annotations

import json

import msgspec
import pytest

from harness.emission import EMISSION
from harness.trace import EvaluationBody, Event
from judge.echo import echoes_of
from tests.judge.bodies import COMPARED, PLAN, PRODUCTS, QUERY, body_of, completion, search

THOUGHT = (
    "I compared both scarves with great care and the second one is cheaper and fits the wish much better than the first"
)


def turn(role: str, content: str) -> str:
    return json.dumps({"role": role, "content": content})


def shares(*events: Event, messages: tuple[str, ...]) -> dict[int, int]:
    body: EvaluationBody = body_of(*events, messages=messages)
    return {step: echo.share_e4 for step, echo in echoes_of(msgspec.structs.replace(body, emission=EMISSION)).items()}


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool", "developer"])
@pytest.mark.parametrize("spell", [str, str.upper, lambda text: text.replace(" ", "\u200b \n"), json.dumps])
def test_reasoning_that_the_program_planted_is_an_echo_whatever_role_it_claims(role, spell):
    assert shares(completion(1, THOUGHT, request=(0,)), messages=(turn(role, spell(THOUGHT)),))[1] == 10_000


def test_bodies_of_the_first_version_are_counted_by_role_as_they_were():
    planted = body_of(completion(1, THOUGHT, request=(0,)), messages=(turn("assistant", THOUGHT),))
    assert echoes_of(planted)[1].share_e4 == 0
    assert (
        echoes_of(body_of(completion(1, THOUGHT, request=(0,)), messages=(turn("user", THOUGHT),)))[1].share_e4
        == 10_000
    )


def test_a_dialogue_resent_in_one_message_is_the_models_own_words_and_the_tools():
    dialogue = f"{QUERY}\n<think>{PLAN}</think>\n<obs>{json.dumps(PRODUCTS, indent=2)}</obs>\nGo on."
    again = f"{PLAN} {COMPARED}"
    found = shares(
        completion(1, PLAN, request=(0,)), search(0, 1), completion(2, again, request=(1,)),
        messages=(turn("user", QUERY), turn("user", dialogue)),
    )  # fmt: skip
    assert found == {1: 0, 2: 0}


def test_what_a_completion_copied_stays_the_programs_when_it_is_sent_back():
    found = shares(
        completion(1, THOUGHT, request=(0,)), completion(2, THOUGHT, request=(1,)),
        messages=(turn("user", THOUGHT), turn("assistant", THOUGHT)),
    )  # fmt: skip
    assert found == {1: 10_000, 2: 10_000}


@pytest.mark.parametrize(("emitter", "share"), [("code", 10_000), ("echoed", 10_000), ("llm", 10_000)])
def test_what_a_result_repeats_of_the_programs_arguments_is_no_data(emitter, share):
    called = search(
        0, 0, name="check_product_match", arguments=json.dumps({"requirements": json.dumps({THOUGHT: "1"})}),
        result=json.dumps({"mismatches": [THOUGHT]}), emitter=emitter,
    )  # fmt: skip
    messages = (turn("user", json.dumps({"mismatches": [THOUGHT]})),)
    assert shares(called, completion(1, THOUGHT, request=(0,)), messages=messages)[1] == share

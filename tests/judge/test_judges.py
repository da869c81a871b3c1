"""What the scripted judge cites and the client sends; then what an endpoint may do to the client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from judge.citations import check_citations
from judge.client import OpenAIJudge, RetryPolicy, judge_messages
from judge.panel import judge_body
from judge.parse import RefusedReplyError, parse_reply
from judge.render import render
from judge.rubric import GATES, QUALITY_LEVELS_E4, prompt_text
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from tests.judge.bodies import ANALYSED, CITED, COMPARED, PLAN, RUBRIC, VAGUE, body_of, completion, episode, search
from tests.judge.endpoint import Answer, ScriptedEndpoint, chat, serving

BODIES = tuple(episode(words) for words in (VAGUE, ANALYSED, CITED, COMPARED))
TRACES = {render(body).text: render(body) for body in BODIES}


def client(base_url: str, pauses: list[float] | None = None, **patience: int) -> OpenAIJudge:
    kept = RetryPolicy(**{"timeout_ms": 5_000, **patience})
    sleep = [].append if pauses is None else pauses.append
    return OpenAIJudge(model="scripted-judge", base_url=base_url, patience=kept, sleep=sleep)


@given(
    st.lists(st.sampled_from([VAGUE, ANALYSED, CITED, COMPARED]), min_size=1, max_size=4, unique=True),
    st.integers(0, 60),
    st.integers(8, 40),
)
def test_the_scripted_judge_cites_no_words_that_the_program_planted(said, first, size):
    words = " ".join(said)
    planted = " ".join(words.split()[first : first + size])
    messages = tuple(json.dumps({"role": "user", "content": text}) for text in ("Go on.", planted))
    trace = render(body_of(completion(1, PLAN, request=(0,)), search(0, 1), completion(2, words), messages=messages))
    check_citations(parse_reply(ScriptedJudge().opine(trace, RUBRIC).text), trace)


def test_the_client_sends_the_pinned_prompt_at_temperature_zero():
    endpoint = ScriptedEndpoint(TRACES)
    with serving(endpoint) as base_url:
        reply = client(base_url).opine(render(episode(CITED)), RUBRIC, ("the quote was false",))
    (request,) = endpoint.requests
    assert request["temperature"] == 0 and request["model"] == "scripted-judge"
    assert request["messages"][0] == {"role": "system", "content": prompt_text("reasoning/1")}
    assert render(episode(CITED)).text in request["messages"][1]["content"]
    assert "the quote was false" in request["messages"][2]["content"]
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)
    with pytest.raises(ArenaError, match="V2030"):
        judge_messages(render(episode(CITED)), msgspec.structs.replace(RUBRIC, prompt_sha256="0" * 64))


# -- whatever an endpoint does, a verdict is given or owed, and none becomes a zero


def answers(status: int, value: object, headers: dict[str, str] | None = None) -> Callable[[Any], Answer]:
    return lambda _: (status, value, headers or {})


CUT_OFF = chat('{"gates": {')
CUT_OFF["choices"][0]["finish_reason"] = "length"


@pytest.mark.parametrize(
    "fault",
    [
        answers(200, chat("")),
        answers(200, CUT_OFF),
        answers(200, chat("I think it is fine.")),
        answers(200, b"<html>"),
        answers(200, None),
        answers(500, {"error": "oops"}),
    ],
    ids=["empty", "cut off", "no JSON", "HTML", "dropped", "500"],
)
def test_an_endpoint_that_stumbles_is_asked_again(fault):
    with serving(ScriptedEndpoint(TRACES, fault, fault)) as base_url:
        verdict = judge_body(BODIES[3], RUBRIC, [client(base_url)])
    assert isinstance(verdict, Verdict) and verdict.quality_e4 == 9_000


@pytest.mark.parametrize(("fault", "code"), [(answers(500, {}), "U3020"), (answers(200, chat("so")), "U3021")])
def test_a_verdict_that_no_attempt_gave_is_owed(fault, code):
    with serving(fault) as base_url:
        verdict = judge_body(BODIES[3], RUBRIC, [client(base_url)])
    assert isinstance(verdict, UnscoredVerdict) and verdict.failure.code == code


def test_pauses_are_the_endpoints_own_where_it_names_them_and_none_is_an_hour():
    busy = {"error": "slow down"}
    faults = [answers(429, busy, {"retry-after": "2"}), answers(429, busy), answers(429, busy)]
    pauses: list[float] = []
    with serving(ScriptedEndpoint(TRACES, *faults)) as base_url:
        assert client(base_url, pauses).opine(render(BODIES[3]), RUBRIC).text
    assert pauses == [2.0, 4.0, 8.0]
    with serving(answers(429, busy, {"retry-after": "3600"})) as base_url, pytest.raises(ArenaError, match="U3020"):
        client(base_url).opine(render(BODIES[3]), RUBRIC)


def test_what_an_endpoint_refuses_is_left_out_and_remembered():
    scripted = ScriptedEndpoint(TRACES)

    def refusing(request: dict[str, Any]) -> Answer:
        refused = {"response_format", "max_tokens"} & request.keys()
        answer = scripted(request)
        return (400, {"error": {"message": f"{refused} is not supported"}}, {}) if refused else answer

    with serving(refusing) as base_url:
        judge = client(base_url, reasoning_tokens=1_000)
        for body in BODIES[:2]:
            judge.opine(render(body), RUBRIC)
    assert len(scripted.requests) == 5 and scripted.requests[-1]["max_completion_tokens"] == 4_072


# -- replies are read strictly, and every refusal says why


def reply(held: int, **changes: object) -> str:
    fields = {
        "gates": {gate: place < held for place, gate in enumerate(GATES)},
        "quality": QUALITY_LEVELS_E4[held] / 10_000,
        "citations": [{"span": 2, "quote": "a quote long enough", "gate": "data_cited"}],
        "explanation": "why",
    }
    return json.dumps(fields | changes)


@pytest.mark.parametrize("held", range(5))
def test_a_reply_of_the_agreed_form_gives_the_quality_of_its_gates(held):
    assert parse_reply(reply(held)).quality_e4 == QUALITY_LEVELS_E4[held]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not one JSON object"),
        (reply(2) + reply(4), "not one JSON object"),
        ("x" * 401 + reply(2), "not one JSON object"),
        (reply(2) + " That is all.", "not one JSON object"),
        ("<think>a</think>b</think>" + reply(2), "not one JSON object"),
        ('one {"quality": 0.9} </think>' + reply(2), "another form"),
        (reply(2).replace('"quality"', '"quality": 0.9, "quality"'), "twice"),
        ('{"extra": ' + "[" * 5_000 + "]" * 5_000 + "}", "not one JSON object"),
        ("[]", "another form"),
        (reply(2, quality="0.5"), "another form"),
        (reply(2, citations=[{"span": "2", "quote": "x", "gate": "data_cited"}]), "another form"),
        (reply(2, quality=0.6), "not one of"),
        (reply(2, quality=0.9), "contradicts"),
    ],
)
def test_every_other_reply_is_refused_with_its_reason(text, reason):
    with pytest.raises(RefusedReplyError, match=reason):
        parse_reply(text)


@pytest.mark.parametrize(
    "text",
    [
        "I think: {}",
        "<think>Is it {good}? Yes.</think>\n{}",
        "so it is.\n</think>\n{}",
        "<thinking>hm</thinking>Here it is:\n```json\n{}\n```",
        "```\n{}\n```",
    ],
)
def test_a_thought_a_sentence_or_a_fence_around_one_object_is_passed_over(text):
    assert parse_reply(text.replace("{}", reply(3))).quality_e4 == 7_000


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with pytest.raises(RefusedReplyError):
        parse_reply(text)


def test_a_quotation_of_a_tag_does_not_end_the_reply():
    citations = [{"span": 2, "quote": "it said </think> and went on", "gate": "data_cited"}]
    assert parse_reply(reply(3, citations=citations)).quality_e4 == 7_000

"""What every judge promises, held by one suite over both adapters; then what the client alone promises."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from foundation.errors import ArenaError
from judge.citations import check_citations, reply_schema
from judge.client import OpenAIJudge, RetryPolicy, judge_messages
from judge.panel import judge_body
from judge.parse import REPLY_SCHEMA, parse_reply
from judge.port import Judge
from judge.prompts import prompt_sha256, prompt_text
from judge.render import render
from judge.rubric import GATES, REASONING_1_PROMPT_SHA256, REASONING_2_PROMPT_SHA256
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from tests.judge.bodies import ANALYSED, CITED, COMPARED, RUBRIC, VAGUE, episode
from tests.judge.endpoint import chat, serving

TRACES = {render(episode(words)).text: render(episode(words)) for words in (VAGUE, ANALYSED, CITED, COMPARED)}


def scripted_answer(request: dict[str, Any]) -> tuple[int, Any]:
    """The scripted judge behind HTTP: finds the trace in the messages it was sent."""
    question = request["messages"][1]["content"]
    trace = next(trace for text, trace in TRACES.items() if text in question)
    return 200, chat(ScriptedJudge().opine(trace, RUBRIC).text)


@pytest.fixture(params=["scripted", "openai"])
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    if request.param == "scripted":
        yield ScriptedJudge()
        return
    with serving(scripted_answer) as base_url:
        yield OpenAIJudge(model="scripted-judge", base_url=base_url, sleep=lambda _: None)


def test_the_model_is_named_as_the_rubric_names_it(judge):
    assert judge.model == "scripted-judge"


@pytest.mark.parametrize("trace", TRACES.values(), ids=["vague", "analysed", "cited", "compared"])
def test_a_reply_parses_and_its_citations_are_verbatim(judge, trace):
    parsed = parse_reply(judge.opine(trace, RUBRIC).text)
    check_citations(parsed, trace)


def test_equal_traces_get_equal_replies(judge):
    trace = render(episode(COMPARED))
    assert judge.opine(trace, RUBRIC).text == judge.opine(trace, RUBRIC, ("refused once",)).text


def test_better_reasoning_never_gets_a_lower_quality(judge):
    qualities = [judge_body(episode(words), RUBRIC, [judge]).quality_e4 for words in (VAGUE, ANALYSED, CITED, COMPARED)]
    assert qualities == sorted(qualities) and len(set(qualities)) == 4


def test_a_judge_serves_several_threads_at_once(judge):
    verdicts: list[object] = []
    threads = [
        threading.Thread(target=lambda: verdicts.append(judge_body(episode(CITED), RUBRIC, [judge]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [verdicts[0]] * 4


def asked(*answers: tuple[int, Any]) -> tuple[list[dict[str, Any]], Any]:
    requests: list[dict[str, Any]] = []
    left = list(answers)

    def answer(request: dict[str, Any]) -> tuple[int, Any]:
        requests.append(request)
        return left.pop(0) if len(left) > 1 else left[0]

    return requests, answer


def client(base_url: str, slept: list[float] | None = None, attempts: int = 3) -> OpenAIJudge:
    pauses: list[float] = [] if slept is None else slept
    return OpenAIJudge(
        model="m", base_url=base_url, patience=RetryPolicy(attempts=attempts, timeout_ms=5_000), sleep=pauses.append
    )


def test_the_client_sends_the_pinned_prompt_at_temperature_zero():
    requests, answer = asked((200, chat("{}")))
    with serving(answer) as base_url:
        reply = client(base_url).opine(render(episode(CITED)), RUBRIC, ("the quote was false",))
    (request,) = requests
    assert request["temperature"] == 0 and request["model"] == "m"
    assert request["messages"][0] == {"role": "system", "content": prompt_text("reasoning/2")}
    assert render(episode(CITED)).text in request["messages"][1]["content"]
    assert "the quote was false" in request["messages"][2]["content"]
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)


def test_the_schema_offers_quotes_where_they_are_chosen_by_it():
    requests, answer = asked((200, chat("{}")))
    trace = render(episode(CITED))
    with serving(answer) as base_url:
        patience = RetryPolicy(is_quoting_by_schema=True)
        OpenAIJudge(model="m", base_url=base_url, patience=patience).opine(trace, RUBRIC)
        client(base_url).opine(trace, RUBRIC)
    sent = [request["response_format"]["json_schema"]["schema"] for request in requests]
    assert sent == [reply_schema(trace), REPLY_SCHEMA]


def test_transport_faults_are_tried_again_with_growing_pauses():
    slept: list[float] = []
    requests, answer = asked((503, {"error": "busy"}), (429, {"error": "slow"}), (200, chat("{}")))
    with serving(answer) as base_url:
        assert client(base_url, slept).opine(render(episode(CITED)), RUBRIC).text == "{}"
    assert len(requests) == 3 and slept == [2.0, 4.0]


@pytest.mark.parametrize("broken", [(503, {}), (200, {"choices": []}), (200, b"not json")])
def test_an_endpoint_that_stays_broken_is_an_upstream_fault(broken):
    requests, answer = asked(broken)
    with serving(answer) as base_url, pytest.raises(ArenaError) as caught:
        client(base_url).opine(render(episode(CITED)), RUBRIC)
    assert caught.value.failure.code == "U3020"
    assert len(requests) == 3


def test_a_refused_key_is_not_tried_again():
    requests, answer = asked((401, {"error": "no"}))
    with serving(answer) as base_url, pytest.raises(ArenaError) as caught:
        client(base_url).opine(render(episode(CITED)), RUBRIC)
    assert caught.value.failure.code == "U3020"
    assert len(requests) == 1


def test_nobody_at_home_is_an_upstream_fault_and_the_verdict_is_owed():
    with serving(lambda _: (200, chat("{}"))) as base_url:
        pass
    rubric = msgspec.structs.replace(RUBRIC, models=("m",))
    verdict = judge_body(episode(CITED), rubric, [client(base_url)])
    assert isinstance(verdict, UnscoredVerdict)
    assert verdict.failure.code == "U3020"


def test_an_empty_answer_is_a_refused_reply_and_no_crash():
    _, answer = asked((200, chat(None)))
    rubric = msgspec.structs.replace(RUBRIC, models=("m",))
    with serving(answer) as base_url:
        verdict = judge_body(episode(CITED), rubric, [client(base_url)])
    assert isinstance(verdict, UnscoredVerdict)
    assert verdict.failure.code == "U3021"


def test_a_rubric_that_pins_another_prompt_is_refused_before_anything_is_sent():
    rubric = msgspec.structs.replace(RUBRIC, prompt_sha256="0" * 64)
    with pytest.raises(ArenaError) as caught:
        judge_messages(render(episode(CITED)), rubric)
    assert caught.value.failure.code == "V2030"


def test_the_pinned_hash_is_that_of_the_shipped_prompt():
    assert prompt_sha256("reasoning/1") == REASONING_1_PROMPT_SHA256
    assert prompt_sha256("reasoning/2") == REASONING_2_PROMPT_SHA256


@pytest.mark.parametrize("rubric_id", ["reasoning/1", "reasoning/2"])
def test_the_prompt_names_every_gate_and_level(rubric_id):
    text = prompt_text(rubric_id)
    assert all(gate in text for gate in GATES)
    assert all(level in text for level in ("0.1", "0.3", "0.5", "0.7", "0.9"))


def test_verdicts_by_both_adapters_are_the_same():
    with serving(scripted_answer) as base_url:
        remote = judge_body(episode(COMPARED), RUBRIC, [OpenAIJudge(model="scripted-judge", base_url=base_url)])
    assert isinstance(remote, Verdict)
    assert remote == judge_body(episode(COMPARED), RUBRIC, [ScriptedJudge()])

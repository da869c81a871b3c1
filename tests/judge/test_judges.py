"""What every judge promises, held by one suite over both adapters; then what the client alone promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from foundation.errors import ArenaError
from judge.citations import check_citations
from judge.client import OpenAIJudge, RetryPolicy, judge_messages
from judge.parse import parse_reply
from judge.render import Judge, render
from judge.rubric import prompt_text
from judge.scripted import ScriptedJudge
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


@pytest.mark.parametrize("trace", TRACES.values(), ids=["vague", "analysed", "cited", "compared"])
def test_a_reply_parses_and_its_citations_are_verbatim(judge, trace):
    parsed = parse_reply(judge.opine(trace, RUBRIC).text)
    check_citations(parsed, trace)


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
    assert request["messages"][0] == {"role": "system", "content": prompt_text("reasoning/1")}
    assert render(episode(CITED)).text in request["messages"][1]["content"]
    assert "the quote was false" in request["messages"][2]["content"]
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)


def test_a_rubric_that_pins_another_prompt_is_refused_before_anything_is_sent():
    rubric = msgspec.structs.replace(RUBRIC, prompt_sha256="0" * 64)
    with pytest.raises(ArenaError) as caught:
        judge_messages(render(episode(CITED)), rubric)
    assert caught.value.failure.code == "V2030"

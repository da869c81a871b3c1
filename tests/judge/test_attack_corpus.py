"""A corpus of attacks, put into every place that an agent can write to: none lifts a quality above its evidence.

`attacks.jsonl` holds the texts by kind. Two judges read them: the scripted one, and one that obeys whatever it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness.trace import EvaluationBody
from judge.citations import ceiling_e4, is_verbatim
from judge.panel import judge_body
from judge.render import Judge, JudgeReply, RenderedTrace, render
from judge.scripted import ScriptedJudge
from judge.verdict import Verdict
from tests.judge.bodies import ANALYSED, PLAN, PRODUCTS, QUERY, RUBRIC, VAGUE, body_of, completion, episode, search
from tests.judge.test_ceiling import MostGullibleJudge

ATTACKS = [
    json.loads(line)["text"] for line in Path(__file__).with_name("attacks.jsonl").read_text("utf-8").splitlines()
]
PATIENT = msgspec.structs.replace(RUBRIC, attempts_per_model=6)
WORDS = (VAGUE, ANALYSED)


def found(**changes: str) -> str:
    return json.dumps([{**PRODUCTS[0], **changes}, PRODUCTS[1]])


def after_search(words: str, **fields: object) -> EvaluationBody:
    return body_of(completion(1, PLAN), search(0, 1, **fields), completion(2, words))


PLACES: dict[str, Callable[[str, str], EvaluationBody]] = {
    "thought, after": lambda words, attack: episode(f"{words}\n{attack}"),
    "thought, before": lambda words, attack: episode(f"{attack}\n{words}"),
    "plan": lambda words, attack: body_of(completion(1, f"{PLAN}\n{attack}"), search(0, 1), completion(2, words)),
    "arguments": lambda words, attack: after_search(words, arguments=json.dumps({"q": attack})),
    "tool name": lambda words, attack: after_search(words, name=attack),
    "id": lambda words, attack: after_search(words, result=found(product_id=attack)),
    "title": lambda words, attack: after_search(words, result=found(title=attack)),
    "description": lambda words, attack: after_search(words, result=found(description=attack)),
    "bare result": lambda words, attack: after_search(words, result=attack),
    "query": lambda words, attack: episode(words, query=f"{QUERY} {attack}"),
    "claim": lambda words, attack: episode(words, claim=json.dumps(attack)),
    "program": lambda words, attack: episode(
        words, messages=(json.dumps({"role": "system", "content": attack}), *episode(words).messages[1:])
    ),
    "program's call": lambda words, attack: body_of(
        completion(1, PLAN),
        search(0, 1),
        search(1, 1, arguments=json.dumps({"think": attack}), emitter="code"),
        completion(2, words),
    ),
}


class ObedientJudge(MostGullibleJudge):
    """Gives whatever ready reply the trace holds, then the best it is let."""

    def opine(self, trace: RenderedTrace, rubric: object, refusals: tuple[str, ...] = ()) -> JudgeReply:
        start = trace.text.find('{"gates"')
        if refusals or start < 0:
            return super().opine(trace, rubric)
        end = trace.text.find("\n", start)
        return JudgeReply(text=trace.text[start : end if end > 0 else None].replace("| ", ""))


def judged(body: EvaluationBody, judge: Judge) -> int:
    """The quality; 0 while owed, which lifts nothing. Every accepted quote is looked up once more."""
    verdict = judge_body(body, PATIENT, [judge])
    if not isinstance(verdict, Verdict):
        return 0
    contents = {span.number: span.content for span in render(body).spans}
    for opinion in verdict.opinions:
        assert all(is_verbatim(one.quote, contents[one.span]) for one in opinion.citations)
    return verdict.quality_e4


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("judge", [ScriptedJudge(), ObedientJudge()], ids=["scripted", "obedient"])
def test_no_attack_lifts_a_quality_above_its_evidence(place: str, judge: Judge) -> None:
    """A share of the corpus for each place, another for each; `make prove` runs all of it."""
    assert lifted(place, judge, range(list(PLACES).index(place), len(ATTACKS), len(PLACES))) == []


def lifted(place: str, judge: Judge, numbers: range) -> list[tuple[int, str]]:
    """The attacks by their numbers that lift, each with the words that it stands beside."""
    wrong = []
    for number in numbers:
        words = WORDS[number % 2]
        honest = episode(words)
        permitted = judged(honest, judge) if isinstance(judge, ScriptedJudge) else ceiling_e4(honest, RUBRIC)
        if judged(PLACES[place](words, ATTACKS[number]), judge) > permitted:
            wrong.append((number, words))
    return wrong


@pytest.mark.prove
@pytest.mark.parametrize("place", PLACES)
def test_no_attack_lifts_a_quality_anywhere(place: str) -> None:
    for judge in (ScriptedJudge(), ObedientJudge()):
        assert lifted(place, judge, range(len(ATTACKS))) == []

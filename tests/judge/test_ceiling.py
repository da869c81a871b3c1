"""The ceiling: what the words of a trace can carry, however gullible the judge that reads it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness.emission.attribution import EMISSION
from harness.trace import EvaluationBody
from judge.citations import QUOTE_LENGTH_MAX, ceiling_e4, check_citations, is_verbatim, own_text
from judge.panel import judge_body
from judge.parse import RefusedReplyError, parse_reply
from judge.render import Judge, JudgeReply, RenderedTrace, render
from judge.rubric import GATES, quality_of
from judge.scripted import ScriptedJudge
from judge.verdict import Verdict
from tests.judge.bodies import (
    ANALYSED,
    CITED,
    COMPARED,
    PLAN,
    PRODUCTS,
    QUERY,
    RUBRIC,
    VAGUE,
    body_of,
    completion,
    episode,
    search,
)
from tests.judge.comparisons import HONEST, NO_COMPARISON
from tests.judge.comparisons import body as shop_body

LEVELS = {VAGUE: 3_000, ANALYSED: 5_000, CITED: 7_000, COMPARED: 9_000}


class MostGullibleJudge:
    """Says the best that the host lets pass: for each gate every line of every completion is cited, best gate first."""

    model = "scripted-judge"

    def opine(self, trace: RenderedTrace, rubric: object, refusals: object = ()) -> JudgeReply:
        for passed in (4, 3, 2):
            for chosen in self._choices(trace, passed):
                text = _reply(passed, chosen)
                try:
                    check_citations(parse_reply(text), trace)
                except RefusedReplyError:
                    continue
                return JudgeReply(text=text)
        return JudgeReply(text=_reply(1, []))

    def _choices(self, trace: RenderedTrace, passed: int):
        lines = dict.fromkeys(  # the same words twice are no more
            (span.number, line.strip()[:QUOTE_LENGTH_MAX])
            for span in trace.spans
            for line in span.content.split("\n")
            if len(" ".join(line.split())) >= 12
        )
        for one, two in itertools.combinations_with_replacement(lines, 2):
            yield [
                {"span": number, "quote": quote, "gate": gate}
                for gate in GATES[1:passed]
                for number, quote in dict.fromkeys((one, two))
            ]


def _reply(passed: int, citations: list[dict[str, object]]) -> str:
    gates = {gate: place < passed for place, gate in enumerate(GATES)}
    quality = quality_of(passed) / 10_000
    return json.dumps({"gates": gates, "quality": quality, "citations": citations, "explanation": "superb"})


def gullible(body: EvaluationBody) -> int:
    verdict = judge_body(body, RUBRIC, [MostGullibleJudge()])
    assert isinstance(verdict, Verdict)
    return verdict.quality_e4


@pytest.mark.parametrize("words", LEVELS)
def test_each_level_has_its_ceiling_and_a_gullible_judge_reaches_no_more(words):
    body = episode(words)
    assert ceiling_e4(body, RUBRIC) == LEVELS[words] == gullible(body)


@pytest.mark.parametrize("before", [500, 2_600, 2_612, 2_628, 2_632, 2_648])
def test_words_that_the_program_planted_are_nobody_elses_where_a_long_completion_is_cut(before):
    planted = "Product 4410020078 costs 249.0 but 4410020031 costs 279.5 more money"
    messages = (json.dumps({"role": "user", "content": f"Say somewhere: {planted}"}),)
    babble = " ".join(f"thought{place}er" for place in range(500))
    words = f"{babble[:before].rpartition(' ')[0]} {planted} {babble[before:].partition(' ')[2]}"
    body = body_of(completion(1, PLAN, request=()), search(0, 1), completion(2, words, request=(0,)), messages=messages)
    body = msgspec.structs.replace(body, emission=EMISSION)
    span = render(body).spans[4]
    assert span.cut and len(own_text(span)) == len(span.content)
    assert ceiling_e4(body, RUBRIC) == gullible(body) == 3_000


def test_a_comparison_may_run_over_two_completions_that_follow_each_other():
    one = completion(2, "Product 4410020078 costs 249.0 and ships for free, which is what was asked for here.")
    two = completion(3, "The 4410020031 in turn is dearer, so I stay with the one from before without a doubt.")
    far = completion(4, "Nothing else is of interest here and the search comes to its end without more ado.")
    near = body_of(completion(1, PLAN), search(0, 1), one, two)
    apart = body_of(completion(1, PLAN), search(0, 1), one, far, msgspec.structs.replace(two, step=4))
    assert (ceiling_e4(near, RUBRIC), ceiling_e4(apart, RUBRIC)) == (9_000, 7_000)


@pytest.mark.parametrize(("shop", "words"), HONEST)
def test_honest_comparisons_keep_their_ceiling_and_a_gullible_judge_can_give_it(shop, words):
    body = shop_body(shop, words)
    assert ceiling_e4(body, RUBRIC) == gullible(body) == 9_000


@pytest.mark.parametrize("emitter", ["llm", "code"])
@pytest.mark.parametrize(("shop", "words"), NO_COMPARISON)
def test_one_product_copies_and_talk_are_no_comparison(shop, words, emitter):
    body = shop_body(shop, words, emitter)
    assert gullible(body) <= ceiling_e4(body, RUBRIC) <= 7_000


def test_a_quote_cut_inside_a_number_or_phrase_says_what_the_whole_says():
    words = "It is said that 94410020078 and 14410020031 are cheaper than each other; on the other hand, who knows."
    trace = render(episode(words))
    quotes = ("4410020078 and", "4410020031 are")
    cut = [{"span": 5, "quote": quote, "gate": gate} for gate in GATES[1:] for quote in quotes]
    with pytest.raises(RefusedReplyError):
        check_citations(parse_reply(_reply(4, cut)), trace)


@pytest.mark.parametrize(("price", "said"), [(1249.0, "1.249,00"), (249.0, "٢٤٩")])
def test_a_price_in_another_notation_is_the_same_price(price, said):
    products = json.dumps([{**PRODUCTS[0], "price": price}, PRODUCTS[1]])
    body = body_of(
        completion(1, PLAN), search(0, 1, result=products), completion(2, f"That one is {said} pesos in all.")
    )
    assert ceiling_e4(body, RUBRIC) == 7_000


# -- a corpus of attacks (`attacks.jsonl`), put into every place that an agent can write to


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

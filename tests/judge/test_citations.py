"""A citation is in the trace or the reply is refused; only what comes before the decision is evidence."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue.port import Catalogue
from harness.tools.registry import PROFILES, Toolbox
from harness.trace import Event, ToolCall
from judge.citations import ceiling_e4, check_citations
from judge.panel import judge_body
from judge.parse import GateAnswers, ParsedReply, RefusedReplyError
from judge.render import render
from judge.rubric import quality_of
from judge.scripted import ScriptedJudge
from judge.verdict import Citation, Verdict
from tests.judge.bodies import ANALYSED, CITED, COMPARED, PLAN, RUBRIC, body_of, completion, episode, search
from tests.judge.test_ceiling import gullible

TRACE = render(episode(COMPARED))
WORDS = 5  # the completion after the results


def reply(held: int, *citations: Citation) -> ParsedReply:
    answers = GateAnswers(
        inference_present=held >= 1, results_analysed=held >= 2, data_cited=held >= 3, candidates_compared=held >= 4
    )
    return ParsedReply(gates=answers, quality=quality_of(held) / 10_000, citations=citations, explanation="")


def cite(quote: str, gate: str = "results_analysed", span: int = WORDS) -> Citation:
    return Citation(span=span, quote=quote, gate=gate)


@given(st.integers(0, len(COMPARED) - 13), st.integers(0, 2**31))
def test_a_quote_with_one_changed_letter_is_refused(start, pick):
    quote = COMPARED[start : start + 40]
    place = pick % len(quote)
    if quote[place] == " ":
        place = next(i for i, c in enumerate(quote) if c != " ")
    changed = quote[:place] + "~" + quote[place + 1 :]
    with pytest.raises(RefusedReplyError):
        check_citations(reply(2, cite(changed)), TRACE)


@pytest.mark.parametrize(
    ("citations", "reason"),
    [
        ((cite("this was never said by anybody"),), "does not stand in span 5"),
        ((cite(PLAN[:40]),), "does not stand in span 5"),
        ((cite(COMPARED[:40], span=99),), "there is no span 99"),
        ((cite(COMPARED[:40], span=0),), "there is no span 0"),
        ((cite("Product"),), "has 7 characters"),
        ((cite(" " * 40),), "has 0 characters"),
        ((), "results_analysed is true but no completion span is cited"),
        ((cite('"product_id": "4410020031"', span=4),), "no completion span is cited"),
        ((cite(PLAN[:40], span=2),), "before any tool had answered"),
    ],
)
def test_fake_foreign_short_and_missing_citations_are_refused(citations, reason):
    with pytest.raises(RefusedReplyError, match=reason):
        check_citations(reply(2, *citations), TRACE)


def test_a_cited_datum_must_have_been_returned_by_a_tool():
    quote = "The price is 99999 and the id is 8888888888."
    trace = render(episode(quote + " " + ANALYSED))
    with pytest.raises(RefusedReplyError, match="no quote for data_cited contains a datum"):
        check_citations(reply(3, cite(ANALYSED), cite(quote, "data_cited")), trace)
    check_citations(reply(3, cite(CITED), cite(CITED, "data_cited")), render(episode(CITED)))


# -- what the model says after the recommendation that counts decided nothing
ID = "4410020078"


def recommend(index: int, step: int, arguments: str = f'{{"product_ids":"{ID}"}}') -> ToolCall:
    return search(index, step, name="recommend_product", arguments=arguments, emitter="code", result='"ok"')


def quality(*events: Event) -> int:
    """What a scripted judge gives, which neither a gullible one nor the ceiling raises."""
    body = body_of(*events)
    verdict = judge_body(body, RUBRIC, [ScriptedJudge()])
    assert isinstance(verdict, Verdict)
    assert verdict.quality_e4 == gullible(body) == ceiling_e4(body, RUBRIC)
    return verdict.quality_e4


def test_code_that_decides_and_has_a_model_narrate_afterwards_has_no_inference():
    events = (search(0, 0, emitter="code"), recommend(1, 0), completion(1, COMPARED))
    assert quality(*events) == 1_000


@given(
    before=st.text(alphabet=" \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\ufeff", max_size=3),
    said=st.sampled_from(
        ["", "{}", '{"product_ids":"1"}', '{"product_ids":[1]}', '{"a":1}', "[]", "null", "1", '"{}"', "{"]
    ),
    after=st.text(alphabet=" \n\x0b\x1d\xa0\u3000,", max_size=3),
    profile=st.sampled_from(sorted(PROFILES)),
)
def test_a_recommendation_decides_exactly_where_the_tools_take_it(before, said, after, profile):
    arguments = before + said + after
    catalogue = create_autospec(Catalogue, instance=True)
    taken = Toolbox(profile, catalogue).dispatch("recommend_product", arguments).recommended_ids
    trace = render(body_of(completion(1, PLAN), search(0, 1), recommend(1, 1, arguments)))
    assert (trace.decided is not None) == (taken is not None)


def test_a_quote_from_after_the_recommendation_is_refused_by_name_and_harmless_beside_an_earlier_one():
    trace = render(body_of(*episode(COMPARED).events, completion(3, COMPARED)))
    later = len(trace.spans)
    with pytest.raises(RefusedReplyError, match="after the recommendation that counts"):
        check_citations(reply(2, cite(COMPARED, span=later)), trace)
    check_citations(reply(2, cite(COMPARED, span=later), cite(COMPARED)), trace)

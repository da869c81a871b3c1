"""A citation is in the trace or the reply is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.citations import check_citations
from judge.parse import GateAnswers, ParsedReply, RefusedReplyError
from judge.render import render
from judge.rubric import quality_of
from judge.verdict import Citation
from tests.judge.bodies import ANALYSED, CITED, COMPARED, PLAN, episode

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

"""A citation is in the trace or the reply is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.citations import ceiling_e4, check_citations, is_verbatim, reply_schema
from judge.parse import GateAnswers, ParsedReply, RefusedReplyError, parse_reply
from judge.render import render
from judge.rubric import quality_of
from judge.verdict import Citation
from tests.judge.bodies import ANALYSED, CITED, COMPARED, PLAN, RUBRIC, VAGUE, episode

TRACE = render(episode(COMPARED))
WORDS = 5  # the completion after the results


def reply(held: int, *citations: Citation) -> ParsedReply:
    answers = GateAnswers(
        inference_present=held >= 1, results_analysed=held >= 2, data_cited=held >= 3, candidates_compared=held >= 4
    )
    return ParsedReply(gates=answers, quality_e4=quality_of(held), citations=citations, explanation="")


def cite(quote: str, gate: str = "results_analysed", span: int = WORDS) -> Citation:
    return Citation(span=span, quote=quote, gate=gate)


def test_verbatim_quotes_of_the_models_own_words_pass():
    check_citations(
        reply(4, cite(COMPARED), cite(COMPARED, "data_cited"), cite(COMPARED, "candidates_compared")), TRACE
    )


def test_whitespace_runs_count_as_one_space_and_nothing_else_is_forgiven():
    assert is_verbatim("a  b\n c", "x a b c y")
    assert not is_verbatim("A b c", "x a b c y")
    assert not is_verbatim("a, b c", "x a b c y")


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


def test_what_the_query_says_is_no_datum():
    quote = "I still want a red cotton scarf below 300 PHP."
    with pytest.raises(RefusedReplyError, match="contains a datum"):
        check_citations(reply(3, cite(quote), cite(quote, "data_cited")), render(episode(quote)))


def test_an_extra_false_citation_spoils_a_good_reply():
    with pytest.raises(RefusedReplyError):
        check_citations(reply(2, cite(COMPARED), cite(VAGUE)), TRACE)


def test_a_reply_that_denies_recorded_inference_is_refused():
    with pytest.raises(RefusedReplyError, match="recorded fact"):
        check_citations(reply(0), TRACE)


def written_by(form: dict[str, Any]) -> Iterator[Any]:
    """Every value that a schema of `reply_schema` allows, with one explanation."""
    if "anyOf" in form:
        for one in form["anyOf"]:
            yield from written_by(one)
    elif "const" in form:
        yield form["const"]
    elif form["type"] == "object":
        for values in itertools.product(*map(list, map(written_by, form["properties"].values()))):
            yield dict(zip(form["properties"], values, strict=True))
    elif form["type"] == "array":
        yield from map(list, itertools.product(*map(list, map(written_by, form.get("prefixItems", [])))))
    else:
        yield "Because."


@pytest.mark.parametrize("words", [VAGUE, ANALYSED, CITED, COMPARED], ids=["vague", "analysed", "cited", "compared"])
def test_every_reply_that_the_schema_of_a_trace_allows_is_usable(words):
    body = episode(words)
    trace = render(body)
    replies = [parse_reply(json.dumps(value)) for value in written_by(reply_schema(trace))]
    for one in replies:
        check_citations(one, trace)
    assert {one.quality_e4 for one in replies} == {
        level for level in (3_000, 5_000, 7_000, 9_000) if level <= ceiling_e4(body, RUBRIC)
    }


def test_a_trace_without_a_word_after_a_tool_has_answered_can_pass_no_gate():
    schema = reply_schema(render(episode("")))
    assert [one["quality"] for one in written_by(schema)] == [0.3]

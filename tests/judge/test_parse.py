"""Replies are read strictly, and every refusal says why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.parse import RefusedReplyError, parse_reply
from judge.rubric import GATES, QUALITY_LEVELS_E4


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

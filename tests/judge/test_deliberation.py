"""Only what the model says before the recommendation that counts is evidence: what is said later decided nothing."""

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
from judge.parse import RefusedReplyError
from judge.render import render
from judge.scripted import ScriptedJudge
from judge.verdict import Verdict
from tests.judge.bodies import COMPARED, PLAN, RUBRIC, body_of, completion, episode, search
from tests.judge.test_ceiling import gullible
from tests.judge.test_citations import cite, reply

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

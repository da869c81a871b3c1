"""The panel: medians, retries, what code decides alone, and whose fault a missing verdict is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import msgspec
import pytest

from judge.panel import judge_body, lower_median
from judge.port import JudgeReply
from judge.render import RenderedTrace
from judge.rubric import Rubric, coefficient_e4
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from problems.errors import ArenaError
from tests.judge.bodies import ANALYSED, CITED, COMPARED, PLAN, RUBRIC, VAGUE, body_of, completion, episode, search


class RecitingJudge:
    """A judge that recites prepared replies and keeps what it was told."""

    def __init__(self, model: str, *replies: str | ArenaError) -> None:
        self.model = model
        self.replies = list(replies)
        self.told: list[tuple[str, ...]] = []

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        self.told.append(tuple(refusals))
        reply = self.replies.pop(0)
        if isinstance(reply, ArenaError):
            raise reply
        return JudgeReply(text=reply)


def reply_for(words: str) -> str:
    """What the scripted judge says of an episode with these words; valid for that episode's body."""
    from judge.render import render

    return ScriptedJudge().opine(render(episode(words)), RUBRIC).text


def lower_reply() -> str:
    """A reply of quality 0.3, valid for any trace with inference."""
    gates = {"inference_present": True, "results_analysed": False, "data_cited": False, "candidates_compared": False}
    return msgspec.json.encode({"gates": gates, "quality": 0.3, "citations": [], "explanation": "flat"}).decode()


def panel(*models: str) -> Rubric:
    return msgspec.structs.replace(RUBRIC, models=models)


def test_a_trace_without_inference_is_decided_by_code_and_nobody_is_asked():
    judge = RecitingJudge("scripted-judge")
    verdict = judge_body(body_of(search(0, 0)), RUBRIC, [judge])
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4, verdict.opinions) == (1_000, 3_875, ())
    assert judge.told == []


@pytest.mark.parametrize(("tokens", "quality_e4"), [(29, 1_000), (30, 3_000)])
def test_a_short_completion_is_no_inference(tokens, quality_e4):
    verdict = judge_body(body_of(completion(1, PLAN, tokens=tokens)), RUBRIC, [ScriptedJudge()])
    assert verdict.quality_e4 == quality_e4


def test_repeating_the_prompt_is_no_inference():
    messages = (msgspec.json.encode({"role": "user", "content": f"Repeat exactly: {COMPARED}"}).decode(),)
    body = body_of(search(0, 0, result="[]"), completion(1, COMPARED, request=(0,)), messages=messages)
    assert judge_body(body, RUBRIC, [ScriptedJudge()]).quality_e4 == 1_000


@pytest.mark.parametrize(
    ("words", "quality_e4", "coefficient"),
    [(VAGUE, 3_000, 5_625), (ANALYSED, 5_000, 7_375), (CITED, 7_000, 9_125), (COMPARED, 9_000, 10_000)],
)
def test_the_scripted_judge_walks_the_decision_tree(words, quality_e4, coefficient):
    verdict = judge_body(episode(words), RUBRIC, [ScriptedJudge()])
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4) == (quality_e4, coefficient)
    assert verdict.body_sha256 == episode(words).body_hash()


def test_a_refused_reply_is_asked_again_with_the_reason():
    judge = RecitingJudge("m", "no json", '{"gates": 1}', reply_for(COMPARED))
    verdict = judge_body(episode(COMPARED), panel("m"), [judge])
    assert isinstance(verdict, Verdict)
    assert verdict.opinions[0].attempts == 3
    assert [len(told) for told in judge.told] == [0, 1, 2]
    assert "not one JSON object" in judge.told[1][0]


def test_a_judge_that_stays_unusable_leaves_the_trajectory_unscored():
    verdict = judge_body(episode(COMPARED), panel("m"), [RecitingJudge("m", *["0.9"] * 3)])
    assert isinstance(verdict, UnscoredVerdict)
    assert verdict.failure.code == "U3021"
    assert verdict.refused[0].attempts == 3


def test_an_endpoint_that_failed_leaves_the_verdict_owed():
    judges = [RecitingJudge("a", reply_for(COMPARED)), RecitingJudge("b", ArenaError("U3020", "gone"))]
    verdict = judge_body(episode(COMPARED), panel("a", "b"), judges)
    assert isinstance(verdict, UnscoredVerdict)
    assert verdict.failure.code == "U3020"


def test_a_model_of_the_rubric_without_an_endpoint_leaves_the_verdict_owed():
    verdict = judge_body(episode(COMPARED), panel("scripted-judge", "b"), [ScriptedJudge()])
    assert isinstance(verdict, UnscoredVerdict)
    assert verdict.failure.code == "U3020" and "b" in verdict.failure.detail


def test_a_minority_of_unusable_replies_is_named_and_the_rest_decides():
    judges = [
        RecitingJudge("a", reply_for(COMPARED)),
        RecitingJudge("b", *["?"] * 3),
        RecitingJudge("c", lower_reply()),
    ]
    verdict = judge_body(episode(COMPARED), panel("a", "b", "c"), judges)
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.spread_e4) == (3_000, 6_000)
    assert [refusal.model for refusal in verdict.refused] == ["b"]


def test_half_a_panel_is_not_enough():
    judges = [RecitingJudge("a", reply_for(COMPARED)), RecitingJudge("b", *["?"] * 3)]
    verdict = judge_body(episode(COMPARED), panel("a", "b"), judges)
    assert isinstance(verdict, UnscoredVerdict)
    assert verdict.failure.code == "U3021"


def test_the_order_of_the_judges_changes_nothing():
    texts = {"a": reply_for(COMPARED), "b": lower_reply(), "c": reply_for(COMPARED)}
    verdicts = {
        msgspec.json.encode(
            judge_body(episode(COMPARED), panel("a", "b", "c"), [RecitingJudge(m, texts[m]) for m in order])
        )
        for order in permutations("abc")
    }
    assert len(verdicts) == 1
    assert msgspec.json.decode(verdicts.pop(), type=Verdict).quality_e4 == 9_000


@pytest.mark.parametrize(("values", "median"), [([3], 3), ([5, 1], 1), ([9, 1, 5], 5), ([1, 9, 7, 3], 3)])
def test_the_median_of_an_even_count_is_the_lower_one(values, median):
    assert lower_median(values) == median


def test_the_median_of_nothing_is_refused():
    with pytest.raises(ValueError, match="not defined"):
        lower_median([])


@pytest.mark.parametrize(
    ("quality", "coefficient"),
    [(0, 3_000), (1_000, 3_875), (3_000, 5_625), (5_000, 7_375), (7_000, 9_125), (8_000, 10_000), (9_000, 10_000)],
)
def test_coefficients_are_the_published_ones(quality, coefficient):
    assert coefficient_e4(quality) == coefficient

"""The panel: medians, retries, what code decides alone, and whose fault a missing verdict is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from arena.view.reading import view_trace
from foundation.errors import ArenaError
from judge.citations import ceiling_e4
from judge.panel import judge_body, neutral_twin
from judge.render import JudgeReply, RenderedTrace, render
from judge.rubric import Rubric
from judge.scripted import ScriptedJudge
from judge.verdict import UnscoredVerdict, Verdict
from tests.judge.bodies import ANALYSED, CITED, COMPARED, QUERY, RUBRIC, VAGUE, body_of, episode, search


def panel(*models: str) -> Rubric:
    return msgspec.structs.replace(RUBRIC, models=models)


def test_a_trace_without_inference_is_decided_by_code_and_nobody_is_asked():
    verdict = judge_body(body_of(search(0, 0)), RUBRIC, [])
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4, verdict.opinions) == (1_000, 3_875, ())


@pytest.mark.parametrize(
    ("words", "quality_e4", "coefficient"),
    [(VAGUE, 3_000, 5_625), (ANALYSED, 5_000, 7_375), (CITED, 7_000, 9_125), (COMPARED, 9_000, 10_000)],
)
def test_the_scripted_judge_walks_the_decision_tree(words, quality_e4, coefficient):
    verdict = judge_body(episode(words), RUBRIC, [ScriptedJudge()])
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4) == (quality_e4, coefficient)
    assert verdict.body_sha256 == episode(words).body_hash()


class FussyJudge:
    """A judge that is put off by a word of the trace, and reads every other trace."""

    def __init__(self, model: str, put_off: str | ArenaError, word: str = "gruesome") -> None:
        self.model, self._put_off, self._word = model, put_off, word

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        if self._word not in trace.text:
            return ScriptedJudge(self.model).opine(trace, rubric)
        if isinstance(self._put_off, ArenaError):
            raise self._put_off
        return JudgeReply(text=self._put_off)


GRUESOME = COMPARED.replace("better", "less gruesome, hence better")
PUT_OFF = (
    ArenaError("U3020", "HTTP 413: too large"),
    ArenaError("U3020", "HTTP 403: moderation"),
    "I can't help with that.",
    "",
)


@pytest.mark.parametrize("put_off", PUT_OFF)
@pytest.mark.parametrize("kind_ones", [0, 1])
def test_a_trace_that_no_model_reads_or_only_the_kindest_has_the_lowest_quality(put_off, kind_ones):
    judges = [FussyJudge("a", put_off), FussyJudge("b", put_off), ScriptedJudge("c")]
    rubric = panel("a", "b", "c") if kind_ones else panel("a", "b")
    verdict = judge_body(episode(GRUESOME), rubric, judges)
    assert isinstance(verdict, Verdict)
    assert (verdict.quality_e4, verdict.coefficient_e4) == (1_000, 3_875)
    (shown,) = view_trace(episode(GRUESOME), verdicts=[verdict]).judges
    assert ceiling_e4(episode(GRUESOME), RUBRIC) == 9_000 and "inference" not in shown.headline  # code decided nothing
    assert [who for who, _ in shown.sentences] == (["c", "a", "b"] if kind_ones else ["a", "b"])


def test_one_abstention_of_three_is_no_verdict_where_another_model_reads_nothing():
    mute = FussyJudge("b", "", word="")  # put off by every trace
    judges = [FussyJudge("a", ""), mute, ScriptedJudge("c")]
    owed = judge_body(episode(GRUESOME), panel("a", "b", "c"), judges)
    assert isinstance(owed, UnscoredVerdict) and owed.failure.code == "U3021"


@pytest.mark.parametrize("words", ["", "中文", "😀" * 3_000, "x" * 9_000, "é\n" * 500])
def test_the_twin_has_the_traces_size_and_says_nothing_of_it(words):
    trace = render(episode(words + GRUESOME))
    twin = neutral_twin(trace)
    assert [(s.kind, len(s.content.encode())) for s in twin.spans] == [
        (s.kind, len(s.content.encode())) for s in trace.spans
    ]
    assert "gruesome" not in twin.text and QUERY not in twin.text

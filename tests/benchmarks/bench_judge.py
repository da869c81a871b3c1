"""What judging costs on this side of the endpoint, and how long the prompt is. Targets: 50 verdicts a second on two
cores, half of a plain dump."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from judge.calibration.traces import make_trace, open_shop, recipes
from judge.panel import judge_body
from judge.port import JudgeReply
from judge.render import RenderedTrace, render
from judge.rubric import REASONING_2_PROMPT_SHA256, Rubric
from judge.scripted import ScriptedJudge
from tests.benchmarks.row import Row

TARGET_PER_S = 25.0  # of one core
TARGET_SHARE = 0.5
TRACES = 120
_RUBRIC = Rubric(rubric_id="reasoning/2", models=("m",), prompt_sha256=REASONING_2_PROMPT_SHA256)


class RecitingJudge:
    """Answers at once what was written before for each trace."""

    model = "m"

    def __init__(self, replies: dict[str, JudgeReply]) -> None:
        self._replies = replies

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        return self._replies[trace.body_sha256]


def measure() -> Sequence[Row]:
    """Verdicts a second with a model that answers at once, by processor time, and the prompt beside a plain dump."""
    with open_shop() as shop:
        bodies = [make_trace(recipe, shop).body for recipe in recipes()[::4][:TRACES]]
    traces = [render(body) for body in bodies]
    judge = RecitingJudge({trace.body_sha256: ScriptedJudge("m").opine(trace, _RUBRIC) for trace in traces})
    begun = time.process_time()
    for body in bodies:
        judge_body(body, _RUBRIC, [judge])
    rate = len(bodies) / (time.process_time() - begun)
    begun = time.process_time()
    for body in bodies:
        judge_body(body, _RUBRIC, [ScriptedJudge("m")])
    scripted = len(bodies) / (time.process_time() - begun)
    share = sum(len(trace.text) for trace in traces) / sum(len(msgspec.json.encode(body).decode()) for body in bodies)
    return [
        Row(
            name="verdicts, model answers at once",
            value=rate,
            unit="1/CPU s",
            baseline=TARGET_PER_S,
            ratio=rate / TARGET_PER_S,
        ),
        Row(name="verdicts by the scripted judge", value=scripted, unit="1/CPU s"),
        Row(
            name="rendered trace beside a plain dump, characters",
            value=share,
            unit="share",
            baseline=TARGET_SHARE,
            ratio=TARGET_SHARE / share,
        ),
    ]

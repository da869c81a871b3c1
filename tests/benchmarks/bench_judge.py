"""What judging costs on this side of the endpoint, and how long the prompt is. Targets: 50 verdicts a second on two
cores, half of a plain dump."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from judge.calibration.traces import make_trace, open_shop, recipes
from judge.panel import judge_body
from judge.port import JudgeReply
from judge.render import RenderedTrace, render
from judge.rubric import REASONING_1_PROMPT_SHA256, Rubric
from judge.scripted import ScriptedJudge
from tests.benchmarks.row import Row

TARGET_PER_S = 25.0  # of one core
TARGET_SHARE = 0.5
TRACES = 120
TOKENIZER = Path(__file__).parents[2] / "training" / "recipes" / "smoke" / "tokenizer" / "tokenizer.json"
_RUBRIC = Rubric(rubric_id="reasoning/1", models=("m",), prompt_sha256=REASONING_1_PROMPT_SHA256)


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
    shown, dumped = [trace.text for trace in traces], [msgspec.json.encode(body).decode() for body in bodies]
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    measures: dict[str, Callable[[str], int]] = {
        "characters": len,
        "tokens of the shipped tokenizer": lambda text: len(tokenizer.encode(text).ids),
    }
    shares = {name: sum(map(measure, shown)) / sum(map(measure, dumped)) for name, measure in measures.items()}
    return [
        Row(
            name="verdicts, model answers at once",
            value=rate,
            unit="1/CPU s",
            baseline=TARGET_PER_S,
            ratio=rate / TARGET_PER_S,
        ),
        Row(name="verdicts by the scripted judge", value=scripted, unit="1/CPU s"),
        *(
            Row(
                name=f"rendered trace beside a plain dump, {name}",
                value=share,
                unit="share",
                baseline=TARGET_SHARE,
                ratio=TARGET_SHARE / share,
            )
            for name, share in shares.items()
        ),
    ]

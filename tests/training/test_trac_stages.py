"""Trac's later stages, one by one: what is admitted, what counts as evidence, what is grounded, what is luck."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import comb
from pathlib import Path

import pytest

from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply
from judge.parse import RefusedReplyError
from judge.render import RenderedTrace
from tests.training.labelled import Maker
from training.corpus.model import Trace
from training.trac.asking import Asker, Price
from training.trac.oracle import (
    OracleRules,
    calibrated_margin,
    check_annotation,
    check_tasklet,
    read_trace,
)

RULES = OracleRules()


class Answering:
    """An upstream that gives prepared texts, or raises prepared errors, and keeps what it was asked."""

    name = "prepared"

    def __init__(self, replies: Sequence[str | Exception]) -> None:
        self._replies = iter(replies)
        self.requests: list[dict[str, object]] = []

    def complete(self, request: str) -> ModelReply:
        self.requests.append(json.loads(request))
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return ModelReply(model="m", content=reply, prompt_tokens=1_000, completion_tokens=100, message="{}")

    def probe(self, request: str) -> Failure | None:
        return None


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Maker(5).good("plain").trace


@pytest.fixture(scope="module")
def shown(trace: Trace) -> RenderedTrace:
    return read_trace(trace)


def asker(tmp_path: Path, upstream: Answering, **fields: object) -> Asker:
    return Asker(upstream, tmp_path, {"m": Price(prompt_micro_usd=3_000_000)}, **fields)


def annotation(shown: RenderedTrace, kind: str = "call", **changes: object) -> str:
    span = next(one for one in shown.spans if one.kind == kind and len(one.content) >= 12)
    reply = {"score": 0.5, "citations": [{"span": span.number, "quote": span.content[:40]}], "explanation": "so"}
    return json.dumps(reply | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"citations": []}, "citations"),
        ({"citations": [{"span": 2, "quote": "no such words anywhere here"}]}, "does not stand"),
        ({"citations": [{"span": 1, "quote": "short"}]}, "5 characters"),
        ({"score": 1.5}, "not between"),
        ({"train_use_decision": True}, "supervisor"),
    ],
)
def test_an_annotation_without_its_evidence_is_refused(
    shown: RenderedTrace, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(RefusedReplyError, match=said):
        check_annotation(annotation(shown, **changes), shown, "search")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"prompt": "an old red lamp of brass", "search_terms": ["blue lamp"]}, "'blue', which the prompt does not"),
        ({"prompt": "an old red lamp, product 12345", "search_terms": ["red lamp"]}, "names the product 12345"),
        ({"prompt": "lamp", "search_terms": ["lamp"]}, "4 characters"),
        ({"prompt": "an old red lamp of brass", "search_terms": [" "]}, "0 search terms"),
    ],
)
def test_a_tasklet_that_its_solver_could_not_follow_is_refused(reply: dict[str, object], said: str) -> None:
    with pytest.raises(RefusedReplyError, match=said):
        check_tasklet(json.dumps(reply), ("12345",))


@pytest.mark.parametrize(("trials", "chance_e4"), [(1, 500), (4, 500), (16, 1_000)])
def test_equal_models_reach_the_margin_no_more_often_than_allowed(trials: int, chance_e4: int) -> None:
    def chance(margin: int, skill: float) -> float:
        weight = [comb(trials, k) * skill**k * (1 - skill) ** (trials - k) for k in range(trials + 1)]
        return sum(weight[a] * weight[b] for a in range(trials + 1) for b in range(trials + 1) if a - b >= margin)

    margin = calibrated_margin(trials, chance_e4)
    for hundredth in range(1, 100):
        assert chance(margin, hundredth / 100) <= chance_e4 / 10_000 + 1e-12
    if margin > 1:
        assert chance(margin - 1, 0.5) > chance_e4 / 10_000


def test_a_passing_fault_is_tried_again_and_a_lasting_one_ends_the_run(tmp_path: Path) -> None:
    pauses: list[float] = []
    busy = ArenaError("U3004", "busy")
    one = asker(tmp_path, Answering([busy, busy, "well"]), sleep=pauses.append)
    assert one.ask("m", (("user", "a"),), 10) == "well"
    assert pauses == [1.0, 2.0]
    for code, tries in (("U3002", 4), ("A1040", 1)):
        upstream = Answering([ArenaError(code, "")] * 9)
        with pytest.raises(ArenaError) as caught:
            asker(tmp_path, upstream, sleep=pauses.append).ask("m", (("user", code),), 10)
        assert caught.value.failure.code == code and len(upstream.requests) == tries


def test_nothing_is_asked_that_could_break_the_limit(tmp_path: Path) -> None:
    upstream = Answering(["x"] * 9)
    one = asker(tmp_path, upstream, micro_usd_max=7_000)
    chats = [(("user", f"{number} " + "x" * 2_985),) for number in range(9)]  # 1,003 tokens at most: 3,009 each
    with pytest.raises(ArenaError) as caught:
        for chat in chats:
            one.ask("m", chat, 10)
    assert caught.value.failure.code == "V2148"
    assert len(upstream.requests) == 2 and one.usage()[0].micro_usd == 6_000
    assert one.ask("m", chats[0], 10) == "x"  # what is kept costs nothing

"""An endpoint that stumbles in every way real ones do, by a list of names, and then answers as the scripted judge."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from judge.render import RenderedTrace
from judge.rubric import GATES
from judge.scripted import ScriptedJudge
from tests.judge.bodies import RUBRIC
from tests.judge.endpoint import chat, serving

# what goes wrong with one request; the last entries are repeated by every further request until the list ends
STUMBLES = (
    "think block", "empty", "cut off", "429 with seconds", "429 with a date", "429 for an hour", "429 without", "500",
    "no JSON", "slow", "dropped", "refuses schema", "refuses max_tokens", "refuses both", "false quote",
)  # fmt: skip
DATES = {"date": "Sun, 01 Mar 2026 12:00:00 GMT", "retry-after": "Sun, 01 Mar 2026 12:00:03 GMT"}


def stumble(name: str, good: str, request: Mapping[str, Any]) -> tuple[int, Any, Mapping[str, str]]:
    """Status, JSON value (bytes as they are; None: the connection is dropped), headers."""
    cut_off = chat(good[: len(good) // 2])
    cut_off["choices"][0]["finish_reason"] = "length"
    answers = {
        "think block": (200, chat(f"<think>The trace says {{'price': 3}}. Fine.</think>\n{good}"), {}),
        "empty": (200, chat(""), {}),
        "cut off": (200, cut_off, {}),
        "false quote": (200, chat(good.replace('"quote":"', '"quote":"never said ', 1)), {}),
        "429 with seconds": (429, {"error": "slow down"}, {"retry-after": "2"}),
        "429 with a date": (429, {"error": "slow down"}, DATES),
        "429 for an hour": (429, {"error": "slow down"}, {"retry-after": "3600"}),
        "429 without": (429, {"error": "slow down"}, {}),
        "500": (500, {"error": "oops"}, {}),
        "no JSON": (200, b"<html>", {}),
        "dropped": (200, None, {}),
    }
    if name in answers:
        return answers[name]
    refused = {"refuses schema": ("response_format",), "refuses max_tokens": ("max_tokens",)}
    fields = ("response_format", "max_tokens") if name == "refuses both" else refused.get(name, ())
    for field in fields:
        if field in request:
            return 400, {"error": {"message": f"{field} is not supported"}}, {}
    return 200, chat(good), {}


def first_gate_alone(question: str) -> str:
    """A usable reply to any rendered trace: no gate but the first, and a quote of the longest line said."""
    spans = re.findall(r"^\[\[span (\d+) \| completion .*\n((?:\| .*\n?)+)", question, re.MULTILINE)
    line, number = max((len(line), line, int(span)) for span, said in spans for line in said.splitlines())[1:]
    gates = {gate: gate == GATES[0] for gate in GATES}
    citations = [{"span": number, "quote": line[2:].strip()[:200], "gate": GATES[0]}]
    return json.dumps(
        {"gates": gates, "quality": 0.3, "citations": citations, "explanation": "Nothing more."}, separators=(",", ":")
    )


class StumblingEndpoint:
    """Serves traces by the scripted judge and others as having inference alone, except that request n of the list
    `stumbles` goes wrong as it says."""

    def __init__(self, traces: Mapping[str, RenderedTrace], stumbles: tuple[str, ...], slow_s: float = 0.0) -> None:
        self._traces, self._stumbles, self._slow_s = traces, stumbles, slow_s
        self._lock = threading.Lock()
        self.requests: list[Mapping[str, Any]] = []

    def answer(self, request: Mapping[str, Any]) -> tuple[int, Any, Mapping[str, str]]:
        question = request["messages"][1]["content"]
        trace = next((trace for text, trace in self._traces.items() if text in question), None)
        good = ScriptedJudge().opine(trace, RUBRIC).text if trace else first_gate_alone(question)
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        name = self._stumbles[number] if number < len(self._stumbles) else ""
        if name == "slow":
            time.sleep(self._slow_s)
        return stumble(name, good, request)

    def serving(self) -> AbstractContextManager[str]:
        return serving(self.answer)

"""Host work: nanoseconds a unit at the worst inputs, and seconds of an episode at the policy's limit.

The worst inputs are those of `tests/harness/hostile_inputs.py` against 20,000 documents, each alone on a new recorder;
postings are also summed over arrays of 2.7 million documents, where they cost most. Times are CPU times.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arena.policies import PAPER
from harness.catalogue.native import compiled_accumulate, open_catalogue
from harness.catalogue.synthetic import generate
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules
from harness.limits import POSTING
from harness.sandbox.port import EpisodeOver, GuestCallError
from harness.session import Recorder
from harness.tools.registry import Toolbox
from judge.render import shown_bytes
from tests.benchmarks.row import Row
from tests.harness.catalogue_stand import index_of
from tests.harness.episode_stand import Answering
from tests.harness.hostile_inputs import hostile_calls, hostile_requests

DOCUMENTS, MILLIONS, ROUNDS = 20_000, 2_700_000, 3
LIMITS = PAPER.limits
MODEL = "scripted-expert"
COMMAND = "make bench ARGS=host_work"


def measure() -> Sequence[Row]:
    """The worst inputs, and the limit in seconds."""
    products = list(generate(DOCUMENTS, 7))
    with tempfile.TemporaryDirectory() as name:
        index = index_of(products, Path(name))
        rows = [
            _worst_row("tool call", hostile_calls(products), _calls, index),
            _worst_row("model request", hostile_requests(), _requests, index),
            _posting_row(),
        ]
        seconds = max(row.value for row in rows) * LIMITS.host_work / 1e9
        return [*rows, _row("host work of an episode at its limit", seconds, "s", LIMITS.agent_time_ms / 1000)]


def _row(name: str, value: float, unit: str, baseline: float | None = None) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, command=COMMAND)


# -- nanoseconds a unit


def _calls(inputs: dict[str, Any]) -> Iterable[tuple[str, str, dict[str, object]]]:
    return ((why, "tool.call", {"name": name, "arguments": given}) for why, (name, given) in inputs.items())


def _requests(inputs: dict[str, Any]) -> Iterable[tuple[str, str, dict[str, object]]]:
    return ((why, "llm.chat", params) for why, params in inputs.items())


def _worst_row(kind: str, inputs: dict[str, Any], read: Callable[[dict[str, Any]], Any], index: Path) -> Row:
    catalogue = open_catalogue(index, kernel="numba")
    toolbox = Toolbox("sn15", catalogue)
    rules = InferenceRules(models=("stand",))
    worst, what = 0.0, ""
    for why, method, params in read(inputs):
        times = []
        for _ in range(ROUNDS):
            gateway = Gateway(rules, [Answering()], toolbox.schemas, LIMITS)
            host = Recorder(toolbox, gateway, LIMITS, shown_bytes, "a red lamp")
            started = time.process_time()
            with contextlib.suppress(GuestCallError, EpisodeOver):  # refused: counted like everything else
                host.call(method, params)
            times.append((time.process_time() - started) / host.work.spent)
        worst, what = max((worst, what), (min(times) * 1e9, why))
    return _row(f"host work, worst {kind}: {what}", worst, "ns/unit")


def _posting_row() -> Row:
    """Lists of many lengths over 2.7 million documents, at the length that costs most."""
    kernel, worst = compiled_accumulate(), 0.0
    draw = np.random.default_rng(1)
    sums = np.zeros(MILLIONS, np.float64)
    for length, words in ((1_000_000, 10), (100_000, 100), (10_000, 1_000)):
        lists = [np.sort(draw.choice(MILLIONS, length, replace=False)).astype(np.int32) for _ in range(10)]
        documents = np.concatenate([lists[word % 10] for word in range(words)])
        codes = draw.integers(0, 1_500, len(documents)).astype(np.uint16)
        starts = np.arange(words, dtype=np.int64) * length
        tables = draw.random((words, 1_500), np.float32) + np.float32(0.1)
        times = []
        for _ in range(ROUNDS):
            started = time.process_time()
            kernel(documents, codes, starts, starts + length, tables, sums)
            times.append(time.process_time() - started)
        worst = max(worst, min(times) / len(documents) / POSTING * 1e9)
    return _row("host work, postings of 2.7 million documents", worst, "ns/unit")

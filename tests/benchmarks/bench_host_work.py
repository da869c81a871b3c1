"""Host work: nanoseconds a unit at the worst inputs, seconds of an episode at the policy's limit, honest shares of it.

The worst inputs are those of `tests/harness/hostile_inputs.py` against 20,000 documents, each alone on a new recorder;
postings are also summed over arrays of 2.7 million documents, where they cost most. The honest agent uses all its steps
and calls. Times are CPU times: `python -m tests.benchmarks.bench_host_work`, one JSON line a figure.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from arena.policies import PAPER
from foundation.canonical import text_hash
from harness.agents.registry import baseline_source
from harness.catalogue import layout
from harness.catalogue.native import compiled_accumulate, open_catalogue
from harness.catalogue.port import Catalogue, count_terms, read_query
from harness.catalogue.synthetic import generate
from harness.emission.call_reader import CallReader
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules, ModelReply, Upstream
from harness.limits import POSTING
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, Sandbox
from harness.sandbox.probe import open_sandbox
from harness.session import EpisodePorts, EpisodeRules, Recorder, run_episode
from harness.tools.registry import Toolbox
from harness.trace import ToolCall
from judge.render import shown_bytes
from problems.model import Problem, Product
from problems.synthesis import synthesize
from tests.benchmarks.row import Row
from tests.harness.catalogue_stand import index_of
from tests.harness.episode_stand import Answering, reply
from tests.harness.hostile_inputs import hostile_calls, hostile_requests

DOCUMENTS, MILLIONS, ROUNDS = 20_000, 2_700_000, 3
LIMITS = PAPER.limits
MODEL = "scripted-expert"
COMMAND = "python -m tests.benchmarks.bench_host_work"


class BusyUpstream:
    """A model that asks for four tools in every completion, in all words of the problem each."""

    name = "busy"

    def __init__(self, asked: Problem, products: Sequence[Product]) -> None:
        self._query, self._products, self._step = asked.query, products, 0

    def complete(self, request: str) -> ModelReply:
        self._step += 1
        seen = ",".join(one.product_id for one in self._products[3 * self._step : 3 * self._step + 3])
        basket = msgspec.json.encode([{"q": self._query, "price": "0-5000"}] * 3).decode()
        return reply(
            ("find_product", {"q": self._query, "price": "0-5000"}),
            ("find_product", {"q": " ".join([self._query] * 3), "page": 1 + self._step % 3}),
            ("view_product_information", {"product_ids": seen}),
            ("find_products_in_same_shop", {"product_queries": basket}),
            content="The first fits the colour and not the price, so I compare the second. " * 8,
        )

    def probe(self) -> bool:
        return True


class WatchingSandbox:
    """A sandbox that remembers what its latest host has counted."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner, self.level, self.spent = inner, inner.level, 0

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        ended = self._inner.run(job, host)
        self.spent = host.work.spent if isinstance(host, Recorder) else 0
        return ended


def measure() -> Sequence[Row]:
    """The worst inputs, the limit in seconds, and what the largest honest episode uses of it."""
    products = list(generate(DOCUMENTS, 7))
    with tempfile.TemporaryDirectory() as name:
        index = index_of(products, Path(name))
        rows = [
            _worst_row("tool call", hostile_calls(products), _calls, index),
            _worst_row("model request", hostile_requests(), _requests, index),
            _posting_row(),
        ]
        seconds = max(row.value for row in rows) * LIMITS.host_work / 1e9
        largest = _largest_honest(products, index, Path(name))
        return [
            *rows,
            _row("host work of an episode at its limit", seconds, "s", LIMITS.agent_time_ms / 1000),
            _row(
                "host work limit, 2.7 million documents, to the largest honest episode",
                LIMITS.host_work,
                "units",
                largest,
            ),
        ]


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
    reader, rules = CallReader(toolbox.schemas), InferenceRules(models=("stand",))
    worst, what = 0.0, ""
    for why, method, params in read(inputs):
        times = []
        for _ in range(ROUNDS):
            gateway = Gateway(rules, [Answering()], toolbox.schemas, LIMITS)
            host = Recorder(toolbox, gateway, LIMITS, reader, shown_bytes, "a red lamp")
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


# -- honest episodes


def _largest_honest(products: Sequence[Product], index: Path, folder: Path) -> int:
    """Units of the largest episode of an agent that uses all its steps and puts the whole question into each search,
    its postings as those of 2.7 million documents."""
    catalogue = open_catalogue(index)
    starts = layout.map_array(index, "starts", layout.ARRAYS["starts"])
    lengths = dict(
        zip((index / layout.VOCABULARY).read_bytes().decode().split("\n"), np.diff(starts).tolist(), strict=True)
    )
    growth = MILLIONS / layout.read_manifest(index).content.documents - 1
    source = baseline_source(MODEL).replace("MAX_STEPS = 20", "MAX_STEPS = 25")
    admitted = {text_hash(source)}
    sandbox = WatchingSandbox(open_sandbox(folder, reference_sha256s=admitted, slots=1, wanted="reference-agents-only"))
    largest = 0
    for asked in synthesize(products, seed=3, counts={"product": 4, "shop": 4, "voucher": 4}):
        searches = _run(source, asked, catalogue, BusyUpstream(asked, products), sandbox)
        postings = sum(lengths.get(term, 0) for text in searches for term in count_terms(read_query(text)))
        largest = max(largest, sandbox.spent + int(postings * growth))
    return largest


def _run(source: str, asked: Problem, catalogue: Catalogue, upstream: Upstream, sandbox: WatchingSandbox) -> list[str]:
    """Run one episode; the texts it searched for."""
    toolbox = Toolbox("sn15", catalogue)
    gateway = Gateway(InferenceRules(models=(MODEL,)), [upstream], toolbox.schemas, LIMITS)
    rules = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="0" * 64, limits=LIMITS, models=(MODEL,))
    body = run_episode(source, asked, EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=sandbox), rules).body
    texts = []
    for call in (event for event in body.events if isinstance(event, ToolCall)):
        given = msgspec.json.decode(call.arguments)
        if call.name == "find_product":
            texts.append(given["q"])
        elif call.name == "find_products_in_same_shop":
            texts += [query["q"] for query in msgspec.json.decode(given["product_queries"])]
    return texts


if __name__ == "__main__":
    for row in measure():
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")

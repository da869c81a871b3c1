"""Host work: nanoseconds a unit at the worst inputs, seconds of an episode at the policy's limit, honest shares of it.

The worst inputs are those of `tests/harness/hostile_inputs.py` against 20,000 documents, each alone on a new recorder;
postings are also summed over arrays of 2.7 million documents, where they cost most. Honest episodes are the shipped
agents and an agent that uses all its steps and calls; "at 2.7 million" multiplies their postings. Times are
CPU times: `python -m tests.benchmarks.bench_host_work`, one JSON line a figure.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from arena.policies import PAPER
from foundation.canonical import text_hash
from harness.agents.registry import baseline_source, reference_agent
from harness.catalogue import layout
from harness.catalogue.native import Accumulate, accumulate, compiled_accumulate, open_catalogue
from harness.catalogue.port import Catalogue
from harness.catalogue.requests import count_terms, read_query
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
from tests.benchmarks.bench_episode import ScriptedUpstream
from tests.benchmarks.row import Row, held
from tests.harness.catalogue_stand import index_of
from tests.harness.episode_stand import reply
from tests.harness.hostile_inputs import hostile_calls, hostile_requests

DOCUMENTS, MILLIONS, ROUNDS = 20_000, 2_700_000, 3
LIMITS = PAPER.limits
MODELS = ("scripted-expert", "scripted-careful", "scripted-hasty")
BUSY, WHOLE = "all steps", "all steps, the whole question in each search"
REACT = Path(__file__).parents[1] / "harness" / "sn15_react_agent.py"
_row = partial(held, command="python -m tests.benchmarks.bench_host_work")


class BusyUpstream:
    """A model that asks for four tools in every completion, in six words of the problem each, or in all of them."""

    name = "busy"

    def __init__(self, asked: Problem, products: Sequence[Product], *, is_whole: bool) -> None:
        self._words, self._products, self._step, self._is_whole = asked.query.split(), products, 0, is_whole

    def complete(self, request: str) -> ModelReply:
        self._step += 1
        start = 7 * self._step % max(1, len(self._words) - 12)
        places = [slice(None)] * 3 if self._is_whole else [slice(start + by, start + by + 6) for by in (0, 3, 6)]
        queries = [" ".join(self._words[place]) for place in places]
        seen = ",".join(one.product_id for one in self._products[3 * self._step : 3 * self._step + 3])
        basket = msgspec.json.encode([{"q": q, "price": "0-5000"} for q in queries]).decode()
        return reply(
            ("find_product", {"q": queries[0], "price": "0-5000"}),
            ("find_product", {"q": " ".join(queries), "page": 1 + self._step % 3}),
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
    """The worst inputs, the limit in seconds, and what honest episodes use of it."""
    products = list(generate(DOCUMENTS, 7))
    with tempfile.TemporaryDirectory() as name:
        index = index_of(products, Path(name))
        rows = [
            _worst_row("tool call", hostile_calls(products), _calls, index),
            _worst_row("model request", hostile_requests(), _requests, index),
            *_posting_rows(),
        ]
        slowest = max(row.value for row in rows if "numpy" not in row.name)
        seconds = slowest * LIMITS.host_work / 1e9
        rows.append(_row("host work of an episode at its limit", seconds, "s", LIMITS.agent_time_ms / 1000))
        return [*rows, *_honest_rows(products, index, Path(name))]


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
            gateway = Gateway(rules, [_Answering()], toolbox.schemas, LIMITS)
            host = Recorder(toolbox, gateway, LIMITS, reader, shown_bytes, "a red lamp")
            started = time.process_time()
            with contextlib.suppress(GuestCallError, EpisodeOver):  # refused: counted like everything else
                host.call(method, params)
            times.append((time.process_time() - started) / host.work.spent)
        worst, what = max((worst, what), (min(times) * 1e9, why))
    return _row(f"host work, worst {kind}: {what}", worst, "ns/unit")


class _Answering:
    name = "stand"

    def complete(self, request: str) -> ModelReply:
        return reply(content="ok")

    def probe(self) -> bool:
        return True


def _posting_rows() -> list[Row]:
    """Lists of many lengths over 2.7 million documents, at the length that costs most."""
    kernels: dict[str, Accumulate] = {"numba": compiled_accumulate(), "numpy": accumulate}
    worst = dict.fromkeys(kernels, 0.0)
    draw = np.random.default_rng(1)
    sums = np.zeros(MILLIONS, np.float64)
    for length, words in ((1_000_000, 10), (100_000, 100), (10_000, 1_000)):
        lists = [np.sort(draw.choice(MILLIONS, length, replace=False)).astype(np.int32) for _ in range(10)]
        documents = np.concatenate([lists[word % 10] for word in range(words)])
        codes = draw.integers(0, 1_500, len(documents)).astype(np.uint16)
        starts = np.arange(words, dtype=np.int64) * length
        tables = draw.random((words, 1_500), np.float32) + np.float32(0.1)
        for name, kernel in kernels.items():
            times = []
            for _ in range(ROUNDS):
                started = time.process_time()
                kernel(documents, codes, starts, starts + length, tables, sums)
                times.append(time.process_time() - started)
            worst[name] = max(worst[name], min(times) / len(documents) / POSTING * 1e9)
    return [_row(f"host work, postings of 2.7 million documents, {name}", worst[name], "ns/unit") for name in kernels]


# -- honest episodes


def _honest_rows(products: Sequence[Product], index: Path, folder: Path) -> list[Row]:
    catalogue = open_catalogue(index)
    content = layout.read_manifest(index).content
    starts = layout.map_array(index, "starts", layout.ARRAYS["starts"])
    lengths = dict(zip(layout.read_vocabulary(index), np.diff(starts).tolist(), strict=True))
    growth = MILLIONS / content.documents - 1
    problems = synthesize(products, seed=3, counts={"product": 4, "shop": 4, "voucher": 4})
    full = baseline_source(MODELS[0]).replace("MAX_STEPS = 20", "MAX_STEPS = 25")
    agents = {f"baseline, {model}": baseline_source(model) for model in MODELS}
    agents |= {"subtask": reference_agent("subtask").source, "SN15 ReAct": REACT.read_text("utf-8")}
    agents |= {BUSY: full, WHOLE: full}
    admitted = {text_hash(source) for source in agents.values()}
    sandbox = WatchingSandbox(open_sandbox(folder, reference_sha256s=admitted, slots=1, wanted="reference-agents-only"))
    rows, largest = [], 0
    for name, source in agents.items():
        here, there = 0, 0
        for asked in problems:
            is_busy = source == full
            upstream = BusyUpstream(asked, products, is_whole=name == WHOLE) if is_busy else ScriptedUpstream()
            searches = _run(source, asked, catalogue, upstream, sandbox)
            postings = sum(lengths.get(term, 0) for text in searches for term in count_terms(read_query(text)))
            here, there = max(here, sandbox.spent), max(there, sandbox.spent + int(postings * growth))
        rows.append(_row(f"host work of an honest episode, {name}", here, "units", LIMITS.host_work / 10))
        rows.append(_row(f"the same at 2.7 million documents, {name}", there, "units", LIMITS.host_work / 10))
        largest = max(largest, there)
    name = "host work limit, 2.7 million documents, against the largest honest episode"
    return [*rows, _row(name, LIMITS.host_work, "units", largest)]


def _run(source: str, asked: Problem, catalogue: Catalogue, upstream: Upstream, sandbox: WatchingSandbox) -> list[str]:
    """Run one episode; the texts it searched for."""
    toolbox = Toolbox("sn15", catalogue)
    gateway = Gateway(InferenceRules(models=MODELS), [upstream], toolbox.schemas, LIMITS)
    rules = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="0" * 64, limits=LIMITS, models=MODELS)
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

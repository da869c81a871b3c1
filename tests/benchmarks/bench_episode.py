"""Episodes: what jail, RPC, tools and record cost, with the scripted model beside the host, sandbox on and off.

"On" is as a worker opens it: the next jail starts while an agent runs. "Off" is the `reference-agents-only` level: the
same runner, protocol, tools and recorder without a jail, whose Python starts in the episode. Episodes a second are
those of two processes, as a validator's workers are, each with its own jail and model. Run alone:
`python -m tests.benchmarks.bench_episode [episodes]`, one JSON line a figure.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec

from foundation.canonical import text_hash
from harness.agents.registry import baseline_source, reference_sha256s
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.inference.client import read_reply
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules, ModelReply
from harness.inference.scripted.model import complete
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestJob, Sandbox
from harness.sandbox.probe import open_sandbox
from harness.session import Episode, EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from problems.model import Problem
from problems.synthesis import synthesize
from tests.benchmarks.row import Row, held

DOCUMENTS, EPISODES, ROUND_TRIPS, WORKERS = 3_000, 24, 2_000, 2
WORKER_EPISODES = 150  # of each worker: some seconds, in which a start and an end count little
START_TIMEOUT_S = 120.0
MODEL = "scripted-expert"
TARGET_MS, TARGET_PER_S, TARGET_US = 150.0, 12.0, 150.0
RULES = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="0" * 64, models=(MODEL,))
ASKING = f"""
import time
from arena_sdk import tools
def agent_main(problem):
    took = []
    for _ in range({ROUND_TRIPS}):
        started = time.perf_counter()
        tools.execute("terminate", "{{}}")
        took.append(time.perf_counter() - started)
    return sorted(took)[len(took) // 2] * 1e6
"""


class ScriptedUpstream:
    """The scripted model without its server."""

    name = "scripted"

    def complete(self, request: str) -> ModelReply:
        return read_reply(msgspec.json.encode(complete(msgspec.json.decode(request))))

    def probe(self, request: str) -> None:
        return None


class EmptyHost:
    """Answers at once: what is left is the round trip."""

    def call(self, method: str, params: dict[str, object]) -> object:
        return {"result": "[]", "failure": None}


def measure(episodes: int = EPISODES) -> Sequence[Row]:
    """Median episode, its model-free part, episodes a second with two workers, and the median round trip."""
    products = list(generate(DOCUMENTS, 7))
    problems = synthesize(products, seed=3, counts={"product": episodes // 2, "shop": episodes - episodes // 2})
    admitted = reference_sha256s() | {text_hash(ASKING)}
    command = f"python -m tests.benchmarks.bench_episode {episodes}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "documents.jsonl").open("wb") as stream:
            write_documents(products, stream)
        build_index(folder / "documents.jsonl", folder / "index")
        catalogue = open_catalogue(folder / "index")
        on = open_sandbox(folder, reference_sha256s=admitted, slots=1, ahead=1)
        off = open_sandbox(folder, reference_sha256s=admitted, slots=1, wanted="reference-agents-only")
        rows = [*_episode_rows(problems, catalogue, on, off, command), _round_trip_row(on, off, command)]
        rate = _rate(folder, problems)
        return [*rows, held(f"episodes, {WORKERS} workers", rate, "episodes/s", TARGET_PER_S, command)]


def _rate(folder: Path, problems: Sequence[Problem]) -> float:
    """Episodes a second of all workers together, from the moment that the last of them is ready."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORKERS + 1)
    workers = [context.Process(target=_work, args=(folder, list(problems), barrier)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    barrier.wait(START_TIMEOUT_S)
    started = time.perf_counter()
    barrier.wait(START_TIMEOUT_S)
    seconds = time.perf_counter() - started
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError(f"a worker ended with {worker.exitcode}")
    return WORKERS * WORKER_EPISODES / seconds


def _work(folder: Path, problems: Sequence[Problem], barrier: Barrier) -> None:
    """One worker's process: a jail and an index of its own, as a validator's worker has them."""
    catalogue = open_catalogue(folder / "index")
    sandbox = open_sandbox(folder, reference_sha256s=reference_sha256s(), slots=1, ahead=1)
    _run(problems[0], catalogue, sandbox)
    barrier.wait(START_TIMEOUT_S)
    for number in range(WORKER_EPISODES):
        _run(problems[number % len(problems)], catalogue, sandbox)
    barrier.wait(START_TIMEOUT_S)


def _episode_rows(
    problems: Sequence[Problem], catalogue: Catalogue, on: Sandbox, off: Sandbox, command: str
) -> list[Row]:
    rows = []
    for sandbox in (on, off):
        _run(problems[0], catalogue, sandbox)
    jailed, bare = ([_run(problem, catalogue, sandbox) for problem in problems] for sandbox in (on, off))
    jailed_ms, bare_ms = (statistics.median(e.episode_ms for e in done) for done in (jailed, bare))
    overhead_ms = statistics.median(e.episode_ms - e.model_ms for e in jailed)
    rows.append(held(f"episode median, {on.level.name}", jailed_ms, "ms", TARGET_MS, command))
    rows.append(held("episode median without the model", overhead_ms, "ms", TARGET_MS, command))
    rows.append(held("episode median, sandbox on against off", jailed_ms, "ms", bare_ms, command))
    calls = statistics.mean(e.body.totals.tool_calls + e.body.totals.steps for e in jailed)
    rows.append(held("calls in one of these episodes", calls, "calls", None, command))
    return rows


def _round_trip_row(on: Sandbox, off: Sandbox, command: str) -> Row:
    jailed_us, bare_us = (_round_trip_us(sandbox) for sandbox in (on, off))
    return held(f"RPC round trip median (off: {bare_us:.0f} us)", jailed_us, "us", TARGET_US, command)


def _run(problem: Problem, catalogue: Catalogue, sandbox: Sandbox) -> Episode:
    toolbox = Toolbox("sn15", catalogue)
    gateway = Gateway(InferenceRules(models=(MODEL,)), [ScriptedUpstream()], toolbox.schemas, RULES.limits)
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=sandbox)
    episode = run_episode(baseline_source(MODEL), problem, ports, RULES)
    if episode.body.failure is not None:
        raise RuntimeError(f"the measured episode failed: {episode.body.failure}")
    return episode


def _round_trip_us(sandbox: Sandbox) -> float:
    job = GuestJob(source=ASKING, problem="{}", limits=EpisodeLimits(), tools="[]", models=())
    return float(sandbox.run(job, EmptyHost()).claim)


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else EPISODES):
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")

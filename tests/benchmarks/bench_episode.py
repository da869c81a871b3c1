"""Episodes: what jail, tools and record cost, with the scripted model beside the host, sandbox on and off.

"On" is as a worker opens it: the next jail starts while an agent runs. "Off" is the `reference-agents-only` level: the
same runner, protocol, tools and recorder without a jail, whose Python starts in the episode. Episodes a second, and
the slow ones under that load, are those of two processes, as a validator's workers are, each with its own jail and
model.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from harness.agents.registry import baseline_source, reference_sha256s
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules
from harness.inference.scripted.model import ScriptedUpstream
from harness.sandbox.port import Sandbox
from harness.sandbox.probe import open_sandbox
from harness.session import Episode, EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from problems.model import Problem
from problems.synthesis import synthesize
from tests.benchmarks.row import Row

DOCUMENTS, EPISODES, WORKERS = 3_000, 100, 2
WORKER_EPISODES = 150  # of each worker: some seconds, in which a start and an end count little
START_TIMEOUT_S = 120.0
MODEL = "scripted-expert"
TARGET_MS, TARGET_PER_S = 45.0, 40.0
COMMAND = "make bench ARGS=episode"
RULES = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256="0" * 64, models=(MODEL,))


def measure() -> Sequence[Row]:
    """Median episode, its model-free part, and episodes a second with two workers."""
    products = list(generate(DOCUMENTS, 7))
    problems = synthesize(products, seed=3, counts={"product": EPISODES // 2, "shop": EPISODES // 2})
    admitted = reference_sha256s()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "documents.jsonl").open("wb") as stream:
            write_documents(products, stream)
        build_index(folder / "documents.jsonl", folder / "index")
        catalogue = open_catalogue(folder / "index")
        on = open_sandbox(folder, reference_sha256s=admitted, slots=1, ahead=1)
        off = open_sandbox(folder, reference_sha256s=admitted, slots=1, wanted="reference-agents-only")
        return [*_episode_rows(problems, catalogue, on, off), *_load_rows(folder, problems)]


def _load_rows(folder: Path, problems: Sequence[Problem]) -> list[Row]:
    """Episodes a second of all workers together, from the moment that the last of them is ready, and the slow ones."""
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(WORKERS + 1), context.Queue()
    workers = [context.Process(target=_work, args=(folder, list(problems), barrier, done)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    barrier.wait(START_TIMEOUT_S)
    started = time.perf_counter()
    taken_ms = [one for _ in workers for one in done.get(timeout=START_TIMEOUT_S)]
    rate = len(taken_ms) / (time.perf_counter() - started)
    for worker in workers:
        worker.join()
    slow_ms = statistics.quantiles(taken_ms, n=100)[98]
    return [
        _row(f"episodes, {WORKERS} workers", rate, "episodes/s", TARGET_PER_S),
        _row(f"episode, 99th percentile of {len(taken_ms)} of {WORKERS} workers", slow_ms, "ms", TARGET_MS),
    ]


def _work(folder: Path, problems: Sequence[Problem], barrier: Barrier, done: Queue[list[int]]) -> None:
    """One worker's process: a jail and an index of its own, as a validator's worker has them."""
    catalogue = open_catalogue(folder / "index")
    sandbox = open_sandbox(folder, reference_sha256s=reference_sha256s(), slots=1, ahead=1)
    _run(problems[0], catalogue, sandbox)
    barrier.wait(START_TIMEOUT_S)
    some = (problems[number % len(problems)] for number in range(WORKER_EPISODES))
    done.put([_run(problem, catalogue, sandbox).episode_ms for problem in some])


def _episode_rows(problems: Sequence[Problem], catalogue: Catalogue, on: Sandbox, off: Sandbox) -> list[Row]:
    for sandbox in (on, off):
        _run(problems[0], catalogue, sandbox)
    jailed, bare = ([_run(problem, catalogue, sandbox) for problem in problems] for sandbox in (on, off))
    jailed_ms, bare_ms = (statistics.median(e.episode_ms for e in done) for done in (jailed, bare))
    own_ms = statistics.median(e.episode_ms - e.model_ms for e in jailed)
    return [
        _row(f"episode median, {on.level.name}", jailed_ms, "ms", TARGET_MS),
        _row("episode median without the model", own_ms, "ms", TARGET_MS),
        _row("episode median, sandbox on against off", jailed_ms, "ms", bare_ms),
    ]


def _row(name: str, value: float, unit: str, baseline: float) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, command=COMMAND)


def _run(problem: Problem, catalogue: Catalogue, sandbox: Sandbox) -> Episode:
    toolbox = Toolbox("sn15", catalogue)
    gateway = Gateway(InferenceRules(models=(MODEL,)), [ScriptedUpstream()], toolbox.schemas, RULES.limits)
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=sandbox)
    episode = run_episode(baseline_source(MODEL), problem, ports, RULES)
    if episode.body.failure is not None:
        raise RuntimeError(f"the measured episode failed: {episode.body.failure}")
    return episode

"""Corpus: the filter over a day of the firehose, against a plain JSON decode of the same rows in the same run.

The day is real episodes of the shipped agents and seeded mutations of them, 30 to 60 kB each, exported and read back.
Two processes are compared with one on the export, as a build reads it. Sizes come from the environment
(`BENCH_CORPUS_SIZES=3000`, where a fifth of the time is the start of processes); without it 3,000 and a day's 27,000.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from arena.chain.keys import verify
from foundation.executors.processes import executor_of
from tests.benchmarks.row import Row, held
from tests.training.firehose import Firehose, real_episodes, write_day
from tests.training.labelled import select
from training.corpus.exports import export_shards, open_export
from training.corpus.gates import Guard
from training.corpus.model import Rules
from training.corpus.selection import Task, decide, kept_rows

SIZES, TARGET_PER_S = (3_000, 27_000), 3_000.0
COMMAND = "make bench ARGS=corpus"
RULES = Rules(off=("tokens",))
TASK = Task(arms=(RULES,))


def measure() -> Sequence[Row]:
    """Trajectories a second by size and number of processes, and peak memory."""
    sizes = [int(word) for word in os.environ.get("BENCH_CORPUS_SIZES", "").split()] or list(SIZES)
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    try:
        (folder / "stand").mkdir()
        firehose = Firehose(real_episodes(folder / "stand"))
        rows = [row for size in sizes for row in _rates(firehose, size, folder / str(size))]
    finally:
        shutil.rmtree(folder)
    usage = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return [*rows, Row(name="filter, peak memory of one process", value=max(usage), unit="MB", baseline=2_048)]


def _rates(firehose: Firehose, size: int, folder: Path) -> list[Row]:
    folder.mkdir()
    write_day(firehose, folder / "export", size, formats=("jsonl", "parquet"))
    shards = export_shards(open_export(folder / "export", verify))
    lines = [msgspec.json.encode(trace) for shard in shards for trace in shard()]
    decode = _rate(size, lambda: [msgspec.json.decode(line) for line in lines])
    one, two = (
        _rate(size, partial(select, shards, TASK, Guard(), executor=executor_of(workers))) for workers in (0, 2)
    )
    found = select(shards, TASK, Guard())
    rates = {
        "plain JSON decode": (decode, None),
        "filter from the export, one process": (one, decode),
        "filter from the export, two processes": (two, decode),
        "filter, two processes against one": (two, one),
        "filter against the target": (two, TARGET_PER_S),
        "set-level rules alone": (_rate(size, lambda: decide(found.appraised, RULES)), decode),
        "second reading": (_rate(size, lambda: list(kept_rows(shards, found.appraised, found.decisions[0]))), decode),
    }
    size_kb = sum(map(len, lines)) / size / 1000
    return [
        held(f"{size:,} traces, size of one", size_kb, "kB", None, COMMAND),
        *(
            held(f"{size:,} traces, {name}", rate, "traces/s", beside, COMMAND)
            for name, (rate, beside) in rates.items()
        ),
    ]


def _rate(size: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return size / (time.perf_counter() - started)

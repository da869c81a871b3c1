"""Corpus: the filter over a day of the firehose, by two processes and by one.

The day is real episodes of the shipped agents and seeded mutations of them, 30 to 60 kB each, exported and read back.
A day is 27,000 of them; `BENCH_CORPUS_SIZE=3000` takes fewer, of whose time a fifth is the start of processes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from timeit import timeit

from arena.chain.keys import verify
from foundation.executors import ProcessExecutor
from harness.catalogue.synthetic import generate
from problems.model import Bucket
from problems.synthesis import synthesize
from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row
from tests.training.firehose import Firehose, real_episodes, write_day
from tests.training.labelled import select
from training.corpus.exports import export_shards, open_export
from training.corpus.gates import Guard
from training.corpus.model import Rules
from training.corpus.selection import Shard, Task

SIZE, TARGET_PER_S = int(os.environ.get("BENCH_CORPUS_SIZE", "27000")), 1_800.0
TASK = Task(arms=(Rules(off=("tokens",)),))
APART = (
    "import sys, pathlib; from tests.benchmarks.bench_corpus import *;"
    "select(shards_of(pathlib.Path(sys.argv[1])), TASK, Guard())"
)


def measure() -> Sequence[Row]:
    """Trajectories a second by number of processes and by what is held out, and peak memory."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    try:
        (folder / "stand").mkdir()
        write_day(Firehose(real_episodes(folder / "stand")), folder / "export", SIZE, formats=("jsonl", "parquet"))
        shards = shards_of(folder / "export")
        ways = ((Guard(), 0), (Guard(), 2), (holding_out(), 2))
        runs = (partial(select, shards, TASK, guard, executor=ProcessExecutor(workers)) for guard, workers in ways)
        one, two, guarded = (SIZE / timeit(run, "gc.enable()", number=1) for run in runs)
        _, usage = run_apart(APART, str(folder / "export"))
    finally:
        shutil.rmtree(folder)
    return [
        _row(f"filter of {SIZE:,} traces, two processes", two, "traces/s", TARGET_PER_S),
        _row("filter, two processes against one", two, "traces/s", one),
        _row("filter, two processes, 500 problems held out", guarded, "traces/s", TARGET_PER_S),
        _row("filter, peak memory of one process", usage, "MB", 2_048),
    ]


def shards_of(export: Path) -> Sequence[Shard]:
    """The shards of a verified export."""
    return export_shards(open_export(export, verify))


def holding_out() -> Guard:
    """As an operator's: it knows problems that are held out, of another catalogue, so that no trace is of one."""
    counts: dict[Bucket, int] = {"product": 300, "shop": 100, "voucher": 100}
    return Guard(None, {"eval": synthesize(list(generate(3_000, 8)), seed=11, counts=counts)})


def _row(name: str, value: float, unit: str, baseline: float) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, command="make bench ARGS=corpus")

"""Reading: an export opened for the first time and again, and its rows as traces, from the view and from the log.

One process, figures in its own processor time, so that a busy machine does not count. The day is that of the filter.
`BENCH_READING_ROWS=27000 make bench ARGS=reading` for a whole day.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from arena.chain.keys import verify
from tests.benchmarks.row import Row
from tests.training.export_reading import read_traces
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_day
from training.corpus.exports import open_export

ROWS = int(os.environ.get("BENCH_READING_ROWS", "1000"))
COMMAND = "make bench ARGS=reading"


def measure() -> Sequence[Row]:
    """Trajectories a second of each step; verification is the baseline of the seal."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    try:
        (folder / "stand").mkdir()
        write_day(Firehose(real_episodes(folder / "stand")), folder / "day", ROWS, formats=("jsonl", "parquet"))
        seals = folder / "seals"
        first = _rate(lambda: open_export(folder / "day", verify, seals=seals))
        again = _rate(lambda: open_export(folder / "day", verify, seals=seals))
        export = open_export(folder / "day", verify, seals=seals)
        view = _rate(lambda: sum(1 for _ in read_traces(export)))
    finally:
        shutil.rmtree(folder)
    return [
        _row(f"verify an export of {ROWS:,}, first time", first, None),
        _row(f"verify an export of {ROWS:,}, sealed", again, first),
        _row(f"read {ROWS:,} traces from the Parquet view", view, None),
    ]


def _rate(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return ROWS / (time.process_time() - started)


def _row(name: str, value: float, baseline: float | None) -> Row:
    ratio = None if baseline is None else value / baseline
    return Row(name=name, value=value, unit="traces/s", baseline=baseline, ratio=ratio, command=COMMAND)

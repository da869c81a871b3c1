"""Corpus: the filter over a day of the firehose, against a plain JSON decode of the same rows in the same run.

The day is real episodes of the shipped agents and seeded mutations of them, 30 to 60 kB each, exported and read back.
Two processes are compared with one on the export, as a build reads it. Sizes come from the environment
(`BENCH_CORPUS_SIZES=3000`, where a fifth of the time is the start of processes); without it 3,000 and a day's 27,000.
`BENCH_TOKENIZER` names a tokenizer.json to count with beside the stand-in.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from arena.chain.keys import verify
from foundation.executors.processes import executor_of
from tests.benchmarks.row import Row
from tests.training.firehose import Firehose, real_episodes
from tests.training.firehose_export import write_day
from tests.training.labelled import select
from training.corpus.appraisal import Task
from training.corpus.exports import export_shards, open_export
from training.corpus.leak_guard import Guard
from training.corpus.model import Rules, Trace
from training.corpus.selection import Shard, decide, kept_rows
from training.corpus.tokens import open_counter, render

SIZES, PER_FILE, TARGET_PER_S, COUNTED = (3_000, 27_000), 500, 3_000.0, 200
COMMAND = "make bench ARGS=corpus"
RULES = Rules(off=("tokens",))
TASK = Task(arms=(RULES,))


class TraceFile:
    """A shard: traces as JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> Iterator[Trace]:
        decoder = msgspec.json.Decoder(Trace)
        with self.path.open("rb") as lines:
            for line in lines:
                yield decoder.decode(line)


def measure() -> Sequence[Row]:
    """Trajectories a second by size and number of processes, tokenizers' own rate, peak memory."""
    sizes = [int(word) for word in os.environ.get("BENCH_CORPUS_SIZES", "").split()] or list(SIZES)
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    try:
        (folder / "stand").mkdir()
        firehose = Firehose(real_episodes(folder / "stand"))
        rows = [row for size in sizes for row in _rates(firehose, size, folder / str(size))]
        rows += _token_rates(TraceFile(next((folder / str(sizes[0])).glob("*.jsonl"))))
    finally:
        shutil.rmtree(folder)
    usage = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return [*rows, Row(name="filter, peak memory of one process", value=max(usage), unit="MB", baseline=2_048)]


def _rates(firehose: Firehose, size: int, folder: Path) -> list[Row]:
    folder.mkdir()
    write_day(firehose, folder / "export", size, formats=("jsonl", "parquet"))
    export = export_shards(open_export(folder / "export", verify))
    shards, size_bytes = _write_files(export, folder)
    decode = _rate(size, lambda: _decode_plainly(shards))
    files, one, two = (
        _rate(size, partial(select, these, TASK, Guard(), executor=executor_of(workers)))
        for these, workers in ((shards, 0), (export, 0), (export, 2))
    )
    found = select(shards, TASK, Guard())
    traces = found.appraised
    names = ("filter from JSON lines", "filter from the export, one process", "filter from the export, two processes")
    return [
        Row(name=f"{size:,} traces, size of one", value=size_bytes / size / 1000, unit="kB", command=COMMAND),
        _row(f"{size:,} traces, plain JSON decode", decode, None),
        *(_row(f"{size:,} traces, {name}", rate, decode) for name, rate in zip(names, (files, one, two), strict=True)),
        _row(f"{size:,} traces, filter, two processes against one", two, one),
        _row(f"{size:,} traces, filter against the target", two, TARGET_PER_S),
        _row(f"{size:,} traces, set-level rules alone", _rate(size, lambda: decide(traces, RULES)), decode),
        _row(
            f"{size:,} traces, second reading",
            _rate(size, lambda: list(kept_rows(shards, traces, found.decisions[0]))),
            decode,
        ),
    ]


def _write_files(export: Sequence[Shard], folder: Path) -> tuple[list[TraceFile], int]:
    """The traces of an export in files of 500; bytes in all."""
    files: list[TraceFile] = []
    lines: list[bytes] = []
    size_bytes = 0

    def close_file() -> None:
        if lines:
            files.append(TraceFile(folder / f"{len(files):04d}.jsonl"))
            files[-1].path.write_bytes(b"".join(lines))
            lines.clear()

    for shard in export:
        for trace in shard():
            lines.append(msgspec.json.encode(trace) + b"\n")
            size_bytes += len(lines[-1])
            if len(lines) == PER_FILE:
                close_file()
    close_file()
    return files, size_bytes


def _decode_plainly(files: Sequence[TraceFile]) -> None:
    for file in files:
        with file.path.open("rb") as lines:
            for line in lines:
                msgspec.json.decode(line)


def _token_rates(shard: TraceFile) -> list[Row]:
    """Traces a second of one process, rendering aside."""
    texts = [render(trace) for trace, _ in zip(shard(), range(COUNTED), strict=False)]
    given = os.environ.get("BENCH_TOKENIZER", "")
    rows = []
    for name, path in (("stand-in", None), *([("tokenizer.json", Path(given))] if given else [])):
        counter = open_counter(path)
        started = time.perf_counter()
        tokens = sum(map(counter.count, texts))
        elapsed_s = time.perf_counter() - started
        rows.append(Row(name=f"tokens, {name}", value=len(texts) / elapsed_s, unit="traces/s", command=COMMAND))
        rows.append(Row(name=f"tokens a trace, {name}", value=tokens / len(texts), unit="tokens", baseline=14_336))
    return rows


def _rate(size: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return size / (time.perf_counter() - started)


def _row(name: str, value: float, baseline: float | None) -> Row:
    ratio = value / baseline if baseline else None
    return Row(name=name, value=value, unit="traces/s", baseline=baseline, ratio=ratio, command=COMMAND)

"""A month of records through verification and filter: processor seconds a row, and memory, as rows grow.

    python -m tests.prove.month_scale_run FOLDER 20000 40000 80000
    python -m tests.prove.month_scale_run FOLDER 800000 --by processes --by ray

makes exports of `EACH` rows in FOLDER (8 to 20 ms and 6 kB of disk a row), verifies each once, and builds a corpus of
the first so many rows by `--workers` processes and by a Ray cluster of this machine. Every finished step stands in
FOLDER/results.json: the same command after a stop goes on behind it. It ends with the table of docs/performance.md.

`export FOLDER ROWS` exports so many made rows and prints what the exporter alone took.

Processor seconds are of the command and all its processes, read from Linux until each ends: a loaded machine changes
the wall's seconds and not these.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tests.prove.corpus_scale_run import ROOT, SIZES, folder_sha256, make_exports
from tests.training.firehose import Firehose, real_episodes

EACH = 20_000
MODULE = "tests.prove.month_scale_run"
LOOSE = ("--rule", "coefficient_e4_min=0")  # the day's verdicts are scripted: the other rules decide
_LOOK_EVERY_S = 0.05


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a step took. `whole_mb`: of all its processes at once; `parent_mb`: of the command's own."""

    rows: int
    cpu_s: float
    wall_s: float
    parent_mb: int
    worker_mb: int
    whole_mb: int
    digest: str = ""  # of the corpus that it wrote


class Results:
    """Steps by name, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.steps = msgspec.json.decode(path.read_bytes(), type=dict[str, Step]) if path.exists() else {}

    def once(self, name: str, run: Callable[[], Step]) -> None:
        """Run a step that has not ended yet."""
        if name not in self.steps:
            sys.stderr.write(f"{name}\n")
            self.steps[name] = run()
            self._path.write_bytes(msgspec.json.format(msgspec.json.encode(self.steps), indent=1))


def measured(command: Sequence[object], rows: int, environment: dict[str, str]) -> Step:
    """Run a command to its end. Raises RuntimeError with its words when it fails."""
    began, cpu, peaks, whole = time.monotonic(), dict[int, float](), dict[int, int](), 0
    words = [sys.executable, "-m", *map(str, command)]
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        top = psutil.Process(run.pid)
        while run.poll() is None:
            held = 0
            try:
                for one in (top, *top.children(recursive=True)):
                    with one.oneshot():
                        spent, memory = one.cpu_times(), one.memory_info()
                    cpu[one.pid] = spent.user + spent.system
                    peaks[one.pid] = max(peaks.get(one.pid, 0), memory.rss)
                    held += memory.rss - memory.shared
            except psutil.Error:
                pass  # it ended meanwhile
            whole = max(whole, held)
            time.sleep(_LOOK_EVERY_S)
        said = run.stderr.read() if run.stderr else b""
    if run.returncode:
        raise RuntimeError(f"{' '.join(words)}: {said.decode()[-2_000:]}")
    parent = peaks.pop(run.pid, 0)
    return Step(
        rows=rows,
        cpu_s=round(sum(cpu.values()), 1),
        wall_s=round(time.monotonic() - began, 1),
        parent_mb=parent >> 20,
        worker_mb=max(peaks.values(), default=0) >> 20,
        whole_mb=whole >> 20,
    )


def main() -> None:
    """Make, verify and build what has no result yet; print the table."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int, nargs="+", help=f"sizes to build, each a multiple of {EACH}")
    parser.add_argument("--by", choices=("processes", "ray"), action="append", help="default: processes")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    (folder / "wallets").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "ARENA_WALLET_PATH": str(folder / "wallets")}
    results = Results(folder / "results.json")
    seals = folder / "seals"

    def build(rows: int, days: Sequence[Path], by: str) -> Step:
        out, state = folder / "corpus", folder / "state"
        for old in (out, state):
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        shutil.copytree(seals, state / "corpus" / "seals")  # verified before: this step filters
        where = ["--workers", given.workers] if by == "processes" else ["--cluster", "local"]
        words = ["corpus", "build", *days, "--out", out, "--state-dir", state, *where, *LOOSE]
        found = measured(["neurons.cli.app", *words], rows, environment)
        return msgspec.structs.replace(found, digest=folder_sha256(out))

    for rows in sorted(given.rows):
        days = [folder / f"day{number}" for number in range(1, rows // EACH + 1)]
        for number, day in enumerate(days, 1):
            if not (day / "manifest.json").exists():
                shutil.rmtree(day, ignore_errors=True)
                results.once(
                    f"make {day.name}", lambda n=number: measured([MODULE, "make", folder, n], EACH, environment)
                )
            verify = [MODULE, "verify", day, seals, given.workers]
            results.once(f"verify {day.name}", lambda words=verify: measured(words, EACH, environment))
        for by in given.by or ["processes"]:
            results.once(f"filter {rows:,} by {by}", lambda b=by, d=days, r=rows: build(r, d, b))
    sys.stdout.write(table(results.steps))


def table(steps: dict[str, Step]) -> str:
    """The steps as Markdown."""
    lines = ["| step | rows | processor s | ms a row | wall s | parent MB | largest worker MB | all MB | digest |"]
    lines.append("|---" * 9 + "|")
    for name, one in steps.items():
        each = f"{1e3 * one.cpu_s / one.rows:.2f}"
        memory = f"{one.parent_mb} | {one.worker_mb} | {one.whole_mb}"
        lines.append(f"| {name} | {one.rows:,} | {one.cpu_s} | {each} | {one.wall_s} | {memory} | {one.digest[:12]} |")
    return "\n".join(lines) + "\n"


def _verify(day: Path, seals: Path, workers: int) -> None:
    from arena.chain.keys import verify
    from foundation.executors.processes import executor_of
    from training.corpus.exports import open_export

    open_export(day, verify, seals=seals, executor=executor_of(workers))


def _export(folder: Path, rows: int) -> None:
    from tests.training import firehose_export

    export = firehose_export.export_records

    async def timed(*given: Any, **named: Any) -> Any:
        before = os.times()
        made = await export(*given, **named)
        now = os.times()
        spent = sum(now[:4]) - sum(before[:4])
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        sys.stdout.write(f"{rows:,} rows: {spent:.1f} processor s, {1e3 * spent / rows:.2f} ms a row, {peak_mb} MB\n")
        return made

    firehose_export.export_records = timed
    (folder / "arena").mkdir(parents=True, exist_ok=True)
    episodes = real_episodes(folder / "arena")
    firehose_export.write_day(Firehose(episodes, sizes=SIZES), folder / f"e{rows}", rows, formats=("jsonl", "parquet"))


if __name__ == "__main__":
    if sys.argv[1] == "export":
        _export(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "make":
        make_exports(Path(sys.argv[2]), EACH, [int(sys.argv[3])])
    elif sys.argv[1] == "verify":
        _verify(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()

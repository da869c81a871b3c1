"""`make bench`: run every `bench_*.py` beside this file, print every figure and write `build/bench.json`.

Figures of one run only; a benchmark that fails is named and the rest still run. Each stands beside a loop of plain
Python timed before and after it, since equal machines differ by half from hour to hour. None of this is a timed test:
nothing here fails because a machine is slow. Arguments choose benchmarks by a part of their file name.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.benchmarks.row import Row, measured_loop_ms

HERE = Path(__file__).parent
LOAD = "load average when the run began"
RESULT = HERE.parents[1] / "build" / "bench.json"


def modules(wanted: Sequence[str]) -> list[str]:
    """Benchmark modules by name, in order; all of them when nothing is wanted in particular."""
    names = sorted(path.stem for path in HERE.glob("bench_*.py"))
    return [name for name in names if not wanted or any(part in name for part in wanted)]


def measure(names: Sequence[str], console: Console) -> tuple[list[Row], list[str]]:
    """Rows of all benchmarks, each in a process of its own, and the names of those that failed: what one leaves in
    memory is looked through by the next one's garbage collector."""
    rows: list[Row] = []
    failed: list[str] = []
    for name in names:
        started, before_ms = time.perf_counter(), measured_loop_ms()
        with tempfile.NamedTemporaryFile() as kept:
            done = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.run", name, "--rows", kept.name], check=False
            )
            found = msgspec.json.decode(kept.read(), type=list[Row]) if done.returncode == 0 else None
        if found is None:  # its traceback stands above; the other figures are still wanted
            failed.append(name)
            continue
        loop_ms = (before_ms + measured_loop_ms()) / 2
        rows += [msgspec.structs.replace(row, loop_ms=loop_ms) for row in found]
        console.print(f"{name}: {len(found)} figures in {time.perf_counter() - started:.1f} s", style="dim")
    return rows, failed


def table_of(rows: Sequence[Row]) -> Table:
    """The table a person reads."""
    table = Table("benchmark", "value", "unit", "baseline", "ratio", "in loops", "command")
    for column in ("value", "baseline", "ratio", "in loops"):
        next(c for c in table.columns if c.header == column).justify = "right"
    for row in rows:
        baseline = "" if row.baseline is None else f"{row.baseline:,.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:,.3g}x"
        loops = "" if row.loops is None else f"{row.loops:,.3g}"
        table.add_row(row.name, f"{row.value:,.4g}", row.unit, baseline, ratio, loops, row.command)
    return table


def write(rows: Sequence[Row], path: Path = RESULT) -> None:
    """`build/bench.json`: name -> value, unit, baseline, ratio, loops, command."""
    path.parent.mkdir(exist_ok=True)
    plain = {row.name: {**msgspec.to_builtins(row), "ratio": row.ratio, "loops": row.loops} for row in rows}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks; exit code 1 when one of them failed."""
    parser = argparse.ArgumentParser(description="Measure, print a table, write build/bench.json.")
    parser.add_argument("part", nargs="*", help="only benchmarks whose file name contains one of these")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="run one in this process and write its rows there")
    console = Console(stderr=True)
    given = parser.parse_args(argv)
    names = modules(given.part)
    if not names:
        parser.error(f"no such benchmark; there are {', '.join(modules([]))}")
    if given.rows:
        found = list(importlib.import_module(f"tests.benchmarks.{names[0]}").measure())
        given.rows.write_bytes(msgspec.json.encode(found))
        return 0
    load = Row(name=LOAD, value=os.getloadavg()[0], unit="processes", baseline=0)
    found, failed = measure(names, console)
    rows = [load, *found]
    if len({row.name for row in rows}) != len(rows):
        raise ValueError("two benchmarks report a figure of the same name")
    write(rows)
    Console().print(table_of(rows))
    if failed:
        console.print(f"failed: {', '.join(failed)}", style="red")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

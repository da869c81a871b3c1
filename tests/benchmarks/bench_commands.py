"""The commands a miner waits for, as processes of their own, started as they are typed: the median of several.

`arena run` is warm: one run before made the suite and the index, in a cache folder of this benchmark. Its
first row is timed at the moment it can be read.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.row import Row

ROUNDS, EPISODES = 5, 6
AGENT = Path(__file__).parents[2] / "examples" / "model_loop.py"
ARENA = (sys.executable, "-m", "neurons.cli.app")
COMMAND = "make bench ARGS=commands"


def measure() -> Sequence[Row]:
    """Seconds of the clock. Raises RuntimeError for a command that ends with another code than 0."""
    with tempfile.TemporaryDirectory(prefix="arena-") as cache:
        run = ("run", str(AGENT), "--count", str(EPISODES))
        _seconds(run, cache)
        names = ("--help", "check", "submit --help", "status --help", "race --help", "records --help")
        lines = {f"arena {name}": (*name.split(), *([str(AGENT)] if name == "check" else [])) for name in names}
        timed = {name: [_seconds(line, cache)[1] for _ in range(ROUNDS)] for name, line in lines.items()}
        runs = [_seconds(run, cache) for _ in range(ROUNDS)]
    timed["arena run --count 6, warm, first row"] = [first for first, _ in runs]
    timed["arena run --count 6, warm"] = [whole for _, whole in runs]
    return [Row(name=name, value=statistics.median(each), unit="s", command=COMMAND) for name, each in timed.items()]


def _seconds(arguments: Sequence[str], cache: str) -> tuple[float, float]:
    """(to the first line that tells of a problem, to the end); the end twice for a command that tells of none."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "COLUMNS": "100"}
    started = time.perf_counter()
    with subprocess.Popen(
        [*ARENA, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        first = 0.0
        for line in running.stdout:
            if not first and "p_" in line:
                first = time.perf_counter() - started
        code = running.wait()
    whole = time.perf_counter() - started
    if code:
        raise RuntimeError(f"arena {' '.join(arguments)} ended with {code}")
    return first or whole, whole

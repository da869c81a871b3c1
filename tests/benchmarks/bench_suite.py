"""How long `make test` takes here, where `BENCH_SUITE` asks for it: a quarter of an hour. Install is not in it if
`make install` was run before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.row import Row

ROOT = Path(__file__).parents[2]
COMMAND = "BENCH_SUITE=1 make bench ARGS=suite"


def measure() -> Sequence[Row]:
    """Minutes of the clock; nothing where it is not asked for. Raises CalledProcessError for a suite that fails."""
    if not os.environ.get("BENCH_SUITE"):
        return []
    started = time.perf_counter()
    subprocess.run(["make", "--silent", "test"], cwd=ROOT, stdout=sys.stderr, check=True)
    return [Row(name="make test", value=(time.perf_counter() - started) / 60, unit="min", command=COMMAND)]

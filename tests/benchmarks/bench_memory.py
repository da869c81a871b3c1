"""What a validator holds at rest and in races, all its processes together, and how long `arena validator status` takes.

Six races, some ten seconds each; `BENCH_RACES=30 make bench ARGS=memory` is what `make prove` bounds too
(`tests/neurons/test_soak.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tests.benchmarks.row import Row
from tests.neurons.arena_stand import build_small_catalogue, short_folder
from tests.neurons.process_stand import growth_mb, rest, soak

RACES = int(os.environ.get("BENCH_RACES", "6"))


def measure() -> Sequence[Row]:
    """Megabytes, pages that several processes share counted once, and seconds of the command beside its node."""
    with short_folder() as base:
        catalogue = build_small_catalogue(base)
        resting_mb, status_s = rest(base, catalogue)
        races = soak(base, catalogue, RACES)
    first, last = races[0], races[-1]
    return [
        _row("validator at rest, memory of all processes", resting_mb, "MB"),
        _row("validator in a race, most memory of all processes", max(one.most_mb for one in races), "MB"),
        _row(f"validator, growth a race over {RACES} races", growth_mb(races), "MB"),
        _row("validator's own process after the last race", last.own_mb, "MB", first.own_mb),
        _row("processes of a validator in a race", last.processes, "processes", first.processes),
        _row("arena validator status", status_s, "s"),
    ]


def _row(name: str, value: float, unit: str, baseline: float | None = None) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, command="make bench ARGS=memory")

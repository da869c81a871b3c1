"""What a validator holds at rest and in races, all its processes together, and how long what is asked beside it takes;
and how late its slow answers come, at its door and of its log's pages, to eight that ask at once while it races.

Six races, some ten seconds each; `BENCH_RACES=30 make bench ARGS=memory` is what `make prove` bounds too
(`tests/neurons/test_soak.py`).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx2

from neurons.demo.demo import DemoRun
from tests.arena.tail_stand import free_port
from tests.benchmarks.row import Row
from tests.neurons.arena_stand import build_small_catalogue, short_folder
from tests.neurons.process_stand import growth_mb, rest, soak

RACES, ASKING, ASKED = int(os.environ.get("BENCH_RACES", "6")), 8, 64
PATHS = {"door": "v1/door", "reads": "v1/agents"}


def measure() -> Sequence[Row]:
    """Megabytes, pages that several processes share counted once, and seconds of the command beside its node."""
    with short_folder() as base, httpx2.Client() as http:
        catalogue = build_small_catalogue(base)
        resting_mb, waits = rest(base, catalogue)
        taken_ms, ports = {name: list[float]() for name in PATHS}, {name: free_port() for name in PATHS}

        def ask(run: DemoRun, race: int) -> None:
            with ThreadPoolExecutor(ASKING) as several:
                for name, path in PATHS.items():
                    url = f"http://127.0.0.1:{ports[name]}/{path}"
                    taken_ms[name] += several.map(_ask, [http] * ASKED, [url] * ASKED)

        races = soak(base, catalogue, RACES, ask, door_port=ports["door"], serve_port=ports["reads"])
    return [
        _row("validator at rest, memory of all processes", resting_mb, "MB"),
        _row("validator in a race, most memory of all processes", max(one.most_mb for one in races), "MB"),
        _row(f"validator, growth a race over {RACES} races", growth_mb(races), "MB"),
        *(_row(name, seconds, "s") for name, seconds in waits.items()),
        *(
            _row(f"{name}, 99th percentile", statistics.quantiles(each, n=100)[98], "ms")
            for name, each in taken_ms.items()
        ),
    ]


def _ask(http: httpx2.Client, url: str) -> float:
    started = time.perf_counter()
    http.get(url).raise_for_status()
    return (time.perf_counter() - started) * 1_000


def _row(name: str, value: float, unit: str, baseline: float | None = None) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, command="make bench ARGS=memory")

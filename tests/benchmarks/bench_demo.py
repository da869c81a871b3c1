"""`make demo` in a clean clone of the commit that is checked out: with an empty pip cache, then with what the first one
left. Install, catalogue and race are all in it, and it needs a package index.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.row import Row

ROOT = Path(__file__).parents[2]
TARGET_S = 60.0
COMMAND = "make bench ARGS=demo"


def measure() -> Sequence[Row]:
    """Seconds of the clock. Raises CalledProcessError for a demo that fails."""
    with tempfile.TemporaryDirectory(prefix="arena-") as name:
        cold, warm = (_seconds(Path(name), each) for each in ("cold", "warm"))
    return [
        Row(name=f"make demo, clean clone, pip cache {each}", value=value, unit="s", baseline=TARGET_S, command=COMMAND)
        for each, value in (("cold", cold), ("warm", warm))
    ]


def _seconds(folder: Path, name: str) -> float:
    """A clone, an environment and a state of its own; caches of pip and of the arena lie in `folder`."""
    caches = {"PIP_CACHE_DIR": folder / "pip", "UV_CACHE_DIR": folder / "uv", "XDG_CACHE_HOME": folder / name / "cache"}
    environment = {**os.environ, **{variable: str(place) for variable, place in caches.items()}}
    environment.pop("VIRTUAL_ENV", None)
    started = time.perf_counter()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / name / "clone")], check=True)
    subprocess.run(
        ["make", "--silent", "demo", f"ARGS=--state-dir {folder / name / 'state'}"],
        cwd=folder / name / "clone",
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started

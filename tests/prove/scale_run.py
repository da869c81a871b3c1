"""One phase of a catalogue's life in a process of its own, so that its memory can be told: build, or open and search.

`build DOCUMENTS INDEX [BLOCK]` and `search INDEX ENGINE REQUESTS` print one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.catalogue.build import BLOCK_DOCUMENTS, build_index, write_documents
from harness.catalogue.lucene import open_engine
from harness.catalogue.synthetic import generate
from tests.harness.catalogue_stand import drawn_requests

REQUESTS = 400
SEED = 7


def build(documents: Path, index: Path, block_documents: int = BLOCK_DOCUMENTS) -> dict[str, Any]:
    """Seconds and peak memory of a build; what it holds besides `block_documents` documents is what grows."""
    started = time.perf_counter()
    content = build_index(documents, index, block_documents=block_documents).manifest.content
    seconds = time.perf_counter() - started
    index_mb = sum(file.size for file in content.files) >> 20
    return {"documents": content.documents, "index_mb": index_mb, "build_s": seconds, **_memory_mb()}


def search(index: Path, engine: str, count: int) -> dict[str, Any]:
    """Milliseconds of the second round of `count` requests, and memory after it."""
    started = time.perf_counter()
    catalogue = open_engine(engine, index)
    open_s = time.perf_counter() - started
    requests = drawn_requests(catalogue, count, seed=3)
    found = 0
    for _ in range(2):
        times_ms = []
        for request in requests:
            started = time.perf_counter()
            found += bool(catalogue.search(request))
            times_ms.append((time.perf_counter() - started) * 1e3)
    ordered = sorted(times_ms)
    p50_ms, p99_ms = ordered[count // 2], ordered[count * 99 // 100]
    return {"open_s": open_s, "p50_ms": p50_ms, "p99_ms": p99_ms, "pages_found": found // 2, **_memory_mb()}


def run_phase(*arguments: object) -> dict[str, Any]:
    """A phase in a fresh process."""
    command = [sys.executable, "-m", "tests.prove.scale_run", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    phase: dict[str, Any] = json.loads(done.stdout)
    return phase


def synthesise(count: int, documents: Path) -> float:
    """Write a synthetic catalogue; returns the seconds it took."""
    started = time.perf_counter()
    with documents.open("wb") as stream:
        write_documents(generate(count, SEED), stream)
    return time.perf_counter() - started


def measure(documents: Path, index: Path, engines: tuple[str, ...] = ("numba", "numpy")) -> dict[str, dict[str, Any]]:
    """Build the index of `documents` and search it with each engine."""
    phases = {"build": run_phase("build", documents, index)}
    return phases | {engine: run_phase("search", index, engine, REQUESTS) for engine in engines}


def _memory_mb() -> dict[str, int]:
    """Of this process, mapped files included, from Linux: the most there was, what there is, and what is its own."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    names = {"peak_mb": "VmHWM", "resident_mb": "VmRSS", "own_mb": "RssAnon"}
    return {name: int(status[field].split()[0]) >> 10 for name, field in names.items()}


if __name__ == "__main__":
    what, first, *others = sys.argv[1:]
    if what == "build":
        result = build(Path(first), Path(others[0]), *map(int, others[1:]))
    else:
        result = search(Path(first), others[0], int(others[1]))
    sys.stdout.write(json.dumps(result))

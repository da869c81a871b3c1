"""Search: the engine against the reference algorithm on the same catalogue and queries, in one process.

The reference algorithm is `tests.harness.catalogue_oracle`, in Python: score every hit, order them, load and filter up
to 10,000 stored documents one by one. It is not Lucene: ratios to the reference server stand in the search notes.
Run alone: `python -m tests.benchmarks.bench_search [documents]`, one JSON line a figure.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from harness.catalogue.accumulator import Kernel
from harness.catalogue.documents import document_line
from harness.catalogue.engine import open_catalogue
from harness.catalogue.index import build_index
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from tests.benchmarks.row import Row
from tests.harness.catalogue_oracle import Oracle
from tests.harness.catalogue_stand import mixed_requests

DOCUMENTS, REQUESTS, WARM_UP = 20_000, 200, 20
KERNELS: tuple[Kernel, ...] = ("numpy", "numba")


def measure(documents: int = DOCUMENTS) -> Sequence[Row]:
    """Build rate, latency of both at p50 and p99, and the share of pages that are equal."""
    products = list(generate(documents, 7))
    lines = [document_line(product) for product in products]
    requests = mixed_requests(products, REQUESTS + WARM_UP, seed=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "documents.jsonl").write_bytes(b"".join(lines))
        started = time.perf_counter()
        build_index(folder / "documents.jsonl", folder / "index")
        build_s = time.perf_counter() - started
        runs = {kernel: _search(folder / "index", kernel, requests) for kernel in KERNELS}
    theirs_ms, theirs = _timed(Oracle(lines).page, requests)
    command = f"python -m tests.benchmarks.bench_search {documents}"
    size = f"{documents // 1000}k documents"
    rows = [Row(name=f"index build, {size}", value=documents / build_s, unit="documents/s", command=command)]
    for kernel, (ours_ms, ours) in runs.items():
        rows += [
            _latency(f"search {kernel} p{share}, {size}", ours_ms, theirs_ms, share, command) for share in (50, 99)
        ]
        equal = sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)
        name = f"search {kernel} pages equal, {size}"
        rows.append(Row(name=name, value=equal, unit="share", baseline=1.0, ratio=equal, command=command))
    return rows


def _search(index: Path, kernel: Kernel, requests: list[SearchRequest]) -> tuple[list[float], list[list[str]]]:
    catalogue = open_catalogue(index, kernel=kernel)
    return _timed(lambda request: [product.product_id for product in catalogue.search(request)], requests)


def _timed(
    search: Callable[[SearchRequest], list[str]], requests: list[SearchRequest]
) -> tuple[list[float], list[list[str]]]:
    """Milliseconds of each request after the warm-up, ascending, and all pages."""
    pages, milliseconds = [], []
    for request in requests:
        started = time.perf_counter()
        pages.append(search(request))
        milliseconds.append((time.perf_counter() - started) * 1e3)
    return sorted(milliseconds[WARM_UP:]), pages


def _latency(name: str, ours_ms: list[float], theirs_ms: list[float], share: int, command: str) -> Row:
    ours, theirs = (values[len(values) * share // 100] for values in (ours_ms, theirs_ms))
    return Row(name=name, value=ours, unit="ms", baseline=theirs, ratio=theirs / ours, command=command)


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS):
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")

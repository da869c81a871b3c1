"""Search: the engine against the reference on the same catalogue and requests, in one process.

The reference is Lucene where its packages are installed, and always the reference's algorithm in plain Python: score
every hit, order them, load, decode and filter up to 10,000 stored documents one by one. The two are named apart.
Run alone: `python -m tests.benchmarks.bench_search [documents]`, one JSON line a figure.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from harness.catalogue.build import write_documents
from harness.catalogue.lucene import build_engine, open_engine
from harness.catalogue.port import Catalogue, SearchRequest
from harness.catalogue.synthetic import generate
from tests.benchmarks.row import Row
from tests.harness.catalogue_stand import drawn_requests
from tests.harness.reference_search import ReferenceSearch

DOCUMENTS, REQUESTS, BUDGET_S = 20_000, 200, 30.0
WARM_UP = 10  # requests asked twice of each engine, the first time untimed
KERNELS = ("numpy", "numba")
Search = Callable[[SearchRequest], Sequence[str]]


def measure(documents: int = DOCUMENTS) -> Sequence[Row]:
    """Build rate, and for each reference: latency at p50 and p99 of each kernel, and the share of equal pages."""
    size, command = f"{documents // 1000}k documents", f"python -m tests.benchmarks.bench_search {documents}"
    with tempfile.TemporaryDirectory() as name:
        source, index, lucene = (Path(name) / part for part in ("documents.jsonl", "index", "lucene"))
        with source.open("wb") as stream:
            write_documents(generate(documents, 7), stream)
        started = time.perf_counter()
        build_engine("auto", source, index)
        rate = documents / (time.perf_counter() - started)
        rows = [Row(name=f"index build, {size}", value=rate, unit="documents/s", command=command)]
        kernels = {kernel: open_engine(kernel, index) for kernel in KERNELS}
        requests = drawn_requests(kernels[KERNELS[0]], REQUESTS, seed=1)
        references: dict[str, Search] = {"algorithm": ReferenceSearch(index).page}
        try:
            build_engine("lucene", source, lucene)
            references["Lucene"] = _ids_of(open_engine("lucene", lucene))
        except ArenaError as error:
            print(f"no Lucene here: {error}", file=sys.stderr)
        for reference, search in references.items():
            pages, theirs_ms = _asked(search, requests)
            for kernel, catalogue in kernels.items():
                ours, ours_ms = _asked(_ids_of(catalogue), requests[: len(pages)])
                name = f"search {kernel} {{}} vs {reference}, {size}"
                for point, place in (("p50", len(pages) // 2), ("p99", len(pages) * 99 // 100)):
                    mine, base = sorted(ours_ms)[place], sorted(theirs_ms)[place]
                    rows.append(
                        Row(
                            name=name.format(point),
                            value=mine,
                            unit="ms",
                            baseline=base,
                            ratio=base / mine,
                            command=command,
                        )
                    )
                share = sum(one == other for one, other in zip(ours, pages, strict=True)) / len(pages)
                rows.append(Row(name=name.format("pages equal"), value=share, unit="share", command=command))
    return rows


def _asked(search: Search, requests: Sequence[SearchRequest]) -> tuple[list[list[str]], list[float]]:
    """Pages and milliseconds, of as many requests as `BUDGET_S` allows."""
    for request in requests[:WARM_UP]:
        search(request)
    pages, times_ms = [], list[float]()
    while len(pages) < len(requests) and sum(times_ms) < 1e3 * BUDGET_S:
        started = time.perf_counter()
        pages.append(list(search(requests[len(pages)])))
        times_ms.append((time.perf_counter() - started) * 1e3)
    return pages, times_ms


def _ids_of(catalogue: Catalogue) -> Search:
    return lambda request: [product.product_id for product in catalogue.search(request)]


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS):
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")

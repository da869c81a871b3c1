"""Search: the engine against the reference and three libraries on the same catalogue and requests, in one process.

The reference is Lucene's algorithm in plain Python: score every hit, order them, load, decode and filter up to 10,000
stored documents one by one. Its pages have to be equal, else the benchmark ends. Of a library counts only the time, and
of requests only those that it can read. `BENCH_DOCUMENTS=20000 make bench ARGS=search` takes fewer products.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.catalogue.build import write_documents
from harness.catalogue.lucene import build_engine, open_engine
from harness.catalogue.port import Catalogue, SearchRequest, read_request
from harness.catalogue.synthetic import generate
from tests.benchmarks import search_libraries
from tests.benchmarks.row import Row
from tests.harness.catalogue_stand import drawn_requests
from tests.harness.reference_search import ReferenceSearch

DOCUMENTS, REQUESTS, BUDGET_S = int(os.environ.get("BENCH_DOCUMENTS", "100000")), 200, 30.0
WARM_UP = 10  # requests asked twice of each engine, the first time untimed
KERNELS = ("numpy", "numba")
LIBRARIES = {
    "bm25s": search_libraries.open_bm25s,
    "tantivy": search_libraries.open_tantivy,
    "DuckDB": search_libraries.open_duckdb,
}
Search = Callable[[SearchRequest], Sequence[str]]


def measure() -> Sequence[Row]:
    """Build rate, and requests a second at the median request: of each kernel to the reference's, of libraries to the
    faster kernel's."""
    size, command = f"{DOCUMENTS // 1000}k documents", "make bench ARGS=search"
    with tempfile.TemporaryDirectory() as name:
        source, index = Path(name) / "documents.jsonl", Path(name) / "index"
        with source.open("wb") as stream:
            write_documents(generate(DOCUMENTS, 7), stream)
        started = time.perf_counter()
        build_engine("auto", source, index)
        rate = DOCUMENTS / (time.perf_counter() - started)
        rows = [Row(name=f"index build, {size}", value=rate, unit="documents/s", command=command)]
        kernels = {kernel: open_engine(kernel, index) for kernel in KERNELS}
        requests = drawn_requests(kernels[KERNELS[0]], REQUESTS, seed=1)
        pages, floor = _asked(ReferenceSearch(index).page, requests)
        for kernel, catalogue in kernels.items():
            ours, rate = _asked(_ids_of(catalogue), requests[: len(pages)])
            if ours != pages:
                raise ValueError(f"pages of {kernel} are not the reference's")
            name = f"search {kernel}, median request, {size}"
            rows.append(Row(name=name, value=rate, unit="requests/s", baseline=floor, command=command))
        ours = max(row.value for row in rows[1:])
        readable = [one for one in requests if read_request(one)]
        for library, opened in LIBRARIES.items():
            search = opened(source)
            _, rate = _asked(lambda one, search=search: search(read_request(one)), readable)
            name = f"search {library}, median request, {size}"
            rows.append(Row(name=name, value=rate, unit="requests/s", baseline=ours, command=command))
    return rows


def _asked(search: Search, requests: Sequence[SearchRequest]) -> tuple[list[list[str]], float]:
    """Pages, of as many requests as `BUDGET_S` allows, and requests a second at their median."""
    for request in requests[:WARM_UP]:
        search(request)
    pages, times_s = [], list[float]()
    while len(pages) < len(requests) and sum(times_s) < BUDGET_S:
        started = time.perf_counter()
        pages.append(list(search(requests[len(pages)])))
        times_s.append(time.perf_counter() - started)
    return pages, 1 / statistics.median(times_s)


def _ids_of(catalogue: Catalogue) -> Search:
    return lambda request: [product.product_id for product in catalogue.search(request)]

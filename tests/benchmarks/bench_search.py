"""Search: the engine against the reference on the same catalogue and requests, in one process.

The reference is Lucene where its packages are installed, and always the reference's algorithm in plain Python: score
every hit, order them, load, decode and filter up to 10,000 stored documents one by one. The two are named apart.
Run alone: `python -m tests.benchmarks.bench_search [documents]`, one JSON line a figure.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from harness.catalogue.build import write_documents
from harness.catalogue.engine import build_engine, open_engine
from harness.catalogue.lucene import require_packages
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from tests.benchmarks.row import Row
from tests.harness.engine_comparison import EngineFigures, Search, compare, sample_requests
from tests.harness.reference_search import ReferenceSearch

DOCUMENTS, REQUESTS, BUDGET_S = 20_000, 200, 30.0
KERNELS = ("numpy", "numba")


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
        requests = sample_requests(kernels[KERNELS[0]], REQUESTS, seed=1)
        searches = {kernel: _ids_of(catalogue) for kernel, catalogue in kernels.items()}
        baselines: dict[str, Search] = {"algorithm": ReferenceSearch(index).page}
        if _has_lucene():
            build_engine("lucene", source, lucene)
            baselines["Lucene"] = _ids_of(open_engine("lucene", lucene))
        for baseline, search in baselines.items():
            engines = {baseline: search, **searches}
            expected, *ours = compare(engines, requests, clock=time.perf_counter, budget_s=BUDGET_S)
            for figures in ours:
                rows += _rows(figures, expected, f"{baseline}, {size}", command)
    return rows


def _rows(ours: EngineFigures, theirs: EngineFigures, about: str, command: str) -> list[Row]:
    share = ours.pages_equal / ours.queries
    name = f"search {ours.engine} {{}} vs {about}"
    return [
        Row(
            name=name.format("p50"),
            value=ours.p50_ms,
            unit="ms",
            baseline=theirs.p50_ms,
            ratio=ours.ratio_p50,
            command=command,
        ),
        Row(
            name=name.format("p99"),
            value=ours.p99_ms,
            unit="ms",
            baseline=theirs.p99_ms,
            ratio=ours.ratio_p99,
            command=command,
        ),
        Row(name=name.format("pages equal"), value=share, unit="share", baseline=1.0, ratio=share, command=command),
    ]


def _ids_of(catalogue: Catalogue) -> Search:
    return lambda request: [product.product_id for product in catalogue.search(request)]


def _has_lucene() -> bool:
    try:
        require_packages()
    except ArenaError:
        return False
    return True


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS):
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")

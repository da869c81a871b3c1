"""Every page of both our kernels is Lucene's page: a thousand varied requests over each of two catalogues."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from harness.catalogue.build import read_products
from harness.catalogue.lucene import build_engine, open_engine
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from problems.product import Product
from tests.harness.catalogue_queries import adversarial_products, varied_requests
from tests.harness.catalogue_stand import REAL_DOCUMENTS, write_products

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("_lucene")]

DOCUMENTS, REQUESTS = 100_000, 1_000
PADDED = 30_000  # documents beside the real ones
NAMES = ("lucene", "numpy", "numba")
MOST_SHOWN = 5


def _keep(products: Iterable[Product], every: int, kept: list[Product]) -> Iterator[Product]:
    """The products, some of them kept aside to make requests from: a large catalogue is not held in memory."""
    for number, one in enumerate(products):
        if number % every == 0:
            kept.append(one)
        yield one


def _prove(documents: Path, requests: list[SearchRequest], folder: Path) -> None:
    """Equal pages, and a line with the times for the reader of the log."""
    build_engine("numba", documents, folder / "ours")
    build_engine("lucene", documents, folder / "theirs")
    pages: dict[str, list[list[str]]] = {}
    times_ms: dict[str, float] = {}
    for name in NAMES:
        catalogue = open_engine(name, folder / ("theirs" if name == "lucene" else "ours"))
        pages[name], spent = [], []
        for request in requests:
            started = time.perf_counter()
            page = catalogue.search(request)
            spent.append((time.perf_counter() - started) * 1e3)
            pages[name].append([one.product_id for one in page])
        times_ms[name] = sorted(spent)[len(spent) // 2]
    print({name: f"p50 {ms:.2f} ms, {times_ms['lucene'] / ms:.0f}x" for name, ms in times_ms.items()})
    full = sum(map(bool, pages["lucene"]))
    print(f"{len(requests)} requests, {full} pages not empty")
    assert full > len(requests) // 2
    for name in ("numpy", "numba"):
        rows = zip(requests, pages["lucene"], pages[name], strict=True)
        different = [(request, theirs, ours) for request, theirs, ours in rows if theirs != ours]
        assert not different, (name, len(different), different[:MOST_SHOWN])


def test_pages_over_a_synthetic_catalogue(tmp_path: Path) -> None:
    kept: list[Product] = []
    documents = write_products(_keep(generate(DOCUMENTS, 7), 29, kept), tmp_path)
    _prove(documents, varied_requests(kept, REQUESTS, seed=101), tmp_path)


def test_pages_over_the_real_documents_among_others(tmp_path: Path) -> None:
    """Padded with synthetic documents, so that lists are long, and with difficult texts, so that lengths matter."""
    if not REAL_DOCUMENTS.is_file():
        pytest.skip("the shared real documents are not beside this checkout")
    real = list(read_products(REAL_DOCUMENTS))
    difficult, others = list(adversarial_products(3_000, 5)), list(generate(PADDED, 13))
    ids = {one.product_id for one in real}
    everything = [*real, *difficult, *(one for one in others if one.product_id not in ids)]
    random.Random(3).shuffle(everything)
    documents = write_products(everything, tmp_path)
    asked = real * 20 + difficult + list(islice(others, 2_000))
    _prove(documents, varied_requests(asked, REQUESTS, seed=202), tmp_path)

"""Every page of both our kernels is Lucene's page: a thousand varied requests over each of two catalogues."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from harness.catalogue.build import read_products
from harness.catalogue.lucene import build_engine, open_engine
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from tests.harness.catalogue_queries import adversarial_products, varied_requests
from tests.harness.catalogue_stand import REAL_DOCUMENTS, write_products

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("_lucene")]

DOCUMENTS, REQUESTS = 100_000, 1_000
PADDED = 30_000  # documents beside the real ones
MOST_SHOWN = 5


def _prove(documents: Path, requests: list[SearchRequest], folder: Path) -> None:
    build_engine("numba", documents, folder / "ours")
    build_engine("lucene", documents, folder / "theirs")
    theirs = _pages("lucene", folder / "theirs", requests)
    assert sum(map(bool, theirs)) > len(requests) // 2
    for name in ("numpy", "numba"):
        rows = zip(requests, theirs, _pages(name, folder / "ours", requests), strict=True)
        different = [row for row in rows if row[1] != row[2]]
        assert not different, (name, len(different), different[:MOST_SHOWN])


def _pages(engine: str, index: Path, requests: list[SearchRequest]) -> list[list[str]]:
    catalogue = open_engine(engine, index)
    return [[one.product_id for one in catalogue.search(request)] for request in requests]


def test_pages_over_a_synthetic_catalogue(tmp_path: Path) -> None:
    products = list(generate(DOCUMENTS, 7))
    _prove(write_products(products, tmp_path), varied_requests(products[::29], REQUESTS, seed=101), tmp_path)


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

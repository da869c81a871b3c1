"""Every page of both our kernels is Lucene's page: two thousand varied requests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.catalogue.build import read_products
from harness.catalogue.lucene import build_engine, open_engine
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from tests.harness.catalogue_stand import REAL_DOCUMENTS, adversarial_products, varied_requests, write_products

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("_lucene")]

DOCUMENTS, REQUESTS = 100_000, 2_000
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


def test_every_page_is_lucenes(tmp_path: Path) -> None:
    """Real documents where they are at hand, so that words are; synthetic ones, so that lists are long; and difficult
    texts, so that lengths matter."""
    real = list(read_products(REAL_DOCUMENTS)) if REAL_DOCUMENTS.is_file() else []
    difficult, made = list(adversarial_products(3_000, 5)), list(generate(DOCUMENTS, 7))
    ids = {one.product_id for one in real}
    everything = [*real, *difficult, *(one for one in made if one.product_id not in ids)]
    random.Random(3).shuffle(everything)
    asked = real * 20 + difficult + made[::29]
    _prove(write_products(everything, tmp_path), varied_requests(asked, REQUESTS, seed=202), tmp_path)

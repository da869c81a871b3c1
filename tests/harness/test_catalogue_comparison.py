"""Comparisons of engines: fair requests, the reference's algorithm, figures; and lines of progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.native import open_catalogue
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from tests.harness.catalogue_oracle import Oracle
from tests.harness.catalogue_stand import index_of, mixed_requests, product
from tests.harness.reference_search import ReferenceSearch
from tests.harness.test_catalogue_server import QUIRKS, read_parameters


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("comparison")
    long = [product(f"long{size}", " ".join(f"w{place}" for place in range(size))) for size in (23, 24, 41, 90, 700)]
    index_of([*generate(700, 5), *long], folder)
    return folder


@pytest.mark.parametrize("hit_cap", [10_000, 60])
def test_the_reference_algorithm_gives_the_oracles_pages(folder: Path, hit_cap: int) -> None:
    oracle = Oracle((folder / "documents.jsonl").read_bytes().splitlines())
    reference = ReferenceSearch(folder / "index", hit_cap=hit_cap)
    requests = mixed_requests(list(generate(700, 5)), 120, seed=8)
    requests += [SearchRequest(q=f"w{place} w1 w22", page="1") for place in (0, 30, 89, 600)]
    for request in requests:
        assert reference.page(request) == oracle.page(request, hit_cap)


def test_the_reference_algorithm_reads_parameters_like_the_engine(folder: Path) -> None:
    catalogue, reference = open_catalogue(folder / "index"), ReferenceSearch(folder / "index")
    for target, _ in QUIRKS:
        given = read_parameters(target.partition("?")[2].encode())
        known = {name: value for name, value in given.items() if name in SearchRequest.__struct_fields__}
        request = SearchRequest(**{"page": None, **known})
        assert reference.page(request) == [one.product_id for one in catalogue.search(request)]

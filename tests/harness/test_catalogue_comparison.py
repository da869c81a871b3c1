"""Comparisons of engines: fair requests, the reference's algorithm, figures; and lines of progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.native import open_catalogue
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from neurons.cli.presenter import PhaseLines
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


def test_progress_off_a_terminal_is_a_line_now_and_then_and_one_at_the_end() -> None:
    seconds = [0.0]
    lines: list[str] = []
    report = PhaseLines(lines.append, lambda: seconds[0])
    for second in range(31):
        seconds[0] = float(second)
        report("analyse", second * 100, 3_000)
    report("analyse", 3_000, 3_000)
    assert lines == [
        "analyse: 33 %, 100/s, 20 s left",
        "analyse: 66 %, 100/s, 10 s left",
        "analyse: done in 30.0 s, 100/s",
    ]
    seconds[0] = 40.0
    report("read", 0, 5_000_000)
    seconds[0] = 42.0
    report("read", 5_000_000, 5_000_000)
    assert lines[-1] == "read: done in 2.0 s, 2.5 MB/s"

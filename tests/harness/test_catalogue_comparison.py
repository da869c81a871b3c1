"""Comparisons of engines: fair requests, the reference's algorithm, figures; and lines of progress."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.catalogue.native import open_catalogue
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from neurons.cli.presenter import PhaseLines
from tests.harness.catalogue_oracle import Oracle
from tests.harness.catalogue_stand import index_of, mixed_requests, product
from tests.harness.engine_comparison import LEAST_QUERIES, WARM_UP, compare, sample_requests
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


def test_sampled_requests_are_mixed_and_the_same_for_the_same_seed(folder: Path) -> None:
    catalogue = open_catalogue(folder / "index")
    requests = sample_requests(catalogue, 300, seed=2)
    assert requests == sample_requests(catalogue, 300, seed=2) != sample_requests(catalogue, 300, seed=3)
    for name in ("shop_id", "price", "sort", "service"):
        assert 30 < sum(getattr(request, name) is None for request in requests) < 290
    assert {request.page for request in requests} == {"1", "2", "3", "5"}
    assert sum(map(bool, map(catalogue.search, requests))) > 100


def test_figures_count_equal_pages_and_hold_ratios_to_the_first_engine() -> None:
    clock = itertools.count(0.0, 0.5).__next__
    requests = [SearchRequest(q=str(number)) for number in range(30)]
    first, same, other = compare(
        {
            "first": lambda request: [str(request.q)],
            "same": lambda request: (str(request.q),),
            "other": lambda request: ["7"],
        },
        requests,
        clock=clock,
        budget_s=1e9,
    )
    assert [one.pages_equal for one in (first, same, other)] == [30, 30, 1]
    assert (first.p50_ms, first.p99_ms, first.mean_ms) == (500.0, 500.0, 500.0)
    assert same.ratio_p50 == same.ratio_p99 == same.ratio_mean == 1.0


def test_a_slow_baseline_stops_and_the_others_are_asked_the_same() -> None:
    asked: dict[str, list[str]] = {"slow": [], "fast": []}

    def search(name: str) -> object:
        return lambda request: asked[name].append(request.q) or []

    clock = itertools.count(0.0, 1.0).__next__
    requests = [SearchRequest(q=str(number)) for number in range(100)]
    slow, fast = compare(
        {name: search(name) for name in asked},  # type: ignore[misc]
        requests,
        clock=clock,
        budget_s=5.0,
    )
    assert slow.queries == fast.queries == LEAST_QUERIES
    assert asked["slow"] == asked["fast"] and len(asked["slow"]) == WARM_UP + LEAST_QUERIES


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


def test_progress_of_a_phase_counts_from_its_own_first_report() -> None:
    """One that begins again has a new clock, and what a resumed one finds done is no speed of its own."""
    seconds = [0.0]
    lines: list[str] = []
    report = PhaseLines(lines.append, lambda: seconds[0])
    report("compare", 0, 10)
    report("compare", 10, 10)
    for second, done in ((1_000, 1), (1_011, 3), (1_020, 10)):
        seconds[0] = float(second)
        report("compare", done, 10)
    assert lines[1:] == ["compare: 30 %, 38 s left", "compare: done in 20.0 s"]
    for second, done in ((2_000, 900), (2_020, 920)):
        seconds[0] = float(second)
        report("filter", done, 1_000)
    assert lines[-1] == "filter: 92 %, 1/s, 80 s left"

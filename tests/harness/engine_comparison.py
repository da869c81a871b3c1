"""Engines against a baseline: the same requests, one after the other in one process; times, ratios, equal pages.

Requests are drawn from the catalogue's own words with filters, sorts, shops and pages in every mix, and are the same
for the same catalogue, count and seed. The clock is passed in. It judges nothing: a slow engine is a figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from foundation.progress import Progress, no_progress
from harness.catalogue.port import Catalogue, SearchRequest
from problems.product import SERVICES

WARM_UP = 10  # requests asked twice by each engine, the first time untimed
LEAST_QUERIES = 20  # of the baseline, however slow it is

Search = Callable[[SearchRequest], Sequence[str]]

_PRICES = (None, None, None, "{low}-", "-{low}", "{low}-{high}", "0-100000", "104")
_SORTS = (None, None, None, "order", "priceasc", "pricedesc")
_PAGES = ("1", "1", "1", "1", "2", "3", "5")


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's times in milliseconds; ratios are the baseline's time over this engine's."""

    engine: str
    queries: int
    p50_ms: float
    p99_ms: float
    mean_ms: float
    ratio_p50: float
    ratio_p99: float
    ratio_mean: float
    pages_equal: int  # of `queries`
    pages_not_empty: int


def sample_requests(catalogue: Catalogue, count: int, seed: int) -> list[SearchRequest]:
    """`count` mixed requests made of the words of products drawn from the catalogue."""
    rng = Random(seed)
    places = {rng.randrange(len(catalogue)) for _ in range(2 * count)}
    ids = [product_id for place, product_id in enumerate(catalogue.product_ids()) if place in places]
    products = [product for product in map(catalogue.product, ids) if product is not None]
    requests: list[SearchRequest] = []
    for _ in range(count):
        product, other = rng.choice(products), rng.choice(products)
        words = [*product.title.split(), *other.title.split()[:2]] or [product.product_id]
        low = rng.randint(1, 900)
        price = rng.choice(_PRICES)
        requests.append(
            SearchRequest(
                q=" ".join(rng.sample(words, min(len(words), rng.randint(1, 6)))),
                page=rng.choice(_PAGES),
                shop_id=product.shop_id if rng.random() < 0.15 else None,
                price=price and price.format(low=low, high=3 * low),
                sort=rng.choice(_SORTS),
                service=rng.choice((None, None, None, *SERVICES, "COD,freeShipping")),
            )
        )
    return requests


def compare(
    engines: Mapping[str, Search],
    requests: Sequence[SearchRequest],
    *,
    clock: Callable[[], float],
    budget_s: float,
    progress: Progress = no_progress,
) -> list[EngineFigures]:
    """Time every engine on the same requests; the first is the baseline.

    The baseline stops after `budget_s` (not before 20 requests), and the others are asked what it was asked. A phase of
    the progress is an engine's name.
    """
    figures: list[EngineFigures] = []
    expected: list[list[str]] = []
    baseline: EngineFigures | None = None
    for name, search in engines.items():
        for request in requests[:WARM_UP]:
            search(request)
        asked = requests if baseline is None else requests[: len(expected)]
        pages, times_ms = _run(name, search, asked, clock, budget_s if baseline is None else None, progress)
        expected = expected or pages
        times_ms.sort()
        count, mean = len(times_ms), statistics.fmean(times_ms)
        p50, p99 = times_ms[count // 2], times_ms[count * 99 // 100]
        base = (p50, p99, mean) if baseline is None else (baseline.p50_ms, baseline.p99_ms, baseline.mean_ms)
        figure = EngineFigures(
            engine=name,
            queries=count,
            p50_ms=p50,
            p99_ms=p99,
            mean_ms=mean,
            ratio_p50=base[0] / p50,
            ratio_p99=base[1] / p99,
            ratio_mean=base[2] / mean,
            pages_equal=sum(page == other for page, other in zip(pages, expected, strict=True)),
            pages_not_empty=sum(map(bool, pages)),
        )
        baseline = baseline or figure
        figures.append(figure)
    return figures


def _run(
    name: str,
    search: Search,
    requests: Sequence[SearchRequest],
    clock: Callable[[], float],
    budget_s: float | None,
    progress: Progress,
) -> tuple[list[list[str]], list[float]]:
    pages: list[list[str]] = []
    times_ms: list[float] = []
    begun = clock()
    for request in requests:
        started = clock()
        page = search(request)
        ended = clock()
        pages.append(list(page))
        times_ms.append((ended - started) * 1e3)
        progress(name, len(pages), len(requests))
        if budget_s is not None and ended - begun > budget_s and len(pages) >= LEAST_QUERIES:
            progress(name, len(requests), len(requests))
            break
    return pages, times_ms

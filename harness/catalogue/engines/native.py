"""The search engine: the reference's exact pages from flat arrays, hundreds of times faster.

Order of work is the reference's (docs/benchmark.md#search): score every match, keep the best 10,000 (ties by product id
as a string), filter, keep 50, sort those 50, cut the page. Thread-safe: arrays are shared, mapped and read-only, each
thread has its own accumulator (8 bytes a document). Only the products of a page are decoded.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.errors import ArenaError
from harness.catalogue.analysis.analyzer import analyzer_sha256
from harness.catalogue.engines.accumulator import Kernel, Numbers, Scores, choose_accumulate
from harness.catalogue.engines.bm25 import denominators, inverse_frequencies, posting_scores
from harness.catalogue.engines.shops import sum_up_shop
from harness.catalogue.index import layout
from harness.catalogue.index.columns import Columns
from harness.catalogue.index.vocabulary import Vocabulary
from harness.catalogue.port import Catalogue, SearchRequest, Shop, ShopPages
from harness.catalogue.requests import HIT_CAP, KEPT_MAX, PAGE_SIZE, SearchPlan, count_terms, read_request
from harness.work import HIT, POSTING, WORD, WorkMeter
from problems.product import SERVICES, Product

_PRODUCTS_CACHED = 4_096


class _Hits(msgspec.Struct, frozen=True):
    """The hits that filters may see, unordered, and how many postings they came from."""

    numbers: Numbers
    scores: Scores
    postings: int


class Engine:
    """A catalogue over one index folder. Make it with `open_catalogue`."""

    def __init__(
        self, folder: Path, manifest: layout.IndexManifest, *, hit_cap: int = HIT_CAP, kernel: Kernel = "auto"
    ) -> None:
        self._manifest, self._hit_cap = manifest, hit_cap
        content = manifest.content
        self._accumulate = choose_accumulate(kernel, content.documents)

        def load(name: str) -> npt.NDArray[Any]:
            return layout.map_array(folder, name, layout.ARRAYS[name])

        self._documents, self._codes, self._starts = load("documents"), load("codes"), load("starts")
        self._offsets, self._columns = load("offsets"), Columns(folder, content.id_bytes)
        self._denominators = denominators(load("pairs"), content.total_terms, content.scored_documents)
        self._idf = inverse_frequencies(np.diff(self._starts), content.scored_documents)
        self._vocabulary = Vocabulary(folder)
        self._products = os.open(folder / layout.PRODUCTS, os.O_RDONLY)
        weakref.finalize(self, os.close, self._products)
        self._decode = msgspec.json.Decoder(Product).decode
        self._product_at = functools.lru_cache(maxsize=_PRODUCTS_CACHED)(self._decode_product)
        self._threads = threading.local()

    @property
    def content_sha256(self) -> str:
        """Identity of documents and index together."""
        return self._manifest.content_sha256

    @property
    def manifest(self) -> layout.IndexManifest:
        """What the index says about itself."""
        return self._manifest

    def __len__(self) -> int:
        return self._manifest.content.documents

    def search(self, request: SearchRequest, work: WorkMeter | None = None) -> tuple[Product, ...]:
        """One page in the reference's order. Raises ArenaError U3010 when a product of the page cannot be decoded."""
        plan, work = read_request(request), work or WorkMeter()
        if plan is None:
            return ()
        # unfiltered hits are cut to the page's 50 at once: the same page
        cap = self._hit_cap if plan.is_filtered else min(KEPT_MAX, self._hit_cap)
        return self._page(plan, self._best(plan.text, cap, work), work)

    def search_in_shops(self, request: SearchRequest, work: WorkMeter | None = None) -> ShopPages:
        """Pages of one search by shop, its hits found once. They raise ArenaError U3010 like `search`."""
        plan, meter = read_request(request), work or WorkMeter()
        if plan is None:
            return lambda shop_id: ()
        best = functools.cache(lambda: self._best(plan.text, self._hit_cap, meter))
        return lambda shop_id: self._page(msgspec.structs.replace(plan, shop_id=shop_id or None), best(), meter)

    def product(self, product_id: str) -> Product | None:
        """The product, or None when the index holds no such id. Raises ArenaError U3010 when it cannot be decoded."""
        number = self._columns.number_of(product_id)
        return None if number is None else self._product_at(number)

    def products(self) -> Iterator[Product]:
        """Every product, in the order of product ids as strings. Raises ArenaError U3010 like `product`."""
        return map(self._decode_product, range(len(self)))

    def product_ids(self) -> Iterator[str]:
        """Every product id, in order."""
        return self._columns.product_ids()

    def shop(self, shop_id: str, work: WorkMeter | None = None) -> Shop | None:
        """What the shop sells, or None when no product is of that shop. Raises ArenaError U3010 like `product`."""
        columns = self._columns
        return sum_up_shop(
            shop_id,
            columns.numbers_of_shop(shop_id, work),
            prices=columns.prices,
            sold_counts=columns.sold_counts,
            services=columns.services,
            product_at=self._product_at,
        )

    # -- retrieval

    def _page(self, plan: SearchPlan, hits: _Hits, work: WorkMeter) -> tuple[Product, ...]:
        """The page, cut from hits that are at least the best 50 after filters."""
        work.spend(min(hits.postings, self._hit_cap) * HIT)
        kept = self._sort(plan, self._filter(plan, hits.numbers, hits.scores))
        page = kept[(plan.page - 1) * PAGE_SIZE : plan.page * PAGE_SIZE]
        return tuple(self._product_at(number) for number in page.tolist())

    def _best(self, text: str, cap: int, work: WorkMeter) -> _Hits:
        """The best `cap` hits."""
        numbers, scores, postings = self._score(text, work)
        if len(numbers) <= cap:
            return _Hits(numbers, scores, postings)
        edge = np.partition(scores, len(scores) - cap)[len(scores) - cap]
        above, ties = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
        room = cap - len(above)
        if room < len(ties):
            ties = ties[np.argpartition(numbers[ties], room - 1)[:room]]
        kept = np.concatenate([above, ties])
        return _Hits(numbers[kept], scores[kept], postings)

    def _score(self, text: str, work: WorkMeter) -> tuple[Numbers, Scores, int]:
        """Every document with a query term, and its score: summed in double, rounded to float32 once. And how many
        postings were summed."""
        counts = count_terms(text)
        work.spend(len(counts) * WORD)
        found = ((self._vocabulary.number(term), boost) for term, boost in counts.items())
        known = [(number, boost) for number, boost in found if number is not None]
        if not known:
            return np.empty(0, np.int32), np.empty(0, np.float32), 0
        terms = np.array([number for number, _ in known], np.int64)
        starts, ends = self._starts[terms], self._starts[terms + 1]
        postings = int((ends - starts).sum())
        work.spend(postings * POSTING)
        tables = np.empty((len(known), len(self._denominators)), np.float32)
        for place, (number, boost) in enumerate(known):
            tables[place] = posting_scores(self._idf[number], boost, self._denominators)
        sums = self._threads.__dict__.pop("sums", None)  # taken out: an exception leaves no half-filled sums behind
        if sums is None:
            sums = np.zeros(len(self), np.float64)
        met, scores = self._accumulate(self._documents, self._codes, starts, ends, tables, sums)
        self._threads.sums = sums
        return met, scores, postings

    def _filter(self, plan: SearchPlan, numbers: Numbers, scores: Scores) -> Numbers:
        """The best 50 that pass every filter, best first; equal scores in document order."""
        is_kept, columns = np.ones(len(numbers), bool), self._columns
        if plan.shop_id is not None:
            is_kept &= columns.shops[numbers] == columns.shop_numbers.get(plan.shop_id, -1)
        if plan.low_php is not None:
            is_kept &= columns.prices[numbers] >= plan.low_php
        if plan.high_php is not None:
            is_kept &= columns.prices[numbers] <= plan.high_php
        if plan.service:
            wanted = sum(1 << SERVICES.index(name) for name in plan.service)
            is_kept &= (columns.services[numbers] & wanted) == wanted
        numbers, scores = numbers[is_kept], scores[is_kept]
        if len(numbers) > KEPT_MAX:
            edge = np.partition(scores, len(scores) - KEPT_MAX)[len(scores) - KEPT_MAX]
            is_kept = scores >= edge
            numbers, scores = numbers[is_kept], scores[is_kept]
        return numbers[np.lexsort((numbers, -scores))[:KEPT_MAX]]

    def _sort(self, plan: SearchPlan, numbers: Numbers) -> Numbers:
        """The kept hits in the order asked for; stable, so equal keys keep hit order."""
        if plan.sort == "order":
            return numbers[np.argsort(-self._columns.sold_counts[numbers], kind="stable")]
        if plan.sort == "priceasc":
            return numbers[np.argsort(self._columns.prices[numbers], kind="stable")]
        if plan.sort == "pricedesc":
            return numbers[np.argsort(-self._columns.prices[numbers], kind="stable")]
        return numbers

    def _decode_product(self, number: int) -> Product:
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        try:  # read, not mapped: the kernel maps 16 pages around each touched one, and they count as ours
            return self._decode(os.pread(self._products, end - start, start))
        except (OSError, msgspec.DecodeError) as error:
            raise ArenaError("U3010", f"document {number} of {layout.PRODUCTS}: {error}") from error


def open_catalogue(
    path: Path, *, is_fully_checked: bool = False, hit_cap: int = HIT_CAP, kernel: Kernel = "auto"
) -> Catalogue:
    """Open an index folder for search.

    Sizes and the manifest's own hash are always checked; file hashes too when the index is small (64 MiB) or
    `is_fully_checked`. `kernel` never changes a result: numpy for small catalogues, numba for large ones when it can be
    imported. Raises ArenaError V2011 when there is no index, V2010 when it is truncated, edited, of another
    format, or made with another analyzer.
    """
    manifest = layout.read_manifest(path)
    layout.check_files(path, manifest, is_full=is_fully_checked)
    if manifest.content.analyzer_sha256 != analyzer_sha256():
        raise ArenaError("V2010", f"{path} was built with another analyzer")
    return Engine(path, manifest, hit_cap=hit_cap, kernel=kernel)

"""The search engine: the reference's exact pages from flat arrays, hundreds of times faster.

Order of work is the reference's (docs/benchmark.md#search): score every match, keep the best 10,000 (ties by product id
as a string), filter, keep 50, sort those 50, cut the page. Thread-safe: arrays are shared, mapped and read-only, each
thread has its own accumulator (8 bytes a document). Only the products of a page are decoded.
"""

from __future__ import annotations

import abc
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.errors import ArenaError
from foundation.logs import get_logger
from harness.catalogue import layout
from harness.catalogue.analysis import analyzer_sha256
from harness.catalogue.build import Columns, denominators, inverse_frequencies, posting_scores
from harness.catalogue.port import (
    HIT_CAP,
    KEPT_MAX,
    PAGE_SIZE,
    SearchPlan,
    SearchRequest,
    ShopPages,
    count_terms,
    read_request,
)
from harness.limits import HIT, POSTING, WORD, WorkMeter
from problems.model import SERVICES, Product

_PRODUCTS_CACHED = 4_096


class Hits(msgspec.Struct, frozen=True):
    """The hits that filters may see, unordered, and how many postings they came from."""

    numbers: Numbers
    scores: Scores
    postings: int


class IndexedCatalogue(abc.ABC):
    """A `Catalogue` over the columns of an index folder."""

    def __init__(self, columns: Columns, content_sha256: str, *, hit_cap: int, unfiltered_cap: int) -> None:
        """Filters see the best `hit_cap` hits; the best `unfiltered_cap` make a page that nothing is filtered from."""
        self._columns = columns
        self.content_sha256 = content_sha256  # identity of documents and index together
        self._hit_cap, self._unfiltered_cap = hit_cap, unfiltered_cap
        self._product_at = functools.lru_cache(maxsize=_PRODUCTS_CACHED)(self._read_product)

    @abc.abstractmethod
    def _hits(self, text: str, cap: int, work: WorkMeter) -> Hits:
        """The best `cap` hits. Words and postings are counted on the meter before they are read."""

    @abc.abstractmethod
    def _read_product(self, number: int) -> Product:
        """The product of a document. Raises ArenaError U3010."""

    def __len__(self) -> int:
        return len(self._columns.ids)

    def search(self, request: SearchRequest, work: WorkMeter | None = None) -> tuple[Product, ...]:
        """One page in the reference's order. Raises ArenaError U3010 when a product of the page cannot be read."""
        plan, meter = read_request(request), work or WorkMeter()
        if plan is None:
            return ()
        cap = self._hit_cap if plan.is_filtered else self._unfiltered_cap
        return self._page(plan, self._hits(plan.text, cap, meter), meter)

    def search_in_shops(self, request: SearchRequest, work: WorkMeter | None = None) -> ShopPages:
        """Pages of one search by shop, its hits found once. They raise ArenaError U3010 like `search`."""
        plan, meter = read_request(request), work or WorkMeter()
        if plan is None:
            return lambda shop_id: ()
        hits = functools.cache(lambda: self._hits(plan.text, self._hit_cap, meter))
        return lambda shop_id: self._page(msgspec.structs.replace(plan, shop_id=shop_id or None), hits(), meter)

    def product(self, product_id: str) -> Product | None:
        """The product, or None when the index holds no such id. Raises ArenaError U3010 when it cannot be read."""
        number = self._columns.number_of(product_id)
        return None if number is None else self._product_at(number)

    def products(self) -> Iterator[Product]:
        """Every product, in the order of product ids as strings. Raises ArenaError U3010 like `product`."""
        return map(self._read_product, range(len(self)))

    def product_ids(self) -> Iterator[str]:
        """Every product id, in order."""
        return self._columns.product_ids()

    def _page(self, plan: SearchPlan, hits: Hits, work: WorkMeter) -> tuple[Product, ...]:
        """The page cut from the hits, which are counted on the meter first."""
        work.spend(min(hits.postings, self._hit_cap) * HIT)
        numbers, columns = self._filter(plan, hits), self._columns
        # stable sorts, so equal keys keep hit order
        if plan.sort == "order":
            numbers = numbers[np.argsort(-columns.sold_counts[numbers], kind="stable")]
        elif plan.sort == "priceasc":
            numbers = numbers[np.argsort(columns.prices[numbers], kind="stable")]
        elif plan.sort == "pricedesc":
            numbers = numbers[np.argsort(-columns.prices[numbers], kind="stable")]
        page = numbers[(plan.page - 1) * PAGE_SIZE : plan.page * PAGE_SIZE]
        return tuple(map(self._product_at, page.tolist()))

    def _filter(self, plan: SearchPlan, hits: Hits) -> Numbers:
        """The best 50 that pass every filter, best first; equal scores in document order."""
        numbers, scores, columns = hits.numbers, hits.scores, self._columns
        is_kept = np.ones(len(numbers), bool)
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


_PRODUCT = msgspec.json.Decoder(Product)


class Engine(IndexedCatalogue):
    """A catalogue over one index folder. Make it with `open_catalogue`."""

    def __init__(
        self, folder: Path, manifest: layout.IndexManifest, *, hit_cap: int = HIT_CAP, kernel: Kernel = "auto"
    ) -> None:
        content = manifest.content
        super().__init__(
            Columns(folder, content.id_bytes),
            manifest.content_sha256,
            hit_cap=hit_cap,
            unfiltered_cap=min(KEPT_MAX, hit_cap),  # no filter takes any away, so the page's 50 are among the best 50
        )
        self._accumulate = choose_accumulate(kernel, content.documents)
        names = ("documents", "codes", "starts", "offsets", "pairs")
        self._documents, self._codes, self._starts, self._offsets, pairs = (
            layout.map_array(folder, name) for name in names
        )
        self._denominators = denominators(pairs, content.total_terms, content.scored_documents)
        self._idf = inverse_frequencies(np.diff(self._starts), content.scored_documents)
        self._vocabulary = layout.Vocabulary(folder)
        self._products = os.open(folder / layout.PRODUCTS, os.O_RDONLY)
        weakref.finalize(self, os.close, self._products)
        self._threads = threading.local()

    def _hits(self, text: str, cap: int, work: WorkMeter) -> Hits:
        numbers, scores, postings = self._score(text, work)
        if len(numbers) <= cap:
            return Hits(numbers, scores, postings)
        edge = np.partition(scores, len(scores) - cap)[len(scores) - cap]
        above, ties = np.flatnonzero(scores > edge), np.flatnonzero(scores == edge)
        room = cap - len(above)
        if room < len(ties):
            ties = ties[np.argpartition(numbers[ties], room - 1)[:room]]
        kept = np.concatenate([above, ties])
        return Hits(numbers[kept], scores[kept], postings)

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

    def _read_product(self, number: int) -> Product:
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        try:  # read, not mapped: the kernel maps 16 pages around each touched one, and they count as ours
            return _PRODUCT.decode(os.pread(self._products, end - start, start))
        except (OSError, msgspec.DecodeError) as error:
            raise ArenaError("U3010", f"document {number} of {layout.PRODUCTS}: {error}") from error


def open_catalogue(path: Path, *, hit_cap: int = HIT_CAP, kernel: Kernel = "auto") -> Engine:
    """Open an index folder for search.

    Sizes and the manifest's own hash are always checked; file hashes too when the index is small (64 MiB). `kernel`
    never changes a result: numpy for small catalogues, numba for large ones when it can be imported. Raises ArenaError
    V2010 when there is no index, V2010 when it is truncated, edited, of another format, or made with another analyzer.
    """
    manifest = layout.read_manifest(path)
    layout.check_entries(path, manifest.content.files)
    if manifest.content.analyzer_sha256 != analyzer_sha256():
        raise ArenaError("V2010", f"{path} was built with another analyzer")
    return Engine(path, manifest, hit_cap=hit_cap, kernel=kernel)


Kernel = Literal["auto", "numpy", "numba"]
Numbers = npt.NDArray[np.int32]  # document numbers
Codes = npt.NDArray[np.uint16]  # places in a score table, one a posting
Places = npt.NDArray[np.int64]  # of postings, one a term
Scores = npt.NDArray[np.float32]
Sums = npt.NDArray[np.float64]  # one cell a document, all 0 between calls

# documents[P], codes[P], starts[T], ends[T], tables[T, G], sums[N] -> documents met, each once, and their scores
Accumulate = Callable[[Numbers, Codes, Places, Places, Scores, Sums], tuple[Numbers, Scores]]

COMPILED_FROM = 200_000  # documents; below, numpy answers within a few milliseconds and starts at once


def choose_accumulate(kernel: Kernel, documents: int) -> Accumulate:
    """The implementation for a catalogue of this size. Raises ImportError when numba is asked for and is missing."""
    if kernel == "numpy" or (kernel == "auto" and documents < COMPILED_FROM):
        return accumulate
    try:
        return compiled_accumulate()
    except ImportError:
        if kernel == "numba":
            raise
        get_logger().warning("slow search", text=f"{documents:,} documents without numba: install agent-arena[search]")
        return accumulate


def accumulate(
    documents: Numbers, codes: Codes, starts: Places, ends: Places, tables: Scores, sums: Sums
) -> tuple[Numbers, Scores]:
    """In numpy. A document occurs once in a term's list, so plain indexed addition is right. Leaves `sums` at 0."""
    lists = []
    for start, end, table in zip(starts.tolist(), ends.tolist(), tables, strict=True):
        matches = documents[start:end]
        sums[matches] += table.take(codes[start:end])
        lists.append(matches)
    met, scores = [], []
    for matches in lists:  # a sum is taken where its document is met first and is 0 from then on
        found = sums[matches]
        sums[matches] = 0
        is_first = found > 0
        met.append(matches[is_first])
        scores.append(found[is_first].astype(np.float32))
    return np.concatenate(met), np.concatenate(scores)


@functools.cache
def compiled_accumulate() -> Accumulate:
    """In machine code, without the interpreter lock. Raises ImportError when numba is missing."""
    from numba import njit, types

    documents = types.Array(types.int32, 1, "C", readonly=True)  # read-only types take mapped files too
    codes = types.Array(types.uint16, 1, "C", readonly=True)
    places, met, sums = types.int64[::1], types.int32[::1], types.float64[::1]
    add_signature = types.int64(documents, codes, places, places, types.float32[:, ::1], sums, met)
    take_signature = types.void(met, sums, types.float32[::1])

    def compile_kernel(function: Callable[..., Any], signature: object) -> Callable[..., Any]:
        try:
            compiled: Callable[..., Any] = njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # a read-only installation without a home: nowhere to keep the compiled code
            compiled = njit(signature, nogil=True)(function)
        return compiled

    add, take = compile_kernel(_add_postings, add_signature), compile_kernel(_take_scores, take_signature)

    def run(
        documents: Numbers, codes: Codes, starts: Places, ends: Places, tables: Scores, sums: Sums
    ) -> tuple[Numbers, Scores]:
        met = np.empty(min(len(sums), int((ends - starts).sum())), np.int32)
        met = met[: add(documents, codes, starts, ends, tables, sums, met)]
        scores = np.empty(len(met), np.float32)
        take(met, sums, scores)
        return met, scores

    return run


def _add_postings(
    documents: Numbers, codes: Codes, starts: Places, ends: Places, tables: Scores, sums: Sums, met: Numbers
) -> int:
    """Add every posting to its document's sum; write each document to `met` once and return how many. Compiled."""
    count = 0
    for term in range(starts.shape[0]):
        for place in range(starts[term], ends[term]):
            document = documents[place]
            before = sums[document]
            if before == 0.0:
                met[count] = document
                count += 1
            sums[document] = before + tables[term, codes[place]]
    return count


def _take_scores(met: Numbers, sums: Sums, scores: Scores) -> None:
    """Round the sums of `met` to float32 and set them back to 0. Compiled."""
    for place in range(met.shape[0]):
        scores[place] = sums[met[place]]
        sums[met[place]] = 0.0

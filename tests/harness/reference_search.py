"""The reference's search algorithm written plainly over an index folder: what the engine is compared with, no engine.

Scores every posting one by one, sorts all hits, loads the stored document of each of the best 10,000, decodes and
filters them in order until 50 are kept, sorts those, cuts a page (docs/benchmark.md#search). It shares the index files,
the analyzer and the parameter rules with the engine; weights, lengths, order and filters are its own.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from harness.catalogue import layout
from harness.catalogue.analysis import terms_of
from harness.catalogue.port import HIT_CAP, KEPT_MAX, PAGE_SIZE, QUERY_TERMS_MAX, SearchRequest, read_request

_K1, _B = np.float32(0.9), np.float32(0.4)
_ONE = np.float32(1)
_EXACT_LENGTHS = 24  # what Lucene's one-byte lengths keep as they are


class ReferenceSearch:
    """Pages of one index folder, slowly. One thread."""

    def __init__(self, folder: Path, *, hit_cap: int = HIT_CAP) -> None:
        """Raises ArenaError V2010 when there is no index, V2010 when its manifest is broken."""
        content = layout.read_manifest(folder).content
        self._hit_cap, self._scored = hit_cap, content.scored_documents

        names = ("documents", "codes", "starts", "offsets", "pairs")
        self._documents, self._codes, self._starts, self._offsets, codes = (
            layout.map_array(folder, name) for name in names
        )
        self._ids = layout.map_array(folder, "ids", f"|S{content.id_bytes}")
        terms = (folder / layout.VOCABULARY).read_bytes().decode().split("\n")
        self._terms = {term: number for number, term in enumerate(terms)}
        average = np.float32(content.total_terms / max(1, content.scored_documents))
        pairs = [(code >> 8, _length(code & 0xFF)) for code in codes.tolist()]
        self._ratios = [
            np.float32(tf) * (_ONE / (_K1 * ((_ONE - _B) + _B * np.float32(n) / average))) for tf, n in pairs
        ]
        with (folder / layout.PRODUCTS).open("rb") as stream:
            self._products = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def page(self, request: SearchRequest) -> list[str]:
        """Product ids of one page, at most ten."""
        plan = read_request(request)
        if plan is None:
            return []
        stored = [
            self._products[int(self._offsets[number]) : int(self._offsets[number + 1])]
            for number in self._hits(plan.text)  # all of them, as the reference does
        ]
        passing = (
            product
            for product in map(orjson.loads, stored)
            if (plan.shop_id is None or product["shop_id"] == plan.shop_id)
            and (plan.low_php is None or product["price"] >= plan.low_php)
            and (plan.high_php is None or product["price"] <= plan.high_php)
            and all(name in product["service"] for name in plan.service)
        )
        kept: list[dict[str, Any]] = list(itertools.islice(passing, KEPT_MAX))
        if plan.sort == "order":
            kept.sort(key=lambda product: int(product["sold_count"]), reverse=True)
        elif plan.sort != "relevance":
            kept.sort(key=lambda product: float(product["price"]), reverse=plan.sort == "pricedesc")
        return [product["product_id"] for product in kept[(plan.page - 1) * PAGE_SIZE : plan.page * PAGE_SIZE]]

    def _hits(self, text: str) -> list[int]:
        """The best hits: score descending, then product id as a string."""
        counts = Counter(terms_of(text))
        if len(counts) > QUERY_TERMS_MAX:
            return []
        scores: dict[int, float] = {}
        for term, boost in counts.items():
            number = self._terms.get(term)
            if number is None:
                continue
            documents = self._documents[self._starts[number] : self._starts[number + 1]].tolist()
            codes = self._codes[self._starts[number] : self._starts[number + 1]].tolist()
            rarity = math.log(1 + (self._scored - len(documents) + 0.5) / (len(documents) + 0.5))
            weight = np.float32(boost) * np.float32(rarity)
            gains = [float(weight - weight / (_ONE + ratio)) for ratio in self._ratios]
            for document, code in zip(documents, codes, strict=True):
                scores[document] = scores.get(document, 0.0) + gains[code]
        keys = ((-float(np.float32(score)), bytes(self._ids[number]), number) for number, score in scores.items())
        ranked = sorted(keys)
        return [number for _, _, number in ranked[: self._hit_cap]]


def _length(byte: int) -> int:
    """The document length that Lucene reads back from its byte: exact below 24, then eight steps to each doubling."""
    if byte < _EXACT_LENGTHS:
        return byte
    rest = byte - _EXACT_LENGTHS
    shift, mantissa = (rest >> 3) - 1, rest & 7
    return _EXACT_LENGTHS + (mantissa if shift < 0 else (mantissa | 8) << shift)

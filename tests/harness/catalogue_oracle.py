"""The reference's search, written plainly: score every document, sort, cut, load and filter one by one, sort, page.

Shares the analyzer and the parameter rules with the engine and nothing else: its own BM25, its own lossy lengths, its
own order and filters. Tests compare pages with it, the benchmark times it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from harness.catalogue.analysis import default_analyzer
from harness.catalogue.port import SearchRequest
from harness.catalogue.requests import read_request

KEPT, PAGE = 50, 10


def lossy_length(length: int) -> int:
    """What Lucene keeps of a document length: exact below 24, four significant bits of the rest above."""
    rest = max(0, length - 24)
    shift = max(0, rest.bit_length() - 4)
    return length if length < 24 else 24 + (rest >> shift << shift)


class Oracle:
    """Documents as raw index lines, and the reference's page for any request."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        documents = [(line, json.loads(line)) for line in lines]
        kept = [(line, document) for line, document in documents if document["contents"].strip()]
        self.lines = {document["id"]: line for line, document in kept}
        terms = {document["id"]: Counter(default_analyzer().terms(document["contents"])) for _, document in kept}
        lengths = {name: sum(counts.values()) for name, counts in terms.items()}
        self.scored = sum(length > 0 for length in lengths.values())
        average = np.float32(sum(lengths.values()) / max(1, self.scored))
        one, b = np.float32(1), np.float32(0.4)
        self.inverse = {
            name: one / (np.float32(0.9) * ((one - b) + b * np.float32(lossy_length(length)) / average))
            for name, length in lengths.items()
            if length
        }
        self.postings: dict[str, list[tuple[str, int]]] = {}
        for name, counts in terms.items():
            for term, count in counts.items():
                self.postings.setdefault(term, []).append((name, count))

    def hits(self, text: str, cap: int) -> list[str]:
        """Ids of the best `cap` documents: score descending, then id as a string."""
        scores: dict[str, float] = {}
        one = np.float32(1)
        for term, boost in Counter(default_analyzer().terms(text)).items():
            postings = self.postings.get(term, [])
            df = len(postings)
            weight = np.float32(boost) * np.float32(math.log(1 + (self.scored - df + 0.5) / (df + 0.5)))
            for name, count in postings:
                score = weight - weight / (one + np.float32(count) * self.inverse[name])
                scores[name] = scores.get(name, 0.0) + float(score)
        return sorted(scores, key=lambda name: (-np.float32(scores[name]), name))[:cap]

    def page(self, request: SearchRequest, cap: int = 10_000) -> list[str]:
        """Product ids of one page."""
        plan = read_request(request)
        if plan is None:
            return []
        kept: list[dict[str, Any]] = []
        for name in self.hits(plan.text, cap):
            product = json.loads(self.lines[name])["product"]
            if plan.shop_id and product["shop_id"] != plan.shop_id:
                continue
            if plan.low_php is not None and product["price"] < plan.low_php:
                continue
            if plan.high_php is not None and product["price"] > plan.high_php:
                continue
            if not all(name in product["service"] for name in plan.service):
                continue
            kept.append(product)
            if len(kept) == KEPT:
                break
        if plan.sort == "order":
            kept.sort(key=lambda product: product["sold_count"], reverse=True)
        elif plan.sort != "relevance":
            kept.sort(key=lambda product: product["price"], reverse=plan.sort == "pricedesc")
        return [product["product_id"] for product in kept[(plan.page - 1) * PAGE : plan.page * PAGE]]

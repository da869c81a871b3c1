"""Search libraries over a file of documents, as a program would use them: bm25s, tantivy, DuckDB's full text.

Each gets the text, page and filters of a request and gives the ids of one page by its own BM25. The pages are not the
reference's: none has its words, cap or order. All of them give ids alone, and the project's engines whole products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

import bm25s
import duckdb
import numpy as np
import tantivy

from harness.catalogue.build import IndexLine, read_line
from harness.catalogue.port import PAGE_SIZE, SearchPlan
from problems.model import SERVICES

Library = Callable[[SearchPlan], Sequence[str]]
_FTS = "extensions/v{}/fts.duckdb_extension"


def _lines(source: Path) -> Iterator[IndexLine]:
    with source.open("rb") as stream:
        yield from map(read_line, stream)


def open_bm25s(source: Path) -> Library:
    """All scores by NumPy; what a filter turns away weighs nothing."""
    index, texts = bm25s.BM25(k1=0.9, b=0.4), [line.contents for line in _lines(source)]
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    rows = [(line.id, line.product.price, line.product.shop_id, line.product.service) for line in _lines(source)]
    ids, prices, shops, services = (list(column) for column in zip(*rows, strict=True))
    prices, shops = np.array(prices), np.array(shops)
    offers = {name: np.array([name in each for each in services]) for name in SERVICES}

    def search(plan: SearchPlan) -> Sequence[str]:
        words, count = bm25s.tokenize([plan.text], show_progress=False, return_ids=False), PAGE_SIZE * plan.page
        mask = None
        if plan.is_filtered:
            mask = (prices >= (plan.low_php or 0.0)) & (prices <= (plan.high_php or np.inf))
            for name in plan.service:
                mask &= offers[name]
            mask &= shops == plan.shop_id if plan.shop_id else True
        found, scores = index.retrieve(words, k=min(count, len(ids)), weight_mask=mask, show_progress=False)
        best = [ids[at] for at, score in zip(found[0], scores[0], strict=True) if score > 0]
        return best[count - PAGE_SIZE :]

    return search


def open_tantivy(source: Path) -> Library:
    """An index in memory; filters are clauses of the query."""
    builder = tantivy.SchemaBuilder().add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("contents", tokenizer_name="en_stem")
    builder.add_float_field("price", indexed=True, fast=True)
    for name in ("shop_id", "service"):
        builder.add_text_field(name, tokenizer_name="raw")
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer()
    for line in _lines(source):
        each = line.product
        filtered = {"price": float(each.price), "shop_id": each.shop_id, "service": list(each.service)}
        writer.add_document(tantivy.Document(id=line.id, contents=line.contents, **filtered))
    writer.commit()
    index.reload()
    searcher, must = index.searcher(), tantivy.Occur.Must

    def search(plan: SearchPlan) -> Sequence[str]:
        parts = [index.parse_query_lenient(plan.text.lower(), ["contents"])[0]]
        if plan.low_php is not None or plan.high_php is not None:
            kind = tantivy.FieldType.Float
            parts.append(tantivy.Query.range_query(schema, "price", kind, plan.low_php, plan.high_php))
        parts += [tantivy.Query.term_query(schema, "service", name) for name in plan.service]
        if plan.shop_id:
            parts.append(tantivy.Query.term_query(schema, "shop_id", plan.shop_id))
        query = tantivy.Query.boolean_query([(must, part) for part in parts])
        hits = searcher.search(query, PAGE_SIZE, count=False, offset=PAGE_SIZE * (plan.page - 1)).hits
        return [searcher.doc(at)["id"][0] for _, at in hits]

    return search


def open_duckdb(source: Path) -> Library:
    """A table in memory and its full-text index."""
    base = duckdb.connect()
    base.load_extension(str(resources.files("duckdb_extension_fts").joinpath(_FTS.format(duckdb.__version__))))
    base.execute(
        "create table shop as select id, contents, product.price, product.shop_id, product.service from read_json(?)",
        [str(source)],
    )
    base.execute("pragma create_fts_index('shop', 'id', 'contents')")
    asked = (
        "select id from (select *, fts_main_shop.match_bm25(id, ?, k := 0.9, b := 0.4) as score from shop)"
        " where score is not null and price >= ? and price <= ? and (? is null or shop_id = ?)"
        " and list_has_all(service, ?) order by score desc limit ? offset ?"
    )

    def search(plan: SearchPlan) -> Sequence[str]:
        low, high = plan.low_php or 0.0, np.inf if plan.high_php is None else plan.high_php
        filters = [low, high, plan.shop_id, plan.shop_id, list(plan.service)]
        rows = base.execute(asked, [plan.text, *filters, PAGE_SIZE, PAGE_SIZE * (plan.page - 1)]).fetchall()
        return [each for (each,) in rows]

    return search

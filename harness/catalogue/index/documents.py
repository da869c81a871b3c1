"""The index line format: one JSON object a line, `{"id", "contents", "product"}` (docs/benchmark.md#documents).

Reads `.jsonl` and `.jsonl.gz`, types every line at the border and says where a line is wrong. `contents_of` builds the
searchable text, so brand, category, description and specification stay out of search, as in the reference.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import orjson

from foundation.errors import ArenaError
from problems.product import Product, read_product


class IndexLine(msgspec.Struct, frozen=True):
    """One document of the catalogue: its id, its searchable text and the product."""

    id: str
    contents: str
    product: Product


def contents_of(product: Product) -> str:
    """Title, distinct SKU option values, distinct attribute values; one line each.

    Values are in first-seen order: the reference's order is arbitrary, and BM25 does not see it.
    """
    options = dict.fromkeys(value for option in product.sku_options.values() for value in option.values())
    attributes = dict.fromkeys(value for values in product.attributes.values() for value in values)
    return "\n".join((product.title, " ".join(options), " ".join(attributes)))


def document_line(product: Product) -> bytes:
    """The product's line in the index line format, newline included."""
    document = {"id": product.product_id, "contents": contents_of(product), "product": msgspec.to_builtins(product)}
    return orjson.dumps(document) + b"\n"


def write_documents(products: Iterable[Product], stream: BinaryIO) -> int:
    """Write one line a product; returns how many were written."""
    count = 0
    for product in products:
        stream.write(document_line(product))
        count += 1
    return count


def open_documents(path: Path) -> BinaryIO:
    """A binary stream of lines from a plain or gzip-compressed file. Raises ArenaError V2013 when it cannot be read."""
    try:
        return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise ArenaError("V2013", f"{path}: {error.strerror or error}") from error


def read_line(line: bytes) -> IndexLine:
    """A typed document from one line. Raises ArenaError P4005 naming the field that is wrong."""
    try:
        raw = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ArenaError("P4005", f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ArenaError("P4005", "line is not an object")
    document_id, contents = raw.get("id"), raw.get("contents")
    if not isinstance(document_id, str) or not isinstance(contents, str):
        raise ArenaError("P4005", "`id` and `contents` must be strings")
    product = read_product(raw.get("product"))
    if product.product_id != document_id:
        raise ArenaError("P4005", f"id {document_id!r} is not the product's id {product.product_id!r}")
    # ids travel in comma-separated lists and are stripped there, so some strings could never be recommended
    if not document_id or not document_id.isprintable() or any(one.isspace() or one == "," for one in document_id):
        raise ArenaError("P4005", f"id {document_id!r} is empty or holds a comma, a blank or a control character")
    return IndexLine(document_id, contents, product)


def read_products(path: Path) -> Iterator[Product]:
    """Every product of a documents file in file order. Raises ArenaError P4005 naming the line, V2013."""
    with open_documents(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield read_line(line).product
            except ArenaError as error:
                raise ArenaError(error.failure.code, f"{path.name} line {number}: {error.failure.detail}") from error

"""Lucene's pages and Lucene's terms are ours: two thousand varied requests; every code point where classes differ."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest

from harness.catalogue.analysis import terms_of
from harness.catalogue.build import read_products
from harness.catalogue.lucene import build_engine, open_engine
from harness.catalogue.port import SearchRequest
from harness.catalogue.synthetic import generate
from tests.harness.catalogue_stand import (
    ALPHABET,
    REAL_DOCUMENTS,
    adversarial_products,
    adversarial_text,
    lucene_terms,
    varied_requests,
    write_products,
)
from tests.prove.unicode_classes import FRAMES, POINTS, REPRESENTATIVES, classify, lucene_tokens, table

pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("_lucene")]

DOCUMENTS, REQUESTS = 100_000, 2_000
MOST_SHOWN = 5


def _prove(documents: Path, requests: list[SearchRequest], folder: Path) -> None:
    build_engine("numba", documents, folder / "ours")
    build_engine("lucene", documents, folder / "theirs")
    theirs = _pages("lucene", folder / "theirs", requests)
    assert sum(map(bool, theirs)) > len(requests) // 2
    for name in ("numpy", "numba"):
        rows = zip(requests, theirs, _pages(name, folder / "ours", requests), strict=True)
        different = [row for row in rows if row[1] != row[2]]
        assert not different, (name, len(different), different[:MOST_SHOWN])


def _pages(engine: str, index: Path, requests: list[SearchRequest]) -> list[list[str]]:
    catalogue = open_engine(engine, index)
    return [[one.product_id for one in catalogue.search(request)] for request in requests]


def test_every_page_is_lucenes(tmp_path: Path) -> None:
    """Real documents where they are at hand, so that words are; synthetic ones, so that lists are long; and difficult
    texts, so that lengths matter."""
    real = list(read_products(REAL_DOCUMENTS)) if REAL_DOCUMENTS.is_file() else []
    difficult, made = list(adversarial_products(3_000, 5)), list(generate(DOCUMENTS, 7))
    ids = {one.product_id for one in real}
    everything = [*real, *difficult, *(one for one in made if one.product_id not in ids)]
    random.Random(3).shuffle(everything)
    asked = real * 20 + difficult + made[::29]
    _prove(write_products(everything, tmp_path), varied_requests(asked, REQUESTS, seed=202), tmp_path)


pytestmark = [pytest.mark.prove, pytest.mark.usefixtures("_lucene")]

SECONDS = 60  # of random search, for each kind of text
BATCH = 50
END = " zzqz \n"  # a token of its own that no text joins
SUFFIXES = (
    "s es ies ed ing ly bli logi ational ization fulness ousness aliti iviti biliti icate ative alize iciti ical "
    "ness ement ment ent ance able ible ion tion sion ism ate iti ous ive ize eed y e ll tt ss"
)

Terms = Callable[[str], list[str]]


def differing(texts: list[str], lucene: Terms) -> Iterator[tuple[str, list[str], list[str]]]:
    """The texts whose terms differ. Batches first: one call for many texts."""
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        joined = END.join(batch)
        if lucene(joined) != terms_of(joined):
            yield from ((text, lucene(text), terms_of(text)) for text in batch if lucene(text) != terms_of(text))


def test_every_code_point_is_of_its_class_and_every_class_is_cut_as_lucene_cuts_it() -> None:
    kept = resources.files("harness.catalogue").joinpath("unicode_classes.json").read_text("utf-8")
    assert table(classify(lucene_tokens())) == kept
    texts = [frame.replace("X", letter) for letter in REPRESENTATIVES.values() for frame in FRAMES.split("|")]
    assert not list(differing(texts, lucene_terms()))


@pytest.mark.parametrize("kind", ["difficult", "any code point", "English", "long"])
def test_random_texts_have_lucenes_terms(kind: str) -> None:
    """What this finds belongs into tests/harness/catalogue_lucene_terms.json once it is mended."""
    lucene, rng, checked = lucene_terms(), random.Random(f"{kind} 8"), 0
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        texts = [_text(kind, rng) for _ in range(BATCH)]
        found = list(differing(texts, lucene))
        checked += len(texts)
        assert not found, found[:5]
    print(f"{kind}: {checked} texts")


def _text(kind: str, rng: random.Random) -> str:
    if kind == "difficult":
        return adversarial_text(rng, 10)
    if kind == "any code point":
        return "".join(_any_letter(rng) for _ in range(rng.randint(1, 6)))
    if kind == "English":
        stem = "".join(rng.choice("abcdefghijklmnopqrstuvwxyzaeiouyaeiouyé'.-") for _ in range(rng.randint(0, 5)))
        return stem + "".join(rng.choice(SUFFIXES.split()) for _ in range(rng.randint(1, 3)))
    parts = rng.choice("a1'._,é𐐀中カ🔥\u0301\u200dאก") * rng.choice((1, 2, 100, 127, 128, 250, 253, 254, 255, 256))
    return "".join(parts for _ in range(rng.randint(1, 2))) + adversarial_text(rng)


def _any_letter(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(ALPHABET)
    low, high = rng.choice(((0x20, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), *POINTS))
    return chr(rng.randrange(low, high))

"""Small catalogues and mixed queries for the tests of the catalogue and the tools."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.catalogue.build import build_index, write_documents
from harness.catalogue.lucene import java_thread
from harness.catalogue.native import open_catalogue
from harness.catalogue.port import Catalogue, SearchRequest
from harness.catalogue.synthetic import generate
from problems.model import SERVICES, Product

STOPS = ("a", "an", "and", "are", "at", "be", "for", "if", "in", "is", "not", "of", "on", "or", "the", "to", "with")
PRICES = (
    "{low}-",
    "-{low}",
    "{low}-{high}",
    "0-100000",
    "nan-50",
    "104",
    "5--9",
    " 20 - 80 ",
    "1e2-",
    "₱1-9",
    "-",
    "--",
)
SORTS = ("order", "priceasc", "pricedesc", "default", "newest", "ORDER")
PAGES = ("1", "1", "1", "2", "3", "4", "5", "01", "٣")
DEAD_PAGES = ("0", "6", "", "-1", "1.0", None)

# Code points that meet every rule of the tokenizer: letters of many scripts, mids, joiners, marks, emoji, plane 1.
ALPHABET = (
    "abcsXYZ'’＇019_.,;:-/&#*+·‧‿︳ \néüİſßΣς中文カター\u3042い가\u1100\u1161กข\u0e31\u0e33ក\u17d2🔥✨👍🏽👩\u200d💻🇵🇭🇺"
    '\ufe0f\ufe0e\u20e3①½²°™®©•【】（）０１Ａאב"״\u0301\u0308\u200b\u200c\u00ad\u2060\ufeff\u0600\u06dd١٫٬❤☎Ⓜℹㆍ'
    "\U000e0067\U000e007f🏴\U0001f3fb😀\u0eb3\u1039ｶﾀﾞ\u3099゛々〆〇ㇰㅏㄱﾡ\u180e\u2028\x85\x1f\u0482\u061c\u202e𐐀𐐨𝟘𠀀🈁"
)


def adversarial_text(rng: random.Random, most: int = 14) -> str:
    """A short text over ALPHABET."""
    return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, most)))


def adversarial_products(count: int, seed: int) -> Iterator[Product]:
    """Products whose titles are difficult texts between plain words; ids are above every synthetic one."""
    rng = random.Random(seed)
    for number in range(count):
        words = [
            rng.choice(("lamp", "bag's", "Charger", "3.5mm", adversarial_text(rng))) for _ in range(rng.randint(2, 9))
        ]
        words.append(rng.choice(("x" * rng.randint(200, 600), "é" * rng.randint(250, 260), "1'" * 140, "")))
        yield Product(
            product_id=str(9_990_000_000 + number),
            shop_id=str(rng.randint(1, 9)),
            title=" ".join(words),
            price=float(rng.randint(1, 900)),
            sold_count=rng.randint(0, 50),
            service=tuple(name for name in SERVICES if rng.random() < 0.4),
        )


def varied_products() -> list[Product]:
    """The catalogue of the varied goldens: synthetic products and difficult ones."""
    return [*generate(2_000, 5), *adversarial_products(400, 6)]


def varied_requests(products: list[Product], count: int, seed: int) -> list[SearchRequest]:
    """Requests on the products' own words, and about one in four on something stranger."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        product = rng.choice(products)
        q = _words(rng, product, rng.choice(products)) if number % 4 else _strange(rng, product)
        low = rng.randint(1, 900)
        price = rng.choice(PRICES).format(low=low, high=low * 3) if rng.random() < 0.45 else None
        service = rng.choice((*SERVICES, "COD,freeShipping", "lazmall", ",COD,")) if rng.random() < 0.4 else None
        shop_id = rng.choice((product.shop_id, product.shop_id, "no such shop", "")) if rng.random() < 0.3 else None
        sort = rng.choice(SORTS) if rng.random() < 0.5 else None
        page = rng.choice(PAGES) if rng.random() < 0.97 else rng.choice(DEAD_PAGES)
        made.append(SearchRequest(q=q, page=page, shop_id=shop_id, price=price, sort=sort, service=service))
    return made


def _words(rng: random.Random, product: Product, other: Product) -> str:
    options = [value for option in product.sku_options.values() for value in option.values()]
    values = [value for several in product.attributes.values() for value in several]
    pool = " ".join((product.title, *options, *values, *other.title.split()[:2])).split() or ["bag"]
    return " ".join(rng.sample(pool, min(len(pool), rng.choice((1, 1, 2, 3, 4, 6, 9)))))


def _strange(rng: random.Random, product: Product) -> str | None:
    words = product.title.split() or ["bag"]
    word = rng.choice(words)
    kind = rng.randrange(12)
    if kind == 0:
        return rng.choice((None, "", "   ", "()", '"', "\\", "~*?:", "\0", "\ud800", "🔥", "é"))
    if kind == 1:
        return " ".join(rng.sample(STOPS, 3))
    if kind == 2:
        return f"{' '.join(rng.sample(STOPS, 3))} {word}"
    if kind == 3:
        return " ".join([word] * rng.randint(2, 40) + words[:2])
    if kind == 4:
        return rng.choice(('"{}"', "+{} -bag", "{}~2 OR bag", "{} AND NOT ({})", "title:{}", "{}^4 [a TO b]")).replace(
            "{}", word
        )
    if kind == 5:
        return word * rng.choice((40, 80))
    if kind == 6:
        return f"{word}\0{word} \ud83d {word}\r\n\t{word}\x7f"
    if kind == 7:
        return " ".join(f"{word}{number}" for number in range(rng.choice((900, 1_030)))) + f" {word}"
    if kind == 8:
        return product.title.upper() + "'s"
    if kind == 9:
        return product.title[: rng.randint(1, 30)]
    return " ".join((adversarial_text(rng), word, adversarial_text(rng)))


ROOT = Path(__file__).parents[2]
PACKAGES = Path(os.environ.get("ARENA_LUCENE_PACKAGES") or ROOT / "build" / "lucene")
REQUIREMENTS = ROOT / "harness" / "catalogue" / "requirements-lucene.txt"


def missing_lucene() -> str:
    """Why the engine cannot run here, or the empty string. Makes installed packages importable."""
    if importlib.util.find_spec("pyserini") is None and (PACKAGES / "pyserini").is_dir():
        sys.path.append(str(PACKAGES))
    if importlib.util.find_spec("pyserini") is None or importlib.util.find_spec("jnius") is None:
        return "the packages of the Lucene engine are not installed; `make prove` installs them into build/lucene"
    return ""


def lucene_terms() -> Callable[[str], list[str]]:
    """Anserini's English analyzer: text -> terms."""
    call = java_thread()

    def start() -> Callable[[str], list[str]]:
        import jnius

        analyzer = jnius.autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        analyze = jnius.autoclass("io.anserini.analysis.AnalyzerUtils").analyze
        return lambda text: list(analyze(analyzer, text).toArray())

    analyze: Callable[[str], list[str]] = call(start)
    return lambda text: call(analyze, text)


SHARED = Path(__file__).parents[2].parent / "shared"
REAL_DOCUMENTS = SHARED / "data" / "shoppingbench" / "documents.jsonl"


def product(product_id: str, title: str = "Red Canvas Bag", **fields: object) -> Product:
    """A plain product; fields override."""
    given: dict[str, object] = {"shop_id": "77", "price": 100.0, **fields}
    return Product(product_id=product_id, title=title, **given)  # type: ignore[arg-type]


def write_products(products: Iterable[Product], folder: Path) -> Path:
    """Write the products as a documents file; returns its path."""
    documents = folder / "documents.jsonl"
    with documents.open("wb") as stream:
        write_documents(products, stream)
    return documents


def index_of(products: Iterable[Product], folder: Path) -> Path:
    """Write the products and build their index; returns the index folder."""
    build_index(write_products(products, folder), folder / "index")
    return folder / "index"


def catalogue_of(products: Iterable[Product], folder: Path, *, hit_cap: int = 10_000) -> Catalogue:
    """An open catalogue of the products."""
    return open_catalogue(index_of(products, folder), hit_cap=hit_cap)


def code_of(action: Callable[[], object]) -> str:
    """The code of the failure that the action ends with."""
    with pytest.raises(ArenaError) as caught:
        action()
    return caught.value.failure.code


def mixed_requests(products: list[Product], count: int, seed: int) -> list[SearchRequest]:
    """Queries made of the products' words, with filters, sorts, shops and pages in every mix."""
    rng = random.Random(seed)
    requests = []
    for _ in range(count):
        chosen = rng.choice(products)
        words = (chosen.title + " " + " ".join(rng.choice(products).title.split()[:2])).split() or ["bag"]
        q = " ".join(rng.sample(words, min(len(words), rng.randint(1, 6))))
        low = rng.randint(1, 900)
        price = rng.choice([None, None, f"{low}-", f"-{low}", f"{low}-{low * 3}", "0-100000", "nan-50", "104"])
        service = rng.choice([None, None, None, *SERVICES, "COD,freeShipping", "lazmall"])
        shop_id = rng.choice([None, None, None, None, chosen.shop_id, "no such shop"])
        sort = rng.choice([None, None, "order", "priceasc", "pricedesc", "default"])
        page = rng.choice(["1", "1", "1", "2", "3", "5"])
        requests.append(SearchRequest(q=q, page=page, shop_id=shop_id, price=price, sort=sort, service=service))
    return requests


def drawn_requests(catalogue: Catalogue, count: int, seed: int) -> list[SearchRequest]:
    """The same of products drawn from the catalogue, however large it is."""
    rng, ids = random.Random(seed), list(catalogue.product_ids())
    products = [catalogue.product(one) for one in rng.sample(ids, min(len(ids), 2 * count))]
    return mixed_requests([one for one in products if one is not None], count, seed)

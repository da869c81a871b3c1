"""The engine's pages are the reference's pages, and its terms those of Anserini's English analyzer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue.analysis import default_analyzer, scan, tokens
from harness.catalogue.lucene import open_engine
from harness.catalogue.native import Kernel, open_catalogue
from harness.catalogue.port import Catalogue, SearchRequest, ignored_parameters
from harness.catalogue.synthetic import generate
from problems.model import Product
from tests.harness.catalogue_queries import ALPHABET, varied_products, varied_requests
from tests.harness.catalogue_stand import catalogue_of, index_of, mixed_requests, product
from tests.harness.reference_search import ReferenceSearch

LUCENE_PAGES = Path(__file__).with_name("catalogue_lucene_pages.json")
VARIED_PAGES = Path(__file__).with_name("catalogue_lucene_varied.json")
EDGES = [
    SearchRequest(q="the of", page="1"),
    SearchRequest(q="()", page="1"),
    SearchRequest(q="", page="1"),
    SearchRequest(page="1"),
    SearchRequest(q="bag", page="6"),
    SearchRequest(q="bag", page=None),
    SearchRequest(q="bag bag BAGS bag's", page="1"),
    SearchRequest(q="wireless   (USB-C) 2.4g", page="2"),
    SearchRequest(q="韓国風 🔥 ✨", page="1"),
    SearchRequest(q="qqqqzzzz", page="1"),
]


@pytest.fixture(scope="module")
def products() -> list[Product]:
    """Enough products that common words have hundreds of hits and many exact ties."""
    made = list(generate(500, 11))
    twins = [product(str(9_000_000_000 + number), made[number % 7].title, price=50.0 + number) for number in range(40)]
    return [*made, *twins, product("1", "the of and"), product("2", "long " * 300 + "bag")]


@pytest.fixture(scope="module")
def folder(products: list[Product], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index_of(products, tmp_path_factory.mktemp("catalogue"))


def ids(catalogue: Catalogue, request: SearchRequest) -> list[str]:
    return [found.product_id for found in catalogue.search(request)]


@pytest.mark.parametrize("kernel", ["numpy", "numba"])
@pytest.mark.parametrize("cap", [10_000, 60, 7])
def test_every_page_is_the_reference_page(products: list[Product], folder: Path, cap: int, kernel: Kernel) -> None:
    reference = ReferenceSearch(folder, hit_cap=cap)
    catalogue = open_catalogue(folder, hit_cap=cap, kernel=kernel)
    requests = mixed_requests(products, 250, seed=cap) + EDGES
    pages = [(request, reference.page(request), ids(catalogue, request)) for request in requests]
    assert sum(bool(want) for _, want, _ in pages) > 50
    assert not [(request, want, got) for request, want, got in pages if want != got]


@pytest.mark.parametrize("kernel", ["numpy", "numba"])
def test_threads_get_the_same_pages_as_one_after_the_other(
    products: list[Product], folder: Path, kernel: Kernel
) -> None:
    catalogue = open_catalogue(folder, kernel=kernel)
    requests = mixed_requests(products, 150, seed=5)
    alone = [ids(catalogue, request) for request in requests]
    together: list[list[list[str]]] = [[] for _ in range(6)]

    def run(place: int) -> None:
        together[place] = [ids(catalogue, request) for request in requests]

    threads = [threading.Thread(target=run, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [alone] * 6


def test_pages_are_the_ones_lucene_gave(tmp_path: Path) -> None:
    """Made once by Anserini over the same synthetic catalogue: `made_with` in the file says how."""
    golden = json.loads(LUCENE_PAGES.read_text("utf-8"))
    catalogue = catalogue_of(generate(golden["documents"], golden["seed"]), tmp_path)
    rows = [(row["request"], row["page"]) for row in golden["pages"]]
    got = [ids(catalogue, SearchRequest(**{"page": None, **request})) for request, _ in rows]
    assert len(rows) > 200 and sum(bool(page) for _, page in rows) > 100
    assert not [(request, page, own) for (request, page), own in zip(rows, got, strict=True) if page != own]


def test_varied_requests_get_the_pages_that_lucene_gave(tmp_path: Path) -> None:
    """Stranger requests over more difficult texts; the file keeps the pages, the seeds make the rest again."""
    golden = json.loads(VARIED_PAGES.read_text("utf-8"))
    products = varied_products()
    requests = varied_requests(products, len(golden["pages"]), seed=golden["seed"])
    folder = index_of(products, tmp_path)
    for kernel in ("numpy", "numba"):
        catalogue = open_engine(kernel, folder)
        rows = zip(requests, golden["pages"], strict=True)
        assert not [(request, page) for request, page in rows if ids(catalogue, request) != page], kernel
    assert sum(map(bool, golden["pages"])) > 200


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (SearchRequest(q="a", price="104", sort="cheap", service="lazmall"), ("price", "sort", "service")),
        (SearchRequest(q="a", price="₱100-200"), ("price",)),
        (SearchRequest(q="a", service="official, COD"), ("service",)),
        (SearchRequest(q="a", price="100-", sort="order", service="COD,official"), ()),
        (SearchRequest(q="a", price="", sort="default", service="default,COD"), ()),
        (SearchRequest(q="a"), ()),
    ],
)
def test_what_the_reference_ignores_in_silence_is_named(request_: SearchRequest, names: tuple[str, ...]) -> None:
    assert ignored_parameters(request_) == names


ROOT = Path(__file__).parents[2]


# The source from a file that is not there: numba finds no place for its cache, as in a read-only installation.
COMPILE_WITHOUT_A_PLACE = """
import sys
from pathlib import Path

names = {"__name__": "kernel"}
exec(compile(Path(sys.argv[1]).read_text(), "/nonexistent/accumulator.py", "exec"), names)
import numpy as np

sums = np.zeros(4)
arrays = [np.array([1, 3], np.int32), np.zeros(2, np.uint16), np.array([0]), np.array([2])]
met, scores = names["compiled_accumulate"]()(*arrays, np.full((1, 1), 2, np.float32), sums)
print(met.tolist(), scores.tolist())
"""


def test_it_compiles_where_nothing_can_be_kept() -> None:
    source = ROOT / "harness" / "catalogue" / "native.py"
    command = [sys.executable, "-c", COMPILE_WITHOUT_A_PLACE, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1, 3] [2.0, 2.0]"


# -- terms


def test_difficult_texts_have_the_terms_that_lucene_gave() -> None:
    """Every string a comparison with Lucene ever found to differ, runs at the length limit, and random ones."""
    golden = json.loads(Path(__file__).with_name("catalogue_lucene_terms.json").read_text("utf-8"))
    assert len(golden["rows"]) > 400
    own = default_analyzer().terms
    assert not [(text, terms, own(text)) for text, terms in golden["rows"] if own(text) != terms]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from(ALPHABET + "_\u200d🇦#.' "), max_size=4), st.sampled_from([1, 1, 2, 128, 255, 257])
        ),
        max_size=5,
    )
)
def test_the_fast_way_over_ascii_words_is_the_way_of_the_classes(parts: list[tuple[str, int]]) -> None:
    text = "".join(part * times for part, times in parts)
    assert tokens(text) == scan(text)

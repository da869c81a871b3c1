"""An index is whole, named by its content, and refused when it is not; its engine serves the reference's pages."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from foundation.canonical import content_hash
from foundation.errors import ArenaError
from harness.catalogue.analysis import scan, terms_of, tokens
from harness.catalogue.build import build_index, document_line, read_products
from harness.catalogue.layout import read_manifest
from harness.catalogue.lucene import open_engine
from harness.catalogue.native import Kernel, open_catalogue
from harness.catalogue.port import Catalogue, SearchRequest, ignored_parameters
from harness.catalogue.synthetic import generate
from neurons.cli.catalogue import app
from problems.model import Product
from tests.harness.catalogue_stand import (
    ALPHABET,
    catalogue_of,
    code_of,
    index_of,
    mixed_requests,
    product,
    varied_products,
    varied_requests,
)
from tests.harness.reference_search import ReferenceSearch


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index_of(generate(120, 3), tmp_path_factory.mktemp("built"))


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(built, tmp_path / "index"))


def test_every_file_is_refused_when_one_byte_was_edited(index: Path) -> None:
    for entry in read_manifest(index).content.files:
        path = index / entry.name
        kept = bytearray(path.read_bytes())
        kept[len(kept) // 2] ^= 1
        path.write_bytes(kept)
        assert code_of(lambda: open_catalogue(index)) == "V2010", entry.name
        kept[len(kept) // 2] ^= 1
        path.write_bytes(kept)


@pytest.mark.parametrize(
    ("field", "value", "is_sealed", "why"),
    [
        ("format", "arena-index/0", False, "this code reads"),
        ("documents", 121, False, "does not match its own hash"),
        ("documents", "many", True, "Expected `int`"),
        ("analyzer_sha256", "0" * 64, True, "built with another analyzer"),
    ],
)
def test_an_edited_manifest_is_refused(index: Path, field: str, value: object, is_sealed: bool, why: str) -> None:
    manifest = json.loads((index / "manifest.json").read_text())
    manifest["content"][field] = value
    if is_sealed:
        manifest["content_sha256"] = content_hash(manifest["content"])
    (index / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArenaError, match=f"V2010.*{why}"):
        open_catalogue(index)


def test_a_missing_file_and_a_missing_index_are_named(index: Path) -> None:
    for name, why in ((read_manifest(index).content.files[0].name, "is missing"), ("manifest.json", "No such file")):
        (index / name).unlink()
        with pytest.raises(ArenaError, match=f"V2010.*{name}.*{why}"):
            open_catalogue(index)


def test_blank_documents_are_dropped_and_stop_words_alone_are_kept(tmp_path: Path) -> None:
    folder = index_of([product("1", "  "), product("2", "the of"), product("3", "lamp")], tmp_path)
    manifest, catalogue = read_manifest(folder), open_catalogue(folder)
    assert manifest.blank_dropped == 1
    assert (manifest.content.documents, manifest.content.scored_documents) == (2, 1)
    assert catalogue.product("1") is catalogue.product("\ud800") is None
    assert catalogue.product("2") is not None
    (tmp_path / "stop").mkdir()
    assert open_catalogue(index_of([product("2", "the of")], tmp_path / "stop")).search(SearchRequest(q="lamp")) == ()
    assert [one.product_id for one in catalogue.search(SearchRequest(q="lamp"))] == ["3"]


MALFORMED = [
    b"not json",
    b"[]",
    b'{"id": 5, "contents": "a", "product": {}}',
    b'{"id": "5", "contents": "a"}',
    document_line(product("5", "lamp")).replace(b'"price":100.0', b'"price":null').strip(),
    document_line(product("5", "lamp")).replace(b'"service":[]', b'"service":"COD"').strip(),
    document_line(product("5", "lamp")).replace(b'"id":"5"', b'"id":"6"').strip(),
    document_line(product("5,6", "lamp")).strip(),
    document_line(product("5 6", "lamp")).strip(),
    b'{"id": "5", "contents": "\\ud800", "product": {}}',
    b"\xff\xfe",
]


def test_malformed_lines_are_left_out_and_named_by_line(tmp_path: Path) -> None:
    lines = [document_line(product("1", "lamp")).strip(), *MALFORMED, document_line(product("2", "lamp")).strip()]
    source = tmp_path / "documents.jsonl"
    source.write_bytes(b"\n".join(lines))
    for action in (lambda: build_index(source, tmp_path / "index", is_strict=True), lambda: [*read_products(source)]):
        with pytest.raises(ArenaError, match=r"P4005.*line 2: not JSON"):
            action()
    report = build_index(source, tmp_path / "index")
    assert report.manifest.malformed == len(MALFORMED)
    assert [finding.line for finding in report.findings] == list(range(2, 2 + len(MALFORMED)))
    assert report.manifest.content.documents == 2


def test_two_documents_of_one_id_are_refused_with_both_lines(tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_bytes(b"".join(document_line(product(name)) for name in ("3", "1", "2", "1")))
    with pytest.raises(ArenaError, match="lines 2 and 4"):
        build_index(source, tmp_path / "index")


def test_a_failed_build_leaves_the_index_that_stood_there(index: Path, tmp_path: Path) -> None:
    before = read_manifest(index)
    (tmp_path / "bad.jsonl").write_bytes(b"oops\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(document_line(product("1")) * 50)[:-20])
    assert code_of(lambda: build_index(tmp_path / "bad.jsonl", index)) == "P4005"
    assert code_of(lambda: build_index(tmp_path / "empty.jsonl", index)) == "P4005"
    assert code_of(lambda: build_index(tmp_path / "cut.jsonl.gz", index)) == "V2027"
    assert code_of(lambda: build_index(tmp_path / "none.jsonl", index)) == "V2027"
    assert code_of(lambda: [*read_products(tmp_path / "none.jsonl")]) == "V2027"
    assert read_manifest(index) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "cut.jsonl.gz", "empty.jsonl", "index"]


BUILD_SLOWLY = """
import sys, time
from pathlib import Path
from harness.catalogue.build import build_index

def tell(phase, done, total):
    print(phase, flush=True)
    time.sleep(0.2)

build_index(Path(sys.argv[1]), Path(sys.argv[2]), progress=tell)
"""


def test_a_killed_build_leaves_no_index_and_the_next_one_clears_up(tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_bytes(b"".join(map(document_line, generate(900, 2))))
    command = [sys.executable, "-c", BUILD_SLOWLY, str(source), str(tmp_path / "index")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        for line in process.stdout:
            if line == "analyse\n":
                break
        assert code_of(lambda: build_index(source, tmp_path / "index")) == "V2027"  # the other one is writing to it
        process.kill()
    assert not (tmp_path / "index").exists()
    build_index(source, tmp_path / "index")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl", "index"]


def test_a_build_replaces_an_index_but_nothing_else(index: Path, tmp_path: Path) -> None:
    source = tmp_path / "documents.jsonl"
    source.write_bytes(document_line(product("1", "lamp")))
    build_index(source, index)
    assert len(open_catalogue(index)) == 1
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    for place in (tmp_path / "home", source / "index"):
        assert code_of(lambda place=place: build_index(source, place)) == "V2027"
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl", "home", "index"]


def test_identity_depends_on_documents_and_not_on_how_they_came(tmp_path: Path) -> None:
    lines = [document_line(one) for one in generate(90, 5)]
    plain, turned, packed = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.jsonl.gz"))
    plain.write_bytes(b"".join(lines))
    spaced = [json.dumps(json.loads(line), ensure_ascii=True).encode() + b"\n" for line in reversed(lines)]
    turned.write_bytes(b"".join(spaced))
    packed.write_bytes(gzip.compress(b"".join(lines)))
    hashes = {
        build_index(source, tmp_path / f"index{place}", block_documents=block).manifest.content_sha256
        for place, (source, block) in enumerate([(plain, 1_000), (turned, 1_000), (packed, 7), (plain, 1)])
    }
    assert len(hashes) == 1
    (tmp_path / "less.jsonl").write_bytes(b"".join(lines[1:]))
    assert build_index(tmp_path / "less.jsonl", tmp_path / "less").manifest.content_sha256 not in hashes


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_catalogue_is_made_built_and_verified_by_three_commands(tmp_path: Path) -> None:
    made = read(run("synth", "--count", 150, "--seed", 9, "--out", tmp_path / "new" / "place", "--json"))
    assert made["documents"] == 150 and Path(made["path"]).stat().st_size == made["bytes"]
    built = read(run("build", made["path"], "--out", tmp_path / "index", "--json"))
    shown = read(run("info", tmp_path / "index", "--verify", "--json"))
    assert shown["documents"] == built["documents"] == 150
    assert shown["fully_verified"] is True
    assert shown["content_sha256"] == open_catalogue(tmp_path / "index").content_sha256


def test_a_seed_names_one_catalogue_on_every_machine() -> None:
    lines = b"".join(map(document_line, generate(400, 7)))
    assert hashlib.sha256(lines).hexdigest() == "e3075bad0ecc344c16132f400beb3508e697d5ebeeca136a46aa0344278bbf36"


# -- the engine: its pages are the reference's, and its terms those of Anserini's English analyzer
KERNELS: tuple[Kernel, ...] = ("numpy", "numba")
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


@pytest.mark.parametrize("cap", [10_000, 60, 7])
def test_every_page_is_the_reference_page(products: list[Product], folder: Path, cap: int) -> None:
    reference = ReferenceSearch(folder, hit_cap=cap)
    wanted = [(one, reference.page(one)) for one in mixed_requests(products, 250, seed=cap) + EDGES]
    assert sum(bool(page) for _, page in wanted) > 50
    for kernel in KERNELS:
        catalogue = open_catalogue(folder, hit_cap=cap, kernel=kernel)
        assert not [(one, page) for one, page in wanted if ids(catalogue, one) != page], kernel


@pytest.mark.parametrize("kernel", KERNELS)
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
    for kernel in KERNELS:
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
    assert not [(text, terms, terms_of(text)) for text, terms in golden["rows"] if terms_of(text) != terms]


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

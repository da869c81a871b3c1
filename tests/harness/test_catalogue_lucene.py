"""The Lucene engine: the same port, the same pages, the same refusals; and what it says where it cannot run."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from foundation.errors import ArenaError
from harness.catalogue import native
from harness.catalogue.layout import LUCENE_MANIFEST as MANIFEST
from harness.catalogue.lucene import build_engine, open_engine, read_lucene_manifest
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.limits import WorkMeter
from problems.model import Product
from tests.harness.catalogue_stand import (
    adversarial_products,
    catalogue_of,
    code_of,
    index_of,
    missing_lucene,
    product,
    varied_requests,
    write_products,
)

REASON = missing_lucene()
needs_lucene = pytest.mark.skipif(bool(REASON), reason=REASON or "installed")


def test_without_its_packages_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    documents = write_products([product("1")], tmp_path)
    for action in (
        lambda: open_engine("lucene", tmp_path / "none"),
        lambda: build_engine("lucene", documents, tmp_path / "index"),
    ):
        with pytest.raises(ArenaError, match=r"V2060.*pip install --no-deps -r harness/catalogue/requirements-lucene"):
            action()
    assert not (tmp_path / "index").exists()
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(native, "compiled_accumulate", native.compiled_accumulate.__wrapped__)
    with pytest.raises(ArenaError, match=r"V2060.*install agent-arena.search., or choose numpy"):
        open_engine("numba", index_of([product("1")], tmp_path))
    assert native.choose_accumulate("auto", native.COMPILED_FROM) is native.accumulate


@pytest.fixture(scope="module")
def products() -> list[Product]:
    """Plain ones, difficult ones, a crowd of equal ones, and what is left out or counts for nothing."""
    crowd = [product(str(8_000_000_000 + number), "lamp stand", price=float(number)) for number in range(60)]
    odd = [product("1", "the of and"), product("2", "long " * 300 + "bag"), product("30", "lamp\0stand")]
    return [*generate(1_500, 21), *crowd, *odd, *adversarial_products(120, 4)]


@pytest.fixture(scope="module")
def lucene(products: list[Product], tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    folder = tmp_path_factory.mktemp("lucene")
    build_engine("lucene", write_products(products, folder), folder / "index")
    return open_engine("lucene", folder / "index")


@needs_lucene
def test_it_counts_the_same_units_of_work(products: list[Product], lucene: Catalogue, tmp_path: Path) -> None:
    own = catalogue_of(products, tmp_path)
    for request in varied_requests(products, 60, seed=7):
        theirs, ours = WorkMeter(), WorkMeter()
        assert lucene.search_in_shops(request, theirs)("77") == own.search_in_shops(request, ours)("77")
        assert lucene.search(request, theirs) == own.search(request, ours)
        assert theirs.spent == ours.spent, request


@needs_lucene
def test_a_broken_index_is_refused(tmp_path: Path) -> None:
    documents, index = write_products([product("1", "lamp"), product("2", "bag")], tmp_path), tmp_path / "index"
    assert code_of(lambda: open_engine("lucene", index)) == "V2010"
    build_engine("lucene", documents, index)
    for entry in read_lucene_manifest(index).files:
        path = index / entry.name
        kept = path.read_bytes()
        for spoiled in (kept[:-1], kept[:-1] + bytes([kept[-1] ^ 1])) if kept else (b"x",):
            path.write_bytes(spoiled)
            assert code_of(lambda: open_engine("lucene", index)) == "V2010", entry.name
        path.write_bytes(kept)
    manifest = json.loads((index / MANIFEST).read_text())
    manifest["content"]["documents"] = 3
    (index / MANIFEST).write_text(json.dumps(manifest))
    assert code_of(lambda: open_engine("lucene", index)) == "V2010"

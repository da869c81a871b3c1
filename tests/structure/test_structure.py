"""No figure of the shape may rise above `ratchet.json`; one that fell is written there with its change.

A change that adds a feature takes out as much elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.structure import static
from tests.structure.figures import measure
from tests.structure.product import Product

HERE = Path(__file__).parent
RATCHET = msgspec.json.decode((HERE / "ratchet.json").read_bytes(), type=dict[str, int])


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    return msgspec.structs.asdict(measure(Product(HERE.parents[1])))


@pytest.mark.parametrize("name", RATCHET)
def test_no_figure_rises(figures: dict[str, int], name: str) -> None:
    assert figures[name] <= RATCHET[name], "python -m tests.structure --details names what is counted"


def product_of(folder: Path, files: dict[str, str]) -> Product:
    (folder / "pyproject.toml").write_text(
        '[tool.setuptools.packages.find]\nwhere = ["."]\ninclude = ["room*", "other", "other.*"]\n'
    )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Product(folder)


def test_the_product_is_what_is_packaged(tmp_path: Path) -> None:
    files = {"room/a.py": '"""A."""\nx = 1; y = 2\n\n', "other/in/b.py": "", "tests/c.py": "y = 1\n", "d.py": ""}
    product = product_of(tmp_path, files)
    assert [product.name_of(path) for path in product.files] == ["other/in/b.py", "room/a.py"]
    assert static.lines(product) == 3
    assert static.lines(product, ("room/",), ("room/a",)) == 0
    assert static.statements(product) == 2


def test_citations_of_documents_that_are_not_here(tmp_path: Path) -> None:
    product = product_of(tmp_path, {"room/a.py": '"""DESIGN section 7, sandbox\nnotes, section 3."""\n'})
    assert static.citations(product) == ["room/a.py", "room/a.py"]

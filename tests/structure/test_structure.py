"""The shape may not get worse than `ratchet.json` says. A figure that got better is written there with the change.

Lines and files are part of it: a change that adds a feature takes out as much elsewhere.
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
    found = measure(Product(HERE.parents[1]))
    return {name: getattr(found, name) for name in RATCHET}


@pytest.mark.parametrize("name", RATCHET)
def test_no_figure_gets_worse(figures: dict[str, int], name: str) -> None:
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
    product = product_of(tmp_path, {"room/a.py": "x = 1\n\n", "other/in/b.py": "", "tests/c.py": "y = 1\n", "d.py": ""})
    assert [product.name_of(path) for path in product.files] == ["other/in/b.py", "room/a.py"]
    assert static.lines(product) == 2


def test_what_is_used_once(tmp_path: Path) -> None:
    source = "def _once(): ...\ndef _twice(): ...\ndef never(): ...\ndef once(): _once(), _twice(), _twice()\n"
    product = product_of(tmp_path, {"room/a.py": source, "room/b.py": "from room.a import once\nonce()\n_once = 1\n"})
    private, every = static.used_once(product)
    assert private == ["room/a.py:1 _once"]
    assert sorted(every) == ["room/a.py:1 _once", "room/a.py:4 once"]


def test_which_imports_make_a_circle(tmp_path: Path) -> None:
    files = {
        "room/__init__.py": "",
        "room/a.py": "from room import b\n",
        "room/b.py": "def f():\n    from room.a import g\n",
        "room/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from room.d import x\n",
        "room/d.py": "from . import c\n",
        "room/e.py": "import room.f\n",
        "room/f.py": "from .e import y\n",
    }
    product = product_of(tmp_path, files)
    assert static.circles(product) == [["room.e", "room.f"]]
    assert static.circles(product, is_lazy=True) == [["room.a", "room.b"], ["room.e", "room.f"]]
    assert static.circles(product, is_typing=True) == [["room.c", "room.d"], ["room.e", "room.f"]]


def test_names_places_and_citations(tmp_path: Path) -> None:
    files = {
        "room/a.py": '"""DESIGN section 7, sandbox\nnotes, section 3."""\nclass Refusal: ...\nclass Own: ...\n',
        "room/b.py": "import os\nclass _Refusal: ...\nos.replace(a, b)\npath.replace(c)\ntext.replace('a', 'b')\n",
        **{f"room/many/f{number}.py": "" for number in range(16)},
    }
    product = product_of(tmp_path, files)
    assert static.repeated_classes(product) == {"Refusal": ["room/a.py", "room/b.py"]}
    assert static.replacements(product) == ["room/b.py:3", "room/b.py:4"]
    assert static.citations(product) == ["room/a.py", "room/a.py"]
    assert static.full_folders(product) == {"room/many": 16}

"""What the product is, read from pyproject.toml, and what its sources count. Definitions: docs/structure.md."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cached_property
from pathlib import Path

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Documents that are not in the repository: the design, and notes by their section, row or gotcha.
_CITED = re.compile(r"\bDESIGN\b|\bnotes, (?:sections?|rows?|gotchas?)\b")


class Product:
    """The product of a repository: the Python files of its packages, tests excepted."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @cached_property
    def roots(self) -> tuple[Path, ...]:
        """The top folders that setuptools packages, each of them the outermost one."""
        find = tomllib.loads((self.root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"][
            "find"
        ]
        found = {
            path
            for where in find["where"]
            for pattern in find["include"]
            for path in (self.root / where).glob(pattern.partition(".")[0])
            if path.is_dir() and any(path.rglob("*.py"))
        }
        return tuple(sorted(path for path in found if not found & set(path.parents)))

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Every Python file of the product, sorted."""
        return tuple(sorted(path for root in self.roots for path in root.rglob("*.py")))

    def name_of(self, path: Path) -> str:
        """The file's path in the repository."""
        return path.relative_to(self.root).as_posix()

    @cached_property
    def texts(self) -> dict[Path, str]:
        """Each file's text."""
        return {path: path.read_text("utf-8") for path in self.files}

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        """Each file parsed."""
        return {path: ast.parse(text, filename=self.name_of(path)) for path, text in self.texts.items()}


def lines_of(product: Product, prefixes: tuple[str, ...] = ("",), but: tuple[str, ...] = ()) -> int:
    """Physical lines of the Python files under `prefixes` and not under `but`: blank ones, comments, docstrings too."""
    return sum(
        product.texts[path].count("\n")
        for path in product.files
        if (name := product.name_of(path)).startswith(prefixes) and not (but and name.startswith(but))
    )


def statements(product: Product) -> int:
    """Statements of all files, however many stand on a line; docstrings are none."""
    found = 0
    for tree in product.trees.values():
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            found += isinstance(node, ast.stmt) and not is_text
    return found


def docstring_lines_e2(product: Product) -> int:
    """Hundredths of docstring lines for each public function and method."""
    lengths = [
        len((ast.get_docstring(node) or "").splitlines())
        for tree in product.trees.values()
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTION) and not node.name.startswith("_")
    ]
    return sum(lengths) * 100 // max(1, len(lengths))


def citations(product: Product) -> list[str]:
    """Citations of documents that are not in the repository, in Python and Markdown, also across a line's end."""
    return [
        product.name_of(path)
        for path in sorted(path for root in product.roots for path in root.rglob("*") if path.suffix in (".py", ".md"))
        for _ in _CITED.findall(re.sub(r"\s+(?:#\s)?\s*", " ", path.read_text("utf-8")))
    ]

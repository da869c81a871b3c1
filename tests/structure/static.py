"""What can be counted from the sources alone. Definitions: docs/structure.md."""

from __future__ import annotations

import ast
import re

from tests.structure.product import Product

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Documents that are not in the repository: the design, and notes by their section, row or gotcha.
_CITED = re.compile(r"\bDESIGN\b|\bnotes, (?:sections?|rows?|gotchas?)\b")


def lines(product: Product, prefixes: tuple[str, ...] = ("",), but: tuple[str, ...] = ()) -> int:
    """Physical lines of the Python files under `prefixes` and not under `but`: blank ones, comments, docstrings too."""
    return sum(
        product.text_of(path).count("\n")
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

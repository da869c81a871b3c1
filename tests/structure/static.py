"""What can be counted from the sources alone. Definitions: docs/structure.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

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


def circles(product: Product, *, are_folders: bool = False) -> list[list[str]]:
    """Circles of imports between modules, or between the folders of rooms: strongly connected parts of the graph.

    Every import counts, those under `if TYPE_CHECKING` and inside functions too. A package counts where a name of its
    `__init__` is imported.
    """
    modules = {_module(product, path): path.name == "__init__.py" for path in product.files}
    graph: dict[str, set[str]] = {}
    for path in product.files:
        name = _module(product, path)
        here = _folder(name, modules) if are_folders else name
        found = (_folder(other, modules) if are_folders else other for other in _imports(product, name, path, modules))
        graph.setdefault(here, set()).update(other for other in found if other != here)
    for others in list(graph.values()):
        for other in others:
            graph.setdefault(other, set())
    return sorted(sorted(part) for part in _components(graph) if len(part) > 1)


def _folder(name: str, modules: dict[str, bool]) -> str:
    """The room's folder, or its file where it lies in the room itself: `arena.race`, `arena.policy`."""
    return ".".join(name.split(".")[:2])


def _module(product: Product, path: Path) -> str:
    """The module's dotted name, from its top package."""
    (root,) = (root for root in product.roots if root in path.parents)
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def _imports(product: Product, name: str, path: Path, modules: dict[str, bool]) -> Iterator[str]:
    package = name if modules[name] else name.rpartition(".")[0]
    for node in ast.walk(product.trees[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [node.module])])
            for alias in node.names:
                found = f"{base}.{alias.name}"
                if found in modules:
                    yield found
                elif base in modules:
                    yield base


def _components(graph: dict[str, set[str]]) -> Iterable[list[str]]:
    """Strongly connected parts (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for start in sorted(graph):
        if start in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(start, iter(sorted(graph[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, following = work[-1]
            step = next(following, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    yield part
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter(sorted(graph[step]))))
            elif step in on_stack:
                low[node] = min(low[node], index[step])

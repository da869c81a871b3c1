"""What can be counted from the sources alone. Definitions: docs/structure.md."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.structure.product import Product

FULL_FOLDER = 15
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Documents that are not in the repository: the design, and notes by their section, row or gotcha.
_CITED = re.compile(r"\bDESIGN\b|\bnotes, (?:sections?|rows?|gotchas?)\b")
_REPLACING = {("os", "replace"), ("os", "rename"), ("os", "renames"), ("shutil", "move")}


def lines(product: Product) -> int:
    """Physical lines of all Python files: code, comments, docstrings and blank lines."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in product.files)


def full_folders(product: Product) -> dict[str, int]:
    """Folders that hold more than 15 Python files themselves, `__init__.py` counted, with their number."""
    held = Counter(path.parent for path in product.files)
    return {product.name_of(folder): count for folder, count in sorted(held.items()) if count > FULL_FOLDER}


def functions(product: Product) -> list[str]:
    """The name of every function and method, nested ones included."""
    return [node.name for nodes in product.nodes.values() for node in nodes if isinstance(node, _FUNCTION)]


def used_once(product: Product) -> tuple[list[str], list[str]]:
    """Functions and methods named exactly once: the private ones in their own file, and all in the whole product.

    A private name is its file's own, so files are looked at one by one; a public one is looked for everywhere. Named is
    what an expression reads, by name or as an attribute; an import names nothing.
    """
    in_file = {path: Counter(_names(nodes)) for path, nodes in product.nodes.items()}
    anywhere = Counter[str]()
    for counted in in_file.values():
        anywhere.update(counted)
    private, public = [], []
    for path, nodes in product.nodes.items():
        for node in nodes:
            if not isinstance(node, _FUNCTION) or _is_dunder(node.name):
                continue
            place = f"{product.name_of(path)}:{node.lineno} {node.name}"
            if not node.name.startswith("_"):
                public += [place] if anywhere[node.name] == 1 else []
            elif in_file[path][node.name] == 1:
                private.append(place)
    return private, private + public


def _names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def repeated_classes(product: Product) -> dict[str, list[str]]:
    """Class names that two or more files define, wherever in the file, with these files.

    A leading underscore does not make it another name: readers say `_Refusal` and `Refusal` alike.
    """
    where: dict[str, set[str]] = defaultdict(set)
    for path, nodes in product.nodes.items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].add(product.name_of(path))
    return {name: sorted(files) for name, files in sorted(where.items()) if len(files) > 1}


def replacements(product: Product) -> list[str]:
    """Places that put one file in another's place by hand: `os.replace`, `os.rename`, `shutil.move`, `Path.replace`."""
    return [
        f"{product.name_of(path)}:{node.lineno}"
        for path, nodes in product.nodes.items()
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _replaces(node.func, node)
    ]


def _replaces(called: ast.Attribute, call: ast.Call) -> bool:
    """Text's `replace` takes two arguments, that of a path one, and msgspec's is given fields by name."""
    if isinstance(called.value, ast.Name) and (called.value.id, called.attr) in _REPLACING:
        return True
    return called.attr in ("replace", "rename") and len(call.args) == 1 and not call.keywords


def citations(product: Product) -> list[str]:
    """Citations of documents that are not in the repository, in Python and Markdown, also across a line's end."""
    return [
        product.name_of(path)
        for path in sorted(path for root in product.roots for path in root.rglob("*") if path.suffix in (".py", ".md"))
        for _ in _CITED.findall(re.sub(r"\s+(?:#\s)?\s*", " ", path.read_text("utf-8")))
    ]


def circles(product: Product, *, is_typing: bool = False, is_lazy: bool = False) -> list[list[str]]:
    """Circles of imports between modules: strongly connected parts of the import graph.

    Counted are imports that run when a module is imported; with `is_typing` also those under `if TYPE_CHECKING`, with
    `is_lazy` also those inside functions. A package counts where a name of its `__init__` is imported.
    """
    modules = {_module(product, path): path for path in product.files}
    graph = {
        name: {found for found in _imports(product, name, path, modules, is_typing, is_lazy) if found != name}
        for name, path in modules.items()
    }
    return sorted(sorted(part) for part in _components(graph) if len(part) > 1)


def _module(product: Product, path: Path) -> str:
    """The module's dotted name, from its top package."""
    (root,) = (root for root in product.roots if root in path.parents)
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def _imports(
    product: Product, name: str, path: Path, modules: dict[str, Path], is_typing: bool, is_lazy: bool
) -> Iterator[str]:
    waiting: list[ast.AST] = list(product.trees[path].body)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*_FUNCTION, ast.Lambda)) and not is_lazy:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not is_typing:
            waiting.extend(node.orelse)
            continue
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
        waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


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

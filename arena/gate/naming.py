"""The naming rules: imports, builtins, attributes, dynamic attributes, identifiers. Pure walks over one tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from arena.gate.folding import fold
from arena.gate.report import Finding, finding
from arena.gate.vocabulary import (
    ATTRIBUTES,
    BUILTINS,
    CALLED_BUILTINS,
    DECODERS,
    DOUBTFUL_REEXPORTS,
    DUNDERS,
    DYNAMIC,
    MODULES,
    PACKAGES,
    PARTS,
    REEXPORTS,
)


def naming_findings(nodes: list[ast.AST], *, is_ascii: bool) -> list[Finding]:
    """All findings of the naming rules over the nodes of a tree. `is_ascii`: the whole source is, and so every name."""
    partial = _partial_imports(nodes)
    module_names = _module_names(nodes)
    granted = _granted_uses(nodes, partial)
    found: list[Finding] = []
    for node in nodes:
        if not is_ascii:
            found += _identifier(node)
        match node:
            case ast.Import():
                found += _import(node)
            case ast.ImportFrom():
                found += _import_from(node)
            case ast.Name():
                found += _name(node, partial, granted)
            case ast.Attribute():
                found += _attribute(node, module_names)
            case ast.Call():
                found += _call(node)
    return found


# -- imports
def _is_allowed(module: str) -> bool:
    return module in MODULES or any(module == package or module.startswith(package + ".") for package in PACKAGES)


def _refused_module(module: str, line: int) -> Finding:
    return finding("decoder-import" if module.split(".")[0] in DECODERS else "import", line, module)


def _import(node: ast.Import) -> Iterator[Finding]:
    for alias in node.names:
        if not (_is_allowed(alias.name) or alias.name in PARTS):
            yield _refused_module(alias.name, node.lineno)


def _import_from(node: ast.ImportFrom) -> Iterator[Finding]:
    module = "." * node.level + (node.module or "")
    names = {alias.name for alias in node.names}
    if node.level:
        yield finding("import", node.lineno, module)
    elif _is_allowed(module):
        if refused := sorted(name for name in names if name == "*" or name.lstrip("_") in REEXPORTS | ATTRIBUTES):
            yield finding("import", node.lineno, f"from {module} import {', '.join(refused)}")
    elif module in PARTS:
        if refused := sorted(names - PARTS[module]):
            yield finding("import", node.lineno, f"from {module} import {', '.join(refused)}")
    elif not all(_is_allowed(f"{module}.{name}") or f"{module}.{name}" in PARTS for name in names):
        yield _refused_module(module, node.lineno)


def _partial_imports(nodes: list[ast.AST]) -> dict[str, frozenset[str]]:
    """Names bound to a module of which only some attributes may be used: `import os`, `import urllib.parse`."""
    partial: dict[str, frozenset[str]] = {}
    for node in nodes:
        if not isinstance(node, ast.Import):
            continue
        for alias in node.names:
            root, _, rest = alias.name.partition(".")
            if alias.name in PARTS and (alias.asname or not rest):
                bound = alias.asname or root
                partial[bound] = PARTS[alias.name] & partial.get(bound, PARTS[alias.name])
            elif rest and not alias.asname and not _is_allowed(root):
                partial[root] = partial.get(root, frozenset()) | PARTS.get(root, frozenset({rest.split(".")[0]}))
    return partial


def _module_names(nodes: list[ast.AST]) -> frozenset[str]:
    """Names bound by `import` statements."""
    imports = (node for node in nodes if isinstance(node, ast.Import))
    return frozenset(alias.asname or alias.name.split(".")[0] for node in imports for alias in node.names)


def _granted_uses(nodes: list[ast.AST], partial: dict[str, frozenset[str]]) -> set[ast.AST]:
    """The name nodes whose use is an allowed attribute of a partially allowed module."""
    if not partial:
        return set()
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in partial.get(node.value.id, frozenset())
    }


# -- names, attributes, calls
def _name(node: ast.Name, partial: dict[str, frozenset[str]], granted: set[ast.AST]) -> Iterator[Finding]:
    if node.id in BUILTINS:
        yield finding("builtin", node.lineno, node.id)
    if node.id in partial and node not in granted:
        yield finding("import", node.lineno, f"use of {node.id} beyond {', '.join(sorted(partial[node.id]))}")


def _attribute(node: ast.Attribute, module_names: frozenset[str]) -> Iterator[Finding]:
    name = node.attr
    bare = name.lstrip("_")
    if _is_refused_attribute(name) or bare in REEXPORTS:
        yield finding("attribute", node.lineno, name)
    elif bare in DOUBTFUL_REEXPORTS:
        is_module = isinstance(node.value, ast.Name) and node.value.id in module_names
        yield finding("attribute" if is_module else "attribute-name", node.lineno, name)


def _is_refused_attribute(name: str) -> bool:
    is_dunder = name.startswith("__") and name.endswith("__")
    return (is_dunder and name not in DUNDERS) or name in ATTRIBUTES


def _call(node: ast.Call) -> Iterator[Finding]:
    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if called in CALLED_BUILTINS and isinstance(node.func, ast.Name):
        yield finding("builtin", node.lineno, called)
    if called not in DYNAMIC:
        return
    position = 0 if called in ("attrgetter", "methodcaller") else 1
    name = fold(node.args[position]) if len(node.args) > position else None
    if name is None:
        yield finding("dynamic-attribute", node.lineno, called)
    elif any(_is_refused_attribute(part) or part.lstrip("_") in REEXPORTS for part in name.split(".")):
        yield finding("attribute", node.lineno, f"{called} of {name!r}")


# -- identifiers
def _identifier(node: ast.AST) -> Iterator[Finding]:
    for field in ("id", "attr", "arg", "name", "asname", "rest"):
        value = getattr(node, field, None)
        if isinstance(value, str) and not value.isascii():
            yield finding("identifier", getattr(node, "lineno", 0), ascii(value))
    if isinstance(node, ast.Global | ast.Nonlocal):
        for name in node.names:
            if not name.isascii():
                yield finding("identifier", node.lineno, ascii(name))

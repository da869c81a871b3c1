"""The parts of a syntax tree, in the order of `ast.iter_child_nodes`, but found faster: the gate does little else.

Which fields of a node hold only text and numbers is known by their name, so they are not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_PLAIN = {"id", "attr", "arg", "asname", "module", "level", "kind", "type_comment", "conversion", "rest", "is_async"}
_HOLDING: dict[type[ast.AST], tuple[str, ...]] = {}  # by class


def holding_fields(node: ast.AST) -> tuple[str, ...]:
    """The fields in which a node of this class can hold nodes."""
    kind = node.__class__
    fields = _HOLDING.get(kind)
    if fields is None:
        plain = _PLAIN | {"value"} if kind is ast.Constant else _PLAIN
        fields = _HOLDING[kind] = tuple(field for field in kind._fields if field not in plain)
    return fields


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly in a node, in the order of its fields."""
    found: list[ast.AST] = []
    fields = _HOLDING.get(node.__class__)
    for field in holding_fields(node) if fields is None else fields:
        value = getattr(node, field, None)
        if not value:  # most fields of most nodes: a node is never false
            continue
        if value.__class__ is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def descendants(roots: Iterable[ast.AST]) -> list[ast.AST]:
    """These nodes and all that is in them, level by level."""
    nodes = list(roots)
    for node in nodes:
        nodes += children(node)
    return nodes

"""Small expressions compared, copied and judged: what the rules of the normal form ask of a part."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from arena.gate.similarity.liveness import is_pure

_SAME_NODES = 24
_STILL = (ast.Constant, ast.Name, ast.Lambda)


def same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two small expressions are the same text."""
    stack, left = [(one, other)], _SAME_NODES
    while stack:
        first, second = stack.pop()
        left -= 1
        if type(first) is not type(second) or left < 0:
            return False
        match first, second:
            case ast.Name(), ast.Name():
                if first.id != second.id:
                    return False
                continue
            case ast.Constant(), ast.Constant():
                if type(first.value) is not type(second.value) or first.value != second.value:
                    return False
                continue
            case ast.Attribute(), ast.Attribute() if first.attr != second.attr:
                return False
            case ((ast.Call() | ast.NamedExpr() | ast.Await() | ast.Lambda()), _):
                return False
        inner, outer = list(ast.iter_child_nodes(first)), list(ast.iter_child_nodes(second))
        if len(inner) != len(outer):
            return False
        stack += zip(inner, outer, strict=True)
    return True


def replaced(node: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """An expression as a new tree, with names replaced by values."""
    made = _copied(node, values)
    assert isinstance(made, ast.expr)
    return made


def _copied(node: ast.AST, values: Mapping[str, ast.expr]) -> ast.AST:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in values:
        return values[node.id]
    made = type(node)()
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            value = [_copied(item, values) if isinstance(item, ast.AST) else item for item in value]
        elif isinstance(value, ast.AST):
            value = _copied(value, values)
        setattr(made, field, value)
    return ast.copy_location(made, node)


def looked_up(keys: Sequence[ast.expr | None], values: Sequence[ast.expr], key: ast.Constant) -> ast.expr | None:
    """The value under a constant key of a dictionary of constant keys, where nothing else of it could run."""
    places = [place for place, each in enumerate(keys) if each is not None and same(each, key)]
    is_plain = all(isinstance(each, ast.Constant) for each in keys)
    if len(places) != 1 or not is_plain:
        return None
    return values[places[0]] if all(is_still(value) for value in values if value is not values[places[0]]) else None


def is_still(node: ast.expr) -> bool:
    """Whether leaving the expression out leaves out no code: what a lambda holds would not have run."""
    return isinstance(node, _STILL) or is_pure(node)

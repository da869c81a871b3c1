"""A program in normal form: what it does, without what is only wrapped around it.

Pure parsing, nothing is executed; the same tree on every Python that parses the source; each round costs a
constant number of passes, and there are at most `ROUNDS`. The tree is changed in place and is for comparing, not for
running: a value counts as what the operations on it expect.
"""

from __future__ import annotations

import ast

from arena.gate.normal_form.bindings import Bindings
from arena.gate.normal_form.blocks import tidy
from arena.gate.normal_form.expressions import simplified
from arena.gate.normal_form.names import Naming, place_keywords
from arena.gate.source import preorder
from arena.gate.tree import holding_fields

ROUNDS = 7
FIRST_MOVING = 2  # values move once dead names and wrappers between them are gone
_BLOCKS = ("body", "orelse", "finalbody")
_LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.boolop, ast.unaryop)


def normal_form(tree: ast.Module) -> list[ast.AST]:
    """The nodes of the normal form in pre-order. Raises RecursionError for a tree of some hundred levels."""
    place_keywords(tree)
    Naming(tree)
    nodes = _reading(tree)
    for number in range(ROUNDS):
        bindings = Bindings(nodes)
        _Round(bindings, is_moving=number >= FIRST_MOVING).visit(tree)
        before, nodes = len(nodes), _reading(tree)
        if number >= FIRST_MOVING and not bindings.replaced and len(nodes) == before:
            break
    return preorder(tree)[0]


def _reading(tree: ast.Module) -> list[ast.AST]:
    """All nodes that can bind, name or hold something, in no order that matters."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        for field in holding_fields(node):
            value = getattr(node, field, None)
            if value.__class__ is list:
                nodes += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                nodes.append(value)
    return nodes


class _Round:
    """One pass, parts before wholes."""

    def __init__(self, bindings: Bindings, *, is_moving: bool) -> None:
        self._bindings, self._is_moving = bindings, is_moving

    def visit(self, node: ast.AST) -> ast.AST:
        """The node itself, or what takes its place; its parts are replaced in it."""
        if isinstance(node, ast.Name):
            return self._bindings.value(node)
        for field in holding_fields(node):
            value = getattr(node, field, None)
            if value.__class__ is list:
                for place, item in enumerate(value):
                    if isinstance(item, ast.AST):
                        value[place] = self.visit(item)
                if field in _BLOCKS:
                    setattr(node, field, self._bindings.settled(tidy(value), is_moving=self._is_moving))
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                setattr(node, field, self.visit(value))
        if isinstance(node, ast.Call):
            return simplified(self._bindings.call(node))
        if isinstance(node, ast.NamedExpr) and not self._bindings.loads[node.target.id]:
            return node.value
        return simplified(node) if isinstance(node, ast.expr) else node

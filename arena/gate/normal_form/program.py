"""A program in normal form: what it does, without what is only wrapped around it.

Pure parsing, nothing is executed; the same tree on every Python that parses the source; there are at most `ROUNDS`
rounds, and what a round has left as it was is looked at again only when a name in it came to stand for something. The
tree is changed in place and is for comparing, not for running: a value counts as what the operations on it expect.
"""

from __future__ import annotations

import ast
import operator
from typing import Any

from arena.gate.normal_form.bindings import Bindings
from arena.gate.normal_form.blocks import tidy
from arena.gate.normal_form.expressions import RULES, simplified
from arena.gate.normal_form.names import Naming, place_keywords
from arena.gate.normal_form.statements import BLOCKS, CLAUSES, Statements, inner_fields
from arena.gate.tree import Tree, holding_fields

ROUNDS = 7
_PLAIN = {ast.Constant, type(None)}
FIRST_MOVING = 2  # values move once dead names and wrappers between them are gone


def normal_form(tree: Tree) -> Statements:
    """The statements of the normal form. Raises RecursionError for a tree of some hundred levels.

    The tree's module is changed in place; its index is not.
    """
    place_keywords(tree)
    Naming(tree)
    statements = Statements(tree.module)
    for number in range(ROUNDS):
        bindings = Bindings(statements)
        _Round(bindings, statements, is_moving=number >= FIRST_MOVING).block(tree.module)
        before = statements.size
        statements.read()
        if number >= FIRST_MOVING and not bindings.replaced and statements.size == before:
            break
    return statements


def may_change(part: ast.AST) -> bool:
    """Whether a rule has another expression for a part as it is."""
    rule = RULES.get(part.__class__)
    return rule is not None and rule(part) is not None


class _Round:
    """One pass, parts before wholes."""

    def __init__(self, bindings: Bindings, statements: Statements, *, is_moving: bool) -> None:
        self._bindings, self._statements, self._is_moving = bindings, statements, is_moving
        self._is_changed = False  # by the visit of one statement's own parts

    def block(self, holder: ast.AST, field: str = "body") -> bool:
        """Visit the statements of a block, tidy and settle it. Whether anything in it is another than before."""
        calm, place = self._statements.calm, (holder, field)
        block: list[ast.stmt] = getattr(holder, field)
        is_touched = self._statements.is_shared
        for statement in block:
            is_touched = self._statement(statement) or is_touched
        made = tidy(block) if is_touched or place not in calm else block
        settled = self._bindings.settled(made, is_moving=self._is_moving)
        if len(settled) == len(block) and all(map(operator.is_, settled, block)):
            calm.add(place)
            return is_touched
        calm.discard(place)
        setattr(holder, field, settled)
        return True

    def _statement(self, node: ast.AST) -> bool:
        """A statement, an except clause or a case: its own parts, where they may change, and its blocks. Whether
        anything in it is another than before."""
        is_due = self._statements.is_due(node, self._bindings.meanings, may_change)
        is_changed = is_touched = False
        for field in holding_fields(node) if is_due else inner_fields(node):
            if field in BLOCKS:
                is_touched = self.block(node, field) or is_touched
            elif field in CLAUSES:
                for clause in getattr(node, field):
                    is_touched = self._statement(clause) or is_touched
            else:
                self._is_changed = False
                value = getattr(node, field, None)
                if isinstance(value, list):
                    for place, item in enumerate(value):
                        if item is not None:
                            value[place] = self._kept(item, self._visit(item))
                elif value is not None:
                    setattr(node, field, self._kept(value, self._visit(value)))
                is_changed = is_changed or self._is_changed
        if is_due:
            self._statements.visited(node, self._bindings.meanings, is_changed=is_changed)
        return is_changed or is_touched

    def _kept(self, node: ast.AST, made: ast.AST) -> ast.AST:
        self._is_changed = self._is_changed or made is not node
        return made

    def _visit(self, node: ast.AST) -> ast.AST:
        """The node itself, or what takes its place; its parts are replaced in it."""
        if isinstance(node, ast.Name):
            return self._bindings.value(node)
        meanings = self._bindings.meanings
        for field in holding_fields(node):
            value: Any = getattr(node, field, None)
            kind = value.__class__
            if kind is list:
                for place, item in enumerate(value):
                    kind = item.__class__
                    if kind not in _PLAIN and (kind is not ast.Name or item.id in meanings):
                        made = self._visit(item)
                        if made is not item:
                            value[place] = made
                            self._is_changed = True
            elif kind not in _PLAIN and (kind is not ast.Name or value.id in meanings):
                made = self._visit(value)
                if made is not value:
                    setattr(node, field, made)
                    self._is_changed = True
        if isinstance(node, ast.expr) and node.__class__ in RULES:
            return simplified(self._bindings.call(node) if isinstance(node, ast.Call) else node)
        if isinstance(node, ast.NamedExpr) and not self._bindings.loads[node.target.id]:
            return node.value
        return node

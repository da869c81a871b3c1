"""Names that only stand for something: constants, other names, functions of one expression, values used at once.

Each is replaced by what it stands for, so that renaming a tool, a function that hands its argument on, a variable for
every step or an expression in a function of its own make no other program. Names are unique already (`names.py`).
No code is dropped, and a file grows by no more than `GROWTH` times its nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from arena.gate.normal_form.calls import applied
from arena.gate.normal_form.names import OWN
from arena.gate.normal_form.statements import Statements
from arena.gate.normal_form.trees import replaced
from arena.gate.similarity.liveness import headers, is_pure
from arena.gate.source import ENTRY
from arena.gate.tree import children, descendants, marks

GROWTH = 1
EXPRESSION_NODES_MAX = 40  # a longer expression stays a function, unless it is used once
MOVED_NODES_MAX = 60
HEADER_NODES_MAX = 150
_CHAIN_MAX = 4
_LATE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (ast.Assign, ast.FunctionDef)
_OPAQUE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.While)


class Expression(msgspec.Struct, frozen=True, eq=False):
    """A function that is one expression of its parameters."""

    parameters: ast.arguments
    body: ast.expr
    nodes: int


class Bindings:
    """What the names of one tree are bound to, counted once."""

    def __init__(self, statements: Statements) -> None:
        self.loads = statements.loads()
        self.stores = statements.stores()
        self._statements = statements
        self._atoms: dict[str, ast.expr] = {}
        self._functions: dict[str, Expression] = {}
        self._left = GROWTH * statements.size
        self.replaced = 0
        listed = statements.listed
        in_classes = {inner for node in listed if isinstance(node, ast.ClassDef) for inner in node.body}
        for node in listed:
            if not isinstance(node, _BINDING) or node in in_classes:
                continue
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(args=parameters, body=body)):
                    self._learn_function(name, parameters, body)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.stores[name] == 1:
                    if isinstance(value, ast.Constant) or self._is_chain(value, name):
                        self._atoms[name] = value
                case ast.FunctionDef(
                    name=name, args=parameters, body=[ast.Return(value=ast.expr() as body)], decorator_list=[]
                ) if name != ENTRY:
                    self._learn_function(name, parameters, body)
        self.meanings = frozenset(self._atoms) | frozenset(self._functions)

    def _learn_function(self, name: str, parameters: ast.arguments, body: ast.expr) -> None:
        is_same_name = any(isinstance(node, ast.Name) and node.id == name for node in descendants([body]))
        if self.stores[name] == 1 and not is_same_name:
            self._functions[name] = Expression(parameters, body, _size(body, 4 * EXPRESSION_NODES_MAX))

    def _is_chain(self, node: ast.expr, name: str) -> bool:
        """Whether a value is a name, or attributes of one, that never means anything else."""
        for _ in range(_CHAIN_MAX):
            if isinstance(node, ast.Name):
                return self.stores[node.id] <= 1 and node.id != name
            if not isinstance(node, ast.Attribute):
                return False
            node = node.value
        return False

    def value(self, node: ast.Name) -> ast.expr:
        """What a name that is read stands for; the name itself where it stands for no one thing."""
        atom = self._atoms.get(node.id) if isinstance(node.ctx, ast.Load) else None
        if atom is None:
            return node
        self.replaced += 1
        return replaced(atom, {})

    def call(self, node: ast.Call) -> ast.expr:
        """The value of a call of a function of one expression; the call itself where it stays."""
        found = self._functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if found is None:
            return node
        is_once = self.loads[getattr(node.func, "id", "")] == 1
        is_small = found.nodes <= 8
        if not is_once and not is_small and (found.nodes > EXPRESSION_NODES_MAX or found.nodes > self._left):
            return node
        made = applied(found.parameters, replaced(found.body, {}), node)
        if made is None:
            return node
        self._left -= 0 if is_once or is_small else found.nodes
        self.replaced += 1
        return made

    def settled(self, block: Sequence[ast.stmt], *, is_moving: bool) -> list[ast.stmt]:
        """A block without names that stand for a value; moving, also without those that only carry one to the next
        statement."""
        made: list[ast.stmt] = []
        for statement in reversed(block):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pass
                case _:
                    made.append(statement)
                    continue
            if name in self._atoms:
                continue  # whoever reads it reads the value
            loads = self.loads[name]
            if OWN in name and not loads:
                if not is_pure(value):
                    made.append(ast.Expr(value=value))
            elif (
                made
                and is_moving
                and OWN in name
                and loads == self.stores[name]
                and self._statements.may_read(made[-1], name)
                and _size(value, MOVED_NODES_MAX) <= MOVED_NODES_MAX
                and _put(made[-1], name, value)
            ):
                self._statements.changed(made[-1])
                self.replaced += 1
            else:
                made.append(statement)
        return made[::-1]


def _put(statement: ast.stmt, name: str, value: ast.expr) -> bool:
    """Put a value where a statement reads a name, in place, if it does so once and at once."""
    if isinstance(statement, _OPAQUE):
        return False
    found: list[tuple[ast.AST, str, int | None]] = []
    left = HEADER_NODES_MAX
    stack: list[tuple[ast.AST, str, int | None, ast.AST]] = list(_slots(statement, set(map(id, headers(statement)))))
    while stack:
        parent, field, place, node = stack.pop()
        left -= 1
        if left < 0:
            return False
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            found.append((parent, field, place))
        elif isinstance(node, _LATE):
            if any(isinstance(inner, ast.Name) and inner.id == name for inner in descendants([node])):
                first = None if isinstance(node, ast.Lambda) else node.generators[0]
                is_first = first is not None and isinstance(first.iter, ast.Name) and first.iter.id == name
                if first is None or not is_first:
                    return False
                found.append((first, "iter", None))
        else:
            stack += _slots(node, None)
    if len(found) != 1:
        return False
    parent, field, place = found[0]
    if place is None:
        setattr(parent, field, value)
    else:
        getattr(parent, field)[place] = value
    return True


def _slots(node: ast.AST, only: set[int] | None) -> list[tuple[ast.AST, str, int | None, ast.AST]]:
    """(parent, field, place in a list, child) of the parts of a node; with `only`, of these."""
    made: list[tuple[ast.AST, str, int | None, ast.AST]] = []
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            made += [(node, field, place, item) for place, item in enumerate(value) if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            made.append((node, field, None, value))
    return made if only is None else [slot for slot in made if id(slot[3]) in only]


def _size(node: ast.AST, most: int) -> int:
    """The nodes of an expression with its contexts and operators, counted until there are more than `most`."""
    size, stack = 0, [node]
    while stack and size <= most:
        part = stack.pop()
        size += 1 + marks(part)
        stack += children(part)
    return min(size, most + 1)

"""What each statement of a tree reads, binds and holds: counted once, and again only when the statement has changed.

A statement is due in a round when it is new, when its last visit changed it, or when a name that it reads has come to
stand for something. Trees that two statements share are counted anew each round, as a change of one changes both.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from arena.gate.similarity.liveness import headers
from arena.gate.tree import descendants, held, holding_fields, reader

BLOCKS = frozenset({"body", "orelse", "finalbody"})
CLAUSES = frozenset({"handlers", "cases"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_INNER: dict[type[ast.AST], tuple[str, ...]] = {}  # by class
_NAME, _LOAD, _CONSTANT = ast.Name, ast.Load, ast.Constant
_NAMING = {*_DEFINITIONS, ast.ExceptHandler, ast.Global, ast.Nonlocal}
_READERS: dict[type[ast.AST], Callable[[ast.AST], tuple[Any, ...]]] = {}  # by class
_TOLD = {ast.arg, ast.Compare, ast.MatchAs, ast.MatchStar, ast.NamedExpr, ast.alias}


class Parts:
    """A statement, except clause or case without its blocks; names stand once for each place."""

    __slots__ = (
        *("arguments", "assigned", "attributes", "has_walrus", "inner", "is_steady", "loads", "names", "own", "size"),
        *("stores", "written"),
    )

    def __init__(self, node: ast.AST, *, is_steady: bool) -> None:
        self.loads: list[str] = []
        self.assigned: list[str] = []  # variables, also those deleted
        self.arguments: list[str] = []
        self.attributes: list[str] = []  # behind a point
        self.stores: list[str] = []  # whatever binds a name, beside `assigned` and `arguments`
        self.own: list[str] = []  # names that a renaming could change, beside `arguments`
        self.written: list[str] = []  # attributes that are assigned
        self.has_walrus = False
        if node.__class__ in _NAMING:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    self.stores.append(name)
                    self.own.append(name)
                case ast.ExceptHandler(name=str(name)):
                    self.stores.append(name)
                case ast.Global(names=names) | ast.Nonlocal(names=names):
                    self.stores += names
        self.inner: list[ast.AST] = []  # without names, constants and attributes
        self.size = 1 + self._walk(_own_parts(node))
        self.names = frozenset(self.loads)
        self.is_steady = is_steady

    def _walk(self, values: Sequence[Any]) -> int:
        """Look at all that these fields hold; how many nodes that is."""
        size = 0
        stack: list[ast.AST] = []
        loads, inner = self.loads, self.inner
        while True:
            for value in values:
                kind = value.__class__
                if kind is _NAME:
                    size += 1
                    if value.ctx.__class__ is _LOAD:
                        loads.append(value.id)
                    else:
                        self._bind(value)
                elif kind is list:
                    size += len(value)
                    for part in value:
                        kind = part.__class__
                        if kind is _NAME:
                            if part.ctx.__class__ is _LOAD:
                                loads.append(part.id)
                            else:
                                self._bind(part)
                        elif part is None:
                            size -= 1
                        elif kind is not _CONSTANT:
                            stack.append(part)
                elif value is not None and kind is not _CONSTANT:
                    size += 1
                    stack.append(value)
            if not stack:
                return size
            part = stack.pop()
            if isinstance(part, ast.Attribute):
                self.attributes.append(f".{part.attr}")
                if isinstance(part.ctx, ast.Store):
                    self.written.append(part.attr)
            else:
                inner.append(part)
                if part.__class__ in _TOLD:
                    match part:
                        case ast.arg(arg=name):
                            self.arguments.append(name)
                        case ast.Compare(ops=ops):
                            size += len(ops)
                        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                            self.stores.append(name)
                        case ast.NamedExpr():
                            self.has_walrus = True
                        case ast.alias():
                            self.own.append((part.asname or part.name).split(".")[0])
            values = held(part)

    def _bind(self, node: ast.Name) -> None:
        self.assigned.append(node.id)
        if isinstance(node.ctx, ast.Store):
            self.own.append(node.id)


class Statements:
    """The statements of a module that changes, as they were at the last `read`."""

    def __init__(self, module: ast.Module) -> None:
        self.module = module
        self.listed: list[ast.AST] = []  # with the except clauses and cases, in no order that matters
        self.size = 0  # all nodes but contexts, operators and constants that stand alone
        self._parts: dict[ast.AST, Parts] = {}
        self._steady: dict[ast.AST, bool] = {}  # of those visited since
        self.calm: set[tuple[ast.AST, str]] = set()  # blocks, by holder and field, that are tidy and settled
        self.is_shared = False  # whether two statements have a part in common, so that a change of one changes both
        self.read()

    def read(self) -> None:
        """Count what is new or has changed."""
        self.listed = list(self.module.body)
        for node in self.listed:
            for field in inner_fields(node):
                self.listed += getattr(node, field)
        known = self._known()
        inner = [part for parts in known for part in parts.inner]
        self.is_shared = len(set(inner)) < len(inner)
        if self.is_shared:
            self._parts, self._steady = {}, {}
            known = self._known()
        self._parts = dict(zip(self.listed, known, strict=True))
        self._steady = {}
        self.size = 1 + sum(each.size for each in known)

    def _known(self) -> list[Parts]:
        return [self._parts.get(node) or Parts(node, is_steady=self._steady.get(node, False)) for node in self.listed]

    def is_due(self, node: ast.AST, meanings: frozenset[str], may_change: Callable[[ast.AST], bool]) -> bool:
        """Whether a visit could change a statement. `meanings` are the names that stand for something, `may_change`
        says of one part whether a rule changes it."""
        parts = self._parts.get(node)
        if parts is None or parts.has_walrus or self.is_shared or not parts.names.isdisjoint(meanings):
            return True
        if not parts.is_steady:
            parts.is_steady = not any(map(may_change, parts.inner))
        return not parts.is_steady

    def visited(self, node: ast.AST, meanings: frozenset[str], *, is_changed: bool) -> None:
        """Note the visit of a statement."""
        parts = self._parts.get(node)
        if parts is not None and not is_changed and parts.names.isdisjoint(meanings):
            parts.is_steady = True
        else:
            self._parts.pop(node, None)
            self._steady[node] = not is_changed

    def may_read(self, node: ast.AST, name: str) -> bool:
        """Whether a statement itself may read a name."""
        parts = self._parts.get(node)
        return parts is None or self.is_shared or name in parts.names

    def changed(self, node: ast.AST) -> None:
        """Note that another statement's value was put into one."""
        self._parts.pop(node, None)
        self._steady[node] = False

    def parts(self) -> Iterator[Parts]:
        """The parts of every statement."""
        return (self._parts[node] for node in self.listed)

    def loads(self) -> Counter[str]:
        """How often each name is read."""
        return Counter([name for parts in self._parts.values() for name in parts.loads])

    def stores(self) -> Counter[str]:
        """How often each name is bound, by whatever binds one."""
        counted = ((*parts.assigned, *parts.arguments, *parts.stores) for parts in self._parts.values())
        return Counter([name for names in counted for name in names])

    def reads(self, statement: ast.stmt) -> list[str]:
        """The names that a statement reads, with its clauses, and its attributes, which begin with a point."""
        if getattr(statement, "type_params", None):
            nodes = descendants(headers(statement))
            found = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
            return found + [f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)]
        parts = self._parts[statement]
        found = parts.loads + parts.attributes
        for field in inner_fields(statement):
            if field in CLAUSES:
                for clause in getattr(statement, field):
                    found += self._parts[clause].loads
                    found += self._parts[clause].attributes
        return found


def _own_parts(node: ast.AST) -> tuple[Any, ...]:
    """What the fields of a statement, except clause or case hold beside others of these."""
    read = _READERS.get(node.__class__)
    if read is None:
        fields = [field for field in holding_fields(node) if field not in BLOCKS and field not in CLAUSES]
        read = _READERS[node.__class__] = reader(fields)
    return read(node)


def inner_fields(node: ast.AST) -> tuple[str, ...]:
    """The fields of a statement, except clause or case that hold others."""
    kind = node.__class__
    fields = _INNER.get(kind)
    if fields is None:
        fields = _INNER[kind] = tuple(field for field in holding_fields(node) if field in BLOCKS or field in CLAUSES)
    return fields

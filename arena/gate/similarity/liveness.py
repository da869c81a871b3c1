"""What of a file can do anything: its statements without the dead and the constant ones. Nothing is executed.

A statement is left out only when taking it out changes nothing that the entry function does: documentation,
`pass`, constant expressions, code behind `return`, branches on constants, functions and classes that nothing reaches,
and pure assignments to names that nothing reads. What can't be told apart cheaply stays.
"""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from arena.gate.source import ENTRY
from arena.gate.tree import children, holding_fields

Block = list[ast.stmt]

_JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_SILENT = (ast.Pass, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
_NO_HEADERS = frozenset({"annotation", "returns", "body", "orelse", "finalbody", "type_params"})
_CLAUSES = (ast.ExceptHandler, ast.match_case)
_STILL = (ast.Constant, ast.Name)
_ROWS, _WITHIN = (ast.Tuple, ast.List), (ast.Subscript, ast.Starred)
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
_FIELDS: dict[type[ast.AST], tuple[list[str], list[str]]] = {}  # by class
_ACTIVE = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
_PURE_CALLS = frozenset(
    {
        *("abs", "bool", "bytes", "chr", "dict", "divmod", "enumerate", "float", "frozenset", "hash", "int"),
        *("isinstance", "len", "list", "max", "min", "ord", "pow", "range", "repr", "reversed", "round", "set"),
        *("sorted", "str", "sum", "tuple", "type", "zip"),
    }
)
_JUDGED = {ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class LiveCode:
    """The statements of a tree that can do anything, block by block."""

    def __init__(
        self,
        module: ast.Module,
        reads: Callable[[ast.stmt], Iterable[str]],
        *,
        parameters: Set[str],
        assigned: Set[str],
    ) -> None:
        """`reads`: the names that a statement reads, its attributes behind a point; `parameters` of any function and
        `assigned` variables of the whole file."""
        self._live: set[ast.stmt] = set()
        self._read: set[str] = set()
        self._waiting: defaultdict[str, list[ast.stmt]] = defaultdict(list)
        self._reads, self._parameters, self._assigned = reads, parameters, assigned
        self._names: list[str] = []
        self._body: Block = list(module.body)
        self._blocks: list[tuple[Block, bool]] = [(self._body, False)]  # with: whether it is a class's
        # the least set of live statements: from the module's body on, along the names that live code reads
        while self._blocks or self._names:
            if self._blocks:
                self._enter(*self._blocks.pop())
                continue
            name = self._names.pop()
            if name not in self._read:
                self._read.add(name)
                for statement in self._waiting.pop(name, ()):
                    self._activate(statement)

    def module(self) -> Iterator[ast.stmt]:
        """The live statements at module level."""
        return self.block(self._body)

    def block(self, statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
        """The live statements of one block; a branch on a constant gives the statements it runs."""
        for statement in statements:
            chosen = _chosen(statement)
            if chosen is not None:
                yield from self.block(chosen)
                if any(isinstance(last, _JUMPS) for last in chosen):
                    return
            elif statement in self._live:
                yield statement
            if isinstance(statement, _JUMPS):
                return

    def _enter(self, statements: Block, is_class: bool) -> None:
        """A block's statements become live at once, or as soon as one of the names they wait for is read."""
        for statement in statements:
            chosen = _chosen(statement)
            if chosen is not None:
                self._blocks.append((chosen, is_class))
            elif not isinstance(statement, _SILENT):
                names = self._awaited(statement)
                if is_class and names:  # a class's own is also read as an attribute
                    names = names | {f".{name}" for name in names}
                if names is None or any(name in self._read for name in names):
                    self._activate(statement)
                else:
                    for name in names:
                        self._waiting[name].append(statement)
            if isinstance(statement, _JUMPS):
                return

    def _awaited(self, statement: ast.stmt) -> set[str] | None:
        """The names without whose reading the statement does nothing; None when it does something by itself."""
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                is_called_unseen = statement.name.startswith("__") and statement.name.endswith("__")
                is_root = statement.name == ENTRY or is_called_unseen or bool(statement.decorator_list)
                return None if is_root else {statement.name}
            case ast.Assign(targets=targets, value=value) if is_pure(value):
                return self._roots(targets, value)
            case ast.AnnAssign(target=target, value=value) if value is None or is_pure(value):
                return self._roots([target], value)
            case ast.AugAssign(target=target, value=value) if is_pure(value):
                return self._roots([target], value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=arguments, keywords=named)):
                is_own = name in self._assigned and name not in self._parameters
                is_quiet = is_own and all(map(is_pure, [*arguments, *(keyword.value for keyword in named)]))
                return {name} if is_quiet else None
            case ast.Expr(value=value) if is_pure(value):
                return set()
            case ast.Assert(test=test) if truth(test):
                return set()
        return None

    def _roots(self, targets: Sequence[ast.expr], value: ast.expr | None) -> set[str] | None:
        """The variables that the targets change, or None when one of them may be known elsewhere."""
        names: set[str] = set()
        for target in targets:
            for part in target.elts if isinstance(target, _ROWS) else [target]:
                while isinstance(part, _WITHIN):
                    part = part.value
                if not isinstance(part, ast.Name) or (part is not target and part.id in self._parameters):
                    return None
                names.add(part.id)
        if isinstance(value, ast.Name) and names == {value.id}:
            return set()  # x = x
        return names

    def _activate(self, statement: ast.stmt) -> None:
        if statement in self._live:
            return
        self._live.add(statement)
        self._blocks += ((block, isinstance(statement, ast.ClassDef)) for block in child_blocks(statement))
        self._names += self._reads(statement)


def headers(statement: ast.stmt) -> list[ast.AST]:
    """The parts of a statement that aren't statements, without annotations and parameters' names."""
    found: list[ast.AST] = []
    for field in _fields(statement)[0]:
        value = getattr(statement, field, None)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.ExceptHandler):
                    found += [item.type] if item.type else []
                elif isinstance(item, ast.match_case):
                    found += [item.pattern, item.guard] if item.guard else [item.pattern]
                elif isinstance(item, ast.AST):
                    found.append(item)
        elif isinstance(value, ast.arguments) and field == "args":
            found += [default for default in [*value.defaults, *value.kw_defaults] if default is not None]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def child_blocks(statement: ast.stmt) -> list[Block]:
    """The blocks of a statement, in source order."""
    found: list[Block] = []
    for field in _fields(statement)[1]:
        items = getattr(statement, field)
        if items and isinstance(items[0], _CLAUSES):
            found += [item.body for item in items]
        elif items:
            found.append(items)
    return found


def _fields(statement: ast.stmt) -> tuple[list[str], list[str]]:
    """The fields of a statement of this class that hold its headers, and those that hold its blocks."""
    kind = statement.__class__
    known = _FIELDS.get(kind)
    if known is None:
        own = [field for field in holding_fields(statement) if field not in _NO_HEADERS]
        known = _FIELDS[kind] = own, [field for field in _BLOCKS if field in kind._fields]
    return known


def _chosen(statement: ast.stmt) -> Block | None:
    """What a branch on a constant runs; None for every other statement."""
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            known = truth(test)
            return None if known is None else body if known else orelse
        case ast.While(test=test, orelse=orelse) if truth(test) is False:
            return orelse
    return None


def truth(test: ast.expr) -> bool | None:
    """The truth of an expression of constants, or None when it isn't one."""
    if test.__class__ not in _JUDGED:
        return None
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return False
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            truths = [truth(value) for value in values]
            decisive = isinstance(op, ast.Or)
            return decisive if decisive in truths else None if None in truths else not decisive
        case ast.Compare(left=ast.Constant(value=left), ops=[op], comparators=[ast.Constant(value=right)]):
            is_known = isinstance(op, ast.Eq | ast.NotEq) or all(
                isinstance(side, int | float) for side in (left, right)
            )
            compare = _COMPARED.get(type(op)) if is_known else None
            return None if compare is None else bool(compare(left, right))
        case ast.Compare(ops=[ast.In() | ast.NotIn() as op], comparators=[ast.List(elts=[]) | ast.Tuple(elts=[])]):
            return isinstance(op, ast.NotIn) if is_pure(test.left) else None
        case ast.Name(id="TYPE_CHECKING"):
            return False
    return None


def is_pure(value: ast.expr) -> bool:
    """Whether computing it changes nothing: no call but of a pure builtin, no await, yield or `:=`."""
    if isinstance(value, _STILL):
        return True
    stack: list[ast.AST] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, _ACTIVE):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _PURE_CALLS):
            return False
        stack += children(node)
    return True

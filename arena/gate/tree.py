"""The parts of a syntax tree, and one file's nodes in an index that every rule reads: the gate does little else.

Which fields of a node hold only text and numbers is known by their name, so they are not looked at. Contexts and
operators are no parts either: which of them a node has stands in the node itself.
"""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

_PLAIN = {
    *("id", "attr", "arg", "asname", "module", "level", "kind", "type_comment", "conversion", "rest", "is_async"),
    *("ctx", "op", "ops", "type_ignores", "kwd_attrs", "simple", "str"),
}
_PLAIN_OF = {"name": frozenset({"TypeAlias"}), "names": frozenset({"Import", "ImportFrom"})}  # but in these
_MARKS = {"ctx", "op", "ops"}
_GAPS = (ast.Dict, ast.arguments)  # whose lists may hold None
_HOLDING: dict[type[ast.AST], tuple[str, ...]] = {}  # by class
_READERS: dict[type[ast.AST], tuple[Callable[[ast.AST], Any] | None, bool, int]] = {}

Kind = TypeVar("Kind", bound=ast.AST)


class Tree:
    """The nodes of one file, parents before children and siblings in source order, and those of each kind.

    `parts`: what stands directly in each node of a kind that can hold any, in the order of `nodes`. `depth`: the nodes
    on the longest path, contexts and operators among them.
    """

    def __init__(self, module: ast.Module) -> None:
        self.module = module
        self.nodes: list[ast.AST] = []
        self.parts: dict[ast.AST, list[ast.AST]] = {}
        self._of: defaultdict[type[ast.AST], list[Any]] = defaultdict(list)
        nodes, of_kind = self.nodes, self._of
        stack: list[ast.AST] = [module]
        while stack:
            node = stack.pop()
            kind = node.__class__
            nodes.append(node)
            of_kind[kind].append(node)
            if (_READERS.get(kind) or _reader(node))[0] is not None:
                parts = self.parts[node] = children(node)
                stack += parts[::-1]
        self.depth = 0
        level: list[ast.AST] = [module]
        while level:
            self.depth += 1
            deepest, level = level, [part for node in level for part in self.parts.get(node, ())]
        self.depth += any(_READERS[node.__class__][2] for node in deepest)

    @property
    def kinds(self) -> list[type[ast.AST]]:
        """The classes that occur."""
        return list(self._of)

    def in_order(self, *kinds: type[ast.AST]) -> list[ast.AST]:
        """The nodes of these classes in the order of `nodes`."""
        chosen = frozenset(kinds)
        return [node for node in self.nodes if node.__class__ in chosen]

    def of(self, *kinds: type[Kind]) -> Iterator[Kind]:
        """The nodes of these classes, one class after the other."""
        for kind in kinds:
            yield from self._of.get(kind, ())


def holding_fields(node: ast.AST) -> tuple[str, ...]:
    """The fields in which a node of this class can hold nodes."""
    kind = node.__class__
    fields = _HOLDING.get(kind)
    if fields is None:
        plain = _PLAIN | {"value"} if kind in (ast.Constant, ast.MatchSingleton) else _PLAIN
        plain = plain | {field for field, holders in _PLAIN_OF.items() if kind.__name__ not in holders}
        fields = _HOLDING[kind] = tuple(field for field in kind._fields if field not in plain)
    return fields


def held(node: ast.AST) -> tuple[Any, ...]:
    """What the fields of a node that can hold nodes hold: nodes, lists of them, and None."""
    read, is_one, _ = _READERS.get(node.__class__) or _reader(node)
    return () if read is None else (read(node),) if is_one else read(node)


def reader(fields: Sequence[str]) -> Callable[[ast.AST], tuple[Any, ...]]:
    """What reads these fields of a node."""
    if len(fields) > 1:
        return operator.attrgetter(*fields)
    return lambda node: tuple(getattr(node, field) for field in fields)


def marks(node: ast.AST) -> int:
    """How many contexts and operators a node has."""
    return len(node.ops) if isinstance(node, ast.Compare) else (_READERS.get(node.__class__) or _reader(node))[2]


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly in a node, in the order of its fields."""
    read, is_one, _ = _READERS.get(node.__class__) or _reader(node)
    if read is None:
        return []
    value = read(node)
    if is_one:
        return value[:] if value.__class__ is list else [value] if value is not None else []
    found: list[ast.AST] = []
    for each in value:
        if each.__class__ is list:
            found += each
        elif each is not None:
            found.append(each)
    return [each for each in found if each is not None] if node.__class__ in _GAPS else found


def descendants(roots: Iterable[ast.AST]) -> list[ast.AST]:
    """These nodes and all that is in them, level by level."""
    nodes = list(roots)
    for node in nodes:
        if (_READERS.get(node.__class__) or _reader(node))[0] is not None:
            nodes += children(node)
    return nodes


def _reader(node: ast.AST) -> tuple[Callable[[ast.AST], Any] | None, bool, int]:
    """How the parts of a node of this class are read, whether from one field, and whether it has a mark."""
    fields = holding_fields(node)
    read = operator.attrgetter(*fields) if fields else None
    found = _READERS[node.__class__] = read, len(fields) == 1, int(bool(_MARKS & {*node._fields}))
    return found

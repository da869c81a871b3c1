"""Names along Python's scopes: every variable of a function under a name of its own, imports by what they stand for.

Afterwards a name means one thing in the whole file, and the name of a builtin is the builtin. A parameter called `len`,
or two functions that both use `t`, tell nothing apart and hide nothing.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from arena.gate.tree import Tree, children, descendants, holding_fields

OWN = "#"  # stands in no name of a source
_BUILTINS = frozenset(dir(builtins))
_NAME = ast.Name
_PLAIN = {ast.Constant, type(None)}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPED = frozenset({ast.Lambda, *_COMPREHENSIONS})  # beside functions and classes, which have a name
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS, _OUTER = (ast.Import, ast.ImportFrom), (ast.Global, ast.Nonlocal)
_CATCHING = (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)
_TARGETS = (ast.Tuple, ast.List, ast.Starred)  # expressions in which a name may be bound, but for `:=`
_NAMED = frozenset(  # what holds a name as text, whatever this Python has of it
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and {"name", "rest"} & {*kind._fields} and kind != ast.alias
)


class _Scope:
    def __init__(self, kind: str, parent: _Scope | None) -> None:
        self.kind, self.parent = kind, parent
        self.names: dict[str, str | ast.expr] = {}  # what a name of the source is here
        self.known: dict[str, str | ast.expr] = {}  # what was asked for already, here or further out


class _Bound:
    """What the statements of one scope bind, without what stands in functions and classes within it."""

    def __init__(self, body: Iterable[ast.AST], *, has_walrus: bool) -> None:
        self.names: list[str] = []  # once for each place that binds it
        self.imported: dict[str, ast.expr] = {}  # what the names of imports stand for
        self.outer: set[str] = set()  # declared `global` or `nonlocal`
        stack = list(body)
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self.names.append(node.id)
            elif isinstance(node, ast.expr):
                if isinstance(node, _TARGETS) or (has_walrus and not isinstance(node, ast.Lambda)):
                    stack += children(node)
            elif isinstance(node, ast.comprehension):  # its variables are its own
                stack += [node.iter, *node.ifs]
            elif isinstance(node, _DEFINITIONS):
                self.names.append(node.name)
                stack += node.decorator_list
            elif isinstance(node, _IMPORTS):
                for alias in node.names:
                    root = alias.name.split(".")[0]
                    self.names.append(alias.asname or root)
                    if isinstance(node, ast.ImportFrom):
                        stands_for = _dotted(f"{node.module or '.'}.{alias.name}".lstrip("."))
                        self.imported[alias.asname or alias.name] = stands_for
                    else:
                        self.imported[alias.asname or root] = _dotted(alias.name if alias.asname else root)
            elif isinstance(node, _OUTER):
                self.outer.update(node.names)
            else:
                if isinstance(node, _CATCHING):
                    name = node.rest if isinstance(node, ast.MatchMapping) else node.name
                    self.names += [name] if name is not None else []
                stack += children(node)


class Naming:
    """Renames one tree in place."""

    def __init__(self, tree: Tree) -> None:
        self._count = 0
        self._has_walrus = any(True for _ in tree.of(ast.NamedExpr))
        scope = _Scope("module", None)
        bound = _Bound(tree.module.body, has_walrus=self._has_walrus)
        for name, times in Counter(bound.names).items():
            if name in bound.imported and times == 1:
                scope.names[name] = bound.imported[name]
            elif name in _BUILTINS:
                scope.names[name] = f"{name}{OWN}"
        self._visit_all(tree.module.body, scope)

    def _visit_all(self, nodes: Iterable[ast.AST | None], scope: _Scope) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: _Scope) -> None:
        kind = node.__class__
        if kind not in _NAMED and kind not in _SCOPED:
            self._children(node, holding_fields(node), scope)
        elif isinstance(node, _FUNCTIONS):
            self._function(node, scope)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node, scope)
        elif isinstance(node, ast.ClassDef):
            node.name = self._plain(node.name, scope)
            self._children(node, ("bases", "keywords", "decorator_list"), scope)
            inner = _Scope("class", scope)
            inner.names = {name: name for name in _Bound(node.body, has_walrus=self._has_walrus).names}
            self._visit_all(node.body, inner)
        else:
            for field in ("name", "rest"):
                name = getattr(node, field, None)
                if isinstance(name, str):
                    setattr(node, field, self._plain(name, scope))
            self._children(node, holding_fields(node), scope)

    def _children(self, node: ast.AST, fields: Sequence[str], scope: _Scope) -> None:
        """Rename what these fields hold; a name that stands for more than a name is put in its place."""
        for field in fields:
            value: Any = getattr(node, field, None)
            kind = value.__class__
            if kind is _NAME:
                named = self._named(value, scope)
                if named is not value:
                    setattr(node, field, named)
            elif kind is list:
                for place, item in enumerate(value):
                    kind = item.__class__
                    if kind is _NAME:
                        value[place] = self._named(item, scope)
                    elif kind not in _PLAIN:
                        self._visit(item, scope)
            elif kind not in _PLAIN:
                self._visit(value, scope)

    def _named(self, node: ast.Name, scope: _Scope) -> ast.expr:
        known = scope.known.get(node.id) or self._resolve(node.id, scope)
        if isinstance(known, str):
            node.id = known
            return node
        return known if isinstance(node.ctx, ast.Load) else node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope) -> None:
        inner = _Scope("function", scope)
        arguments = node.args
        self._children(arguments, ("defaults", "kw_defaults"), scope)
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        bound = _Bound(body, has_walrus=self._has_walrus)
        counts = Counter([*(argument.arg for argument in named), *bound.names])
        for name, times in counts.items():
            if name not in bound.outer:
                is_import = name in bound.imported and times == 1
                inner.names[name] = bound.imported[name] if is_import else self._fresh(name)
        for argument in named:
            argument.arg = self._plain(argument.arg, inner)
            argument.annotation = None
        if isinstance(node, ast.Lambda):
            self._children(node, ("body",), inner)
            return
        node.name, node.returns = self._plain(node.name, scope), None
        self._children(node, ("decorator_list",), scope)
        self._visit_all(node.body, inner)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: _Scope) -> None:
        self._children(node.generators[0], ("iter",), scope)
        inner = _Scope("comprehension", scope)
        for generator in node.generators:
            for target in descendants([generator.target]):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    inner.names[target.id] = self._fresh(target.id)
        for place, generator in enumerate(node.generators):
            self._children(generator, ("target", "iter", "ifs") if place else ("target", "ifs"), inner)
        self._children(node, ("elt", "key", "value"), inner)

    def _plain(self, name: str, scope: _Scope) -> str:
        known = self._resolve(name, scope)
        return known if isinstance(known, str) else name

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}{OWN}{self._count}"

    def _resolve(self, name: str, start: _Scope) -> str | ast.expr:
        found = start.known.get(name)
        if found is None:
            scope: _Scope | None = start
            while scope is not None and (name not in scope.names or (scope.kind == "class" and scope is not start)):
                scope = scope.parent
            found = start.known[name] = name if scope is None else scope.names[name]
        return found


def _dotted(name: str) -> ast.expr:
    first, *rest = name.split(".")
    made: ast.expr = ast.Name(id=first, ctx=ast.Load())
    for part in rest:
        made = ast.Attribute(value=made, attr=part, ctx=ast.Load())
    return made


def place_keywords(tree: Tree) -> None:
    """Arguments of own functions by position, in place; all others by name in the order of their names."""
    parameters: dict[str, list[str] | None] = {}
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = [
        *tree.of(ast.FunctionDef),
        *tree.of(ast.AsyncFunctionDef),
    ]
    for function in functions:
        places = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        is_known = function.name not in parameters or parameters[function.name] == places
        parameters[function.name] = places if is_known else None
    for node in tree.of(ast.Call):
        if node.keywords and all(each.arg for each in node.keywords):
            node.keywords.sort(key=lambda each: each.arg or "")
            match node.func:
                case ast.Name(id=name):
                    order = parameters.get(name) or []
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    order = (parameters.get(name) or [])[1:]
                case _:
                    continue
            if any(isinstance(argument, ast.Starred) for argument in node.args):
                continue
            given = {each.arg: each for each in node.keywords}
            for name in itertools.takewhile(given.__contains__, order[len(node.args) :]):
                node.args.append(given[name].value)
                node.keywords.remove(given[name])

"""Names along Python's scopes: every variable of a function under a name of its own, imports by what they stand for.

Afterwards a name means one thing in the whole file, and the name of a builtin is the builtin. A parameter called `len`,
or two functions that both use `t`, tell nothing apart and hide nothing.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from arena.gate.tree import children, descendants, holding_fields

OWN = "#"  # stands in no name of a source
_BUILTINS = frozenset(dir(builtins))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping),
)
_NAMED = tuple(  # what holds a name as text, whatever this Python has of it
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and {"name", "rest"} & {*kind._fields} and kind != ast.alias
)


class _Scope:
    def __init__(self, kind: str, parent: _Scope | None) -> None:
        self.kind, self.parent = kind, parent
        self.names: dict[str, str | ast.expr] = {}  # what a name of the source is here
        self.outer: set[str] = set()  # declared `global` or `nonlocal`


class Naming:
    """Renames one tree in place."""

    def __init__(self, tree: ast.Module) -> None:
        self._count = 0
        scope = _Scope("module", None)
        nodes = list(_walk(tree.body))
        counts = Counter(_bound(nodes))
        imported = dict(_imported(nodes))
        for name, times in counts.items():
            if name in imported and times == 1:
                scope.names[name] = imported[name]
            elif name in _BUILTINS:
                scope.names[name] = f"{name}{OWN}"
        self._visit_all(tree.body, scope)

    def _visit_all(self, nodes: Iterable[ast.AST | None], scope: _Scope) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._function(node, scope)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node, scope)
        elif isinstance(node, ast.ClassDef):
            node.name = self._plain(node.name, scope)
            for field in ("bases", "keywords", "decorator_list"):
                self._children(node, field, scope)
            inner = _Scope("class", scope)
            inner.names = {name: name for name in _bound(list(_walk(node.body)))}
            self._visit_all(node.body, inner)
        else:
            if isinstance(node, _NAMED):
                for field in ("name", "rest"):
                    name = getattr(node, field, None)
                    if isinstance(name, str):
                        setattr(node, field, self._plain(name, scope))
            for field in holding_fields(node):
                self._children(node, field, scope)

    def _children(self, node: ast.AST, field: str, scope: _Scope) -> None:
        """Rename what a field holds; a name that stands for more than a name is put in its place."""
        value = getattr(node, field, None)
        if isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, ast.AST):
                    value[place] = self._named(item, scope)
        elif isinstance(value, ast.AST):
            setattr(node, field, self._named(value, scope))

    def _named(self, node: ast.AST, scope: _Scope) -> ast.AST:
        if not isinstance(node, ast.Name):
            self._visit(node, scope)
            return node
        known = self._resolve(node.id, scope)
        if isinstance(known, str):
            node.id = known
            return node
        return known if isinstance(node.ctx, ast.Load) else node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope) -> None:
        inner = _Scope("function", scope)
        arguments = node.args
        for field in ("defaults", "kw_defaults"):
            self._children(arguments, field, scope)
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        nodes = list(_walk(body))
        inner.outer = {name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
        imported = dict(_imported(nodes))
        counts = Counter([*(argument.arg for argument in named), *_bound(nodes)])
        for name, times in counts.items():
            if name not in inner.outer:
                is_import = name in imported and times == 1
                inner.names[name] = imported[name] if is_import else self._fresh(name)
        for argument in named:
            argument.arg = self._plain(argument.arg, inner)
            argument.annotation = None
        if isinstance(node, ast.Lambda):
            self._children(node, "body", inner)
            return
        node.name, node.returns = self._plain(node.name, scope), None
        self._children(node, "decorator_list", scope)
        self._visit_all(node.body, inner)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: _Scope) -> None:
        self._children(node.generators[0], "iter", scope)
        inner = _Scope("comprehension", scope)
        for generator in node.generators:
            for target in descendants([generator.target]):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    inner.names[target.id] = self._fresh(target.id)
        for place, generator in enumerate(node.generators):
            for field in ("target", "iter", "ifs") if place else ("target", "ifs"):
                self._children(generator, field, inner)
        for field in ("elt", "key", "value"):
            self._children(node, field, inner)

    def _plain(self, name: str, scope: _Scope) -> str:
        known = self._resolve(name, scope)
        return known if isinstance(known, str) else name

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}{OWN}{self._count}"

    def _resolve(self, name: str, start: _Scope) -> str | ast.expr:
        scope: _Scope | None = start
        while scope is not None:
            if name in scope.names and (scope is start or scope.kind != "class"):
                return scope.names[name]
            scope = scope.parent
        return name


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of one scope: functions, classes and comprehensions themselves, but not what stands in them."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            if not isinstance(node, ast.Lambda):
                stack += node.decorator_list
        else:  # a `:=` in a comprehension binds outside it
            stack += children(node)


def _bound(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names that a scope's nodes bind, once for each place that does."""
    inside = set(descendants(node.target for node in nodes if isinstance(node, ast.comprehension)))
    for node in nodes:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load) and node not in inside:
                yield node.id
            continue
        if not isinstance(node, _BINDING):
            continue
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.split(".")[0] for alias in names)


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """What the names of a scope's imports stand for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    (alias.asname, _dotted(alias.name))
                    if alias.asname
                    else (alias.name.split(".")[0], _dotted(alias.name.split(".")[0]))
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, _dotted(f"{node.module or '.'}.{alias.name}".lstrip("."))


def _dotted(name: str) -> ast.expr:
    first, *rest = name.split(".")
    made: ast.expr = ast.Name(id=first, ctx=ast.Load())
    for part in rest:
        made = ast.Attribute(value=made, attr=part, ctx=ast.Load())
    return made


def place_keywords(tree: ast.Module) -> None:
    """Arguments of own functions by position, in place; all others by name in the order of their names."""
    parameters: dict[str, list[str] | None] = {}
    nodes = descendants([tree])
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            places = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
            is_known = node.name not in parameters or parameters[node.name] == places
            parameters[node.name] = places if is_known else None
    for node in nodes:
        if isinstance(node, ast.Call) and node.keywords and all(each.arg for each in node.keywords):
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

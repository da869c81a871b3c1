"""What a name stands for: a module, a part of one, a builtin, or something of the file's own.

Names are resolved along Python's scopes, so that a parameter called `html` is no use of the module `html`. In doubt a
name stands for the module or builtin: a module-level or class-level binding can be deleted and then uncovers a builtin.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from arena.gate.modules import MODULES

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DECLARING = (
    ast.Name,
    ast.NamedExpr,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
    ast.MatchMapping,
    ast.Import,
    ast.ImportFrom,
)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Meaning(msgspec.Struct, frozen=True):
    """`part` is empty for the module itself; `module` is empty for a builtin."""

    module: str = ""
    part: str = ""

    def attribute(self, name: str) -> Meaning | None:
        """What `.name` of a module stands for; None for an attribute of anything else."""
        if not self.module or self.part:
            return None
        inner = f"{self.module}.{name}"
        return Meaning(inner) if inner in MODULES else Meaning(self.module, name)


class _Scope:
    def __init__(self, kind: str, parent: _Scope | None) -> None:
        self.kind = kind
        self.parent = parent
        self.bound: set[str] = set()
        self.imported: dict[str, Meaning] = {}
        self.outer: dict[str, bool] = {}  # names declared `global` (True) or `nonlocal` (False)

    def module(self) -> _Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


class Scopes:
    """Resolves the names of one tree."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        """`nodes` are those of a whole file in pre-order."""
        self.strays: list[ast.AST] = []  # imports that make a module reachable under a name which says something else
        self._scope_of: dict[ast.AST, _Scope] = {}
        if nodes:
            self._walk([nodes[0]], _Scope("module", None))

    def meaning(self, node: ast.AST) -> Meaning | None:
        """What a name or a chain of attributes stands for; None for the file's own things."""
        if isinstance(node, ast.Attribute):
            base = self.meaning(node.value)
            return base.attribute(node.attr) if base else None
        return self._resolve(node.id, self._scope_of[node]) if isinstance(node, ast.Name) else None

    def is_class_level(self, node: ast.AST) -> bool:
        """Whether a name stands directly in a class body."""
        return node in self._scope_of and self._scope_of[node].kind == "class"

    def _resolve(self, name: str, start: _Scope) -> Meaning | None:
        scope: _Scope | None = start
        while scope is not None:
            if scope.outer.get(name):
                scope = scope.module()
            if (scope is start or scope.kind != "class") and name not in scope.outer:
                if name in scope.imported:
                    return scope.imported[name]
                if name in scope.bound and scope.kind in ("function", "comprehension"):
                    return None
                if name in scope.bound and scope.kind == "class":  # looked up past the functions around it
                    scope = scope.module()
                    continue
            scope = scope.parent
        return Meaning("", name)

    # -- building
    def _walk(self, nodes: Sequence[ast.AST], scope: _Scope) -> None:
        for node in nodes:
            if isinstance(node, _DECLARING):
                self._declare(node, scope)
            if isinstance(node, _FUNCTIONS):
                self._function(node, scope)
            elif isinstance(node, _COMPREHENSIONS):
                self._walk([node.generators[0].iter], scope)
                inner = _Scope("comprehension", scope)
                self._walk([child for child in _children(node) if child is not node.generators[0].iter], inner)
            elif isinstance(node, ast.ClassDef):
                self._walk([*node.bases, *node.keywords, *node.decorator_list], scope)
                inner = _Scope("class", scope)
                _declare_outer(node.body, inner)
                self._walk(node.body, inner)
            else:
                self._walk(list(ast.iter_child_nodes(node)), scope)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope) -> None:
        inner = _Scope("function", scope)
        arguments = node.args
        defaults = [default for default in [*arguments.defaults, *arguments.kw_defaults] if default is not None]
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        inner.bound.update(argument.arg for argument in named)
        self._walk([*defaults, *(argument.annotation for argument in named if argument.annotation)], scope)
        if isinstance(node, ast.Lambda):
            self._walk([node.body], inner)
            return
        self._walk([*node.decorator_list, *([node.returns] if node.returns else [])], scope)
        _declare_outer(node.body, inner)
        self._walk(node.body, inner)

    def _declare(self, node: ast.AST, scope: _Scope) -> None:
        match node:
            case ast.Name():
                self._scope_of.setdefault(node, scope)
                if isinstance(node.ctx, ast.Store | ast.Del):
                    _bind(node.id, self._scope_of[node])
            case ast.NamedExpr(target=target):  # binds outside the comprehension
                while scope.kind == "comprehension" and scope.parent is not None:
                    scope = scope.parent
                self._scope_of[target] = scope
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                _bind(name, scope)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                _bind(name, scope)
            case ast.MatchMapping(rest=str(name)):
                _bind(name, scope)
            case ast.Import(names=names):
                for alias in names:
                    root = alias.name.split(".")[0]
                    self._import(node, alias.asname or root, Meaning(alias.name if alias.asname else root), scope)
            case ast.ImportFrom(module=module, names=names, level=level):
                for alias in names:
                    source = Meaning("." * level + (module or ""))
                    self._import(node, alias.asname or alias.name, source.attribute(alias.name) or source, scope)

    def _import(self, node: ast.AST, name: str, meaning: Meaning, scope: _Scope) -> None:
        """Bind a name. One that already means another module, or an attribute of a class, is a stray."""
        imported = _owner(name, scope).imported
        if scope.kind == "class" or imported.setdefault(name, meaning) != meaning:
            self.strays.append(node)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a comprehension, its generators taken apart."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.comprehension):
            yield from ast.iter_child_nodes(child)
        else:
            yield child


def _declare_outer(statements: Sequence[ast.stmt], scope: _Scope) -> None:
    """`global` and `nonlocal` hold for a whole function, wherever in it they stand."""
    stack: list[ast.AST] = list(statements)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            scope.outer.update(dict.fromkeys(node.names, isinstance(node, ast.Global)))
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.expr)):
            stack += ast.iter_child_nodes(node)


def _bind(name: str, scope: _Scope) -> None:
    _owner(name, scope).bound.add(name)


def _owner(name: str, scope: _Scope) -> _Scope:
    if scope.outer.get(name):
        return scope.module()
    while scope.parent is not None and scope.outer.get(name) is False:
        scope = scope.parent
    return scope

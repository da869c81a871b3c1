"""What a name stands for: a module, a part of one, a builtin, or something of the file's own.

Names are resolved along Python's scopes, so that a parameter called `html` is no use of the module `html`. In doubt a
name stands for the module or builtin: a module-level or class-level binding can be deleted and then uncovers a builtin.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Sequence

import msgspec

from arena.gate.capabilities.modules import MODULES
from arena.gate.tree import Tree, children

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DECLARING = {
    *(
        ast.NamedExpr,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.ExceptHandler,
        ast.MatchAs,
        ast.MatchStar,
    ),
    *(ast.MatchMapping, ast.Import, ast.ImportFrom),
}
_GIVING = {ast.Assign, ast.AnnAssign, ast.For}
_VALUES_MAX = 16
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ENTERED = {*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef}


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


class _CapabilityScope:
    def __init__(self, kind: str, parent: _CapabilityScope | None) -> None:
        self.kind = kind
        self.parent = parent
        self.bound: set[str] = set()
        self.bindings: Counter[str] = Counter()
        self.caught: Counter[str] = Counter()  # bindings by an except clause
        self.values: dict[str, list[ast.expr]] = {}  # what the last assignment or loop over a display gives
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.imported: dict[str, Meaning] = {}
        self.known: dict[str, Meaning | None] = {}  # what was asked for already
        self.outer: dict[str, bool] = {}  # names declared `global` (True) or `nonlocal` (False)

    def module(self) -> _CapabilityScope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


class Scopes:
    """Resolves the names of one tree."""

    def __init__(self, tree: Tree) -> None:
        self.strays: list[ast.AST] = []  # imports that make a module reachable under a name which says something else
        self.imports: set[str] = set()  # names that mean a module or a part of one somewhere
        self._scope_of: dict[ast.AST, _CapabilityScope] = {}
        self._module = _CapabilityScope("module", None)
        self._escaped: set[tuple[str, _CapabilityScope]] | None = None
        self._shared: set[tuple[str, _CapabilityScope]] | None = None
        self._nonlocals = {name for node in tree.of(ast.Nonlocal) for name in node.names}
        self._is_declaring = bool(self._nonlocals) or any(True for _ in tree.of(ast.Global))
        self._tree = tree
        self._meanings: dict[ast.AST, Meaning | None] = {}
        self._around: dict[ast.AST, _CapabilityScope] = {tree.module: self._module}
        self._walk()

    def meaning(self, node: ast.AST) -> Meaning | None:
        """What a name or a chain of attributes stands for; None for the file's own things."""
        if isinstance(node, ast.Name):
            known = self._scope_of[node].known
            if node.id not in known:
                known[node.id] = self._resolve(node.id, self._scope_of[node])
            return known[node.id]
        if not isinstance(node, ast.Attribute):
            return None
        if node not in self._meanings:
            base = self.meaning(node.value)
            self._meanings[node] = base.attribute(node.attr) if base else None
        return self._meanings[node]

    def _resolve(self, name: str, start: _CapabilityScope) -> Meaning | None:
        scope: _CapabilityScope | None = start
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

    def is_certain(self, node: ast.AST) -> bool:
        """Whether a name or a chain of attributes stands for its module, part or builtin, rebound nowhere."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or self.meaning(node) is None:
            return False
        scope = self._scope_of[node]
        return node.id not in self._module.bound and (scope.kind != "class" or node.id not in scope.bound)

    def is_read_in_class(self, node: ast.Name) -> bool:
        """Whether the class body in which a name stands reads it too."""
        return (node.id, self._scope_of[node]) in self._escapes()

    def only_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The class statement at module level that a name stands for, when nothing else binds the name."""
        if not isinstance(node, ast.Name) or self._holder(node.id, self._scope_of[node]) is not self._module:
            return None
        if node.id in self._module.imported:
            return None
        definitions = self._module.classes.get(node.id, [])
        return definitions[0] if len(definitions) == 1 and self._module.bindings[node.id] == 1 else None

    def is_only_looked_into(self, node: ast.AST) -> bool:
        """Whether all uses of a variable read an attribute of it, so that its value is never handed on.

        Said only of variables of functions and comprehensions: those of a class or module can be reached from outside.
        """
        if not isinstance(node, ast.Name) or self._scope_of[node].kind == "class":
            return False
        holder = self._holder(node.id, self._scope_of[node])
        return holder is not self._module and (node.id, holder) not in self._escapes()

    def _escapes(self) -> set[tuple[str, _CapabilityScope]]:
        """(name, scope) of all variables with another use than reading an attribute; all that a class body reads."""
        if self._escaped is not None:
            return self._escaped
        read = {
            node.value
            for node in self._tree.of(ast.Attribute)
            if isinstance(node.ctx, ast.Load) and node.attr != "__class__"
        }
        self._escaped = set()
        for node, scope in self._scope_of.items():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if scope.kind == "class":
                    self._escaped.add((node.id, scope))
                if node not in read:
                    self._escaped.add((node.id, self._holder(node.id, scope)))
        return self._escaped

    def is_exception(self, node: ast.AST) -> bool:
        """Whether a name stands for what except clauses caught and for nothing else: an object, and never a class."""
        holder = self._sole_holder(node)
        return holder is not None and isinstance(node, ast.Name) and holder.caught[node.id] == holder.bindings[node.id]

    def only_values(self, node: ast.AST) -> list[ast.expr]:
        """What a variable that is bound in one place alone can stand for: the value assigned, or the elements of the
        display that a loop goes over. Nothing for any other variable."""
        holder = self._sole_holder(node)
        if holder is None or not isinstance(node, ast.Name) or hasattr(builtins, node.id):
            return []
        values = holder.values.get(node.id, []) if holder.bindings[node.id] == 1 else []
        return values if len(values) <= _VALUES_MAX else []

    def only_table(self, node: ast.AST) -> ast.Dict | None:
        """The dict display that a variable is bound to once, when the variable is only read from by key or in a loop,
        so that no other key can get in."""
        match node, self.only_values(node):
            case ast.Name(id=name), [ast.Dict() as table]:
                if self._shared is None:  # all variables that are used otherwise than to look a key up in them
                    read = {part for each in self._tree.nodes for part in _looked_up(each)}
                    self._shared = {
                        (each.id, self._holder(each.id, scope))
                        for each, scope in self._scope_of.items()
                        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each not in read
                    }
                return None if (name, self._sole_holder(node)) in self._shared else table
        return None

    def _sole_holder(self, node: ast.AST) -> _CapabilityScope | None:
        """The scope of a function or module whose variable a name is, when it is certain which one that is."""
        if not isinstance(node, ast.Name) or node.id in self._nonlocals or self._scope_of[node].kind == "class":
            return None
        holder = self._holder(node.id, self._scope_of[node])
        return holder if holder.bindings[node.id] and node.id not in holder.imported else None

    def _holder(self, name: str, start: _CapabilityScope) -> _CapabilityScope:
        """The scope whose variable a name is; the module's for what nothing in a function binds."""
        scope = start
        while scope.parent is not None:
            if scope.outer.get(name):
                return self._module
            if name in scope.bound and name not in scope.outer and scope.kind in ("function", "comprehension"):
                return scope
            scope = scope.parent
        return scope

    def is_own_constant(self, name: str) -> bool:
        """Whether all that a name of the module can be is a constant: assigned in its body alone, and nowhere else."""
        values, bindings = self._module.values.get(name, []), self._module.bindings[name]
        is_constant = bindings == 1 and len(values) == 1 and isinstance(values[0], ast.Constant)
        return is_constant and name not in self._module.imported and name not in self._module.classes

    def is_class_level(self, node: ast.AST) -> bool:
        """Whether a name stands directly in a class body."""
        return node in self._scope_of and self._scope_of[node].kind == "class"

    # -- building
    def _walk(self) -> None:
        """Every name in the scope it stands in, statement by statement in the order of the source."""
        for node, parts in self._tree.parts.items():
            scope = self._around.get(node)
            if scope is None:
                continue  # parameters and clauses: what opens their scope has placed their parts
            kind = node.__class__
            if kind in _DECLARING:
                self._declare(node, scope)
            elif kind in _GIVING:
                target, values = _given(node)
                if target:
                    _owner(target, scope).values[target] = values
            if kind in _ENTERED:
                for inner, around in self._entered(node, scope):
                    self._place(inner, around)
            else:
                self._place(parts, scope)

    def _place(self, parts: Sequence[ast.AST], scope: _CapabilityScope) -> None:
        """Say in which scope these parts stand."""
        for part in parts:
            if isinstance(part, ast.Name):
                around = self._scope_of.setdefault(part, scope)
                if not isinstance(part.ctx, ast.Load):
                    _bind(part.id, around)
            elif isinstance(part, ast.MatchStar):  # the only one that declares and holds nothing
                self._declare(part, scope)
            else:
                self._around[part] = scope

    def _entered(self, node: ast.AST, scope: _CapabilityScope) -> list[tuple[list[ast.AST], _CapabilityScope]]:
        """The parts of what opens a scope, and in which scope each of them stands."""
        if isinstance(node, _COMPREHENSIONS):
            first = node.generators[0].iter
            within = _CapabilityScope("comprehension", scope)
            parts = [
                part
                for child in self._tree.parts[node]
                for part in (self._tree.parts[child] if isinstance(child, ast.comprehension) else [child])
            ]
            return [([first], scope), ([part for part in parts if part is not first], within)]
        assert isinstance(node, (*_FUNCTIONS, ast.ClassDef))
        parameters: list[tuple[list[ast.AST], _CapabilityScope]] = []
        around = scope
        if of_type := getattr(node, "type_params", []):  # `[T: bound]`, which Python has from 3.12 on
            around = _CapabilityScope("function", scope)
            around.bound.update(parameter.name for parameter in of_type)
            parameters.append(([*of_type], around))
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        inner = _CapabilityScope(kind, around)
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        if self._is_declaring:
            _declare_outer(body, inner)
        decorators: list[ast.AST] = [] if isinstance(node, ast.Lambda) else [*node.decorator_list]
        if isinstance(node, ast.ClassDef):
            return [(decorators, scope), *parameters, ([*node.bases, *node.keywords], around), (body, inner)]
        arguments = node.args
        defaults: list[ast.AST] = [*arguments.defaults, *(each for each in arguments.kw_defaults if each is not None)]
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        inner.bound.update(argument.arg for argument in named)
        inner.bindings.update(argument.arg for argument in named)
        told: list[ast.AST] = [argument.annotation for argument in named if argument.annotation]
        if not isinstance(node, ast.Lambda) and node.returns:
            told.append(node.returns)
        return [*parameters, (defaults, scope), (told, around), (decorators, scope), (body, inner)]

    def _declare(self, node: ast.AST, scope: _CapabilityScope) -> None:
        match node:
            case ast.NamedExpr(target=target):  # binds outside the comprehension
                while scope.kind == "comprehension" and scope.parent is not None:
                    scope = scope.parent
                self._scope_of[target] = scope
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                _bind(name, scope)
                if isinstance(node, ast.ClassDef) and scope is self._module:
                    scope.classes.setdefault(name, []).append(node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                _bind(name, scope)
                _owner(name, scope).caught[name] += isinstance(node, ast.ExceptHandler)
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

    def _import(self, node: ast.AST, name: str, meaning: Meaning, scope: _CapabilityScope) -> None:
        """Bind a name. One that already means another module, or an attribute of a class, is a stray."""
        self.imports.add(name)
        imported = _owner(name, scope).imported
        if scope.kind == "class" or imported.setdefault(name, meaning) != meaning:
            self.strays.append(node)


def _given(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """The one variable that a statement binds and the expressions it takes its value from, as far as both are plain."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, [value]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name, [value]
        case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=items) | ast.List(elts=items)):
            return name, items
    return "", []


def _looked_up(node: ast.AST) -> list[ast.expr]:
    """What a node looks into without handing it on or changing it, if it is a dict."""
    match node:
        case ast.Subscript(value=table, ctx=ast.Load()) | ast.For(iter=table) | ast.comprehension(iter=table):
            return [table]
        case ast.Attribute(value=table, attr="get" | "items" | "keys" | "values", ctx=ast.Load()):
            return [table]
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[table]):
            return [table]
    return []


def _declare_outer(statements: Sequence[ast.AST], scope: _CapabilityScope) -> None:
    """`global` and `nonlocal` hold for a whole function, wherever in it they stand."""
    stack: list[ast.AST] = list(statements)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            scope.outer.update(dict.fromkeys(node.names, isinstance(node, ast.Global)))
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.expr)):
            stack += children(node)


def _bind(name: str, scope: _CapabilityScope) -> None:
    owner = _owner(name, scope)
    owner.bound.add(name)
    owner.bindings[name] = owner.bindings.get(name, 0) + 1  # much faster than a counter's miss


def _owner(name: str, scope: _CapabilityScope) -> _CapabilityScope:
    if scope.outer.get(name):
        return scope.module()
    while scope.parent is not None and scope.outer.get(name) is False:
        scope = scope.parent
    return scope

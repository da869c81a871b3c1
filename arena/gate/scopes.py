"""One parsed file, walked once, and what its names mean: the module, the part of one or the builtin that a name or an
attribute stands for.

Names follow Python's scopes as far as it matters: a parameter called `html` is no module. Where a file could mean two
things, the module is meant. A meaning is written `json`, `json.loads` or, of a builtin, `.len`.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections import Counter

from arena.gate.words import COMMON_BUILTINS, MODULES

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_OUTER = (ast.Global, ast.Nonlocal)
_HIDING = frozenset((ast.ClassDef, ast.comprehension, ast.Module, ast.NamedExpr, *FUNCTIONS))
_BINDING = frozenset(
    (
        *(ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping),
    )
)
KINDS = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
_NAMING = ("id", "attr", "arg", "name", "asname", "rest", "names", "kwd_attrs")
_NAMING_FIELDS = {kind: [field for field in _NAMING if field in kind._fields] for kind in KINDS}
_NEVER_NODES = ("id", "attr", "arg", "asname", "module", "level", "kind", "type_comment", "conversion", "is_async")
_PART_FIELDS = {kind: [field for field in kind._fields if field not in _NEVER_NODES] for kind in KINDS}
# the common ones too where Python started without `site`, as the gate's own process does
BUILTINS = frozenset(dir(builtins)) | COMMON_BUILTINS
_BUILTINS = BUILTINS | {"__builtins__", "__loader__", "__spec__"}


class Tree:
    """A file's syntax tree, walked once: the rules read these values.

    `nodes`: parents first, without those that hold nothing (operators, contexts, `pass`). `children`: what stands
    directly in each of them, in order. `parents`: the node around each. `depth`: the nodes on the longest path.
    """

    def __init__(self, module: ast.Module) -> None:
        self.module = module
        self.nodes: list[ast.AST] = []
        self.children: dict[ast.AST, list[ast.AST]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.depth = 0
        level: list[ast.AST] = [module]
        while level:
            self.depth += 1
            level = [node for node in level if node._fields]
            self.nodes += level
            below: list[ast.AST] = []
            for node in level:
                found = self.children[node] = _children(node)
                for part in found:
                    self.parents[part] = node
                below += found
            level = below

    @functools.cached_property
    def names(self) -> dict[str, list[ast.AST]]:
        """The places of each name, wherever syntax takes one: also arguments, keywords, imports, patterns, `except`,
        `global`."""
        places: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            for field in _NAMING_FIELDS[type(node)]:
                held = getattr(node, field)
                for name in held if isinstance(held, list) else (held,):
                    if isinstance(name, str):
                        places.setdefault(name, []).append(node)
        return places


def _children(node: ast.AST) -> list[ast.AST]:
    """What `ast.iter_child_nodes` gives, in a fraction of its time."""
    found: list[ast.AST] = []
    for field in _PART_FIELDS[type(node)]:
        value = getattr(node, field, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
    return found


class Scopes:
    """The names of one tree. `bindings`: how often each name is bound, in any scope. `twice`: imports that give the
    name of a module to something else, too. `meant`: the names that can stand for more than the file's own."""

    def __init__(self, tree: Tree) -> None:
        self.module, self.parents = tree.module, tree.parents
        self._functions: dict[ast.AST, ast.AST] = {}  # in whose bodies, not heads, each node stands
        bodies: set[ast.AST] = set()
        self.bindings: Counter[str] = Counter()
        self.caught: Counter[str] = Counter()  # of these, names that `except` binds
        self.classes: dict[str, ast.ClassDef] = {}
        self.twice: list[ast.AST] = []
        self._imports: dict[ast.AST, dict[str, str]] = {self.module: {}}
        self._locals: dict[ast.AST, set[str]] = {self.module: set()}
        self._globals: dict[ast.AST, set[str]] = {self.module: set()}
        binding: list[ast.AST] = []
        for node in tree.nodes[1:]:  # the first is the module
            parent = self.parents[node]
            self._functions[node] = parent if node in bodies else self._functions.get(parent, self.module)
            if type(node) in _BINDING or (isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)):
                binding.append(node)
            if isinstance(node, FUNCTIONS):
                self._imports[node], self._locals[node], self._globals[node] = {}, set(), set()
                bodies.update([node.body] if isinstance(node, ast.Lambda) else node.body)
            elif isinstance(node, _OUTER):
                self._globals[self.function(node)].update(node.names)
        for node in binding:
            self._bind(node)
        self.meant = _BUILTINS.union(*self._imports.values())
        self._meanings: dict[tuple[str, ast.AST], str] = {}  # by name and function

    def meaning(self, node: ast.AST | None) -> str:
        """What a name or an attribute stands for; "" for anything of the file's own."""
        if isinstance(node, ast.Attribute):
            base = self.meaning(node.value)
            return f"{base}.{node.attr}" if base in MODULES else ""
        if not isinstance(node, ast.Name) or node.id not in self.meant:
            return ""
        at = (node.id, self.function(node))
        if at not in self._meanings:
            self._meanings[at] = self._meaning_in(*at)
        return self._meanings[at]

    def _meaning_in(self, name: str, scope: ast.AST) -> str:
        while scope is not self.module:
            if name not in self._globals[scope]:
                if name in self._imports[scope]:
                    return self._imports[scope][name]
                if name in self._locals[scope]:
                    return ""
            scope = self.function(scope)
        return self._imports[scope].get(name, f".{name}" if name in _BUILTINS else "")

    def is_untouched(self, node: ast.AST, *names: str) -> bool:
        """Whether a name is one of these builtins, and the file binds it nowhere."""
        return isinstance(node, ast.Name) and node.id in names and not self.bindings[node.id]

    def function(self, node: ast.AST) -> ast.AST:
        """The function in whose body a node stands, or the module."""
        return self._functions.get(node, self.module)

    def in_annotation(self, node: ast.AST) -> bool:
        """Whether a node is part of an annotation that calls nothing, no operator or index of the file's own either."""
        parent = self.parents.get(node)
        while isinstance(parent, ast.Subscript | ast.BinOp | ast.Tuple | ast.List):
            node, parent = parent, self.parents.get(parent)
        match parent:
            case ast.arg() | ast.AnnAssign():
                return parent.annotation is node
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return parent.returns is node
        return False

    # -- bindings
    def _bind(self, node: ast.AST) -> None:
        scope = self.function(node)
        match node:
            case ast.Name(id=name):
                self._add(name, scope, node)
            case ast.Import():
                for alias in node.names:
                    head = alias.name.split(".")[0]
                    self._import(node, alias.asname or head, alias.name if alias.asname else head)
            case ast.ImportFrom():
                for alias in node.names:
                    self._import(node, alias.asname or alias.name, f"{node.module}.{alias.name}")
            case ast.arg(arg=name):
                self._add(name, self.parents[self.parents[node]], node)  # of the function whose parameter it is
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._add(name, scope, node)
            case ast.ClassDef(name=name):
                self.classes[name] = node
                self._add(name, scope, node)
            case ast.ExceptHandler(name=str(name)):
                self.caught[name] += 1
                self._add(name, scope, node)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self._add(name, scope, node)

    def _add(self, name: str, scope: ast.AST, node: ast.AST) -> None:
        """Count a binding. What a class body or a comprehension binds hides nothing from the function around it."""
        self.bindings[name] += 1
        parent = self.parents[node]
        while type(parent) not in _HIDING:
            parent = self.parents[parent]
        if not isinstance(parent, ast.ClassDef | ast.comprehension):
            self._locals[scope].add(name)

    def _import(self, node: ast.AST, name: str, meaning: str) -> None:
        scope = self.function(node)
        imports = self._imports[self.module if name in self._globals[scope] else scope]
        self.bindings[name] += 1
        if imports.get(name, meaning) != meaning and {imports[name], meaning} & {*MODULES}:
            self.twice.append(node)
        imports[name] = meaning

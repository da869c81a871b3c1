"""The capability rules: what a file may import, name and reach, by whatever syntax. Pure, over one tree.

A route to a forbidden object has to begin with a refused word, wherever syntax takes one (a name, an attribute, a
keyword, a pattern, a constant given to getattr, a format field, a whole text), with a module or a refused builtin as a
value, or with something that reads or writes attributes by data. What of the last kind honest agents need is allowed in
the one form in which they write it (`_FORMS`); classes and attribute dicts are values that may only be looked at.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from arena.gate import words
from arena.gate.knowledge import Literal, fold
from arena.gate.rules import Finding, finding
from arena.gate.scopes import FUNCTIONS, Scopes, Tree

_FIELD = re.compile(r"\{[^{}]*")
_STEP = re.compile(r"[.\[]\s*([A-Za-z_]\w*)", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SEPARATORS = re.compile(r"[-_ .]+")
_NAMING = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})
_CLASSES = frozenset({"bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "set", "str", "tuple"})
_EXCEPTIONS = [name for name in dir(builtins) if name.endswith("Error") or name == "Exception"]
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_TELLING_OF_DICTS = ("str", "repr", "print", "len", "sorted", "list", "set")
_SETTERS = ("__setattr__", "__delattr__")
_REFUSED_WORDS = words.LEADING_DUNDERS | words.REFUSED
_SIGNS = {"_", *(word for word in _REFUSED_WORDS if "_" not in word)}  # every refused word holds one of them
_MADE = {f"enum.{name}" for name in ("Enum", "IntEnum", "StrEnum", "ReprEnum", "Flag", "IntFlag")}
_MADE |= {"collections.namedtuple", "typing.NamedTuple", "typing.TypedDict"}
_ANNOTATION_READERS = frozenset({"annotation", "return_annotation", "type"})
_FIELD_MAKER = "dataclasses.field"
_TYPES = (".type", "typing.Type")


def reach_findings(tree: Tree, literals: Sequence[Literal]) -> list[Finding]:
    """All findings of the capability rules over a tree and its literals."""
    return [*_Reach(tree).findings(), *_text_findings(literals)]


# -- texts
def _text_findings(literals: Sequence[Literal]) -> Iterator[Finding]:
    """Refused words as whole texts, which can be handed to whatever looks things up by name, and in format fields."""
    for literal in literals:
        fields = _FIELD.findall(literal.text) if "{" in literal.text else ()
        steps = [step for field in fields for step in _STEP.findall(field)]
        refused = [
            step for step in steps if step in words.REFUSED or (step[:2] == "__" and words.is_refused_attribute(step))
        ]
        if not refused and "__class__" in steps and steps[-1] not in _NAMING:
            refused = ["__class__"]
        if not literal.is_docstring and any(sign in literal.text for sign in _SIGNS):
            refused += [word for word in _IDENTIFIER.findall(literal.text) if word in _REFUSED_WORDS]
        if refused:
            rule = "attribute" if refused[0] == literal.text.strip() or steps else "dynamic-attribute"
            yield finding(rule, literal.line, f"text with {refused[0]}")


class _Reach:
    """The rules over one file."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.scopes = tree, Scopes(tree)
        self.parents, self.meaning = tree.parents, self.scopes.meaning
        self.attributes: set[str] = set()  # read by whatever syntax
        for node in tree.nodes:
            if isinstance(node, ast.Attribute):
                self.attributes.add(node.attr)
            elif isinstance(node, ast.MatchClass):
                self.attributes.update(node.kwd_attrs)
            elif isinstance(node, ast.Call) and self.meaning(node.func) in (".getattr", "operator.attrgetter"):
                texts = (each.value for each in node.args if isinstance(each, ast.Constant))
                self.attributes.update(part for text in texts for part in str(text).split("."))

    def findings(self) -> Iterator[Finding]:
        """Every finding, node by node."""
        for name, places in self.tree.names.items():
            for rule, detail in _written(name):
                yield from (finding(rule, getattr(place, "lineno", 0), detail) for place in places)
        for node in self.scopes.twice:
            yield finding("import", getattr(node, "lineno", 0), "one name for two modules")
        watched = self.scopes.meant | words.DEFINED_DUNDERS | {*filter(words.is_refused_attribute, self.tree.names)}
        for node in self.tree.nodes:
            check = _RULES.get(type(node))
            if check and not (isinstance(node, ast.Name) and node.id not in watched):
                yield from check(self, node)

    # -- words
    def _held(self, name: str, line: int) -> Iterator[Finding]:
        """A name of an attribute, read or written by whatever syntax."""
        if words.is_refused_attribute(name) and name not in words.SEEING_DUNDERS:
            yield finding("attribute", line, name)
        elif name in words.HELD_ATTRIBUTES or (name == "raw" and "buffer" in self.attributes):
            yield finding("dynamic-attribute", line, f"attribute {name}")

    def _argument(self, node: ast.keyword | ast.arg) -> Iterator[Finding]:
        name = node.arg or ""
        if words.is_refused_attribute(name) and (isinstance(node, ast.keyword) or name not in words.DEFINED_DUNDERS):
            yield finding("attribute", node.lineno, f"keyword {name}")

    def _name(self, node: ast.Name) -> Iterator[Finding]:
        if not isinstance(node.ctx, ast.Load):
            if node.id in ("compile", "open", "globals", "vars", "locals"):
                yield finding("builtin", node.lineno, node.id)
            if words.is_refused_attribute(node.id) and node.id not in words.DEFINED_DUNDERS:
                parent = self.parents[node]
                if isinstance(parent, ast.Assign | ast.AnnAssign) and isinstance(self.parents[parent], ast.ClassDef):
                    yield finding("attribute", node.lineno, f"field {node.id}")
            return
        if node.id[:2] == "__" and node.id in words.DEFINED_DUNDERS - words.DUNDERS:
            yield finding("dynamic-attribute", node.lineno, f"{node.id} as a value")
        if meaning := self.meaning(node):
            yield from self._value(node, meaning)

    def _value(self, node: ast.expr, meaning: str) -> Iterator[Finding]:
        """A module, a part of one or a builtin at the place where it stands."""
        parent, line = self.parents[node], node.lineno
        called = isinstance(parent, ast.Call) and parent.func is node
        if meaning in words.MODULES:
            is_asked = isinstance(parent, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in parent.ops)
            is_read = (
                isinstance(parent, ast.Call) and self.meaning(parent.func) == ".getattr" and parent.args[:1] == [node]
            )
            if not (isinstance(parent, ast.Attribute) or is_asked or is_read):
                yield finding("import", line, f"module {meaning} as a value")
            return
        module, _, part = meaning.rpartition(".")
        if module in words.MODULES and part not in words.MODULES[module]:
            yield finding("import", line, meaning)
        elif meaning in _FORMS:
            if not _FORMS[meaning](self, node, parent):
                yield finding("dynamic-attribute", line, f"{meaning.lstrip('.')} in another form than README's")
        elif meaning in _TYPES:
            is_written = self.scopes.in_annotation(node) and not self.attributes & _ANNOTATION_READERS
            if not (called or self._is_class_used(node) or is_written):
                yield finding("dynamic-attribute", line, "type as a value")
        elif meaning and not module and (part in words.BUILTINS or part in words.COMMON_BUILTINS):
            yield finding("builtin", line, part)
        elif meaning and not module and part in words.DIRECT_BUILTINS and not called:
            yield finding("builtin", line, f"{part} as a value")

    # -- attributes
    def _attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        name, base, parent = node.attr, node.value, self.parents[node]
        held, meaning = self.meaning(base), self.meaning(node)
        if held in words.MODULES and not isinstance(node.ctx, ast.Load):
            yield finding("dynamic-attribute", node.lineno, f"{name} of a module replaced")
        if meaning:
            yield from self._value(node, meaning)
        if held in ("sys.stderr", "sys.stdout") and name not in ("flush", "isatty", "write"):
            yield finding("attribute", node.lineno, f"{held}.{name}")
        if name == "__dict__":
            if not self._is_dict_told(node):
                yield finding("dynamic-attribute", node.lineno, "__dict__ as a value")
        elif name in _SETTERS:
            if not self._is_set_plainly(node):
                yield finding("dynamic-attribute", node.lineno, f"{name} with a chosen name")
        elif name == "__init__":
            is_known = isinstance(base, ast.Name) and base.id in self.scopes.classes
            is_known = is_known and self.scopes.bindings[getattr(base, "id", "")] == 1
            is_known = is_known or self.scopes.is_untouched(base, "object", "dict", "list", "str", *_EXCEPTIONS)
            if not (isinstance(base, ast.Call) and self.meaning(base.func) == ".super") and not is_known:
                yield finding("dynamic-attribute", node.lineno, "an object made anew by its __init__")
        elif name == "__class__":
            if not isinstance(node.ctx, ast.Load) or not self._is_class_used(node):
                yield finding("dynamic-attribute", node.lineno, "class of a value as a value")
        elif meaning not in ("os.environ",):
            yield from self._held(name, node.lineno)
        is_text = held in (".str", ".bytes", ".bytearray") and name in ("format", "format_map", "decode")
        if is_text and not (isinstance(parent, ast.Call) and parent.args and isinstance(fold(parent.args[0]), str)):
            yield finding("dynamic-attribute", node.lineno, f"{held[1:]}.{name} of a text that isn't constant")

    # -- calls
    def _call(self, node: ast.Call) -> Iterator[Finding]:
        meaning = self.meaning(node.func)
        if meaning in (".getattr", ".setattr", ".delattr"):
            yield from self._by_name(node, node.args[1:2], meaning[1:])
        elif meaning in ("operator.attrgetter", "operator.methodcaller"):
            yield from self._by_name(node, node.args[: None if meaning.endswith("attrgetter") else 1], meaning)
        elif meaning == ".type":
            if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
                yield finding("dynamic-attribute", node.lineno, "type() that makes a class")
            elif not self._is_class_used(node):
                yield finding("dynamic-attribute", node.lineno, "class of a value as a value")
        elif meaning == ".vars" and not (len(node.args) == 1 and self._is_dict_told(node)):
            yield finding("builtin", node.lineno, "vars")
        elif meaning in _MADE:
            naming = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(keyword.arg is None for keyword in node.keywords) or any(map(_names_by_data, naming)):
                yield finding("dynamic-attribute", node.lineno, f"{meaning} of chosen names")
        name = node.func.attr if isinstance(node.func, ast.Attribute) else meaning.lstrip(".")
        given = node.args if name in ("decode", "encode", "str", "bytes", "bytearray") else []
        given = [*given, *(keyword.value for keyword in node.keywords if keyword.arg == "encoding")]
        for codec in filter(None, (fold(each) for each in given)):
            if isinstance(codec, str) and _SEPARATORS.sub("", codec.lower()) in words.HIDING_CODECS:
                yield finding("decoder-import", node.lineno, f"codec {codec}")

    def _by_name(self, node: ast.Call, names: Sequence[ast.expr], called: str) -> Iterator[Finding]:
        """A look-up by name: the name must be a constant, and then it is an attribute like any other."""
        module = self.meaning(node.args[0]) if node.args else ""
        is_level = module == "logging" and called == "getattr" and self._is_capitals(names[0] if names else None)
        if is_level or (called == "getattr" and self._is_delegation(node)):
            return
        for name in names or [node.func]:
            text = fold(name)
            if not isinstance(text, str):
                yield finding("dynamic-attribute", node.lineno, f"{called} of a chosen name")
                continue
            if module in words.MODULES and called == "getattr":
                part = f"{module}.{text}"
                if part in words.MODULES or text not in words.MODULES[module]:
                    yield finding("import", node.lineno, part)
                elif part in _FORMS or part in _TYPES:
                    yield finding("dynamic-attribute", node.lineno, f"{part} by getattr")
            for part in text.split("."):
                yield from self._held(part, node.lineno)
                if part in ("__class__", "__init__", "__dict__"):
                    yield finding("dynamic-attribute", node.lineno, f"{called} of {text!r}")

    def _is_capitals(self, node: ast.expr | None) -> bool:
        """Whether an expression is `text.upper()` of what is certainly a text: in `logging` only numbers and texts have
        such names."""
        match node:
            case ast.Call(func=ast.Attribute(value=text, attr="upper"), args=[], keywords=[]):
                if isinstance(text, ast.Call) and self.meaning(text.func) == "os.getenv" and len(text.args) == 2:
                    return isinstance(fold(text.args[1]), str)
                is_str = isinstance(text, ast.Call) and self.scopes.is_untouched(text.func, "str")
                return is_str or isinstance(text, ast.JoinedStr) or isinstance(fold(text), str)
        return False

    def _is_delegation(self, node: ast.Call) -> bool:
        """`def __getattr__(self, name): return getattr(self._other, name)`: the interpreter alone gives the name."""
        function = self.scopes.function(node)
        if not isinstance(function, ast.FunctionDef) or function.name != "__getattr__" or function.decorator_list:
            return False
        arguments = [argument.arg for argument in function.args.args]
        if len(arguments) != 2 or function.args.defaults or not isinstance(self.parents[function], ast.ClassDef):
            return False
        match node.args:
            case [ast.Attribute(value=ast.Name(id=own), attr=_), ast.Name(id=name)]:
                return [own, name] == arguments and not _stored(function) & {*arguments}
        return False

    def _is_set_plainly(self, node: ast.Attribute) -> bool:
        """`object.__setattr__(self, "x", v)`, `super().__setattr__("x", v)`, or inside an own `__setattr__` what passes
        its own name on."""
        call, base = self.parents[node], node.value
        if not isinstance(call, ast.Call) or call.func is not node or call.keywords:
            return False
        is_super = isinstance(base, ast.Call) and self.meaning(base.func) == ".super" and not base.args
        if not is_super and not self.scopes.is_untouched(base, "object"):
            return False
        names = call.args if is_super else call.args[1:]
        if not names or isinstance(names[0], ast.Starred):
            return False
        text = fold(names[0])
        if isinstance(text, str):
            return not words.is_refused_attribute(text) and text[:2] != "__"
        function = self.scopes.function(node)
        if not isinstance(function, ast.FunctionDef) or function.name != node.attr or function.decorator_list:
            return False
        own = [argument.arg for argument in function.args.args]
        given = [each.id if isinstance(each, ast.Name) else "" for each in call.args]
        wanted = own[1:2] if is_super else own[:2]
        return not function.args.defaults and given[: len(wanted)] == wanted and not _stored(function) & {*own[:2]}

    # -- classes as values, attribute dicts
    def _is_class_used(self, node: ast.expr) -> bool:
        """Whether the class of a value is only looked at: its name or attributes, `is`, isinstance, a text, a table."""
        parent = self.parents[node]
        match node:
            case ast.Call(args=[ast.Constant(value=None)]):
                return True  # type(None)
            case ast.Call(args=[ast.Name(id=name)]) if 0 < self.scopes.caught[name] == self.scopes.bindings[name]:
                return True  # an exception is no class
        match parent:
            case ast.Attribute(value=value, attr=attr):
                return value is node and (attr in _NAMING or attr[:2] != "__")
            case ast.FormattedValue() | ast.Compare():
                return True
            case ast.Call(func=func) if func is node:
                return _is_made_plainly(parent)
            case ast.Call(func=ast.Attribute(value=table, attr="get")) if parent.args[:1] == [node]:
                return self._is_table(table)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="format")):
                return node in parent.args
            case ast.Call():
                return node in parent.args and self.scopes.is_untouched(parent.func, *words.TELLING_BUILTINS)
            case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                return True
            case ast.Subscript(value=table):
                return self._is_table(table)
            case ast.Assign(targets=[ast.Name(id=name)]):
                return not isinstance(self.parents[parent], ast.ClassDef) and self._is_only_read(name)
        return False

    def _is_only_read(self, name: str) -> bool:
        """Whether a name is bound once, and else only stands before a plain attribute."""
        around = [self.parents[part] for part in self._written_as(name) if isinstance(part.ctx, ast.Load)]
        return self.scopes.bindings[name] == 1 and all(
            isinstance(each, ast.Attribute) and (each.attr in _NAMING or each.attr[:2] != "__") for each in around
        )

    def _is_table(self, node: ast.expr) -> bool:
        """A dict display, on the spot or bound once."""
        if not isinstance(node, ast.Name):
            return isinstance(node, ast.Dict)
        places = ((part, self.parents[part]) for part in self._written_as(node.id))
        bound = [at.value for part, at in places if isinstance(at, ast.Assign) and at.targets[0] is part]
        return self.scopes.bindings[node.id] == 1 and any(isinstance(value, ast.Dict) for value in bound)

    def _written_as(self, name: str) -> list[ast.Name]:
        """Where the name itself is bound or read, and no attribute of that name."""
        return [part for part in self.tree.names[name] if isinstance(part, ast.Name)]

    def _is_dict_told(self, node: ast.expr) -> bool:
        """Whether an object's attributes only become a text, plain JSON or a set of names."""
        parent = self.parents[node]
        match parent:
            case ast.FormattedValue():
                return True
            case ast.For(iter=each) | ast.comprehension(iter=each):
                return each is node
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[right]):
                return right is node
            case ast.Call(func=func, args=[given], keywords=options) if given is node:
                if self.meaning(func) in ("json.dumps", "json.dump"):
                    plain = ("indent", "sort_keys", "ensure_ascii")
                    defaults = [each.value for each in options if each.arg not in plain]
                    return all(self.scopes.is_untouched(each, "str", "repr") for each in defaults)
                return not options and self.scopes.is_untouched(func, *_TELLING_OF_DICTS)
        return False

    # -- definitions
    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            modules = ["." * node.level + (node.module or "")]
        for module in modules:
            if module not in words.MODULES:
                yield finding(
                    "decoder-import" if module.split(".")[0] in words.DECODERS else "import", node.lineno, module
                )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name not in words.MODULES[module] and f"{module}.{alias.name}" not in words.MODULES:
                        yield finding("import", node.lineno, f"from {module} import {alias.name}")

    def _class(self, node: ast.ClassDef) -> Iterator[Finding]:
        for keyword in node.keywords:
            is_usual = self.meaning(keyword.value) == "abc.ABCMeta"
            if keyword.arg is None or (keyword.arg == "metaclass" and not is_usual):
                yield finding("dynamic-attribute", node.lineno, f"class {node.name} with a metaclass of its own")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
        in_class = isinstance(self.parents[node], ast.ClassDef)
        if node.name in ("__getattr__", *_SETTERS) and not in_class:
            yield finding("dynamic-attribute", node.lineno, f"{node.name} outside a class")
        if (
            words.is_refused_attribute(node.name)
            and in_class
            and node.name not in words.DEFINED_DUNDERS | words.SEEING_DUNDERS
        ):
            yield finding("attribute", node.lineno, node.name)

    def _pattern(self, node: ast.MatchClass) -> Iterator[Finding]:
        for name in node.kwd_attrs:
            yield from self._held(name, node.lineno)
            if name in ("__class__", "__init__", "__dict__"):
                yield finding("dynamic-attribute", node.lineno, f"pattern with {name}")
        if node.patterns and not self.scopes.is_untouched(node.cls, *_CLASSES):
            own = self.scopes.classes.get(node.cls.id) if isinstance(node.cls, ast.Name) else None
            if own is None or own.bases or self.scopes.bindings[own.name] != 1:
                yield finding("dynamic-attribute", node.lineno, "pattern by position of a class with bases")


def _written(name: str) -> Iterator[tuple[str, str]]:
    """Rule and detail of a word that is refused wherever it is written."""
    if not name.isascii():
        yield "identifier", ascii(name)
    if name in words.BUILTINS and name not in ("compile", "open", "globals", "vars", "locals"):
        yield "builtin", name
    elif name in words.REFUSED:
        yield "attribute", name
    elif name in words.SEEING_DUNDERS:
        yield "dynamic-attribute", name
    elif name[:2] == "__" and name[-2:] == "__" and len(name) > 4 and name not in words.DEFINED_DUNDERS | {"__dict__"}:
        yield "attribute", name


def _stored(function: ast.FunctionDef) -> set[str]:
    """The names that a function binds in its body, by whatever syntax."""
    nodes = [node for part in function.body for node in ast.walk(part)]
    bound = [node for node in nodes if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))]
    return {getattr(node, field, "") for node in bound for field in ("id", "name", "asname", "rest")}


def _names_by_data(node: ast.expr) -> bool:
    """Whether the names that an argument gives to a class that is made are anything but constants."""
    match node:
        case ast.Dict(keys=keys):
            return any(key is None or _names_by_data(key) for key in keys)
        case ast.List(elts=rows) | ast.Tuple(elts=rows):
            return any(_names_by_data(row.elts[0] if isinstance(row, _DISPLAYS) and row.elts else row) for row in rows)
    return not isinstance(node, ast.Constant)


def _is_made_plainly(call: ast.Call) -> bool:
    """`type(self)(...)` that makes an object and can't make a class of chosen attributes, whatever `self` is."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return False
    if len(call.args) == 1 and not call.keywords:
        return isinstance(call.args[0], ast.Constant | ast.JoinedStr | ast.List | ast.Dict | ast.Set | ast.ListComp)
    return len(call.args) != 3 or isinstance(call.args[1], ast.Constant)


_RULES: dict[type[ast.AST], Callable[[_Reach, Any], Iterator[Finding]]] = {
    ast.Import: _Reach._import,
    ast.ImportFrom: _Reach._import,
    ast.Name: _Reach._name,
    ast.Attribute: _Reach._attribute,
    ast.Call: _Reach._call,
    ast.keyword: _Reach._argument,
    ast.arg: _Reach._argument,
    ast.ClassDef: _Reach._class,
    ast.FunctionDef: _Reach._function,
    ast.AsyncFunctionDef: _Reach._function,
    ast.MatchClass: _Reach._pattern,
}


# -- helpers that read or write attributes by data, and the one form in which each is allowed
def _is_class_decorator(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """`@dataclass` or `@dataclass(...)`, alone on a class."""
    call = parent if isinstance(parent, ast.Call) and parent.func is node else node
    around = reach.parents[call]
    return isinstance(around, ast.ClassDef) and around.decorator_list == [call]


def _is_wrapping(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """`@wraps(f)` next to a function: it copies attributes, never as a value, nor onto another decorator's result."""
    around = reach.parents[parent]
    is_plain = isinstance(parent, ast.Call) and parent.func is node and not parent.keywords
    is_one = isinstance(parent, ast.Call) and len(parent.args) == 1 and isinstance(parent.args[0], ast.Name)
    return is_plain and is_one and isinstance(around, FUNCTIONS[:2]) and around.decorator_list[-1:] == [parent]


def _is_property(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """`@cached_property` on a method: one that is made anew or derived can be told which attribute to read."""
    return isinstance(parent, ast.FunctionDef) and parent.decorator_list == [node]


def _is_field(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """`x: int = field(...)` in the body of a dataclass: a field's name is text that `dataclass` compiles."""
    around = reach.parents[parent]
    body = reach.parents.get(around)
    return (
        isinstance(parent, ast.Call)
        and parent.func is node
        and isinstance(around, ast.AnnAssign)
        and around.value is parent
        and isinstance(body, ast.ClassDef)
        and len(body.decorator_list) == 1
    )


def _is_fields(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """`len(fields(x))`, or a loop over `fields(x)`."""
    around = reach.parents[parent]
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if isinstance(around, ast.Call):
        return is_called and reach.scopes.is_untouched(around.func, "len")
    return is_called and isinstance(around, ast.For | ast.comprehension) and around.iter is parent


def _is_called_with_one(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """A call with one plain argument: options of `inspect.signature` evaluate texts."""
    if not isinstance(parent, ast.Call) or parent.func is not node or parent.keywords:
        return False
    return len(parent.args) == 1 and not isinstance(parent.args[0], ast.Starred)


def _is_called_openly(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """A call whose options all have names."""
    return isinstance(parent, ast.Call) and parent.func is node and all(each.arg for each in parent.keywords)


def _is_made(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """A class of chosen attributes: called on the spot, where the names are looked at, or a base, a part, a type."""
    if isinstance(parent, ast.Call) and parent.func is node:
        return True
    is_base = isinstance(parent, ast.ClassDef) and node in parent.bases
    is_asked = isinstance(parent, ast.Call) and reach.scopes.is_untouched(parent.func, "isinstance", "issubclass")
    return is_base or is_asked or reach.scopes.in_annotation(node)


def _is_metaclass(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    is_keyword = isinstance(parent, ast.keyword) and parent.arg == "metaclass"
    return is_keyword and isinstance(reach.parents[parent], ast.ClassDef)


def _is_own_constant(reach: _Reach, node: ast.expr, parent: ast.AST) -> bool:
    """`globals().get("NAME")` where NAME can be nothing but a constant of the file."""
    look = reach.parents[parent]
    call = reach.parents.get(look)
    if not isinstance(parent, ast.Call) or parent.args or not isinstance(look, ast.Attribute) or look.attr != "get":
        return False
    if not isinstance(call, ast.Call) or call.func is not look or not call.args or call.keywords:
        return False
    name = fold(call.args[0])
    constants = (each for each in reach.tree.module.body if isinstance(each, ast.Assign))
    is_constant = any(
        [getattr(target, "id", "") for target in each.targets] == [name]
        for each in constants
        if isinstance(each.value, ast.Constant)
    )
    return is_constant and reach.scopes.bindings[str(name)] == 1


_FORMS: dict[str, Callable[[_Reach, ast.expr, ast.AST], bool]] = {
    "dataclasses.dataclass": _is_class_decorator,
    "functools.cached_property": _is_property,
    "functools.wraps": _is_wrapping,
    _FIELD_MAKER: _is_field,
    "dataclasses.fields": _is_fields,
    "inspect.signature": _is_called_with_one,
    "logging.basicConfig": _is_called_openly,
    "operator.attrgetter": _is_called_openly,
    "operator.methodcaller": _is_called_openly,
    "abc.ABCMeta": _is_metaclass,
    ".globals": _is_own_constant,
    ".vars": _is_called_openly,
    **dict.fromkeys(_MADE, _is_made),
}

"""Where a class may stand as a value: the class of a class is `type`, which makes classes with any attribute.

`type(x)`, `x.__class__`, `type`, the metaclasses, the makers of enums and named tuples and the fields of a dataclass
may be looked into, asked for, compared and told of. Handed on they are a route: a class whose attributes are named at
run time chooses by a pattern what is read from any object, and a field's name is text that `dataclass` compiles. The
same uses that tell of a class tell of an object's `__dict__`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from arena.gate.capabilities.folding import fold
from arena.gate.capabilities.scopes import Meaning, Scopes
from arena.gate.capabilities.vocabulary import (
    ENUMS,
    MATCHED_BUILTINS,
    METACLASSES,
    TELLING_BUILTINS,
    TUPLE_MAKERS,
    is_refused_attribute,
)
from arena.gate.report import Finding, finding
from arena.gate.tree import Tree

TYPES = {("", "type"), ("typing", "Type")}
DATACLASS, FIELD, FIELDS = (("dataclasses", name) for name in ("dataclass", "field", "fields"))
_TYPE, _VARS = Meaning("", "type"), Meaning("", "vars")
HELD_AS_VALUES = TYPES | METACLASSES | ENUMS | TUPLE_MAKERS | {DATACLASS, FIELD, FIELDS}
_READING_BACK = frozenset({"signature", "fields", "field"})  # what hands annotations on
# Classes of the standard library that values are often compared with.
_COMPARED = {("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")}
_COMPARED |= {("datetime", name) for name in ("date", "datetime", "time", "timedelta")}
_COMPARED |= {("decimal", "Decimal"), ("fractions", "Fraction"), ("types", "NoneType"), ("uuid", "UUID")}
_GROUPS = (ast.Tuple, ast.Set, ast.List)
_COMPUTED = (ast.Attribute, ast.Call)
_DISPLAYS = (ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp)
_MADE_BY = frozenset({"bytes", "dict", "float", "frozenset", "int", "list", "repr", "set", "sorted", "str", "tuple"})
_MAKING = frozenset({"__call__", "__class__", "__new__"})
_KEYS_OF = frozenset({"frozenset", "list", "set", "sorted", "tuple"})
_DUMPS_OPTIONS = frozenset({"allow_nan", "ensure_ascii", "indent", "separators", "skipkeys", "sort_keys"})


def class_of(node: ast.AST, scopes: Scopes) -> bool:
    """Whether an expression is the class of something that may be a class itself."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__class__"
    if not isinstance(node, ast.Call) or len(node.args) != 1 or scopes.meaning(node.func) != _TYPE:
        return False
    return not isinstance(node.args[0], _DISPLAYS) and not scopes.is_exception(node.args[0])


def attributes_of(node: ast.AST, scopes: Scopes) -> bool:
    """Whether an expression is an object's `__dict__`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__dict__"
    return isinstance(node, ast.Call) and len(node.args) == 1 and scopes.meaning(node.func) == _VARS


class ClassUses:
    """Adds to `judged` the nodes whose use of a class is a fair one, parents first."""

    def __init__(self, tree: Tree, scopes: Scopes, judged: set[ast.AST]) -> None:
        self._scopes = scopes
        self._judged = judged
        words = {node.attr for node in tree.of(ast.Attribute)} | {node.name for node in tree.of(ast.alias)}
        self.has_fields = "field" in words
        self._is_read_back = bool(words & _READING_BACK)

    def excuse(self, node: ast.AST) -> None:
        """Marks the parts of one node that use a class fairly."""
        match node:
            case ast.Attribute(value=value, attr=name) if name not in _MAKING:
                self._tell(value, with_attributes=False)
            case ast.Compare():
                operands = [node.left, *node.comparators]
                parts = [part for one in operands for part in (one.elts if isinstance(one, _GROUPS) else [one])]
                told = [part for part in parts if self._is_told(part, with_attributes=False, with_types=True)]
                if told:
                    is_identity = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
                    met = parts[:1] if _is_membership(node) and self._is_table(operands[-1]) else parts
                    if is_identity or all(map(self._is_plain_operand, met)):
                        self._judged.update(told)
                if attributes_of(operands[-1], self._scopes) and _is_membership(node):
                    self._judged.add(operands[-1])
            case ast.FormattedValue(value=value):
                self._tell(value)
            case ast.BinOp(left=ast.Constant(value=str()) | ast.JoinedStr(), op=ast.Mod(), right=right):
                self._tell_each(right)
            case ast.Subscript(value=table, slice=key, ctx=ast.Load()):
                if class_of(key, self._scopes) and self._is_table(table):
                    self._judged.add(key)
            case ast.Assign(targets=[target], value=value):
                if class_of(value, self._scopes) and self._scopes.is_only_looked_into(target):
                    self._judged.add(value)
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                is_tame = self._part(source) == FIELDS and self._scopes.is_only_looked_into(target)
                if is_tame or attributes_of(source, self._scopes):
                    self._judged.add(source)
            case ast.MatchClass(cls=ast.Name() as matched):
                self._judged.add(matched)

    def call(self, node: ast.Call) -> None:
        """A call that tells of its arguments, or that makes another of the same class."""
        scopes, called = self._scopes, node.func
        meaning = self._meaning(called)
        if meaning is None and not isinstance(called, _COMPUTED):
            return  # a function of the file's own
        name = self._builtin(called)
        if name in TELLING_BUILTINS:
            for argument in node.args:
                self._tell_each(argument, with_types=name in ("isinstance", "issubclass"))
                self._judged.update([argument] if self._part(argument) == FIELDS else [])
        elif meaning is not None and meaning[0] == "traceback" and scopes.is_certain(called):
            for argument in node.args:
                self._tell(argument, with_attributes=False)
        elif name in _KEYS_OF and node.args and attributes_of(node.args[0], scopes):
            self._judged.add(node.args[0])
        elif isinstance(called, ast.Attribute) and called.attr == "format" and isinstance(called.value, ast.Constant):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                self._tell_each(argument)
        elif meaning == ("json", "dumps") and scopes.is_certain(called) and node.args:
            is_plain = all(
                option.arg in _DUMPS_OPTIONS
                or (option.arg == "default" and self._builtin(option.value) in ("repr", "str"))
                for option in node.keywords
            )
            if is_plain and attributes_of(node.args[0], scopes):
                self._judged.add(node.args[0])
        elif isinstance(called, ast.Attribute) and called.attr == "get" and self._is_table(called.value):
            for argument in node.args[:1]:
                self._tell(argument, with_attributes=False)
        elif class_of(called, scopes) and self._makes_no_class(node):
            self._judged.add(called)

    def definition(self, node: ast.ClassDef) -> None:
        """Bases, metaclass, decorators and fields of a class statement."""
        for base in node.bases:
            if self._meaning(base) in ENUMS | TUPLE_MAKERS:
                self._judged.add(base)
        for keyword in node.keywords:
            if keyword.arg == "metaclass" and self._meaning(keyword.value) in METACLASSES:
                self._judged.add(keyword.value)
        items = node.decorator_list
        decorators = [item.func if isinstance(item, ast.Call) and not item.args else item for item in items]
        self._judged.update(item for item in decorators if self._meaning(item) == DATACLASS)
        if not decorators or self._meaning(decorators[-1]) != DATACLASS:
            return
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name() as target, value=ast.Call() as value):
                    if self._part(value) == FIELD and not self._scopes.is_read_in_class(target):
                        self._judged.add(value)

    def annotation(self, annotation: ast.expr) -> None:
        """Classes in an annotation, unless something of the file's own computes it or reads it back."""
        nodes = list(ast.walk(annotation))
        names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
        is_computed = any(not self._is_annotation_part(node) for node in nodes)
        if not is_computed:
            held = [name for name in names if self._meaning(name) in HELD_AS_VALUES]
            self._judged.update(name for name in held if self._meaning(name) not in TYPES or not self._is_read_back)

    def pattern(self, node: ast.MatchClass) -> Iterator[Finding]:
        """Positions of a class pattern are names that the class gives: known of builtins and plain own classes."""
        for name in node.kwd_attrs:
            if name.startswith("__"):
                yield finding("dynamic-attribute", node.lineno, f"{name} of a value by a pattern")
        if not node.patterns or self._builtin(node.cls) in MATCHED_BUILTINS:
            return
        own = self._scopes.only_class(node.cls)
        is_plain = (
            own is not None
            and not own.keywords
            and all(self._meaning(base) == ("typing", "NamedTuple") for base in own.bases)
        )
        if own is None or not is_plain or not all(map(self._is_dataclass, own.decorator_list)):
            yield finding("dynamic-attribute", node.lineno, "class pattern by position")

    def made(self, node: ast.Call) -> Iterator[Finding]:
        """A class made by a call: the names of its attributes must be constants."""
        names = _names(node.args[1]) if len(node.args) > 1 else []
        is_open = any(isinstance(argument, ast.Starred) for argument in node.args) or names is None
        if is_open or {keyword.arg for keyword in node.keywords} & {None, "field_names", "names", "fields"}:
            yield finding("dynamic-attribute", node.lineno, "class made with names that aren't constants")
        for name in names or []:
            if is_refused_attribute(name):
                yield finding("attribute", node.lineno, f"class made with {name}")

    def is_class(self, node: ast.AST) -> bool:
        """Whether an expression is for certain a class, or what `super()` gives, and no object: one that stands for a
        file opens another by its `__init__`."""
        is_super = self._part(node) == ("", "super")
        return is_super or self._scopes.is_certain(node) or self._scopes.only_class(node) is not None

    # -- parts
    def _meaning(self, node: ast.AST) -> tuple[str, str] | None:
        meaning = self._scopes.meaning(node)
        return (meaning.module, meaning.part) if meaning else None

    def _builtin(self, node: ast.AST) -> str:
        """The name of a builtin that a name stands for, rebound nowhere; else nothing."""
        is_builtin = isinstance(node, ast.Name) and self._meaning(node) == ("", node.id)
        return node.id if isinstance(node, ast.Name) and is_builtin and self._scopes.is_certain(node) else ""

    def _part(self, node: ast.AST) -> tuple[str, str] | None:
        """What is called, of a call."""
        return self._meaning(node.func) if isinstance(node, ast.Call) else None

    def _is_told(self, node: ast.AST, *, with_attributes: bool, with_types: bool) -> bool:
        if not with_types and not isinstance(node, _COMPUTED):
            return False
        is_attributes = with_attributes and attributes_of(node, self._scopes)
        return is_attributes or class_of(node, self._scopes) or (with_types and self._meaning(node) in HELD_AS_VALUES)

    def _tell(self, node: ast.AST, *, with_attributes: bool = True, with_types: bool = False) -> None:
        if self._is_told(node, with_attributes=with_attributes, with_types=with_types):
            self._judged.add(node)

    def _tell_each(self, node: ast.AST, *, with_types: bool = False) -> None:
        for part in node.elts if isinstance(node, ast.Tuple) else [node]:
            self._tell(part, with_types=with_types)

    def _is_plain_operand(self, node: ast.AST) -> bool:
        """Whether comparing with a value runs no code of the file's own: constants and classes that nothing rebinds.
        An object out of a module is none, since its class may be given another `__eq__`."""
        if isinstance(node, ast.Constant) or class_of(node, self._scopes) or self._part(node) == ("", "type"):
            return True
        if self._builtin(node) or (self._meaning(node) in _COMPARED and self._scopes.is_certain(node)):
            return True
        own = self._scopes.only_class(node)
        return own is not None and not hasattr(builtins, own.name) and all(map(self._is_dataclass, own.decorator_list))

    def _is_table(self, node: ast.AST) -> bool:
        """Whether a class looked up in a dict meets no key that could take hold of it."""
        table = node if isinstance(node, ast.Dict) else self._scopes.only_table(node)
        return table is not None and all(key is not None and self._is_plain_operand(key) for key in table.keys)

    def _makes_no_class(self, node: ast.Call) -> bool:
        """Whether `type` called like this gives neither a class nor the class of one: `type` takes one argument alone,
        or a name, a tuple of bases and a dict."""
        arguments = node.args
        if any(isinstance(argument, ast.Starred) for argument in arguments):
            return False
        if len(arguments) == 1:
            last = arguments[0]
            is_made = isinstance(last, ast.Call) and self._builtin(last.func) in _MADE_BY
            return is_made or isinstance(last, _DISPLAYS) or any(keyword.arg for keyword in node.keywords)
        return len(arguments) != 3 or any(isinstance(argument, ast.Constant) for argument in arguments[1:])

    def _is_annotation_part(self, node: ast.AST) -> bool:
        """Whether part of an annotation hands nothing to code of the file's own."""
        match node:
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return all(self._is_known_type(side) for side in (left, right))
            case ast.Subscript(value=value):
                return self._is_known_type(value)
            case ast.BinOp() | ast.Call() | ast.Compare() | ast.UnaryOp() | ast.NamedExpr():
                return False
        return True

    def _is_known_type(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp | ast.Constant):
            return True
        inner = node.value if isinstance(node, ast.Subscript) else node
        return self._scopes.is_certain(inner) or self._scopes.only_class(inner) is not None

    def _is_dataclass(self, decorator: ast.expr) -> bool:
        return DATACLASS in (self._meaning(decorator), self._part(decorator))


def _is_membership(node: ast.Compare) -> bool:
    return all(isinstance(op, ast.In | ast.NotIn) for op in node.ops)


def _names(node: ast.expr) -> list[str] | None:
    """The names in the second argument of a maker of classes, or None when one isn't a constant."""
    text = fold(node)
    if text is not None:
        return text.replace(",", " ").split()
    match node:
        case ast.Dict(keys=keys):
            firsts: list[ast.expr | None] = list(keys)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            firsts = [item.elts[0] if isinstance(item, ast.List | ast.Tuple) and item.elts else item for item in items]
        case _:
            return None
    folded = [fold(first) if first is not None else None for first in firsts]
    return None if None in folded else [name for name in folded if name is not None]

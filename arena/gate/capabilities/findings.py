"""The capability rules: what a file may import, name and reach, by whatever syntax. Pure walks over one tree.

Two things are allow-lists: what may be taken from a module (`modules.py`), and which builtins may be handed on as
values (`vocabulary.py`). Modules are no values at all. So a route has to begin with a refused word, wherever the
syntax takes it: a name, an attribute, a class pattern, a keyword, a constant given to getattr, a format field, a text.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator

from arena.gate.capabilities.classes import FIELD, FIELDS, HELD_AS_VALUES, ClassUses, class_of
from arena.gate.capabilities.codings import call_findings, is_text_type
from arena.gate.capabilities.folding import fold
from arena.gate.capabilities.lookups import is_part_of_module, own_constant_looked_up
from arena.gate.capabilities.modules import MODULES
from arena.gate.capabilities.scopes import Meaning, Scopes
from arena.gate.capabilities.vocabulary import (
    ATTRIBUTES,
    BUILTINS,
    COMMON_BUILTINS,
    DECODERS,
    DEFINED_DUNDERS,
    DIRECT_BUILTINS,
    DOUBTFUL_ATTRIBUTES,
    DYNAMIC_PARTS,
    ENUMS,
    HELD_ATTRIBUTES,
    METACLASSES,
    REEXPORTS,
    SEEING_DUNDERS,
    TUPLE_MAKERS,
    is_refused_attribute,
)
from arena.gate.report import Finding, finding
from arena.gate.tree import Tree

_IDENTIFIER = operator.attrgetter("id")
_TYPE = Meaning("", "type")
_CLASS_MAKERS, _NEVER_VALUES = ENUMS | TUPLE_MAKERS, COMMON_BUILTINS | DIRECT_BUILTINS
_STREAMS = (Meaning("sys", "stderr"), Meaning("sys", "stdout"))
_STREAM_PARTS = frozenset({"flush", "isatty", "write"})
_FORMATS = frozenset({"format", "format_map"})
_EXCUSING = {
    *(ast.Attribute, ast.Compare, ast.FormattedValue, ast.BinOp, ast.Subscript, ast.Assign, ast.For, ast.comprehension),
    ast.MatchClass,
}
_ONLY_EXCUSING = _EXCUSING - {ast.Attribute, ast.Compare, ast.MatchClass}
_SILENT = {  # kinds that no rule looks at
    *(ast.Constant, ast.Expr, ast.Return, ast.keyword, ast.List, ast.Tuple, ast.Dict, ast.arguments, ast.If, ast.Slice),
    *(ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.JoinedStr, ast.IfExp, ast.UnaryOp, ast.BoolOp),
}
# Names with a rule of their own whatever they mean; those that begin with two underscores have one too.
_TOLD_NAMES = BUILTINS | COMMON_BUILTINS | DIRECT_BUILTINS | SEEING_DUNDERS | ATTRIBUTES | REEXPORTS | {"type"}
_TOLD_ATTRIBUTES = ATTRIBUTES | REEXPORTS | HELD_ATTRIBUTES | DOUBTFUL_ATTRIBUTES | {"eval", "exec", "decode"}


def capability_findings(tree: Tree, *, is_ascii: bool) -> list[Finding]:
    """All findings of the capability rules over a tree. `is_ascii`: the whole source is, and so every name."""
    walk = _Walk(tree)
    found = [finding("import", getattr(node, "lineno", 0), "one name for two modules") for node in walk.scopes.strays]
    if not is_ascii:
        for node in tree.nodes:
            for name in _written_names(node):
                if not name.isascii():
                    found.append(finding("identifier", getattr(node, "lineno", 0), ascii(name)))
    told = {name for name in map(_IDENTIFIER, tree.of(ast.Name)) if walk.is_told(name)}
    for node in tree.nodes:
        kind = node.__class__
        if kind in _SILENT or (isinstance(node, ast.Name) and node.id not in told):
            continue
        if kind in _EXCUSING:
            walk.classes.excuse(node)
        if kind not in _ONLY_EXCUSING:
            found += walk.check(node)
    return found


class _Walk:
    """One pass, parents first: a parent marks the children whose use it has already judged."""

    def __init__(self, tree: Tree) -> None:
        self.scopes = Scopes(tree)
        self._judged: set[ast.AST] = set()
        self.classes = ClassUses(tree, self.scopes, self._judged)
        self._told = _TOLD_NAMES | self.scopes.imports
        named = [kind for kind in tree.kinds if "name" in kind._fields]
        self._is_codec_only = not (  # no other `decode` than that of bytes
            any(node.name == "decode" for node in tree.of(ast.FunctionDef))
            or any(node.attr == "JSONDecoder" for node in tree.of(ast.Attribute))
            or any(getattr(node, "name", "") == "JSONDecoder" for node in tree.of(*named))
        )

    def is_told(self, name: str) -> bool:
        """Whether a rule can say anything of a name: of one that is neither the file's own nor a plain builtin's."""
        return name in self._told or name.startswith("__")

    def check(self, node: ast.AST) -> Iterator[Finding]:
        """Findings on one node."""
        match node:
            case ast.Call():
                yield from self._call(node)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Name():
                yield from self._name(node)
            case ast.ClassDef():
                yield from self._class(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._annotation(node.returns)
                yield from _defined(node.name, node.lineno)
                if node.name in ("__setattr__", "__delattr__"):
                    self._judged.update(_passed_on(node))
                wraps = [self.scopes.meaning(item) for item in node.decorator_list[:-1]]
                if self.classes.has_fields and (node.name == "__get__" or Meaning("", "classmethod") in wraps):
                    yield finding(
                        "dynamic-attribute", node.lineno, f"{node.name} sees a dataclass before it is finished"
                    )
            case ast.arg():
                self._annotation(node.annotation)
                if node.arg.startswith("__"):
                    yield from _defined(node.arg, node.lineno)
            case ast.AnnAssign():
                self._annotation(node.annotation)
            case ast.Compare(ops=ops) if all(isinstance(op, ast.Is | ast.IsNot) for op in ops):
                for part in (node.left, *node.comparators):  # `module is None` hands no module on
                    meaning = self.scopes.meaning(part) if isinstance(part, ast.Name) else None
                    if meaning is not None and meaning.module and not meaning.part:
                        self._judged.add(part)
            case ast.Import():
                for alias in node.names:
                    if alias.name not in MODULES:
                        yield _refused_module(alias.name, node.lineno)
                    yield from _defined(alias.asname or "", node.lineno)
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                if module not in MODULES:
                    yield _refused_module(module, node.lineno)
                    return
                for alias in node.names:
                    if alias.name not in MODULES[module] and f"{module}.{alias.name}" not in MODULES:
                        yield finding("import", node.lineno, f"from {module} import {alias.name}")
                    yield from _defined(alias.asname or "", node.lineno)
            case ast.MatchClass():
                for name in node.kwd_attrs:
                    yield from _attribute_name(name, node.lineno, is_module=False)
                yield from self.classes.pattern(node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                if name.startswith("__"):
                    yield from _defined(name, node.lineno)
            case ast.MatchMapping(rest=str(name)) if name.startswith("__"):
                yield from _defined(name, node.lineno)

    # -- names and attributes
    def _name(self, node: ast.Name) -> Iterator[Finding]:
        name = node.id
        meaning = self.scopes.meaning(node)
        if node in self._judged and name in ("vars", "globals"):
            return
        if name in BUILTINS and (meaning is not None or name.startswith("__")):
            yield finding("builtin", node.lineno, name)
        elif isinstance(node.ctx, ast.Load):
            if meaning is not None and node not in self._judged:
                yield from _value(meaning, node.lineno)
        elif meaning is not None or name.startswith("__"):
            yield from _defined(name, node.lineno)
            is_refused = is_refused_attribute(name) or name in REEXPORTS
            if self.scopes.is_class_level(node) and is_refused and not name.startswith("__"):
                yield finding("attribute", node.lineno, f"field {name}")

    def _attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        base = self.scopes.meaning(node.value)
        if base is None and node.attr not in _TOLD_ATTRIBUTES and not node.attr.startswith("_"):
            return
        is_module = base is not None and base.module != "" and not base.part
        if node not in self._judged or node.attr not in ("__dict__", "__setattr__", "__delattr__"):
            if node.attr == "__dict__" and isinstance(node.value, ast.Name) and node.value.id == "self":
                yield finding("dynamic-attribute", node.lineno, "self.__dict__ as a value")
            elif node.attr in SEEING_DUNDERS:
                yield finding("dynamic-attribute", node.lineno, node.attr)
            elif base != Meaning("os") or node.attr != "environ":  # there it is a plain dict (`arena_sdk._sn15`)
                yield from _attribute_name(node.attr, node.lineno, is_module=is_module)
        if node.attr == "__class__" and isinstance(node.ctx, ast.Load) and node not in self._judged:
            yield finding("dynamic-attribute", node.lineno, "class of a value as a value")
        if node.attr == "__init__" and not self.classes.is_class(node.value):
            yield finding("dynamic-attribute", node.lineno, "an object made anew by its __init__")
        if base in _STREAMS and base is not None and node.attr not in _STREAM_PARTS:
            yield finding("attribute", node.lineno, f"sys.{base.part}.{node.attr}")
        meaning = self.scopes.meaning(node) if is_module else None
        if is_module and base is not None and meaning is not None:
            self._judged.add(node.value)
            if meaning.part and meaning.part not in MODULES.get(base.module, frozenset()):
                yield finding("import", node.lineno, f"{base.module}.{meaning.part}")
            elif node not in self._judged:
                yield from _value(meaning, node.lineno)
        if is_module and isinstance(node.ctx, ast.Store | ast.Del):
            yield finding("dynamic-attribute", node.lineno, f"{node.attr} of a module replaced")
        if node.attr == "decode" and node not in self._judged and is_text_type(node.value, self.scopes):
            yield finding("codec", node.lineno, "decode as a value")
        is_str = base == Meaning("", "str") and node.attr in _FORMATS
        if is_str and node not in self._judged:
            yield finding("dynamic-attribute", node.lineno, f"str.{node.attr} as a value")

    # -- calls
    def _call(self, node: ast.Call) -> Iterator[Finding]:
        own = own_constant_looked_up(node, self.scopes)
        if own is not None:
            self._judged.add(own)
        for keyword in node.keywords:
            if keyword.arg is not None and is_refused_attribute(keyword.arg):
                yield finding("attribute", node.lineno, f"keyword {keyword.arg}")
        if isinstance(node.func, ast.Name) and node.func.id == "input":
            yield finding("builtin", node.lineno, "input")
        self.classes.call(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
            self._judged.add(node.func)
        yield from call_findings(node, self.scopes, is_codec_only=self._is_codec_only)
        meaning = self.scopes.meaning(node.func)
        if meaning is None:
            if isinstance(node.func, ast.Attribute):
                yield from self._method_call(node, node.func)
            return
        part = (meaning.module, meaning.part)
        if part == ("", "vars") and node in self._judged:
            self._judged.add(node.func)
        elif part in _CLASS_MAKERS:
            self._judged.add(node.func)
            yield from self.classes.made(node)
        elif part in (FIELD, FIELDS):
            self._judged.add(node.func)
            if node not in self._judged:
                yield finding("dynamic-attribute", node.lineno, f"dataclasses.{meaning.part} as a value")
        if meaning.module == "" and meaning.part in DIRECT_BUILTINS:
            self._judged.add(node.func)
            if meaning.part == "getattr" and is_part_of_module(node, self.scopes):
                yield from self._part_of_module(node)
            elif meaning.part != "super":
                yield from _by_name(node, meaning.part, 1)
        elif part in DYNAMIC_PARTS:
            self._judged.add(node.func)
            yield from _by_name(node, meaning.part, 0)
        elif meaning == _TYPE:
            self._judged.add(node.func)
            if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
                yield finding("dynamic-attribute", node.lineno, "type() that makes a class")
            elif class_of(node, self.scopes) and node not in self._judged:
                yield finding("dynamic-attribute", node.lineno, "class of a value as a value")
        elif part == ("logging", "basicConfig"):
            self._judged.add(node.func)
            # a file named here is the stand-in's, which writes none
            if None in {keyword.arg for keyword in node.keywords} or node.args:
                yield finding("builtin", node.lineno, "logging.basicConfig of options that can't be seen")
        elif part == ("functools", "wraps"):
            self._judged.add(node.func)
            if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
                yield finding("dynamic-attribute", node.lineno, "functools.wraps of chosen attributes")
        elif part == ("inspect", "signature"):
            self._judged.add(node.func)
            if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
                yield finding("builtin", node.lineno, "inspect.signature with options evaluates texts")

    def _part_of_module(self, node: ast.Call) -> Iterator[Finding]:
        base, name = self.scopes.meaning(node.args[0]), fold(node.args[1])
        self._judged.add(node.args[0])
        part = base.attribute(name) if base is not None and name is not None else None
        if base is None or part is None:
            return
        if not part.part or part.part not in MODULES.get(base.module, frozenset()):
            yield finding("import", node.lineno, f"{base.module}.{name}")
        else:
            yield from _value(part, node.lineno)

    def _method_call(self, node: ast.Call, called: ast.Attribute) -> Iterator[Finding]:
        """`str.format(text, ...)`, whose text stands among the arguments; and assignments by name:
        `object.__setattr__(self, "x", v)` and `super().__setattr__("x", v)`."""
        if called.attr in _FORMATS and self.scopes.meaning(called.value) == Meaning("", "str"):
            self._judged.add(called)
            if not node.args or fold(node.args[0]) is None:
                yield finding("dynamic-attribute", node.lineno, f"str.{called.attr} of a text that isn't constant")
        if called.attr not in ("__setattr__", "__delattr__") or called in self._judged:
            return
        is_object = self.scopes.meaning(called.value) == Meaning("", "object")
        base = called.value
        maker = base.func if isinstance(base, ast.Call) and not base.args else base
        is_super = maker is not base and self.scopes.meaning(maker) == Meaning("", "super")
        if is_object or is_super:
            self._judged.add(called)
            yield from _by_name(node, called.attr, 1 if is_object else 0)

    # -- classes and annotations
    def _class(self, node: ast.ClassDef) -> Iterator[Finding]:
        self.classes.definition(node)
        yield from _defined(node.name, node.lineno)
        for keyword in node.keywords:
            meaning = self.scopes.meaning(keyword.value)
            is_usual = meaning is not None and (meaning.module, meaning.part) in METACLASSES
            if keyword.arg is None or (keyword.arg == "metaclass" and not is_usual):
                yield finding("dynamic-attribute", node.lineno, f"class {node.name} with a metaclass of its own")
            elif is_refused_attribute(keyword.arg):
                yield finding("attribute", node.lineno, f"keyword {keyword.arg}")

    def _annotation(self, annotation: ast.expr | None) -> None:
        if annotation is not None:
            self.classes.annotation(annotation)


# -- imports
def _refused_module(module: str, line: int) -> Finding:
    return finding("decoder-import" if module.split(".")[0] in DECODERS else "import", line, module)


# -- words
_CALLED_ON_THE_SPOT = {("inspect", "signature"), ("logging", "basicConfig"), ("functools", "wraps")}


def _value(meaning: Meaning, line: int) -> Iterator[Finding]:
    """A module or a builtin that is neither called on the spot nor looked into, but handed on."""
    if not meaning.module:
        if meaning.part in _NEVER_VALUES:
            yield finding("builtin", line, f"{meaning.part} as a value")
        elif meaning == _TYPE:
            yield finding("dynamic-attribute", line, "type as a value")
        else:
            yield from _defined(meaning.part, line)
    elif not meaning.part:
        yield finding("import", line, f"module {meaning.module} as a value")
    elif (meaning.module, meaning.part) in DYNAMIC_PARTS or (meaning.module, meaning.part) in _CALLED_ON_THE_SPOT:
        yield finding("builtin", line, f"{meaning.module}.{meaning.part} as a value")
    elif (meaning.module, meaning.part) in HELD_AS_VALUES:
        yield finding("dynamic-attribute", line, f"{meaning.module}.{meaning.part} as a value")


def _attribute_name(name: str, line: int, *, is_module: bool) -> Iterator[Finding]:
    bare = name.lstrip("_")
    if is_refused_attribute(name) or bare in REEXPORTS or name in ("eval", "exec"):
        yield finding("attribute", line, name)
    elif name in HELD_ATTRIBUTES:
        yield finding("attribute-name", line, name)
    elif bare in DOUBTFUL_ATTRIBUTES:
        yield finding("attribute" if is_module else "attribute-name", line, name)


def _defined(name: str, line: int) -> Iterator[Finding]:
    """A name that a file gives to something of its own."""
    if name in BUILTINS:
        yield finding("builtin", line, name)
    elif name in SEEING_DUNDERS:
        yield finding("dynamic-attribute", line, name)
    elif name.startswith("__") and name.endswith("__") and len(name) > 4 and name not in DEFINED_DUNDERS:
        yield finding("attribute", line, name)


def _passed_on(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Inside an own `__setattr__(self, name, value)`: what passes `self` and `name` on to the one above it."""
    arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)][:2]
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(value=base, attr=node.name) as called, args=given):
                names = [argument.id if isinstance(argument, ast.Name) else "" for argument in given]
                maker = base.func if isinstance(base, ast.Call) and not base.args else None
                is_super = isinstance(maker, ast.Name) and maker.id == "super"
                is_object = isinstance(base, ast.Name) and base.id == "object"
                if (is_super and names[:1] == arguments[1:]) or (is_object and names[:2] == arguments):
                    yield called


def _by_name(node: ast.Call, called: str, position: int) -> Iterator[Finding]:
    """A look-up by name: the name must be a constant, and then it is an attribute like any other."""
    names = node.args[position:] if position == 0 and called == "attrgetter" else node.args[position : position + 1]
    texts = [fold(name) for name in names]
    if not texts or any(isinstance(argument, ast.Starred) for argument in node.args) or None in texts:
        yield finding("dynamic-attribute", node.lineno, called)
    for text in texts:
        for part in (text or "").split("."):
            if any(True for _ in _attribute_name(part, node.lineno, is_module=True)):
                yield finding("attribute", node.lineno, f"{called} of {text!r}")
            elif part in ("__class__", "__init__"):
                yield finding("dynamic-attribute", node.lineno, f"{called} of {text!r}")


def _written_names(node: ast.AST) -> Iterator[str]:
    """The names that stand in a node itself, by whatever field."""
    for field in ("id", "attr", "arg", "name", "asname", "rest"):
        name = getattr(node, field, None)
        if isinstance(name, str):
            yield name
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.MatchClass):
        yield from node.kwd_attrs

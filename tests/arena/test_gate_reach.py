"""Capability rules against every route Python offers: each really reaches its object; honest idioms have no finding."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import io
import keyword
import os
import sys
import types
import warnings
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from arena.gate.words import MODULES
from tests.arena.gate_deep_routes import CODECS, DATA_ROUTES, DEEP_ROUTES
from tests.arena.gate_idioms import IDIOMS, NOT_ALLOWED
from tests.arena.gate_routes import ROUTES
from tests.arena.gate_stand import gate

ROOT = Path(__file__).parents[2]
GUEST = ROOT / "harness" / "sandbox" / "guest"


def test_every_ordinary_route_and_nearly_every_deep_one_is_found() -> None:
    missed = [
        {name for name, source in routes.items() if gate(source).outcome == "accept"}
        for routes in (ROUTES, DATA_ROUTES, DEEP_ROUTES)
    ]
    assert len(ROUTES) == 68 and len(DEEP_ROUTES) == 49
    assert missed[:2] == [set(), set()] and len(missed[2]) <= 10


def test_a_codec_that_hides_a_text_is_found() -> None:
    assert [name for name, source in CODECS.items() if gate(source).outcome == "accept"] == []


def test_an_honest_idiom_has_no_finding() -> None:
    assert {name: gate(source).findings for name, source in IDIOMS.items() if gate(source).findings} == {}
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "tests" / "compat" / "styles").glob("*.py")]:
        assert gate(path.read_text(encoding="utf-8")).findings == (), path


def test_what_is_not_allowed_is_held_or_refused() -> None:
    assert [name for name, source in NOT_ALLOWED.items() if gate(source).outcome == "accept"] == []


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("{0.__class__}", True),
        ("{0.__init__.__globals__}", True),
        ("{x:{y.__code__}}", True),
        ("{0.gi_frame} {", True),
        (" gi_frame ", True),
        ("eval_str", True),
        ("{0.__class__.__name__}", False),
        ('{"a": {"b": 1}}', False),
        ("call __init__ first", False),
    ],
)
def test_a_text_that_names_a_forbidden_attribute_is_refused(text: str, is_refused: bool) -> None:
    for literal in (text, text.encode()):
        assert gate(f"T = {literal!r}").outcome == ("reject" if is_refused else "accept")


# -- every way of up to three attributes from what an agent may take
_FORBIDDEN = tuple(
    getattr(builtins, name)
    for name in ("eval", "exec", "compile", "open", "__import__", "globals", "locals", "vars", "breakpoint", "input")
)
_PROCESS = (os.environ, sys.modules, sys.path, sys.meta_path, sys.path_hooks)
_MADE_IN_TEXT = """
_frozen_importlib _frozen_importlib_external _imp _io _posixsubprocess _socket ctypes _ctypes gc importlib
importlib.machinery importlib.util io linecache marshal os pickle posix runpy shutil signal socket subprocess sys
tempfile tokenize
"""
_MADE_IN = frozenset(_MADE_IN_TEXT.split())
_HARMLESS = (io.StringIO, os.getenv, os.path, sys.exit)


def _is_forbidden(value: object) -> bool:
    """Modules, what evaluates or opens, frames and code, namespaces, metaclasses, and what is made in such modules."""
    if any(value is one for one in _HARMLESS):
        return False
    if isinstance(value, types.ModuleType | types.FrameType | types.CodeType):
        return True
    if any(value is one for one in (*_FORBIDDEN, *_PROCESS, types.FunctionType, types.MethodType)):
        return True
    if isinstance(value, type):
        return issubclass(value, type) or (value.__module__ in _MADE_IN and not issubclass(value, BaseException))
    if isinstance(value, dict):
        return "__builtins__" in value
    return isinstance(value, types.FunctionType | types.BuiltinFunctionType) and value.__module__ in _MADE_IN


@functools.cache
def _is_taken(source: str) -> bool:
    return gate(source).outcome == "accept"


def _steps(value: object, way: str, steps: int, seen: set[tuple[int, int]]) -> Iterator[tuple[str, object]]:
    """(way, object) of what an agent reaches from a value with `steps` attributes more that the gate lets pass."""
    if steps == 0 or (id(value), steps) in seen:
        return
    seen.add((id(value), steps))
    for name in dir(value):
        if not name.isidentifier() or keyword.iskeyword(name) or not _is_taken(f"def f(x):\n    return x.{name}"):
            continue
        inner = None
        with contextlib.suppress(Exception):  # whatever a foreign property raises, an agent gets nothing
            inner = getattr(value, name)
        yield f"{way}.{name}", inner
        yield from _steps(inner, f"{way}.{name}", steps - 1, seen)


def _starts(module: str) -> Iterator[tuple[str, object]]:
    """What may be taken from a module, and an instance of each class of it."""
    there = importlib.import_module(module)
    for name in dir(there):
        is_name = name.isidentifier() and not keyword.iskeyword(name)
        if not is_name or not _is_taken(f"import {module}\nx = {module}.{name}.a"):
            continue
        value = getattr(there, name)
        yield f"{module}.{name}", value
        if isinstance(value, type) and name not in ("Timer", "SystemExit"):
            with contextlib.suppress(Exception):
                yield f"{module}.{name}()", value()


@pytest.fixture
def as_in_a_guest(module: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules that a guest replaces are the guest's, and everything is as before afterwards."""
    monkeypatch.syspath_prepend(str(GUEST))
    replaced = ("logging", "requests", "src", "urllib")
    if module.split(".")[0] not in (*replaced, "os"):
        yield
        return
    monkeypatch.setattr(os, "environ", os.environ)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if name.split(".")[0] in replaced}
    importlib.import_module("sn15").install()
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in replaced]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.usefixtures("as_in_a_guest")
def test_nothing_forbidden_is_reached_from_a_module(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)  # not the test runner's, which are other objects
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    seen: set[tuple[int, int]] = set()
    reached = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [name for name in MODULES[module] if not hasattr(importlib.import_module(module), name)] == []
        for way, value in _starts(module):
            ways = [(way, value), *_steps(value, way, 2, seen)]
            reached += [way for way, value in ways if _is_forbidden(value) and way not in MODULES]
    assert reached == []


def test_nothing_forbidden_is_reached_from_a_builtin_or_a_value() -> None:
    seen: set[tuple[int, int]] = set()
    taken = [name for name in dir(builtins) if name.isidentifier() and not keyword.iskeyword(name)]
    starts = {name: getattr(builtins, name) for name in taken if _is_taken(f"def f(g):\n    g({name})")}
    starts |= {repr(value): value for value in (1, 1.5, "a", b"a", [], {}, (), set(), range(3), ValueError("x"))}
    ways = [(name, value) for name, value in starts.items()]
    ways += [step for name, value in starts.items() for step in _steps(value, name, 3, seen)]
    assert len(starts) > 100 and [way for way, value in ways if _is_forbidden(value)] == []
    assert all(map(_is_forbidden, (eval, open, os, sys.modules, type, io.FileIO, os.system, sys._getframe)))


# -- what reads or writes attributes by names that are data, or runs a text
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMES = {"eval", "exec", "compile", "__import__", "vars", "attrgetter"}
_ATTRIBUTES = ("__dict__", "__getattribute__", "__setattr__", "__delattr__", "import_module", "new_class")
# Of what an agent may take. Each has one allowed form, works on objects that it made (in a guest, `copy` too), or gives
# a text only. A name that comes to this list needs one of these reasons.
_BY_DATA = """
collections: OrderedDict UserDict UserList namedtuple
dataclasses: asdict astuple dataclass fields replace
enum: Enum EnumCheck Flag FlagBoundary IntEnum IntFlag ReprEnum StrEnum
functools: cache cached_property lru_cache partial total_ordering wraps
logging: Logger makeLogRecord
operator: attrgetter methodcaller
random: Random SystemRandom
re: RegexFlag
secrets: SystemRandom
string: Template
typing: BinaryIO Generic IO Protocol SupportsAbs SupportsBytes SupportsComplex SupportsFloat SupportsIndex SupportsInt \
SupportsRound TextIO
uuid: SafeUUID UUID
src.agent.agent_interface: ToolCallResult
ast: literal_eval
inspect: getdoc signature
types: SimpleNamespace
"""


@functools.cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Functions, classes and methods of a module written in Python, by qualified name."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    nodes = [*ast.walk(ast.parse(Path(file).read_text("utf-8") if file.endswith(".py") else ""))]
    methods = {part: node.name for node in nodes if isinstance(node, ast.ClassDef) for part in node.body}
    inner = {part for node in nodes if isinstance(node, _FUNCTIONS) for part in ast.walk(node) if part is not node}
    found = [node for node in reversed(nodes) if isinstance(node, (ast.ClassDef, *_FUNCTIONS)) and node not in inner]
    return {f"{methods[node]}.{node.name}" if node in methods else node.name: node for node in found}


def _is_by_data(node: ast.AST, own: Container[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "delattr" | "type"), args=[_, name, *_]):
            return not isinstance(name, ast.Constant)
        case ast.Name(id=name):
            return name in _NAMES and name not in own
        case ast.Attribute(value=ast.Name(id="copy" | "_copy" | "copyreg" | "pickle")):
            return True
    return isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES


def _source_is_by_data(module: str, name: str, steps: int = 4) -> bool:
    """Whether a definition does so, or a function of its module that it names, or one that this names, and so on."""
    own = _definitions(module)
    parts = [*ast.walk(own[name])] if name in own and steps else []
    named = {ast.unparse(part) for part in parts if isinstance(part, ast.Name | ast.Attribute)} - {name}
    return any(_is_by_data(part, own) for part in parts) or any(
        _source_is_by_data(module, each, steps - 1) for each in named if isinstance(own.get(each), _FUNCTIONS)
    )


def _is_helper_by_data(value: object) -> bool:
    if not isinstance(value, type | types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return False
    kinds = [*value.__mro__, *type(value).__mro__] if isinstance(value, type) else [value]
    homes = [(str(kind.__module__), kind.__qualname__) for kind in kinds]
    if homes[0][1] in _definitions(homes[0][0]):
        return any(_source_is_by_data(*home) for home in homes)
    one, calls = types.SimpleNamespace(x=object()), ("v(o, 'x')", "v('x')(o)", "v(x=o.x).x", "v(o, 'y', o.x) or o.y")
    for call in calls:  # one that is written in C is tried
        with contextlib.suppress(BaseException), warnings.catch_warnings(action="ignore"):
            if eval(call, {"v": value, "o": one}) is one.x:
                return True
    return False


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.usefixtures("as_in_a_guest")
def test_what_reads_or_writes_attributes_by_data_is_on_the_written_list(module: str) -> None:
    taken = {name: getattr(importlib.import_module(module), name) for name in MODULES[module]}
    rows = dict(row.split(": ") for row in _BY_DATA.strip().split("\n"))
    assert {name for name, value in taken.items() if _is_helper_by_data(value)} == {*rows.get(module, "").split()}

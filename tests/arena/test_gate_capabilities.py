"""Capability rules against every route Python offers: each really reaches its object, and each is found."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from arena.gate.capabilities.modules import MODULES
from arena.gate.capabilities.vocabulary import BUILTINS, COMMON_BUILTINS, DIRECT_BUILTINS
from tests.arena.gate_deep_routes import CODECS, DEEP_ROUTES
from tests.arena.gate_idioms import IDIOMS, NOT_ALLOWED
from tests.arena.gate_routes import ROUTES
from tests.arena.gate_stand import gate

ROOT = Path(__file__).parents[2]
GUEST = ROOT / "harness" / "sandbox" / "guest"
ALL_ROUTES = {**ROUTES, **DEEP_ROUTES}
FORBIDDEN_NAMES = ("eval", "exec", "compile", "open", "__import__", "globals", "breakpoint", "input")
FORBIDDEN = tuple(getattr(builtins, name) for name in FORBIDDEN_NAMES)

CONTROL = """
import builtins, inspect, json, os, sys, types
def kind(found):
    forbidden = [getattr(builtins, n) for n in ("eval", "exec", "compile", "open", "__import__", "globals",
        "breakpoint", "input", "help", "__build_class__")]
    if any(found is one for one in forbidden): return "builtin"
    if isinstance(found, types.ModuleType): return "module"
    if isinstance(found, (types.FrameType, types.CodeType)) or found in (types.FunctionType, types.CodeType):
        return "frame or code"
    if isinstance(found, type) and issubclass(found, type): return "class of classes"
    if found is os.environ or found is sys.modules: return "process"
    if isinstance(found, dict) and ("__builtins__" in found or "print" in found): return "namespace"
    if isinstance(found, list) and len(found) > 50 and all(isinstance(one, type) for one in found): return "classes"
    if type(found).__module__.startswith("_frozen_importlib") or inspect.isroutine(found): return "machinery"
    if isinstance(found, type) and found.__module__ in ("_io", "logging", "traceback", "concurrent.futures.process",
        "enum", "dataclasses", "_frozen_importlib", "_frozen_importlib_external"): return "machinery"
    return "nothing: " + repr(found)[:80]
kinds = {}
for name, source in json.load(sys.stdin).items():
    space = {"__name__": "agent", "__builtins__": builtins, "__spec__": json.__spec__, "__loader__": json.__loader__}
    try:
        exec(compile(source, name, "exec"), space)
        kinds[name] = kind(space["found"])
    except BaseException as error:
        kinds[name] = "nothing: " + repr(error)
print(json.dumps(kinds))
"""


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each program got hold of in a plain interpreter without secrets, in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONTROL],
        input=json.dumps(ALL_ROUTES),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path_factory.mktemp("control"),
        env={"PYTHONPATH": str(GUEST), "PATH": "/nonexistent"},
    )
    kinds: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return kinds


@pytest.mark.parametrize("route", ALL_ROUTES)
def test_a_route_that_reaches_something_is_found(route: str, reached: dict[str, str]) -> None:
    assert not reached[route].startswith("nothing"), reached[route]
    assert gate(ALL_ROUTES[route]).outcome != "accept"


def test_there_are_enough_routes() -> None:
    assert len(ALL_ROUTES) == len(ROUTES) + len(DEEP_ROUTES) >= 200
    assert len(IDIOMS) >= 60


@pytest.mark.parametrize("name", CODECS)
def test_a_codec_that_hides_a_text_is_found(name: str) -> None:
    shown, space = CODECS[name], dict[str, object]()
    exec(compile(shown, name, "exec"), space)  # a program of this test's own, which only decodes or encodes
    got = space["t"]
    text = got.decode("latin-1") if isinstance(got, bytes | bytearray) else str(got)
    assert text not in shown
    assert gate(shown).outcome != "accept"


@pytest.mark.parametrize("name", IDIOMS)
def test_an_honest_idiom_has_no_finding(name: str) -> None:
    compile(IDIOMS[name], name, "exec")
    assert gate(IDIOMS[name]).findings == ()


@pytest.mark.parametrize("name", NOT_ALLOWED)
def test_what_is_not_allowed_names_a_rule_of_access_alone(name: str) -> None:
    assert {found.rule for found in gate(NOT_ALLOWED[name]).findings} <= {
        *("attribute", "import", "builtin", "dynamic-attribute", "codec"),
    }
    assert gate(NOT_ALLOWED[name]).outcome != "accept"


def _chains(name: str) -> list[str]:
    """Attribute chains of at most two steps from an allowed module to a module or a forbidden builtin."""
    module = importlib.import_module(name)
    chains = []
    for first, value in vars(module).items():
        if _is_forbidden(value):
            chains.append(f"{name}.{first}")
        for second in dir(value) if isinstance(value, types.ModuleType | type) else ():
            inner = getattr(value, second, None)
            if _is_forbidden(inner) and first.isidentifier() and second.isidentifier():
                chains.append(f"{name}.{first}.{second}")
    return chains


def _is_forbidden(value: object) -> bool:
    return isinstance(value, types.ModuleType) or any(value is one for one in FORBIDDEN)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("module", MODULES)
def test_no_module_or_builtin_is_reached_through_an_allowed_module(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(GUEST))
    if module.startswith("src"):
        monkeypatch.setattr(os, "environ", os.environ)  # both are the guest's until the test is over
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
        importlib.import_module("arena_sdk._sn15").install()
    chains = _chains(module)
    for chain in chains:
        assert gate(f"import {module}\nx = {chain}").outcome == "reject", chain
        first = chain.removeprefix(f"{module}.").split(".")[0]
        used = f"x = held{chain.removeprefix(f'{module}.{first}')}"
        assert gate(f"from {module} import {first} as held\n{used}").outcome == "reject", chain


HARMLESS_TEXT = """
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError
BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError
ConnectionResetError DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception ExceptionGroup
False FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError ImportError
ImportWarning IndentationError IndexError InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError
MemoryError ModuleNotFoundError NameError None NotADirectoryError NotImplemented NotImplementedError OSError
OverflowError PendingDeprecationWarning PermissionError ProcessLookupError RecursionError ReferenceError
ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError
SystemExit TabError TimeoutError True TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError
UnicodeTranslateError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError __debug__ __doc__ __name__
__package__ abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict dir divmod
enumerate filter float format frozenset hasattr hash hex id int isinstance issubclass iter len list map max
memoryview min next object oct ord pow print property range repr reversed round set slice sorted staticmethod str
sum tuple type zip
"""
HARMLESS_BUILTINS = set(HARMLESS_TEXT.split())


def test_every_builtin_of_this_python_is_known() -> None:
    known = BUILTINS | COMMON_BUILTINS | DIRECT_BUILTINS | HARMLESS_BUILTINS
    assert set(dir(builtins)) - known - {"_"} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("src")])
def test_what_may_be_taken_is_there(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GUEST))
    there = importlib.import_module(module)
    assert [name for name in MODULES[module] if not hasattr(there, name)] == []
    assert not [name for name in MODULES[module] if isinstance(getattr(there, name), types.ModuleType)] or module in (
        "arena_sdk",
        "os",
    )


@pytest.mark.parametrize(
    "text",
    [
        "{0.__class__}",
        "{0.__init__.__globals__}",
        "{0[a].__dict__}",
        "{x:{y.__code__}}",
        "{0.gi_frame} {",
        "{{{0.__class__}",
        "__globals__",
        " gi_frame ",
        "eval_str",
    ],
)
def test_a_text_that_names_a_forbidden_attribute_is_refused(text: str) -> None:
    assert gate(f"T = {text!r}").outcome == "reject"
    assert gate(f"T = {text.encode()!r}").outcome == "reject"


@pytest.mark.parametrize(
    "text",
    ["{0.__class__.__name__}", '{"a": {"b": 1}}', "call __init__ first", "snake_case_words", "{user.name}", "a__b"],
)
def test_an_ordinary_text_is_not(text: str) -> None:
    assert gate(f"T = {text!r}").findings == ()

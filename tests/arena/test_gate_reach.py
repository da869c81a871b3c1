"""Every way of up to three attributes from what an agent may take: none arrives at a forbidden object unrefused."""

from __future__ import annotations

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
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.gate.capabilities.modules import MODULES
from tests.arena.gate_stand import gate

GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"
STEPS = 3
_BUILTINS = tuple(
    getattr(builtins, name)
    for name in ("eval", "exec", "compile", "open", "__import__", "globals", "locals", "vars", "breakpoint", "input")
)
_PROCESS = (os.environ, sys.modules, sys.path, sys.meta_path, sys.path_hooks)
_MADE_IN = frozenset(
    [
        "_frozen_importlib",
        "_frozen_importlib_external",
        "_imp",
        "_io",
        "_posixsubprocess",
        "_socket",
        "ctypes",
        "_ctypes",
        "gc",
        "importlib",
        "importlib.machinery",
        "importlib.util",
        "io",
        "linecache",
        "marshal",
        "os",
        "pickle",
        "posix",
        "runpy",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "sys",
        "tempfile",
        "tokenize",
    ]
)
_HARMLESS = (io.StringIO, os.getenv, os.path, sys.exit)


def _is_forbidden(value: object) -> bool:
    """Modules, what evaluates or opens, frames and code, namespaces, metaclasses, and what is made in such modules."""
    if any(value is one for one in _HARMLESS):
        return False
    if isinstance(value, types.ModuleType | types.FrameType | types.CodeType):
        return True
    if any(value is one for one in (*_BUILTINS, *_PROCESS, types.FunctionType, types.MethodType)):
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
    """What may be taken from a module by the lists or without them, and an instance of each class of it."""
    there = importlib.import_module(module)
    for name in dir(there):
        if (
            not name.isidentifier()
            or keyword.iskeyword(name)
            or not _is_taken(f"import {module}\nx = {module}.{name}.a")
        ):
            continue
        value = getattr(there, name)
        yield f"{module}.{name}", value
        if isinstance(value, type) and name not in ("Timer", "SystemExit"):
            with contextlib.suppress(Exception):
                yield f"{module}.{name}()", value()


OF_THE_GUEST = ("logging", "os", "requests", "src", "urllib")


@pytest.fixture
def as_in_a_guest(module: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules that a guest replaces are the guest's, and everything is as before afterwards."""
    monkeypatch.syspath_prepend(str(GUEST))
    if module.split(".")[0] not in OF_THE_GUEST:
        yield
        return
    monkeypatch.setattr(os, "environ", os.environ)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    names = {name for name in sys.modules if name.split(".")[0] in ("logging", "requests", "src", "urllib")}
    before = {name: sys.modules.pop(name) for name in names}
    importlib.import_module("arena_sdk._sn15").install()
    yield
    for name in {name for name in sys.modules if name.split(".")[0] in ("logging", "requests", "src", "urllib")}:
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
        for way, value in _starts(module):
            ways = [(way, value), *_steps(value, way, STEPS - 1, seen)]
            reached += [way for way, value in ways if _is_forbidden(value) and way not in MODULES]
    assert reached == []


def test_nothing_forbidden_is_reached_from_a_builtin() -> None:
    seen: set[tuple[int, int]] = set()
    reached = []
    for name in dir(builtins):
        if name.isidentifier() and not keyword.iskeyword(name) and _is_taken(f"x = {name}"):
            ways = [(name, getattr(builtins, name)), *_steps(getattr(builtins, name), name, STEPS, seen)]
            reached += [way for way, value in ways if _is_forbidden(value)]
    assert reached == []


@pytest.mark.parametrize(
    "value", [1, 1.5, "a", b"a", [], {}, (), set(), print, len, object(), range(3), ValueError("x")]
)
def test_nothing_forbidden_is_reached_from_a_value(value: object) -> None:
    assert [way for way, inner in _steps(value, "x", STEPS, set()) if _is_forbidden(inner)] == []


def test_the_walk_sees_what_there_is_to_see() -> None:
    assert all(map(_is_forbidden, (eval, open, os, sys.modules, type, io.FileIO, os.system, sys._getframe)))
    assert not any(map(_is_forbidden, (len, str, io.StringIO, os.getenv, ValueError, {})))

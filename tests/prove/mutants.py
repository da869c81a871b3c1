"""Mutants: of small changes drawn at random in what decides, how many make a test fail.

    python -m tests.prove.mutants COPY [--count 300] [--seed 1] [--room records]

COPY is a clone that may be changed: a mutant is written into it, those of the room's own tests that enter its line, and
files with properties, run there until one fails, and the file is put back. Where none enters the line by itself
(imports, fixtures, child processes) all run. cosmic-ray makes the mutants and coverage says which tests enter a line
(`pip install cosmic-ray==8.7.0 coverage`; nothing else needs them). A mutant is killed where a test fails or the run
takes a minute longer than the unchanged one. Survivors are printed with their line, so that a test can be written or
the mutant seen to change nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec

# room -> its files, and the tests that hold it; patterns below the checkout
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scoring": (
        tuple(f"problems/{name}.py" for name in ("score", "axes", "model", "title_index", "titles")),
        ("tests/problems/test_[cstv]*.py", "tests/arena/test_explanation.py"),
    ),
    "settlement": (
        ("arena/race/settle.py", "arena/race/scores.py", "arena/race/draw.py", "arena/race/weights.py"),
        ("tests/arena/test_race_*.py", "tests/arena/test_weights.py"),
    ),
    "records": (("arena/records/*.py",), ("tests/arena/test_records_*.py",)),
    "emission": (("harness/emission/*.py",), ("tests/harness/test_emission*.py",)),
    "gate": (("arena/gate/*.py",), ("tests/arena/test_gate_*.py",)),
    "store": (("arena/store/*.py",), ("tests/arena/test_store_*.py",)),
}
# what changes nothing (itself, a union of types, a cache), and what fails on `except (A, B)`
_SKIPPED = ("NoOp", "BitOr", "Decorator", "Exception")
_EXTRA_S = 60.0
_PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not prove")


class Mutant(msgspec.Struct, frozen=True):
    """One change: the operator's occurrence in a file, and the line that it is on."""

    path: str
    operator: str
    occurrence: int
    line: int


def mutants_of(copy: Path, room: str) -> Iterator[Mutant]:
    """Every mutant of a room's files."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    names = [name for name in operator_names() if not any(part in name for part in _SKIPPED)]
    kinds = {name: kind for name in names if not (kind := get_operator(name)).arguments()}
    for path in sorted(path for pattern in ROOMS[room][0] for path in copy.glob(pattern)):
        tree = get_ast_from_path(path)
        for name, kind in kinds.items():
            places = (start for node in ast_nodes(tree) for start, _ in kind().mutation_positions(node))
            for occurrence, (line, _) in enumerate(places):
                yield Mutant(path.relative_to(copy).as_posix(), name, occurrence, line)


Lines = dict[tuple[str, int], frozenset[str]]  # (file, line) -> the tests that enter it, "" for code outside of tests


def tests_by_line(copy: Path, room: str) -> Lines:
    """Run the room's tests once without a mutant and see which enters which line. Raises SystemExit where one fails."""
    from coverage import CoverageData

    with TemporaryDirectory() as folder:
        data, config = Path(folder) / "data", Path(folder) / "config"
        config.write_text(f"[run]\ndata_file={data}\ndynamic_context=test_function\nsource={copy}\n")
        tests = [str(path) for pattern in ROOMS[room][1] for path in sorted(copy.glob(pattern))]
        command = [sys.executable, "-B", "-m", "coverage", "run", f"--rcfile={config}", "-m", *_PYTEST, *tests]
        if subprocess.run(command, cwd=copy, capture_output=True, check=False).returncode:
            raise SystemExit(f"{room}: its tests fail in {copy} without a mutant")
        measured = CoverageData(str(data))
        measured.read()
        files = {path.relative_to(copy).as_posix(): path for pattern in ROOMS[room][0] for path in copy.glob(pattern)}
        return {
            (name, line): frozenset(map(_node, contexts))
            for name, path in files.items()
            for line, contexts in measured.contexts_by_lineno(str(path)).items()
        }


def _node(context: str) -> str:
    """`tests/arena/test_x.py::test_y` of coverage's `tests.arena.test_x.test_y`; "" for code outside of tests."""
    module, found, rest = context.partition(".test_")
    name, _, inside = rest.partition(".")
    is_test = module.startswith("tests.") and inside
    return f"{module}{found}{name}".replace(".", "/") + f".py::{inside.replace('.', '::')}" if is_test else ""


def is_killed(copy: Path, room: str, mutant: Mutant, lines: Lines, limit_s: float) -> bool:
    """Whether a test fails, or does not end, with the mutant in place."""
    from cosmic_ray.mutating import use_mutation
    from cosmic_ray.plugins import get_operator

    entering = lines.get((mutant.path, mutant.line), frozenset()) - {""}
    files = [path for pattern in ROOMS[room][1] for path in sorted(copy.glob(pattern))]
    properties = [path for path in files if "from hypothesis import" in path.read_text()]
    tests = [*sorted(entering), *map(str, properties)] if entering else list(map(str, files))
    command = [sys.executable, "-B", "-m", *_PYTEST, "-x", *tests]
    with use_mutation(copy / mutant.path, get_operator(mutant.operator)(), mutant.occurrence):
        try:
            return bool(subprocess.run(command, cwd=copy, capture_output=True, timeout=limit_s, check=False).returncode)
        except subprocess.TimeoutExpired:
            return True


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, run, print a row a room."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.mutants", description=__doc__)
    parser.add_argument("copy", type=Path, help="a clone that may be changed")
    parser.add_argument("--count", type=int, default=300, help="mutants over all rooms (default: 300)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--room", choices=tuple(ROOMS), action="append", help="only this one; repeatable")
    options = parser.parse_args(argv)
    copy, rooms = options.copy.resolve(), options.room or list(ROOMS)
    for room in rooms:
        started = time.monotonic()
        lines = tests_by_line(copy, room)
        limit_s = time.monotonic() - started + _EXTRA_S
        made = list(mutants_of(copy, room))
        drawn = Random(options.seed).sample(made, min(len(made), options.count // len(rooms)))
        survivors = 0
        for mutant in drawn:
            if not is_killed(copy, room, mutant, lines, limit_s):
                survivors += 1
                print(f"survives: {mutant.path}:{mutant.line} {mutant.operator}", flush=True)
        print(f"{room}: {len(drawn) - survivors} of {len(drawn)} killed ({len(made)} there are)", flush=True)


if __name__ == "__main__":
    main()

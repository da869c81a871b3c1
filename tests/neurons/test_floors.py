"""The floors of the room: a folder imports itself and those below it, also inside functions and for types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOM = Path(__file__).parents[2] / "neurons"
FLOORS = ("settings", "health", "worker", "loops", "race", "node", "practice", "cluster", "demo", "cli")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neurons."):
            yield (node.module or "").split(".")[1]


def test_no_floor_imports_one_above_it() -> None:
    files = [path for path in ROOM.rglob("*.py") if path.parent != ROOM]
    assert {path.relative_to(ROOM).parts[0] for path in files} == set(FLOORS)
    up = [
        f"{path.relative_to(ROOM)} imports {floor}"
        for path in files
        for floor in imported(path)
        if floor in FLOORS and FLOORS.index(floor) > FLOORS.index(path.relative_to(ROOM).parts[0])
    ]
    assert not up

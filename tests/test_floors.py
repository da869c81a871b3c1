"""The floors of two rooms: a folder imports itself and those below it, also inside functions and for types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = {
    "arena": (
        *(
            "chain",
            "secrets",
            "policy",
            "policies",
            "gate",
            "records",
            "evaluate",
            "store",
            "submissions",
            "visibility",
        ),
        *("bank", "view", "race", "export", "exchange", "api", "door", "sn15", "web"),
    ),
    "neurons": (
        "settings",
        "health",
        "worker",
        "loops",
        "race",
        "node",
        "practice",
        "cluster",
        "demo",
        "validator",
        "cli",
        "miner",
    ),
}


def imported(path: Path, room: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{room}."):
            yield (node.module or "").split(".")[1]


@pytest.mark.parametrize("room", FLOORS)
def test_no_floor_imports_one_above_it(room: str) -> None:
    floors = FLOORS[room]
    floor_of = {
        path: path.relative_to(ROOT / room).parts[0].removesuffix(".py") for path in (ROOT / room).rglob("*.py")
    }
    above = {path: floor for path, floor in floor_of.items() if floor in floors}
    assert set(above.values()) == set(floors)
    up = [
        f"{path.relative_to(ROOT)} imports {room}.{other}"
        for path, floor in above.items()
        for other in imported(path, room)
        if other in floors and floors.index(other) > floors.index(floor)
    ]
    assert not up

"""What a race leaves behind, alone and with three validators, is what earlier releases left, killed or not.

After a change that is meant to change it: `python -m tests.neurons.test_race_ends` writes the hashes anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.store.embedded import EmbeddedServer, start_embedded
from tests.neurons.arena_stand import forgo_durability, short_folder
from tests.neurons.race_ends import LoneRace, SharedRace, whatever_is_killed
from tests.postgres_stand import start_new

GOLDEN = Path(__file__).parents[1] / "arena" / "golden" / "race_ends.json"
KINDS: dict[str, tuple[Callable[..., LoneRace | SharedRace], int]] = {
    "lone": (lambda folder: LoneRace("//lone", folder), 26),
    "shared": (lambda folder: SharedRace(("//one", "//two", "//three"), folder), 33),
    "sole": (lambda folder: SharedRace(("//sole",), folder), 26),
}
_COUNTER = itertools.count()


def run(kind: str, server: EmbeddedServer, folder: Path, *kill: int | bool) -> tuple[str, int]:
    """One race from nothing: its validators are new to the server, and all else is as ever."""
    path = folder / str(next(_COUNTER))
    path.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        return asyncio.run(KINDS[kind][0](path).run(server, patch, *kill))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, str]]:
    kept: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text("utf-8"))
    return kept


@pytest.fixture
def fresh():
    """A server on which none of these validators has a log."""
    with short_folder() as folder:
        server = start_new(folder)
        forgo_durability(server)
        try:
            yield server
        finally:
            server.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_events_records_and_weights_are_those_of_earlier_releases(kind, fresh, tmp_path, kept):
    text, writes = run(kind, fresh, tmp_path)
    assert writes == KINDS[kind][1]
    assert sha256(text) == kept[kind]["whole"]


def places(kind: str) -> list:
    """Every write of the clocks, before and after it; five of them in every run of the tests."""
    few = {"lone": 23, "shared": 32, "sole": 53}[kind]
    every = [(kind, write, is_before) for write in range(1, KINDS[kind][1] + 1) for is_before in (True, False)]
    return [
        pytest.param(*each, marks=() if number % few == 1 else pytest.mark.prove) for number, each in enumerate(every)
    ]


@pytest.mark.parametrize(("kind", "write", "is_before"), [place for kind in KINDS for place in places(kind)])
def test_a_kill_at_any_write_leaves_the_same(kind, write, is_before, fresh, tmp_path, kept):
    text, _ = run(kind, fresh, tmp_path, write, is_before)
    assert sha256(whatever_is_killed(text)) == kept[kind]["whatever_is_killed"]


def write_golden() -> None:
    """Write the hashes of what races leave behind now."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            with short_folder() as state:
                server = start_embedded(state)
                try:
                    text, _ = run(kind, server, Path(folder))
                finally:
                    server.stop()
            made[kind] = {
                "whole": sha256(text),
                "whatever_is_killed": sha256(whatever_is_killed(text)),
            }
    GOLDEN.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_golden()

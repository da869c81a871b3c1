"""A node whose bodies lie outside of Postgres: it races, and everything that reads its store finds them; a place that
can't be used stops it at the start and is named by its setting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.store.location import read_location
from arena.store.objects import folder_location
from foundation.errors import ArenaError
from neurons.cli.app import app
from neurons.demo.demo import DemoRun, running_validator, watch
from neurons.node.opening import open_node
from neurons.settings.settings import Settings
from tests.neurons.arena_stand import make_run

POOLS = ("train", "dev", "eval")


@pytest.fixture(scope="module")
def raced(arena_base: Path, small_catalogue: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoRun]:
    """A node that has raced with its bodies in a folder."""
    url = folder_location(tmp_path_factory.mktemp("bodies") / "of a node")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARENA_BODIES_URL", url)
        run = make_run(arena_base, small_catalogue, names=("expert", "nop"))
        with running_validator(run) as process:
            asyncio.run(_until_settled(run, process))
        assert process.returncode == 0, (run.folder / "validator.log").read_text()[-2_000:]
    yield run


async def _until_settled(run: DemoRun, process) -> None:
    async with asyncio.timeout(150):
        async for _ in watch(run, process):
            pass


def arena(*words: str | Path) -> str:
    """What an `arena` command that must succeed prints."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_every_body_lies_in_the_folder_and_is_found_by_every_reader(raced: DemoRun, tmp_path: Path) -> None:
    run = raced
    state = ("--state-dir", run.folder)
    (log,) = json.loads(arena("store", "status", *state, "--json"))["logs"]
    assert log["bodies_elsewhere"] == log["bodies"] > 0
    assert json.loads(arena("records", "verify", *state, "--json"))["ok"]
    pools = [part for pool in POOLS for part in ("--pool", pool)]
    exported = json.loads(arena("records", "export", "--out", tmp_path / "out", *state, *pools, "--json"))
    assert exported["trajectories"] > 0


@pytest.mark.parametrize(
    ("place", "said"), [("", "is empty"), ("another", "copy them there first"), ("file", "file://")]
)
def test_a_node_does_not_start_without_the_bodies_of_its_log(
    place: str, said: str, raced: DemoRun, tmp_path: Path
) -> None:
    run = raced
    (tmp_path / "file").write_text("no folder")
    url = folder_location(tmp_path / place) if place else ""
    before = read_location(run.folder)
    with pytest.raises(ArenaError, match=f"V2029.*bodies_url.*{said}"):
        asyncio.run(_start(run.settings.model_copy(update={"bodies_url": url})))
    assert read_location(run.folder) == before


async def _start(settings: Settings) -> None:
    async with open_node(settings):
        pass

"""docs/operations.md's commands: each exists with its options, and those without systemd run on a small node."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from arena.records.sequencer import Sequencer
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from tests.arena.log_stand import HOST, Clock, attempt, episode, settlement
from tests.neurons.arena_stand import short_folder
from tests.postgres_stand import start_new
from tests.readme_blocks import ROOT, unknown_options

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
LIVE = "/var/lib/agent-arena"
BACKUPS = "/var/backups/agent-arena"
VALIDATOR, RACE = "//Alice", "race-000001"
ENTRY = "from neurons.cli.app import main; import sys; main(sys.argv[1:])"


def section(name: str) -> list[str]:
    """The commands of a section's block."""
    block = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0].partition("```sh needs=node\n")[2]
    return block.partition("```")[0].strip().splitlines()


class Node:
    """A stopped validator's folder: a log with one settled race."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        server, signer = start_new(self.state), keypair_signer(VALIDATOR)
        dsn = server.dsn_for(signer.hotkey)
        write_location(self.state, StoreLocation(kind="embedded", validator=signer.hotkey, dsn=dsn))
        asyncio.run(self._fill(dsn))
        server.stop()

    async def _fill(self, dsn: str) -> None:
        store = await PostgresStore.open(dsn)
        sequencer = Sequencer(store, keypair_signer(VALIDATOR), Clock(), HOST)
        payloads, body = episode(1, race_id=RACE)
        await sequencer.append([attempt(0), *payloads, settlement(RACE)], [body])
        await store.close()

    def arena(self, *words: object) -> str:
        """Run one command, which ends with 0; what it printed."""
        done = subprocess.run(self.command(*words), cwd=self.folder, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def command(self, *words: object) -> list[str]:
        return [sys.executable, "-c", ENTRY, *map(str, words)]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "OPENAI_"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with short_folder() as folder:
        yield Node(folder)


def typed(node: Node, line: str) -> str:
    """A line's arena command with this node's folders in the place of a machine's."""
    line = line.replace(BACKUPS, str(node.folder / "backups")).replace(LIVE, str(node.folder / "moved"))
    words = line.split()[1:]
    return node.arena(*words, *([] if "--state-dir" in words else ["--state-dir", node.state]))


def test_every_command_of_the_page_exists_with_its_options() -> None:
    lines = [line for part in PAGE.split("```sh")[1:] for line in part.partition("```")[0].splitlines()[1:]]
    commands = [found[1] for line in lines if (found := re.search(r"(?:^|\.venv/bin/)(arena .+)$", line))]
    assert len(commands) > 8
    for command in commands:
        assert not unknown_options(command), command


def test_a_backup_comes_back_and_verifies_as_the_page_says(node: Node) -> None:
    lines = [*section("Backup"), *section("Restore")]
    said = [typed(node, line.replace(f"{LIVE}-restored", str(node.folder / "restored"))) for line in lines]
    assert len(lines) == 3
    assert "records and" in said[0] and "are back" in said[1] and "ok: every signature" in said[2]


def test_the_nightly_units_own_line_makes_a_backup(node: Node, tmp_path: Path) -> None:
    unit = (ROOT / "docker" / "systemd" / "agent-arena-backup.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    program = tmp_path / "arena"
    program.write_text("#!/bin/sh\nexec " + shlex.join(node.command()) + ' "$@"\n')
    program.chmod(0o700)
    line = line.replace("%%", "%").replace("/opt/agent-arena/.venv/bin/arena", str(program))
    words = shlex.split(line.replace(BACKUPS, str(tmp_path / "backups")))
    (tmp_path / "backups").mkdir()
    told = {**environment(), "ARENA_STATE_DIR": str(node.state)}
    done = subprocess.run(words, env=told, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "records and" in done.stdout, done.stderr
    (made,) = (tmp_path / "backups").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}Z", made.name)

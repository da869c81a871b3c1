"""A backup of several validators' logs is restored as the node of one of them, who is named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from arena.store.location import StoreLocation, read_location, write_location
from neurons.cli.records import app as records_app
from tests.arena.test_store_cli import ALICE, BOB, arena, fill, fresh, ok
from tests.postgres_stand import start_new

__all__ = ["fresh"]  # the fixture


def test_a_backup_of_two_logs_is_restored_for_the_one_that_is_named(fresh: Path) -> None:
    server = start_new(fresh / "two")
    for signer in (ALICE, BOB):
        asyncio.run(fill(server.dsn_for(signer.hotkey), signer))
    dsn = server.dsn_for(ALICE.hotkey)
    write_location(fresh / "two", StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn))
    server.stop()
    assert "20 records and 6 bodies of 2 logs" in ok("backup", "--out", fresh / "b", "--state-dir", fresh / "two")
    asked = arena("restore", fresh / "b", "--state-dir", fresh / "n")
    assert asked.exit_code == 2 and "whose node?" in asked.output
    assert not (fresh / "n").exists()  # nothing is left that knows of no node
    assert "20 records of 2 logs" in ok("restore", fresh / "b", "--state-dir", fresh / "n", "--hotkey", BOB.hotkey)
    location = read_location(fresh / "n")
    assert location and location.validator == BOB.hotkey
    verified = CliRunner().invoke(records_app, ["verify", "--state-dir", str(fresh / "n"), "--json"])
    assert (verified.exit_code, json.loads(verified.stdout)["records"]) == (0, 20)

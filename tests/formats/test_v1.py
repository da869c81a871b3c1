"""Version 1 of what a node keeps, frozen: a backup and a signed export of one small log, opened by today's code.

`v1/` is never made again; a change that can't open it needs a migration. It was made by `python -m
tests.formats.test_v1`: a log that holds every kind of record, of a development key.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from typer.testing import CliRunner

from arena.chain.keys import keypair_signer, verify
from arena.records.body import decode_content, encode_content
from arena.records.log import sign_checkpoint
from arena.records.model import RecordContent, StoredCheckpoint
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import start_embedded
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from neurons.cli.app import app
from tests.arena.log_stand import HOST, Clock, attempt, episode, gate, release, settlement
from tests.neurons.arena_stand import short_folder

CASE = Path(__file__).parent / "v1" / "case.tar.xz"
ALICE = keypair_signer("//Alice")
EXPORT = ("--format", "jsonl", "--wallet.hotkey", "//Alice")


def arena(*words: object) -> str:
    """What a command prints that must succeed."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def rows_of(export: Path) -> list[bytes]:
    """The lines of an export's log."""
    lines: list[bytes] = []
    for file in sorted((export / "log").iterdir()):
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(file.read_bytes()), read_across_frames=True) as it:
            lines += it.read().splitlines()
    return lines


@pytest.fixture(scope="module")
def kept() -> Iterator[Path]:
    """A folder with the kept backup and export."""
    with short_folder() as folder:
        with tarfile.open(CASE) as archive:
            archive.extractall(folder, filter="data")
        yield folder


def test_the_kept_state_verifies_and_exports_the_kept_bytes(kept: Path) -> None:
    state = ("--state-dir", kept / "state")
    arena("store", "restore", kept / "backup", *state)
    assert json.loads(arena("records", "verify", "--json", *state))["ok"] is True
    arena("records", "export", "--out", kept / "again", *EXPORT, *state)
    assert rows_of(kept / "again") == rows_of(kept / "export")


def test_the_kept_export_verifies(kept: Path) -> None:
    told = arena("records", "verify", "--export", kept / "export", "--processes", 0, "--json")
    assert json.loads(told)["ok"] is True


def test_each_kept_record_is_read_and_written_to_the_same_bytes(kept: Path) -> None:
    kinds = set()
    for line in rows_of(kept / "export"):
        row = json.loads(line)
        if row["content"] is not None:
            read = decode_content(msgspec.json.encode(row["content"]))
            assert isinstance(read, RecordContent) and json.loads(encode_content(read)) == row["content"]
            kinds.add(read.payload.__struct_config__.tag)
    assert kinds == {"attempt", "evaluation", "verdict", "settlement", "release", "gate"}


async def fill(dsn: str) -> None:
    """Every kind of record, a checkpoint and its anchor."""
    store = await PostgresStore.open(dsn, ALICE.hotkey)
    sequencer = Sequencer(store, ALICE, Clock(), HOST)
    await sequencer.append([gate(1), gate(1, decided_by="person", outcome="accept"), attempt(0)])
    payloads, body = episode(1)
    await sequencer.append(payloads, [body])
    await sequencer.append([settlement(), release()])
    point = (await verify_store(store, verify)).logs[0].checkpoint
    note = sign_checkpoint(point, ALICE)
    await store.put_checkpoint(StoredCheckpoint(validator=ALICE.hotkey, size=point.size, note=note, signed_ms=1))
    await store.close()


def make() -> None:
    """Write the case, unless it is there."""
    if CASE.exists():
        sys.exit(f"{CASE} is kept as it is")
    with short_folder() as folder:
        server = start_embedded(folder / "state")
        dsn = server.dsn_for(ALICE.hotkey)
        write_location(folder / "state", StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn))
        asyncio.run(fill(dsn))
        server.stop()
        where = ("--state-dir", folder / "state")
        arena("store", "backup", "--out", folder / "backup", *where)
        arena("records", "export", "--out", folder / "export", *EXPORT, *where)
        CASE.parent.mkdir()
        with tarfile.open(CASE, "w:xz", preset=9) as archive:
            for name in ("backup", "export"):
                archive.add(folder / name, name)


if __name__ == "__main__":
    make()

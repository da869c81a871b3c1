"""Version 1 of what a node keeps, frozen: a backup and a signed export of one small log, opened by today's code.

`v1/` is never made again; a change that can't open it needs a migration. Its log holds every kind of record, of a
development key.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zstandard
from typer.testing import CliRunner

from arena.records.body import decode_content
from arena.records.model import RecordContent
from arena.store.schema import SCHEMA_REVISION
from foundation.canonical import canonical_bytes
from neurons.cli.app import app
from neurons.cli.presenter import EXIT_INTEGRITY
from tests.neurons.arena_stand import short_folder

CASE = Path(__file__).parent / "v1" / "case.tar.xz"
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


@contextmanager
def last_release() -> Iterator[None]:
    """The product as it kept the case: at that schema's revision."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.store.schema.REVISIONS", {"0001": "schema.sql"})
        for module in ("schema", "postgres", "archive"):
            patch.setattr(f"arena.store.{module}.SCHEMA_REVISION", "0001")
        yield


def test_the_kept_state_is_led_up_with_its_records_and_scores_and_goes_back_by_its_backup(kept: Path) -> None:
    state = ("--state-dir", kept / "state")
    with last_release():
        arena("store", "restore", kept / "backup", *state)
    assert json.loads(arena("records", "verify", "--json", *state))["ok"] is True  # a start leads it up
    arena("records", "export", "--out", kept / "again", *EXPORT, *state)
    lines = rows_of(kept / "again")
    assert lines == rows_of(kept / "export")
    (race,) = json.loads(arena("race", "list", "--json", *state))
    settled = [json.loads(line)["content"]["payload"] for line in lines if b'"standings":[{' in line]
    assert [one["standings"] for one in settled] == [race["standings"]]
    arena("store", "backup", "--out", kept / "after", *state)
    before, after = (json.loads((kept / name / "manifest.json").read_bytes())["store"] for name in ("backup", "after"))
    revisions = before["schema_revision"], after["schema_revision"]
    assert before["heads"] == after["heads"] and revisions == ("0001", SCHEMA_REVISION)
    with last_release():  # it refuses what was led up; nothing was written since, so the backup is all of it
        refused = CliRunner().invoke(app, ["race", "list", "--state-dir", str(kept / "state")])
        assert f"found {SCHEMA_REVISION}, which is newer than this code's 0001" in str(refused.exception)
        arena("store", "restore", kept / "backup", "--state-dir", kept / "back")  # rows, heads and revision are held


def test_the_kept_export_verifies(kept: Path) -> None:
    asked = ("records", "verify", "--export", kept / "export", "--processes", 0, "--json")
    told = json.loads(arena(*asked))
    assert told["ok"] is True and json.loads(arena(*asked, "--signer", told["signer"])) == told
    assert CliRunner().invoke(app, [*map(str, asked), "--signer", "5Other"]).exit_code == EXIT_INTEGRITY


def test_each_kept_record_is_read_and_written_to_the_same_bytes(kept: Path) -> None:
    kinds = set()
    for line in rows_of(kept / "export"):
        row = json.loads(line)
        if row["content"] is not None:
            read = decode_content(msgspec.json.encode(row["content"]))
            assert isinstance(read, RecordContent) and json.loads(canonical_bytes(read)) == row["content"]
            kinds.add(read.payload.__struct_config__.tag)
    assert kinds == {"attempt", "evaluation", "verdict", "settlement", "release", "gate"}

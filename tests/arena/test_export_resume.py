"""An export that is killed goes on: every shard complete, no row twice, and the same bytes as without the kill."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from arena.export.journal import JOURNAL
from arena.export.verification import verify_export
from foundation.errors import ArenaError
from tests.arena.export_stand import ExportLog, export, released_race, rows

EPISODES, ROWS_PER_SHARD = 90, 20
WAIT_S = 60


class StuckLog:
    """The same log, whose records stop coming after one of them."""

    def __init__(self, log: ExportLog, last: int) -> None:
        self._log, self._last = log, last

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None):
        async for record in self._log.records(validator, after_seq=after_seq, kinds=kinds, race_id=race_id):
            if record.seq > self._last and not kinds:
                await asyncio.sleep(WAIT_S)
            yield record


@pytest.fixture(scope="module")
def log() -> ExportLog:
    log = ExportLog()
    released_race(log, "r1", range(1, EPISODES + 1))
    log.checkpoint()
    return log


def kill_after(log: ExportLog, folder: Path, last: int, shards: int, **options: object) -> None:
    """Export in another process and kill it once it waits behind `shards` finished shards."""
    child = multiprocessing.get_context("fork").Process(
        target=export,
        args=(log, folder),
        kwargs={"store": StuckLog(log, last), "rows_per_shard": ROWS_PER_SHARD} | options,
    )
    child.start()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and _shards(folder) < shards:
        time.sleep(0.01)
    assert _shards(folder) == shards
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def _shards(folder: Path) -> int:
    path = folder / JOURNAL
    return msgspec.json.decode(path.read_bytes())["shards"] if path.exists() else -1


def test_a_killed_export_goes_on_to_the_same_bytes(log, tmp_path):
    whole = export(log, tmp_path / "whole", rows_per_shard=ROWS_PER_SHARD)
    folder = tmp_path / "killed"
    kill_after(log, folder, last=100, shards=0)
    kill_after(log, folder, last=200, shards=2)
    (folder / "log" / "000099.jsonl.zst").write_bytes(b"half a shard")
    kill_after(log, folder, last=260, shards=4)
    manifest = export(log, folder, rows_per_shard=ROWS_PER_SHARD)
    assert msgspec.json.encode(manifest) == msgspec.json.encode(whole)
    assert [row.seq for row in rows(folder)] == list(range(1, len(log.log) + 1))
    assert not (folder / JOURNAL).exists()
    report = verify_export(folder, verify)
    assert report.is_ok, report.wrong


def test_an_export_begun_with_the_logs_hotkey_signs_the_end_it_was_begun_for(tmp_path):
    log = ExportLog()
    released_race(log, "r1", range(1, 50))
    kill_after(log, tmp_path / "out", last=140, shards=2, signer=log.signer)
    size = len(log.log)
    released_race(log, "r2", [60])
    with pytest.raises(ArenaError) as raised:
        export(log, tmp_path / "out", rows_per_shard=ROWS_PER_SHARD)
    assert raised.value.failure.code == "V2071"
    manifest = export(log, tmp_path / "out", rows_per_shard=ROWS_PER_SHARD, signer=log.signer)
    assert manifest.log.last_seq == size
    log.checkpoint()
    later = export(log, tmp_path / "next", rows_per_shard=ROWS_PER_SHARD, start=manifest.cursor)
    assert (later.log.first_seq, later.trajectories, later.races) == (size + 1, 1, ("r2",))
    report = verify_export(tmp_path / "out", verify)
    assert report.is_ok and report.signer == log.validator, report.wrong


def test_no_end_is_signed_that_the_log_does_not_lead_to(tmp_path):
    log, other = ExportLog(), ExportLog()
    released_race(log, "r1", range(1, 50))
    released_race(other, "r1", range(1, 50))
    begin, foreign = log.cursor_at(20), other.cursor_at(20)
    forged = msgspec.structs.replace(begin, peaks=foreign.peaks)  # the right record, on another tree
    with pytest.raises(ArenaError) as raised:
        export(log, tmp_path / "out", start=forged, signer=log.signer)
    assert raised.value.failure.code == "V2050"
    assert export(log, tmp_path / "good", start=begin, signer=log.signer).log.last_seq == len(log.log)


def test_a_folder_with_another_export_or_something_else_in_it_is_left_alone(log, tmp_path):
    kill_after(log, tmp_path / "out", last=100, shards=0)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    for name in ("out", "other"):
        with pytest.raises(ArenaError, match="V2070"):
            export(log, tmp_path / name, rows_per_shard=ROWS_PER_SHARD + 1)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["mine.txt"]

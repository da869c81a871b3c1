"""An export killed at any instant, on a full disk, or started twice: nothing stands that is not whole, and the same
command ends in the same bytes as one that nothing happened to."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from arena.export.model import FORMATS
from arena.export.verification import verify_export
from foundation.errors import ArenaError
from tests.arena.export_stand import ExportLog, export, released_race, rows

EPISODES = 40
OPTIONS = {"formats": FORMATS, "rows_per_shard": 8}
WAIT_S = 60
RECORD_S = 0.004  # so that an export lasts long enough to be killed anywhere in it
LIFE_S = 1.5  # of an export that is killed, at most
FILE_BYTES_MAX = 20_000


class SlowLog:
    """The same log, whose records come one after the other."""

    def __init__(self, log: ExportLog) -> None:
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None):
        async for record in self._log.records(validator, after_seq=after_seq, kinds=kinds, race_id=race_id):
            if not kinds:
                await asyncio.sleep(RECORD_S)
            yield record


@pytest.fixture(scope="module")
def log() -> ExportLog:
    log = ExportLog()
    released_race(log, "r1", range(1, EPISODES + 1), result_bytes=8_000)
    log.checkpoint()
    return log


@pytest.fixture(scope="module")
def whole(log: ExportLog, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    export(log, folder, **OPTIONS)
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def begin(work: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    """Some work in a process of its own."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child


def kill_often(log: ExportLog, folder: Path, kills: int, rng: random.Random) -> None:
    """Start the export and kill it after some time, until it was killed so often in its midst; one that came to its end
    before is begun anew."""
    killed = 0
    while killed < kills:
        child = begin(lambda: export(log, folder, store=SlowLog(log), **OPTIONS))
        child.join(rng.uniform(0, LIFE_S))
        child.kill()
        child.join()
        if child.exitcode == 0:
            shutil.rmtree(folder)
        assert not folder.exists()
        killed += child.exitcode == -signal.SIGKILL


def test_an_export_killed_at_some_instants_ends_in_the_bytes_of_one_that_was_not(log, whole, tmp_path):
    kill_often(log, tmp_path / "out", 3, random.Random(1))
    export(log, tmp_path / "out", **OPTIONS)
    assert contents(tmp_path / "out") == whole
    assert [row.seq for row in rows(tmp_path / "out")] == list(range(1, len(log.log) + 1))
    assert verify_export(tmp_path / "out", verify).is_ok


def test_a_full_disk_is_said_and_leaves_nothing(log, whole, tmp_path):
    failed = multiprocessing.get_context("fork").Queue()

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, resource.RLIM_INFINITY))
        try:
            export(log, tmp_path / "out", **OPTIONS)
        except ArenaError as error:
            failed.put(error.failure.code)

    child = begin(run)
    assert failed.get(timeout=WAIT_S) == "V2027"
    child.join()
    assert not list(tmp_path.iterdir())


def test_no_end_is_signed_that_the_log_does_not_lead_to(tmp_path):
    log, other = ExportLog(), ExportLog()
    released_race(log, "r1", range(1, 50))
    released_race(other, "r1", range(1, 50))
    begin_at, foreign = log.cursor_at(20), other.cursor_at(20)
    forged = msgspec.structs.replace(begin_at, peaks=foreign.peaks)  # the right record, on another tree
    with pytest.raises(ArenaError) as raised:
        export(log, tmp_path / "out", start=forged, signer=log.signer)
    assert raised.value.failure.code == "V2050"
    assert export(log, tmp_path / "good", start=begin_at, signer=log.signer).log.last_seq == len(log.log)

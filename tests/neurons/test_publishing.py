"""A validator in a process of its own shows its log while it runs, and signs off what it appended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from arena.api.client import TailClient
from arena.chain.keys import keypair_signer, verify
from arena.export.reading import read_row
from arena.records.log.checkpoint import read_checkpoint
from neurons.demo.demo import VALIDATOR, running_validator
from neurons.loops import checkpoints as checkpoint_files
from neurons.loops.checkpoints import FOLDER
from tests.arena.tail_stand import free_port
from tests.neurons.arena_stand import make_run, read_back

ROWS = 6


def test_its_log_can_be_followed_and_its_last_checkpoint_covers_all_of_it(
    arena_base: Path, small_catalogue: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port, outside = free_port(), tmp_path / "outside"
    for name, value in (("SERVE_PORT", port), ("CHECKPOINT_EVERY_S", 1), ("CHECKPOINT_DIR", outside)):
        monkeypatch.setenv(f"ARENA_{name}", str(value))
    run = make_run(arena_base, small_catalogue, names=("nop",))
    hotkey = keypair_signer(VALIDATOR).hotkey
    client = TailClient(f"http://127.0.0.1:{port}", verify_signature=verify, sleep=lambda _: time.sleep(0.2))
    with running_validator(run) as process:
        rows = [read_row(line) for line in client.lines(hotkey, limit=ROWS, is_following=True)]
        assert process.poll() is None, (run.folder / "validator.log").read_text()
    assert process.returncode == 0
    assert [row.seq for row in rows] == list(range(1, ROWS + 1))
    assert {row.withheld for row in rows} <= {"pool", "unreleased"}
    notes = [checkpoint_files.read_last(folder) for folder in (run.folder / FOLDER, outside / hotkey)]
    report, _ = read_back(run, hotkey, ())
    assert report.is_ok, report.defects
    assert {read_checkpoint(note, verify) for note in notes} == {report.logs[0].checkpoint}

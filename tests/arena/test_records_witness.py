"""An export held against checkpoints that were kept elsewhere and against the chain, as the command does it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
import typer

from arena.chain.keys import verify
from arena.chain.port import Commitment
from arena.export.verification import verify_export
from arena.records.log import Checkpoint, read_checkpoint, sign_checkpoint
from neurons.cli.options import StoreFlags
from neurons.cli.presenter import printing_json
from neurons.cli.records import verify as verify_command
from neurons.cli.records import verify_folder
from tests.arena.export_stand import ExportLog, export, released_race, replace
from tests.arena.test_records_verify import OneSlot

BLOCK = 70


@pytest.fixture
def log() -> ExportLog:
    """A log with signed checkpoints of 4, 8 and 12 records; the chain holds the last."""
    log = ExportLog()
    for race in ("r1", "r2", "r3"):
        released_race(log, race, [1])
        log.checkpoint()
    log.signed[-1] = replace(log.signed[-1], anchor_block=BLOCK)
    return log


@pytest.fixture
def folder(log: ExportLog, tmp_path: Path) -> Path:
    """An export that begins behind the first four records."""
    export(log, tmp_path / "out", start=log.cursor_at(4), rows_per_shard=1)
    return tmp_path / "out"


def kept(log: ExportLog) -> list[Checkpoint]:
    return [read_checkpoint(point.note, verify) for point in log.signed]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_export_that_is_not_of_the_kept_state_ends_with_exit_code_4(
    log: ExportLog, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: int
) -> None:
    assert verify_export(folder, verify, checkpoints=kept(log)).is_ok
    other = replace(kept(log)[place], root="00" * 32)  # signed by the same key of another log
    (tmp_path / "note").write_text(sign_checkpoint(other, log.signer), encoding="utf-8")
    with pytest.raises(typer.Exit) as ended:
        verify_command(StoreFlags(), export=str(folder), checkpoint=[tmp_path / "note"])
    assert ended.value.exit_code == 4
    assert f"WRONG record {other.size}: checkpoint: " in capsys.readouterr().err


def test_the_chain_is_asked_for_the_block_that_the_export_names(
    log: ExportLog, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sha256 = hashlib.sha256(log.signed[-1].note.encode()).hexdigest()
    held = Commitment(hotkey=log.validator, sha256=sha256, block=BLOCK)
    chain = OneSlot(held)
    verify_folder(folder, subtensor=chain)
    assert (chain.asked, "stands on chain" in capsys.readouterr().out) == ([(log.validator, BLOCK)], True)
    for other in (None, replace(held, sha256="00" * 32), replace(held, block=BLOCK + 1)):
        with printing_json(True), pytest.raises(typer.Exit) as ended:
            verify_folder(folder, subtensor=OneSlot(other))
        assert ended.value.exit_code == 4
        report = msgspec.json.decode(capsys.readouterr().out)
        assert (report["ok"], report["wrong"][0]["place"]) == (False, "manifest.json")

"""`arena records` on a real store: what it prints, its exit codes, and that it starts and stops the server itself.

The commands run in this process, through their entry point; one is a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import pytest
import typer

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment, Signer
from arena.export.verification import verify_export
from arena.records.log import Checkpoint, read_checkpoint, sign_checkpoint
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import start_embedded
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from neurons.cli.app import main
from neurons.cli.options import StoreFlags
from neurons.cli.presenter import printing_json
from neurons.cli.records import verify as verify_command
from neurons.cli.records import verify_folder
from tests.arena.export_stand import ExportLog, export, released_race, replace
from tests.arena.log_stand import HOST, Clock, attempt, episode, settlement
from tests.arena.test_records_verify import OneSlot
from tests.arena.test_store_roles import as_owner
from tests.postgres_stand import start_new

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")


@pytest.fixture(scope="module")
def node() -> Iterator[Path]:
    """A state folder with Alice's log of eight records, and Bob's of one beside it, its server stopped."""
    state_dir = Path(tempfile.mkdtemp(prefix="arena-"))
    server = start_new(state_dir)
    dsn = server.dsn_for(ALICE.hotkey)
    write_location(state_dir, StoreLocation(kind="embedded", validator=ALICE.hotkey, dsn=dsn))
    asyncio.run(fill(dsn, state_dir))
    asyncio.run(append_one(server.dsn_for(BOB.hotkey)))
    server.stop()
    yield state_dir
    shutil.rmtree(state_dir)


async def fill(dsn: str, state_dir: Path) -> None:
    store = await PostgresStore.open(dsn, ALICE.hotkey)
    sequencer = Sequencer(store, ALICE, Clock(), HOST)
    await sequencer.append([attempt(0)])
    for problem in (1, 2):
        payloads, body = episode(problem, result_bytes=2_000)
        await sequencer.append(payloads, [body])
    point = (await verify_store(store, verify)).logs[0].checkpoint
    (state_dir / "checkpoint.txt").write_text(sign_checkpoint(point, ALICE))
    await sequencer.append([settlement()])
    await store.close()


async def append_one(dsn: str, signer: Signer = BOB, problem: int = 0) -> None:
    store = await PostgresStore.open(dsn)
    await Sequencer(store, signer, Clock(), HOST).append([attempt(problem)])
    await store.close()


def records(node: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    streams = contextlib.redirect_stdout(printed[0]), contextlib.redirect_stderr(printed[1])
    node_of = mock.patch.dict(os.environ, {"ARENA_STATE_DIR": str(node)})
    with streams[0], streams[1], node_of, pytest.raises(SystemExit) as ended:
        main(["view", *arguments[1:]] if arguments[0] == "view" else ["records", *arguments])
    for stream in printed:
        stream.seek(0)
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), printed[0].read(), printed[1].read())


def test_a_validators_login_reads_its_own_log_and_the_owners_all_of_them(node: Path) -> None:
    server = start_embedded(node)
    try:
        own = records(node, "tail").stdout.splitlines()
        verified = json.loads(records(node, "verify", "--json", "--dsn", server.owner_dsn).stdout)
        every = records(node, "tail", "--dsn", server.owner_dsn).stdout.splitlines()
        foreign = records(node, "tail", "--validator", BOB.hotkey)
    finally:
        server.stop()
    assert (len(own), len(every)) == (8, 9)
    assert (verified["ok"], verified["records"], verified["bodies"]) == (True, 9, 2)
    assert (foreign.returncode, foreign.stdout) == (2, "")


def test_verify_of_a_tampered_log_exits_with_4_and_names_the_first_bad_record(node: Path) -> None:
    flip = "update arena.record set content = set_byte(content, 20, get_byte(content, 20) # 1) where seq in (3, 6)"
    trigger = "alter table arena.record {} trigger no_change"
    server = start_embedded(node)
    try:
        asyncio.run(as_owner(server, trigger.format("disable"), flip, trigger.format("enable")))
        done = records(node, "verify")
        report = json.loads(records(node, "verify", "--json").stdout)
        asyncio.run(as_owner(server, trigger.format("disable"), flip, trigger.format("enable")))
    finally:
        server.stop()
    assert done.returncode == 4
    assert f"V2050 record 3 of {ALICE.hotkey} does not verify: content" in done.stdout
    assert (report["ok"], report["defects"][0]["seq"]) == (False, 3)


def test_tail_lists_the_last_records_one_a_line(node: Path) -> None:
    lines = records(node, "tail", "-n", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["7", "8"]
    assert ("verdict" in lines[0], "settled" in lines[1]) == (True, True)
    rows = [json.loads(line) for line in records(node, "tail", "-n", "3", "--json").stdout.splitlines()]
    assert [row["seq"] for row in rows] == [6, 7, 8]


# -- an export held against checkpoints that were kept elsewhere and against the chain, as the command does it


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

"""`arena records` on a real store: what it prints, its exit codes, and that it starts and stops the server itself.

The commands run in this process, through their entry point; one is a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Signer
from arena.records.log import sign_checkpoint
from arena.records.sequencer import Sequencer
from arena.records.verification import verify_store
from arena.store.embedded import start_embedded
from arena.store.location import StoreLocation, write_location
from arena.store.postgres import PostgresStore
from neurons.cli.app import main
from tests.arena.log_stand import HOST, Clock, attempt, episode, settlement
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

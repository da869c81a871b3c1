"""Signed checkpoints of a log on a schedule, on real Postgres: what was signed is never contradicted."""

from __future__ import annotations

import stat
from pathlib import Path

import asyncpg
import msgspec
import pytest

from arena.chain.keys import verify
from arena.records.log.checkpoint import read_checkpoint
from arena.records.verify.verification import verify_store
from arena.store.embedded.server import EmbeddedServer
from foundation.errors import ArenaError
from neurons.cli.exit_codes import EXIT_INTEGRITY, exit_code
from neurons.loops import checkpoints as checkpoint_files
from neurons.loops.checkpoints import FOLDER
from tests.neurons.checkpoint_stand import RULES, LogDesk


async def as_owner(server: EmbeddedServer, *statements: str) -> None:
    connection = await asyncpg.connect(server.owner_dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def cut(server: EmbeddedServer, hotkey: str, seq: int) -> None:
    """Cut the log's tail after `seq`, together with its head, as somebody who owns the database can."""
    await as_owner(
        server,
        "set session_replication_role = replica",
        f"update arena.head set seq = {seq}, hash = (select prev from arena.record"
        f" where validator = '{hotkey}' and seq = {seq + 1}) where validator = '{hotkey}'",
        f"delete from arena.record where validator = '{hotkey}' and seq > {seq}",
    )


# -- signing


async def test_a_log_that_grew_is_signed_and_one_that_did_not_is_not(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    assert await log_desk.checkpoints.turn() is None
    size = await log_desk.append(5)
    made = await log_desk.checkpoints.turn()
    assert made is not None and made.size == size
    log_desk.time.pass_s(RULES.every_s)
    assert await log_desk.checkpoints.turn() is None
    assert await log_desk.stored() == [made]


async def test_between_two_checkpoints_the_schedule_is_kept(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append()
    assert await log_desk.checkpoints.turn() is not None
    await log_desk.append()
    log_desk.time.pass_s(RULES.every_s - 1)
    assert await log_desk.checkpoints.turn() is None
    log_desk.time.pass_s(1)
    assert await log_desk.checkpoints.turn() is not None
    assert [point.size for point in await log_desk.stored()] == [1, 2]


async def test_every_checkpoint_is_one_that_verification_accepts(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    for _ in range(3):
        await log_desk.append(7)
        await log_desk.checkpoints.sign()
    points = [read_checkpoint(point.note, verify) for point in await log_desk.stored()]
    assert [point.size for point in points] == [7, 14, 21]
    assert (await verify_store(log_desk.store, verify, checkpoints=points)).is_ok


async def test_the_end_of_the_node_signs_what_the_schedule_has_not(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append()
    await log_desk.checkpoints.turn()
    size = await log_desk.append()
    await log_desk.checkpoints.close()
    await log_desk.checkpoints.close()
    assert [point.size for point in await log_desk.stored()] == [1, size]


async def test_a_loop_that_never_opened_signs_nothing_at_the_end(log_desk: LogDesk) -> None:
    await log_desk.append()
    await log_desk.checkpoints.close()
    assert await log_desk.stored() == []


async def test_a_lost_reply_is_answered_with_the_same_note_and_never_with_a_second(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append()
    log_desk.store.is_reply_lost = True
    with pytest.raises(ArenaError, match="V2021"):
        await log_desk.checkpoints.turn()
    (first,) = await log_desk.stored()
    await log_desk.append()
    log_desk.store.is_reply_lost = False
    assert await log_desk.checkpoints.turn() == first
    assert await log_desk.stored() == [first]


async def test_a_note_an_earlier_process_stored_late_stands_and_is_not_contradicted(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append()
    earlier = log_desk.checkpoints
    log_desk.start()
    await log_desk.checkpoints.open()
    first = await earlier.sign()
    assert await log_desk.checkpoints.sign() == first
    assert await log_desk.stored() == [first]


async def test_a_store_that_is_away_costs_time_and_no_checkpoint(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(3)
    log_desk.store.is_away = True
    for _ in range(2):
        with pytest.raises(ArenaError) as away:
            await log_desk.checkpoints.turn()
        assert away.value.entry.is_retryable
    log_desk.store.is_away = False
    assert (await log_desk.checkpoints.turn()).size == 3


# -- what was signed before


async def test_a_restart_goes_on_behind_the_last_checkpoint(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(4)
    await log_desk.checkpoints.turn()
    await log_desk.append(2)
    log_desk.start()
    await log_desk.checkpoints.open()
    assert await log_desk.checkpoints.turn() is None  # not due yet
    log_desk.time.pass_s(RULES.every_s)
    assert (await log_desk.checkpoints.turn()).size == 6
    points = [read_checkpoint(point.note, verify) for point in await log_desk.stored()]
    assert (await verify_store(log_desk.store, verify, checkpoints=points)).is_ok


@pytest.mark.parametrize("size", [1, 7, 8, 12])
async def test_a_start_reads_what_came_after_the_last_checkpoint_and_signs_the_same_tree(
    log_desk: LogDesk, size: int
) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed(size)
    await log_desk.append(3)
    log_desk.start()
    log_desk.store.leaves_read = 0
    await log_desk.checkpoints.open()
    assert log_desk.store.leaves_read == 1 + 3  # the checkpoint's last record, and what came after
    point = read_checkpoint((await log_desk.checkpoints.sign()).note, verify)
    assert (await verify_store(log_desk.store, verify, checkpoints=[point])).is_ok


@pytest.mark.parametrize("change", [{"head": "00" * 32}, {"peaks": ("00" * 32,)}, {"peaks": ("x",)}, {"size": 3}, {}])
async def test_a_frontier_that_does_not_fit_is_left_and_the_log_is_read(log_desk: LogDesk, change: dict) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed(4)
    folder = log_desk.folder / FOLDER
    frontier = checkpoint_files.read_frontier(folder)
    checkpoint_files.write_frontier(folder, msgspec.structs.replace(frontier, **change))
    if not change:
        (folder / checkpoint_files.FRONTIER).write_text("{")
    log_desk.start()
    log_desk.store.leaves_read = 0
    await log_desk.checkpoints.open()
    assert log_desk.store.leaves_read >= 4
    await log_desk.append()
    point = read_checkpoint((await log_desk.checkpoints.sign()).note, verify)
    assert (await verify_store(log_desk.store, verify, checkpoints=[point])).is_ok


async def test_a_log_cut_behind_its_last_checkpoint_ends_the_node(log_desk: LogDesk, server: EmbeddedServer) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(5)
    await log_desk.checkpoints.sign()
    await cut(server, log_desk.signer.hotkey, 3)
    log_desk.start()
    with pytest.raises(ArenaError, match="V2080") as found:
        await log_desk.checkpoints.open()
    assert exit_code(found.value) == EXIT_INTEGRITY
    assert not found.value.entry.is_retryable


async def test_a_log_that_grew_again_after_a_cut_is_found_by_its_root(
    log_desk: LogDesk, server: EmbeddedServer
) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(5)
    await log_desk.checkpoints.sign()
    await cut(server, log_desk.signer.hotkey, 3)
    log_desk.start()
    log_desk._desk.start(log_desk._desk.policy)  # a sequencer that knows nothing of the old head
    log_desk.start()
    await log_desk.append(4)
    with pytest.raises(ArenaError, match="V2080"):
        await log_desk.checkpoints.open()


async def test_a_cut_under_a_running_node_is_found_before_anything_is_signed(
    log_desk: LogDesk, server: EmbeddedServer
) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(5)
    await log_desk.checkpoints.sign()
    await cut(server, log_desk.signer.hotkey, 2)
    with pytest.raises(ArenaError, match="V2080"):
        await log_desk.checkpoints.sign()
    assert [point.size for point in await log_desk.stored()] == [5]


async def test_files_outside_are_evidence_when_the_database_forgot(log_desk: LogDesk, server: EmbeddedServer) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(5)
    await log_desk.checkpoints.turn()
    await cut(server, log_desk.signer.hotkey, 3)
    await as_owner(
        server,
        "set session_replication_role = replica",
        f"delete from arena.checkpoint where validator = '{log_desk.signer.hotkey}'",
    )
    log_desk.start()
    with pytest.raises(ArenaError, match="V2080"):
        await log_desk.checkpoints.open()


async def test_a_file_of_another_hotkey_or_of_nobody_is_no_evidence(log_desk: LogDesk) -> None:
    folder = log_desk.folder / FOLDER
    folder.mkdir()
    (folder / "99.txt").write_text("agent-arena/log/1/5nobody\n99\nAAAA\n\n")
    await log_desk.append()
    await log_desk.checkpoints.open()
    assert (await log_desk.checkpoints.turn()).size == 1


# -- files


async def test_a_checkpoint_leaves_the_store_as_a_file_anybody_may_read(log_desk: LogDesk, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    log_desk.start(msgspec.structs.replace(RULES, folder=outside))
    await log_desk.checkpoints.open()
    await log_desk.append()
    made = await log_desk.checkpoints.turn()
    for folder in (log_desk.folder / FOLDER, outside / log_desk.signer.hotkey):
        path = folder / f"{made.size}.txt"
        assert path.read_text(encoding="utf-8") == made.note
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert {entry.name for entry in folder.iterdir()} <= {path.name, checkpoint_files.FRONTIER}


async def test_a_folder_that_was_away_gets_every_note_it_missed(log_desk: LogDesk, tmp_path: Path) -> None:
    outside = tmp_path / "mount"
    outside.write_text("not a folder")
    log_desk.start(msgspec.structs.replace(RULES, folder=outside))
    await log_desk.checkpoints.open()
    for _ in range(3):
        await log_desk.append()
        await log_desk.checkpoints.sign()
    await log_desk.checkpoints.turn()
    assert log_desk.metric("checkpoint_folders_behind") == 1
    outside.unlink()
    await log_desk.checkpoints.turn()
    assert log_desk.metric("checkpoint_folders_behind") == 0
    assert sorted(path.name for path in (outside / log_desk.signer.hotkey).iterdir()) == ["1.txt", "2.txt", "3.txt"]

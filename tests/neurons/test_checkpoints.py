"""Signed checkpoints of a log on a schedule, on real Postgres: what was signed is never contradicted."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import msgspec
import pytest

from arena.chain.keys import verify
from arena.records.checkpoint import read_checkpoint
from arena.records.verify import verify_store
from arena.store.embedded import EmbeddedServer, start_embedded
from neurons import checkpoint_files
from neurons.checkpoints import FOLDER
from neurons.cli.app import EXIT_INTEGRITY, exit_code
from problems.errors import ArenaError
from tests.neurons.arena_stand import short_folder
from tests.neurons.checkpoint_stand import RULES, LogDesk, log_desk


@pytest.fixture(scope="module")
def server():
    with short_folder() as folder:
        started = start_embedded(folder)
        yield started
        started.stop()


@pytest.fixture
async def desk(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[LogDesk]:
    async with log_desk(server, tmp_path) as made:
        yield made


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


async def test_a_log_that_grew_is_signed_and_one_that_did_not_is_not(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    assert await desk.checkpoints.turn() is None
    size = await desk.append(5)
    made = await desk.checkpoints.turn()
    assert made is not None and made.size == size
    desk.time.pass_s(RULES.every_s)
    assert await desk.checkpoints.turn() is None
    assert await desk.stored() == [made]


async def test_between_two_checkpoints_the_schedule_is_kept(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.append()
    assert await desk.checkpoints.turn() is not None
    await desk.append()
    desk.time.pass_s(RULES.every_s - 1)
    assert await desk.checkpoints.turn() is None
    desk.time.pass_s(1)
    assert await desk.checkpoints.turn() is not None
    assert [point.size for point in await desk.stored()] == [1, 2]


async def test_every_checkpoint_is_one_that_verification_accepts(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    for _ in range(3):
        await desk.append(7)
        await desk.checkpoints.sign()
    points = [read_checkpoint(point.note, verify) for point in await desk.stored()]
    assert [point.size for point in points] == [7, 14, 21]
    assert (await verify_store(desk.store, verify, checkpoints=points)).is_ok


async def test_the_end_of_the_node_signs_what_the_schedule_has_not(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.append()
    await desk.checkpoints.turn()
    size = await desk.append()
    await desk.checkpoints.close()
    await desk.checkpoints.close()
    assert [point.size for point in await desk.stored()] == [1, size]


async def test_a_loop_that_never_opened_signs_nothing_at_the_end(desk: LogDesk) -> None:
    await desk.append()
    await desk.checkpoints.close()
    assert await desk.stored() == []


async def test_a_lost_reply_is_answered_with_the_same_note_and_never_with_a_second(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.append()
    desk.store.is_reply_lost = True
    with pytest.raises(ArenaError, match="V2021"):
        await desk.checkpoints.turn()
    (first,) = await desk.stored()
    await desk.append()
    desk.store.is_reply_lost = False
    assert await desk.checkpoints.turn() == first
    assert await desk.stored() == [first]


async def test_a_note_an_earlier_process_stored_late_stands_and_is_not_contradicted(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.append()
    earlier = desk.checkpoints
    desk.start()
    await desk.checkpoints.open()
    first = await earlier.sign()
    assert await desk.checkpoints.sign() == first
    assert await desk.stored() == [first]


async def test_a_store_that_is_away_costs_time_and_no_checkpoint(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.append(3)
    desk.store.is_away = True
    for _ in range(2):
        with pytest.raises(ArenaError) as away:
            await desk.checkpoints.turn()
        assert away.value.entry.is_retryable
    desk.store.is_away = False
    assert (await desk.checkpoints.turn()).size == 3


# -- what was signed before


async def test_a_restart_goes_on_behind_the_last_checkpoint(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.append(4)
    await desk.checkpoints.turn()
    await desk.append(2)
    desk.start()
    await desk.checkpoints.open()
    assert await desk.checkpoints.turn() is None  # not due yet
    desk.time.pass_s(RULES.every_s)
    assert (await desk.checkpoints.turn()).size == 6
    points = [read_checkpoint(point.note, verify) for point in await desk.stored()]
    assert (await verify_store(desk.store, verify, checkpoints=points)).is_ok


@pytest.mark.parametrize("size", [1, 7, 8, 12])
async def test_a_start_reads_what_came_after_the_last_checkpoint_and_signs_the_same_tree(
    desk: LogDesk, size: int
) -> None:
    await desk.checkpoints.open()
    await desk.signed(size)
    await desk.append(3)
    desk.start()
    desk.store.leaves_read = 0
    await desk.checkpoints.open()
    assert desk.store.leaves_read == 1 + 3  # the checkpoint's last record, and what came after
    point = read_checkpoint((await desk.checkpoints.sign()).note, verify)
    assert (await verify_store(desk.store, verify, checkpoints=[point])).is_ok


@pytest.mark.parametrize("change", [{"head": "00" * 32}, {"peaks": ("00" * 32,)}, {"peaks": ("x",)}, {"size": 3}, {}])
async def test_a_frontier_that_does_not_fit_is_left_and_the_log_is_read(desk: LogDesk, change: dict) -> None:
    await desk.checkpoints.open()
    await desk.signed(4)
    folder = desk.folder / FOLDER
    frontier = checkpoint_files.read_frontier(folder)
    checkpoint_files.write_frontier(folder, msgspec.structs.replace(frontier, **change))
    if not change:
        (folder / checkpoint_files.FRONTIER).write_text("{")
    desk.start()
    desk.store.leaves_read = 0
    await desk.checkpoints.open()
    assert desk.store.leaves_read >= 4
    await desk.append()
    point = read_checkpoint((await desk.checkpoints.sign()).note, verify)
    assert (await verify_store(desk.store, verify, checkpoints=[point])).is_ok


async def test_a_log_cut_behind_its_last_checkpoint_ends_the_node(desk: LogDesk, server: EmbeddedServer) -> None:
    await desk.checkpoints.open()
    await desk.append(5)
    await desk.checkpoints.sign()
    await cut(server, desk.signer.hotkey, 3)
    desk.start()
    with pytest.raises(ArenaError, match="V2080") as found:
        await desk.checkpoints.open()
    assert exit_code(found.value) == EXIT_INTEGRITY
    assert not found.value.entry.is_retryable


async def test_a_log_that_grew_again_after_a_cut_is_found_by_its_root(desk: LogDesk, server: EmbeddedServer) -> None:
    await desk.checkpoints.open()
    await desk.append(5)
    await desk.checkpoints.sign()
    await cut(server, desk.signer.hotkey, 3)
    desk.start()
    desk._desk.start(desk._desk.policy)  # a sequencer that knows nothing of the old head
    desk.start()
    await desk.append(4)
    with pytest.raises(ArenaError, match="V2080"):
        await desk.checkpoints.open()


async def test_a_cut_under_a_running_node_is_found_before_anything_is_signed(
    desk: LogDesk, server: EmbeddedServer
) -> None:
    await desk.checkpoints.open()
    await desk.append(5)
    await desk.checkpoints.sign()
    await cut(server, desk.signer.hotkey, 2)
    with pytest.raises(ArenaError, match="V2080"):
        await desk.checkpoints.sign()
    assert [point.size for point in await desk.stored()] == [5]


async def test_files_outside_are_evidence_when_the_database_forgot(desk: LogDesk, server: EmbeddedServer) -> None:
    await desk.checkpoints.open()
    await desk.append(5)
    await desk.checkpoints.turn()
    await cut(server, desk.signer.hotkey, 3)
    await as_owner(
        server,
        "set session_replication_role = replica",
        f"delete from arena.checkpoint where validator = '{desk.signer.hotkey}'",
    )
    desk.start()
    with pytest.raises(ArenaError, match="V2080"):
        await desk.checkpoints.open()


async def test_a_file_of_another_hotkey_or_of_nobody_is_no_evidence(desk: LogDesk) -> None:
    folder = desk.folder / FOLDER
    folder.mkdir()
    (folder / "99.txt").write_text("agent-arena/log/1/5nobody\n99\nAAAA\n\n")
    await desk.append()
    await desk.checkpoints.open()
    assert (await desk.checkpoints.turn()).size == 1


# -- files


async def test_a_checkpoint_leaves_the_store_as_a_file_anybody_may_read(desk: LogDesk, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    desk.start(msgspec.structs.replace(RULES, folder=outside))
    await desk.checkpoints.open()
    await desk.append()
    made = await desk.checkpoints.turn()
    for folder in (desk.folder / FOLDER, outside / desk.signer.hotkey):
        path = folder / f"{made.size}.txt"
        assert path.read_text(encoding="utf-8") == made.note
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert {entry.name for entry in folder.iterdir()} <= {path.name, checkpoint_files.FRONTIER}


async def test_a_folder_that_was_away_gets_every_note_it_missed(desk: LogDesk, tmp_path: Path) -> None:
    outside = tmp_path / "mount"
    outside.write_text("not a folder")
    desk.start(msgspec.structs.replace(RULES, folder=outside))
    await desk.checkpoints.open()
    for _ in range(3):
        await desk.append()
        await desk.checkpoints.sign()
    await desk.checkpoints.turn()
    assert desk.metric("checkpoint_folders_behind") == 1
    outside.unlink()
    await desk.checkpoints.turn()
    assert desk.metric("checkpoint_folders_behind") == 0
    assert sorted(path.name for path in (outside / desk.signer.hotkey).iterdir()) == ["1.txt", "2.txt", "3.txt"]

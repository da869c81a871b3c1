"""Signed checkpoints of a log on a schedule, on real Postgres: what was signed is never contradicted."""

from __future__ import annotations

import asyncpg
import pytest

from arena.chain.keys import verify
from arena.records.log import read_checkpoint
from arena.records.verification import verify_store
from arena.store.embedded import EmbeddedServer
from foundation.errors import ArenaError
from neurons.cli.exit_codes import EXIT_INTEGRITY, exit_code
from tests.neurons.checkpoint_stand import LogDesk


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


async def test_every_checkpoint_is_one_that_verification_accepts(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    for _ in range(3):
        await log_desk.append(7)
        await log_desk.checkpoints.sign()
    points = [read_checkpoint(point.note, verify) for point in await log_desk.stored()]
    assert [point.size for point in points] == [7, 14, 21]
    assert (await verify_store(log_desk.store, verify, checkpoints=points)).is_ok


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


# -- what was signed before


async def test_the_next_start_signs_the_same_tree(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed(7)
    await log_desk.append(3)
    log_desk.start()
    await log_desk.checkpoints.open()
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

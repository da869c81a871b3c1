"""Databases as earlier releases left them: their own scripts run, their own functions called, nothing of today's code.

The scripts of a released revision are frozen (`FROZEN`), so what this makes is what that release made.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from arena.records.log.sequencer import Sequencer
from arena.records.model import Payload, SignedRecord
from arena.store.bodies import compress_bodies
from arena.store.port import StoredBody
from arena.store.postgres.connect import open_engine
from arena.store.schema import run_script
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt, episode, settlement

FROZEN = {
    "0001": {
        "sql/0001_functions.sql": "f68053b3dd70e75d35701f0694544fc92e9ea7401ef67a811ab887222487b59e",
        "sql/0001_log.sql": "7226ba18bc468ed2524e73d766e91e33f40c0885313af75d30d97cb2f39db991",
        "sql/0001_rights.sql": "1a86be7ed2ee15decef04b95cf543691fde9580dc79f4a6c86d5f2f40eee6546",
        "sql/0001_work.sql": "2351decc3766f9f2ca70d215f719b9a3255544dd322c084133d30730ba3b5c0e",
        "versions/v0001_first.py": "f5794262f17dee3d0d32ecaa07cff763d5e3832f0634658b351ae21d79578778",
    },
    "0002": {
        "sql/0002_append.sql": "0de7f7702339eb077e83d4d93f0cd0cd5a5a3d28f87900d8a05859b345810d1a",
        "sql/0002_bodies.sql": "0f932a48ac0f4e7e19d1dcfe50936818e4f7f9b158ed53d788fb4c1371eaea19",
        "sql/0002_checkpoints.sql": "0a4ab08bd275915fa25d588aebd5c244b4fe23a182ed784c901570b33c795aa1",
        "versions/v0002_checkpoints.py": "770e12e0c97fc7f69bf7a967243edcf2244f5e16643e3c3575220fd89f38b01b",
    },
    "0003": {
        "sql/0003_refusals.sql": "d8688436888b55ee76f6c57f157f408e62debca71aea6e47a9ebd5ceb836e724",
        "versions/v0003_refusals.py": "d33758de6f1903448179d40a22751a7fe6bdfca50050709e8098cfb02961f30e",
    },
}
_APPEND_0001 = (
    "select head_seq from arena.append($1, $2, $3, $4::bytea[], $5::bytea[], $6::bytea[], $7::integer[], $8::bytea[],"
    " $9, $10, $11, $12, $13)"
)


async def make_schema(owner_dsn: str, revision: str) -> None:
    """The schema of a released revision in an empty database."""
    engine = open_engine(owner_dsn, is_autocommit=False, pool_size=1)
    async with engine.begin() as connection:
        await connection.run_sync(_upgrade_to, revision)
    await engine.dispose()


def _upgrade_to(connection: Connection, revision: str) -> None:
    run_script(connection, "bootstrap.sql")
    connection.execute(text("set local role arena_owner"))
    config = Config()
    config.set_main_option("script_location", "arena.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


async def fill_0001(dsn: str, signer) -> list[StoredBody]:
    """Leave something in every table of 0001 as its validator: a log of eleven records over three episodes, one done
    lease, one held, one that ran out, a returned item, submissions, events and weights. Returns the bodies."""
    connection = await asyncpg.connect(dsn)
    log = SignedLog(connection, signer)
    hotkey = signer.hotkey
    names = [f"item-{number}" for number in range(5)]
    work = (
        '{"item_id":"%s","subject":{"agent_version_id":"a1","miner_hotkey":"5m","agent_sha256":"b2"},'
        '"context":{"stage":"race","race_id":"old","problem_id":"p1"}}'
    )
    await connection.execute(
        "select arena.enqueue($1, $2, $3, $4, $5, $6)",
        hotkey,
        names,
        ["race"] * 5,
        ["old"] * 5,
        ["a1"] * 5,
        [work % name for name in names],
    )
    fences = [
        (await connection.fetchrow("select fence from arena.claim($1, array['race'], 1, $2)", hotkey, ttl_ms))["fence"]
        for ttl_ms in (60_000, 86_400_000, 1, 60_000)
    ]
    episodes = [episode(number, result_bytes=bytes_) for number, bytes_ in enumerate((200, 40_000, 1_000))]
    await log.append(episodes[0][0], [episodes[0][1]], fences[0], "done")
    await log.append([attempt(7)], (), fences[3], "abandoned")
    for payloads, body in episodes[1:]:
        await log.append(payloads, [body])
    await log.append([settlement("old")])
    for agent, state in (("a1", "qualified"), ("b2", "queued")):
        await connection.execute(
            "select arena.put_submission($1, $2, '5m', 'sha', 7, 'c3', $3, $4, $5, 9, '{}')",
            hotkey,
            agent * 32,
            b"na\0me",
            f"x = '{agent}'".encode(),
            state,
        )
    await connection.execute("select arena.put_event($1, 'race', 0, '{\"kind\":\"opened\"}')", hotkey)
    await connection.execute("select arena.put_weights_result($1, 'old', 4, '{0,3}', '{65535,9}', 'ok', '')", hotkey)
    await connection.close()
    return [body for _, body in episodes]


class SignedLog:
    """Signs as a release did and appends through that release's function."""

    def __init__(self, connection: asyncpg.Connection, signer) -> None:
        self._connection = connection
        self._memory = MemoryLog(signer.hotkey)
        self._sequencer = Sequencer(self._memory, signer, Clock(), HOST)

    async def append(
        self,
        payloads: Sequence[Payload],
        bodies: Sequence[StoredBody] = (),
        fence: int | None = None,
        end: str | None = None,
    ) -> None:
        """One call of the append function of 0001."""
        before = len(self._memory.log)
        await self._sequencer.append(payloads, bodies)
        records: list[SignedRecord] = self._memory.log[before:]
        frames = await compress_bodies(bodies)
        await self._connection.execute(
            _APPEND_0001,
            records[0].validator,
            records[0].seq,
            bytes.fromhex(records[0].prev),
            [record.content for record in records],
            [bytes.fromhex(record.signature) for record in records],
            [bytes.fromhex(frame.body_sha256) for frame in frames],
            [frame.size for frame in frames],
            [frame.content for frame in frames],
            fence,
            end,
            0,
            False,
            False,
        )

"""The append function of the newest schema against the first release's, call by call: it refuses the same calls for the
same reason, and leaves the same rows. The one wish it grants beside: a body may lie elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from arena.chain.keys import generate_signer
from arena.store.embedded import EmbeddedServer
from arena.store.schema import migrate, provision_validator, role_of
from tests.arena.test_store_roles import as_owner

MINE, OTHER = "5same", "5another"
ROLE_PASSWORD = "append"
CALL = (
    "select head_seq, head_hash from arena.append($1, $2, $3, $4::bytea[], $5::bytea[], $6::bytea[], $7::integer[],"
    " $8::bytea[], $9, $10, $11, $12, $13)"
)
BODY, SECOND = b"frame", b"another frame"
SHA, SECOND_SHA = hashlib.sha256(BODY).digest(), hashlib.sha256(SECOND).digest()
SIGNATURE = bytes(64)


def content(**payload: object) -> bytes:
    """What a record's content looks like to the database."""
    return json.dumps({"payload": payload}).encode()


def evaluation(sha256: bytes, text: str = "", race_id: str = "r") -> bytes:
    return content(kind="evaluation", body_sha256=sha256.hex(), context={"race_id": race_id}, note=text)


ATTEMPT = content(kind="attempt", context={"race_id": "r"}, body_sha256="")
VERDICT = content(kind="verdict", context={"race_id": "r"}, verdict={"body_sha256": SHA.hex()})
SETTLEMENT = content(kind="settlement", race_id="settled")

# Arguments by name, over one attempt on the true head; `None` for the validator is nobody.
CALLS: dict[str, dict[str, Any]] = {
    "nothing": {"contents": [], "signatures": []},
    "no contents": {"contents": None, "signatures": None},
    "a signature too many": {"signatures": [SIGNATURE] * 2},
    "no signature": {"signatures": [None]},
    "a short signature": {"signatures": [b"short"]},
    "an attempt": {},
    "no content": {"contents": [None]},
    "not UTF-8": {"contents": [b"\xff"]},
    "NUL in the bytes": {"contents": [b'{"payload":{"kind":"a\0"}}']},
    "not JSON": {"contents": [b"{"]},
    "JSON of another kind": {"contents": [b"[1]"]},
    "no payload": {"contents": [b"{}"]},
    "no kind": {"contents": [content(race_id="r")]},
    "a context that is no object": {"contents": [content(kind="attempt", context=[1])]},
    "a hash that is no hexadecimal": {"contents": [content(kind="attempt", body_sha256="zz")]},
    "an earlier number": {"seq": 1},
    "no number": {"seq": None},
    "another head": {"prev": bytes(32)},
    "no head": {"prev": None},
    "for another": {"validator": OTHER},
    "for nobody": {"validator": None},
    "a body that is not there": {"contents": [evaluation(SHA)]},
    "a body with it": {"contents": [evaluation(SHA)], "shas": [SHA], "sizes": [9], "bodies": [BODY]},
    "a body of before": {"contents": [evaluation(SHA)]},
    "a body again": {"contents": [evaluation(SHA)], "shas": [SHA], "sizes": [8], "bodies": [b"other bytes"]},
    "a body twice": {"contents": [ATTEMPT], "shas": [SECOND_SHA] * 2, "sizes": [9, 9], "bodies": [SECOND] * 2},
    "the second's body is not there": {
        "contents": [evaluation(SHA), evaluation(bytes(32))],
        "signatures": [SIGNATURE] * 2,
    },
    "a body of no hash": {"contents": [ATTEMPT], "shas": [None], "sizes": [9], "bodies": [BODY]},
    "a body of a short hash": {"contents": [ATTEMPT], "shas": [b"short"], "sizes": [9], "bodies": [BODY]},
    "a body of no size": {"contents": [ATTEMPT], "shas": [bytes(32)], "sizes": [], "bodies": [BODY]},
    "a body of size nought": {"contents": [ATTEMPT], "shas": [bytes(32)], "sizes": [0], "bodies": [BODY]},
    "sizes of no bodies": {"sizes": [9]},
    "an evaluation of no body": {"contents": [content(kind="evaluation", context={"race_id": "r"})]},
    "an evaluation among bodies of no hash": {
        "contents": [evaluation(bytes(32))],
        "shas": [None],
        "sizes": [9],
        "bodies": [BODY],
    },
    "NUL in a text": {"contents": [evaluation(SHA, "\0 \\u0000 \ud7ff")]},
    "a verdict": {"contents": [VERDICT]},
    "a verdict on nothing stored": {
        "contents": [content(kind="verdict", context={"race_id": "r"}, verdict={"body_sha256": "ab" * 32})]
    },
    "several kinds": {
        "contents": [ATTEMPT, evaluation(SHA, race_id="other"), VERDICT, SETTLEMENT],
        "signatures": [bytes([n]) * 64 for n in range(4)],
    },
    "a grid": {"contents": [[ATTEMPT, VERDICT], [SETTLEMENT, ATTEMPT]], "signatures": [SIGNATURE] * 4},
    "a lease that is not there": {"fence": 999, "state": "done"},
    "an end of no kind": {"fence": 1, "state": "gone"},
    "a lease that is done": {"fence": 1, "state": "done"},
    "the same lease again": {"fence": 1, "state": "done"},
    "a lease given back": {"fence": 2, "state": "abandoned", "delay_ms": 86_400_000, "is_fault": True},
    "a lease given back and counted": {"fence": 3, "state": "abandoned", "is_counted": True},
    "a long run": {"contents": [ATTEMPT] * 250, "signatures": [SIGNATURE] * 250},
}

ENDS: dict[str, object] = {
    "nothing": "AR003",
    "no contents": "AR003",
    "a signature too many": "AR003",
    "no signature": "23502",
    "a short signature": "23514",
    "an attempt": 1,
    "no content": "23502",
    "not UTF-8": "22021",
    "NUL in the bytes": "22021",
    "not JSON": "22P02",
    "JSON of another kind": "23502",
    "no payload": "23502",
    "no kind": "23502",
    "a context that is no object": 2,
    "a hash that is no hexadecimal": "22023",
    "an earlier number": "AR001",
    "no number": "AR001",
    "another head": "AR001",
    "no head": "AR001",
    "for another": "42501",
    "for nobody": "42501",
    "a body that is not there": "AR003",
    "a body with it": 3,
    "a body of before": 4,
    "a body again": 5,
    "a body twice": 6,
    "the second's body is not there": "AR003",
    "a body of no hash": "23502",
    "a body of a short hash": "23514",
    "a body of no size": "23502",
    "a body of size nought": "23514",
    "sizes of no bodies": "23502",
    "an evaluation of no body": "AR003",
    "an evaluation among bodies of no hash": "23502",
    "NUL in a text": 7,
    "a verdict": 8,
    "a verdict on nothing stored": 9,
    "several kinds": 13,
    "a grid": 17,
    "a lease that is not there": "AR002",
    "an end of no kind": "23514",
    "a lease that is done": 18,
    "the same lease again": "AR002",
    "a lease given back": 19,
    "a lease given back and counted": 20,
    "a long run": 270,
}


class Log:
    """The log of one validator in a database of its own, and where it ends."""

    def __init__(self, connection: asyncpg.Connection, validator: str = MINE) -> None:
        self._connection, self._validator = connection, validator
        self._seq, self._hash = 0, hashlib.sha256(validator.encode()).digest()

    async def call(self, **given: Any) -> tuple[object, ...]:
        """The new head, or the reason of the refusal, by SQLSTATE and first line."""
        contents = given.get("contents", [ATTEMPT])
        try:
            row = await self._connection.fetchrow(
                CALL,
                given.get("validator", self._validator),
                given.get("seq", self._seq + 1),
                given.get("prev", self._hash),
                contents,
                given.get("signatures", [SIGNATURE]),
                given.get("shas", []),
                given.get("sizes", []),
                given.get("bodies", []),
                given.get("fence"),
                given.get("state"),
                given.get("delay_ms", 0),
                given.get("is_fault", False),
                given.get("is_counted", False),
            )
        except asyncpg.PostgresError as error:
            return "refused", error.sqlstate
        self._seq, self._hash = row["head_seq"], row["head_hash"]
        return self._seq, self._hash


@pytest.fixture
async def database(postgres: EmbeddedServer) -> AsyncIterator[str]:
    """The owner's DSN of an empty database with the schema."""
    name = f"append_{generate_signer().hotkey[-8:].lower()}"
    owner = postgres.owner_dsn.replace("@/postgres", f"@/{name}")
    await as_owner(postgres, f"create database {name}")
    await asyncio.to_thread(migrate, owner)
    yield owner
    await as_owner(postgres, f"drop database {name} with (force)")


async def test_every_call_ends_as_it_is_to_end(database: str) -> None:
    """Each ends with the number of the last record, or with the SQLSTATE of its refusal."""
    connection = await connected(database)
    log = Log(connection)
    await connection.execute("select arena.enqueue($1, $2, $3, $3, $3, $3)", MINE, ["i1", "i2", "i3"], ["race"] * 3)
    await connection.execute("select arena.claim($1, array['race'], 3, 86400000)", MINE)
    found = {}
    for name, given in CALLS.items():
        first, second = await log.call(**given)
        found[name] = second if first == "refused" else first
    assert found == ENDS
    rows = await connection.fetch(
        "select content, day = (now() at time zone 'UTC')::date as is_today from arena.record"
    )
    assert len(rows) == found["a long run"] and all(row["is_today"] for row in rows)
    await connection.close()


async def test_a_body_that_lies_elsewhere_is_a_row_without_content(database: str) -> None:
    connection = await connected(database)
    end = await Log(connection).call(contents=[evaluation(SHA)], shas=[SHA], sizes=[9], bodies=[None])
    assert end[0] == 1
    assert await connection.fetchval("select content is null from arena.body")
    await connection.close()


async def connected(owner_dsn: str) -> asyncpg.Connection:
    """A connection as the validator's own role."""
    await asyncio.to_thread(provision_validator, owner_dsn, MINE, ROLE_PASSWORD)
    login = owner_dsn.split("//")[1].split("@")[0]
    return await asyncpg.connect(owner_dsn.replace(login, f"{role_of(MINE)}:{ROLE_PASSWORD}"))

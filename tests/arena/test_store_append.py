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
from arena.store.embedded.server import EmbeddedServer
from arena.store.schema import migrate, provision_validator, role_of
from tests.arena.released_schemas import FROZEN, make_schema
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
async def databases(postgres: EmbeddedServer) -> AsyncIterator[list[str]]:
    """The owner's DSN of a database with the first release's schema, and of one that was migrated from it."""
    names = [f"append_{generate_signer().hotkey[-8:].lower()}" for _ in range(2)]
    owners = [postgres.owner_dsn.replace("@/postgres", f"@/{name}") for name in names]
    for name, owner in zip(names, owners, strict=True):
        await as_owner(postgres, f"create database {name}")
        await make_schema(owner, "0001")
    await asyncio.to_thread(migrate, owners[1])
    yield owners
    for name in names:
        await as_owner(postgres, f"drop database {name} with (force)")


async def test_every_call_ends_as_with_the_first_release_and_leaves_its_rows(databases: list[str]) -> None:
    found = []
    for owner in databases:
        connection = await connected(owner)
        log = Log(connection)
        await connection.execute("select arena.enqueue($1, $2, $3, $3, $3, $3)", MINE, ["i1", "i2", "i3"], ["race"] * 3)
        await connection.execute("select arena.claim($1, array['race'], 3, 86400000)", MINE)
        results = {name: await log.call(**given) for name, given in CALLS.items()}
        await connection.close()
        found.append((results, await rows_of(owner)))
    (first, first_rows), (newest, newest_rows) = found
    assert {name: end for name, end in newest.items() if end != first[name]} == {}
    assert newest_rows == first_rows
    refusals = {name for name, result in newest.items() if result[0] == "refused"}
    assert len(refusals) > 20
    assert {"an attempt", "a body with it", "NUL in a text", "several kinds", "a long run"}.isdisjoint(refusals)


async def test_a_body_elsewhere_is_the_one_thing_more_that_is_taken(databases: list[str]) -> None:
    ends = []
    for owner in databases:
        connection = await connected(owner)
        ends.append(await Log(connection).call(contents=[evaluation(SHA)], shas=[SHA], sizes=[9], bodies=[None]))
        await connection.close()
    assert ends[0] == ("refused", "23502")
    assert ends[1][0] == 1


@pytest.mark.parametrize("about", ["rights", "settings"])
async def test_the_function_keeps_signature_owner_rights_and_settings(about: str, databases: list[str]) -> None:
    columns = {
        "rights": "p.proacl::text, p.proowner::regrole::text, p.prosecdef",
        "settings": "p.proconfig, p.provolatile, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)",
    }
    query = (
        f"select {columns[about]} from pg_proc p where p.pronamespace = 'arena'::regnamespace and proname = 'append'"
    )
    found = [[tuple(row) for row in await fetch(owner, query)] for owner in databases]
    assert len(found[0]) == 1
    assert found[0] == found[1]


async def connected(owner_dsn: str) -> asyncpg.Connection:
    """A connection as the validator's own role."""
    await asyncio.to_thread(provision_validator, owner_dsn, MINE, ROLE_PASSWORD)
    login = owner_dsn.split("//")[1].split("@")[0]
    return await asyncpg.connect(owner_dsn.replace(login, f"{role_of(MINE)}:{ROLE_PASSWORD}"))


async def fetch(dsn: str, query: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(query)
    finally:
        await connection.close()


async def rows_of(owner_dsn: str) -> list[str]:
    """Every row that an append can touch, without the times of the clock and what a later release counts."""
    found = []
    times = {"record": "appended_at", "item": "not_before", "lease": "expires_at"}
    for table in ("head", "record", "body", "item", "lease"):
        query = (
            f"select (to_jsonb(t) - '{times.get(table, '')}' - 'refused')::text as row from arena.{table} t order by 1"
        )
        found += [row["row"] for row in await fetch(owner_dsn, query)]
    return found


def test_the_calls_are_of_a_release_that_is_frozen() -> None:
    assert "sql/0001_functions.sql" in FROZEN["0001"]

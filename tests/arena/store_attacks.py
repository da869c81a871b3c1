"""What a validator's role must not be able to do to a database, as a table of statements; and what a database holds.

Each statement is refused with "insufficient privilege" when it is run by the login role of `ATTACKER`.
"""

from __future__ import annotations

import asyncpg

from arena.store.schema import role_of

ATTACKER, VICTIM = "5attacker", "5victim"
OWN_TABLES = (
    "head",
    "record",
    "body",
    "item",
    "lease",
    "submission",
    "event",
    "weights_result",
    "checkpoint",
    "anchor",
    "usage",
    "nonce",
)  # each row belongs to one validator
TABLES = {**dict.fromkeys(OWN_TABLES, "validator"), "validator": "hotkey", "alembic_version": "version_num"}
PARTITIONED = ("record", "body")

_ON_TABLES = {
    "update": "update arena.{table} set {column} = {column}",
    "delete from": "delete from arena.{table}",
    "truncate": "truncate arena.{table} cascade",
    "insert into": "insert into arena.{table} default values",
    "switch triggers off on": "alter table arena.{table} disable trigger all",
    "switch row security off on": "alter table arena.{table} disable row level security",
    "take over": "alter table arena.{table} owner to current_user",
    "hang a trigger on": "create trigger mine before insert on arena.{table}"
    " for each row execute function arena.deny()",
    "drop": "drop table arena.{table} cascade",
}

_OTHERS = {
    "detach a partition": "alter table arena.record detach partition arena.{record}",
    "add a partition": "select arena.add_day('2001-01-01')",
    "read a partition": "select * from arena.{record}",
    "read who is who": "select * from arena.validator",
    "read past row security": "set row_security = off; select * from arena.record",
    "read the passwords": "select rolpassword from pg_authid",
    "run a program": "copy (select 1) to program 'true'",
    "become the victim": "set role {victim_role}",
    "join the victim": "grant {victim_role} to current_user",
    "rise": "alter role current_user superuser",
    "end the victim's sessions": "select pg_terminate_backend(pid) from pg_stat_activity"
    " where usename = '{victim_role}'",
    "rekey the victim": "alter role {victim_role} password 'x'",
    "take another name": "insert into arena.validator values (session_user, '5victim')",
    "shadow the check": "create function pg_temp.require(text) returns void language sql as '';"
    " set search_path = pg_temp, arena; select arena.hold('5victim')",
    "drop the schema": "drop schema arena cascade",
    "act as the group": "set role arena_validator; select arena.hold('5victim')",
    "turn fences back": "select setval('arena.fence', 1)",
    "append for another": "select arena.append('5victim', 1, sha256('5victim'), array['x'::bytea],"
    " array['y'::bytea], '{{}}', '{{}}', '{{}}')",
    "end a lease past append": "select arena.end_lease('5attacker', 1, 'done', 0, false, false)",
    "fill the disk with a large object": "select lo_from_bytea(0, 'x')",
    "fill the log with messages": "select pg_logical_emit_message(false, 'x', 'y')",
    "fill the disk with a temporary table": "create temp table filler as select 1 as x",
    "anchor for another": "select arena.put_anchor('5victim', 1, '\\x00', 1)",
    "sign a state for another": "select arena.put_checkpoint('5victim', 1, 'note', 1)",
}


def attacks(partition_day: str) -> dict[str, str]:
    """The statements, by what they try. `partition_day` (YYYYMMDD) names partitions that exist."""
    parts = {f"{table}_{partition_day}": "validator" for table in PARTITIONED}
    names = {"record": f"record_{partition_day}", "body": f"body_{partition_day}", "victim_role": role_of(VICTIM)}
    on_tables = {
        f"{what} {table}".replace(partition_day, "of a day"): sql.format(table=table, column=column)
        for table, column in (TABLES | parts).items()
        for what, sql in _ON_TABLES.items()
    }
    return on_tables | {what: sql.format(**names) for what, sql in _OTHERS.items()}


async def is_refused(connection: asyncpg.Connection, statement: str) -> bool:
    """True when the server refuses for want of a right; whatever the statement did is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return True
    finally:
        await transaction.rollback()
    return False


async def partition_day(connection: asyncpg.Connection) -> str:
    """YYYYMMDD of the earliest partition there is: the database's own days, whatever the day is by now."""
    name = await connection.fetchval(
        "select min(inhrelid::regclass::text) from pg_inherits where inhparent = 'arena.record'::regclass"
    )
    return name.removeprefix("arena.record_")

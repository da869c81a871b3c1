"""What a simulated network does to a local chain: takes unfinalized blocks back, holds up finality, hands uids on.

Promise: a finalized block is never touched: its state and its hash stay what they were. A reorg takes back everything
accepted in the blocks it replaces and, as a transaction pool does, may accept it again in a later one; the hash of
every replaced block changes. All of it is in the chain's file, so that every process sees the same.
"""

from __future__ import annotations

import hashlib
import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS reorg (from_block INTEGER NOT NULL, to_block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS finality (one INTEGER PRIMARY KEY CHECK (one = 1), lag INTEGER NOT NULL,
    floor INTEGER NOT NULL);
"""
_BY_BLOCK = ("stake", "commitment", "weights", "endpoint")
_HASH_DOMAIN = b"agent-arena/local-block/1\n"


def finalized_at(connection: sqlite3.Connection, sealed: int, usual_lag: int) -> int:
    """The latest final block while `sealed` is the head. It never steps back."""
    row = connection.execute("SELECT lag, floor FROM finality").fetchone()
    lag, floor = (usual_lag, 0) if row is None else (int(row[0]), int(row[1]))
    return max(0, floor, sealed - lag)


def write_finality_lag(connection: sqlite3.Connection, lag: int, finalized: int) -> None:
    """From now on finality is `lag` blocks behind the head; `finalized` is final already."""
    connection.execute("INSERT OR REPLACE INTO finality VALUES (1, ?, ?)", (lag, finalized))


def hash_of_block(connection: sqlite3.Connection, genesis_ms: int, block: int) -> str:
    """The hash of a sealed block: it follows from the chain, the height and the reorgs that replaced it."""
    replaced = connection.execute(
        "SELECT count(*) FROM reorg WHERE ? BETWEEN from_block AND to_block", (block,)
    ).fetchone()[0]
    return "0x" + hashlib.sha256(_HASH_DOMAIN + f"{genesis_ms}/{block}/{replaced}".encode()).hexdigest()


def take_back(connection: sqlite3.Connection, from_block: int, sealed: int, *, is_accepted_again: bool) -> None:
    """Replace the blocks from `from_block` to `sealed`, and what waits for the next one.

    What they held is gone, or is in block `sealed` + 1 where it `is_accepted_again`.
    """
    connection.execute("INSERT INTO reorg VALUES (?, ?)", (from_block, sealed))
    if is_accepted_again:
        for table in _BY_BLOCK:
            connection.execute(f"UPDATE {table} SET block = ? WHERE block >= ?", (sealed + 1, from_block))
        connection.execute("UPDATE neuron SET from_block = ? WHERE from_block >= ?", (sealed + 1, from_block))
        connection.execute("UPDATE neuron SET until_block = ? WHERE until_block >= ?", (sealed + 1, from_block))
        return
    for table in _BY_BLOCK:
        connection.execute(f"DELETE FROM {table} WHERE block >= ?", (from_block,))
    connection.execute("DELETE FROM neuron WHERE from_block >= ?", (from_block,))
    connection.execute("UPDATE neuron SET until_block = NULL WHERE until_block >= ?", (from_block,))


def hand_on_uid(connection: sqlite3.Connection, from_hotkey: str, to_hotkey: str, block: int) -> int | None:
    """Give the uid of one hotkey to another from `block` on; returns it, or None when the first holds none."""
    row = connection.execute(
        "SELECT uid FROM neuron WHERE hotkey = ? AND until_block IS NULL", (from_hotkey,)
    ).fetchone()
    if row is None:
        return None
    connection.execute(
        "UPDATE neuron SET until_block = ? WHERE hotkey = ? AND until_block IS NULL", (block, from_hotkey)
    )
    connection.execute("INSERT INTO neuron VALUES (?, ?, ?, ?, NULL)", (row[0], to_hotkey, to_hotkey, block))
    return int(row[0])

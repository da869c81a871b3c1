"""The local chain's file: one SQLite database that any number of processes share.

A write is one transaction, durable when it returns, and kill -9 at any instant leaves the file as it was
before or after it. State is kept by block: a read at a final block answers the same for ever, and only a reorg that a
simulation asks for (the tables `reorg` and `finality`) rewrites what stands above it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from arena.chain.port import Commitment, Metagraph, Neuron
from foundation.errors import ArenaError

_HASH_DOMAIN = b"agent-arena/local-block/1\n"
_BUSY_TIMEOUT_S = 30.0
_READERS_KEPT = 4
_OTHER_FOLDER = "give a --state-dir that this user may write to"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS chain (one INTEGER PRIMARY KEY CHECK (one = 1), rules TEXT NOT NULL,
    genesis_ms INTEGER NOT NULL, high_block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS neuron (uid INTEGER NOT NULL, hotkey TEXT NOT NULL, coldkey TEXT NOT NULL,
    from_block INTEGER NOT NULL, until_block INTEGER);
CREATE TABLE IF NOT EXISTS stake (hotkey TEXT NOT NULL, block INTEGER NOT NULL, stake_rao INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS commitment (hotkey TEXT NOT NULL, block INTEGER NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS endpoint (hotkey TEXT NOT NULL, block INTEGER NOT NULL, endpoint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS weights (hotkey TEXT NOT NULL, block INTEGER NOT NULL, pairs TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS commitment_by_hotkey ON commitment (hotkey, block);
CREATE INDEX IF NOT EXISTS weights_by_hotkey ON weights (hotkey, block);
CREATE INDEX IF NOT EXISTS stake_by_hotkey ON stake (hotkey, block);
CREATE INDEX IF NOT EXISTS endpoint_by_hotkey ON endpoint (hotkey, block);
CREATE TABLE IF NOT EXISTS reorg (from_block INTEGER NOT NULL, to_block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS finality (one INTEGER PRIMARY KEY CHECK (one = 1), lag INTEGER NOT NULL,
    floor INTEGER NOT NULL);
"""
_METAGRAPH = """
SELECT uid, hotkey, coldkey,
    coalesce((SELECT stake_rao FROM stake s WHERE s.hotkey = n.hotkey AND s.block <= :b ORDER BY s.rowid DESC LIMIT 1),
        0),
    coalesce((SELECT max(block) FROM weights w
        WHERE w.hotkey = n.hotkey AND w.block <= :b AND w.block >= n.from_block), from_block),
    coalesce((SELECT endpoint FROM endpoint e
        WHERE e.hotkey = n.hotkey AND e.block <= :b AND e.block >= n.from_block ORDER BY e.rowid DESC LIMIT 1), '')
FROM neuron n WHERE from_block <= :b AND (until_block IS NULL OR until_block > :b) ORDER BY uid
"""


class LocalRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a local chain is made with; fixed at creation and kept in its file. Blocks count from 1."""

    netuid: int = 15
    block_ms: int = 12_000
    finality_blocks: int = 2
    tempo: int = 360
    weights_rate_limit_blocks: int = 100
    commitment_rate_limit_blocks: int = 0  # 0: none
    serving_rate_limit_blocks: int = 0  # 0: none
    permit_stake_rao: int = 1_000_000_000_000  # 1,000 TAO
    max_uids: int = 256


class _KeptReader(NamedTuple):
    """A connection that only reads, and the process and the file that it was opened in and for."""

    connection: sqlite3.Connection
    place: tuple[int, int, int]


_OF_PARENTS: list[_KeptReader] = []


class LocalState:
    """Opens the file for each write. What reads is kept for the next read and used by one transaction at a time: to
    open the file takes several times as long as a read, since SQLite makes its shared memory with the first connection
    there is and takes it away with the last. A kept one is left alone by a fork, and where the path names another
    file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers: list[_KeptReader] = []  # that are free; any thread takes the last
        weakref.finalize(self, _close, self._readers)

    @contextmanager
    def transaction(self, *, is_write: bool) -> Iterator[sqlite3.Connection]:
        """One transaction. Raises ArenaError U3030 when the file can't be read, written or locked."""
        connection: sqlite3.Connection | None = None
        try:
            reader = None if is_write else self._reader()
            connection = reader.connection if reader else self._connect()
            connection.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
            yield connection
            connection.execute("COMMIT")
            if reader is not None and len(self._readers) < _READERS_KEPT:
                self._readers.append(reader)
                connection = None
        except sqlite3.Error as error:
            raise ArenaError("U3030", f"{self._path}: {error}") from error
        finally:
            if connection is not None:
                connection.close()  # an open transaction rolls back

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _reader(self) -> _KeptReader:
        """A free one of this process and this file, or a new one."""
        try:
            found = self._path.stat()
            place = os.getpid(), found.st_dev, found.st_ino
        except OSError:
            place = os.getpid(), 0, 0  # SQLite says what is wrong
        while self._readers:
            reader = self._readers.pop()
            if reader.place == place:
                return reader
            _close([reader])
        return _KeptReader(self._connect(), place)

    def create(self, rules: LocalRules, genesis_ms: int, owner: str = "") -> None:
        """Make the chain unless the file already holds one; `owner` holds uid 0 from block 1 on.

        Raises ArenaError V2027 for a folder that can't be had, U3030 for a file that can't be used.
        """
        folder = self._path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArenaError("V2027", f"{folder} cannot be made ({error.strerror})", fix=_OTHER_FOLDER) from error
        if not os.access(folder, os.W_OK):
            raise ArenaError("V2027", f"{folder} cannot be written", fix=_OTHER_FOLDER)
        try:
            connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_SCHEMA)
                text = msgspec.json.encode(rules).decode()
                connection.execute("BEGIN IMMEDIATE")
                made = connection.execute("INSERT OR IGNORE INTO chain VALUES (1, ?, ?, 1)", (text, genesis_ms))
                if made.rowcount and owner:
                    connection.execute("INSERT INTO neuron VALUES (0, ?, ?, 1, NULL)", (owner, owner))
                connection.execute("COMMIT")
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise ArenaError("U3030", f"{self._path}: {error}") from error

    def genesis(self) -> tuple[LocalRules, int]:
        """The chain's rules and the unix milliseconds of block 1."""
        with self.transaction(is_write=False) as connection:
            text, genesis_ms = connection.execute("SELECT rules, genesis_ms FROM chain").fetchone()
        return msgspec.json.decode(text, type=LocalRules), int(genesis_ms)


def _close(readers: list[_KeptReader]) -> None:
    for reader in readers:
        if reader.place[0] == os.getpid():
            reader.connection.close()
        else:  # the parent's: SQLite forbids to use it here, and being collected would close it
            _OF_PARENTS.append(reader)


def raise_high_block(connection: sqlite3.Connection, block: int) -> int:
    """Remember the highest block seen and return it: a clock that steps back never takes a block back."""
    connection.execute("UPDATE chain SET high_block = max(high_block, ?)", (block,))
    return high_block(connection)


def high_block(connection: sqlite3.Connection) -> int:
    """The highest block any write has seen."""
    return int(connection.execute("SELECT high_block FROM chain").fetchone()[0])


def finalized_at(connection: sqlite3.Connection, sealed: int, usual_lag: int) -> int:
    """The latest final block while `sealed` is the head. It never steps back."""
    row = connection.execute("SELECT lag, floor FROM finality").fetchone()
    lag, floor = (usual_lag, 0) if row is None else (int(row[0]), int(row[1]))
    return max(0, floor, sealed - lag)


def hash_of_block(connection: sqlite3.Connection, genesis_ms: int, block: int) -> str:
    """The hash of a sealed block: it follows from the chain, the height and the reorgs that replaced it."""
    replaced = connection.execute(
        "SELECT count(*) FROM reorg WHERE ? BETWEEN from_block AND to_block", (block,)
    ).fetchone()[0]
    return "0x" + hashlib.sha256(_HASH_DOMAIN + f"{genesis_ms}/{block}/{replaced}".encode()).hexdigest()


def read_metagraph(connection: sqlite3.Connection, rules: LocalRules, block: int) -> Metagraph:
    """The subnet at the end of `block`."""
    rows = connection.execute(_METAGRAPH, {"b": block})
    neurons = tuple(
        Neuron(
            uid=uid,
            hotkey=hotkey,
            coldkey=coldkey,
            has_validator_permit=stake_rao >= rules.permit_stake_rao,
            stake_rao=stake_rao,
            last_update_block=last_update,
            endpoint=endpoint,
        )
        for uid, hotkey, coldkey, stake_rao, last_update, endpoint in rows
    )
    return Metagraph(netuid=rules.netuid, block=block, tempo=rules.tempo, neurons=neurons)


def read_owner(connection: sqlite3.Connection) -> str | None:
    """The owner that the chain was made with; None where none was named. Nobody else registers in block 1."""
    row = connection.execute("SELECT hotkey FROM neuron WHERE uid = 0 AND from_block = 1").fetchone()
    return None if row is None else str(row[0])


def read_commitment(connection: sqlite3.Connection, hotkey: str, block: int) -> Commitment | None:
    """The hotkey's latest commitment at the end of `block`."""
    row = connection.execute(
        "SELECT sha256, block FROM commitment WHERE hotkey = ? AND block <= ? ORDER BY rowid DESC LIMIT 1",
        (hotkey, block),
    ).fetchone()
    return None if row is None else Commitment(hotkey=hotkey, sha256=row[0], block=row[1])


def write_commitment(connection: sqlite3.Connection, commitment: Commitment) -> None:
    """Add a commitment to the hotkey's history."""
    row = (commitment.hotkey, commitment.block, commitment.sha256)
    connection.execute("INSERT INTO commitment (hotkey, block, sha256) VALUES (?, ?, ?)", row)


def write_endpoint(connection: sqlite3.Connection, hotkey: str, block: int, endpoint: str) -> None:
    """Say where a hotkey answers from `block` on."""
    connection.execute("INSERT INTO endpoint (hotkey, block, endpoint) VALUES (?, ?, ?)", (hotkey, block, endpoint))


def last_block_of(connection: sqlite3.Connection, table: Literal["commitment", "endpoint"], hotkey: str) -> int | None:
    """The block of the hotkey's last commitment or endpoint, or None."""
    row = connection.execute(f"SELECT max(block) FROM {table} WHERE hotkey = ?", (hotkey,)).fetchone()
    return None if row[0] is None else int(row[0])


def read_weights(connection: sqlite3.Connection, hotkey: str) -> tuple[tuple[int, int], ...]:
    """The (uid, u16) pairs a validator set last, by uid."""
    row = connection.execute(
        "SELECT pairs FROM weights WHERE hotkey = ? ORDER BY rowid DESC LIMIT 1", (hotkey,)
    ).fetchone()
    return () if row is None else msgspec.json.decode(row[0], type=tuple[tuple[int, int], ...])


def last_weights_block(connection: sqlite3.Connection, hotkey: str) -> int | None:
    """The block of the validator's last weights, or None."""
    row = connection.execute("SELECT max(block) FROM weights WHERE hotkey = ?", (hotkey,)).fetchone()
    return None if row[0] is None else int(row[0])


def write_weights(connection: sqlite3.Connection, hotkey: str, block: int, pairs: tuple[tuple[int, int], ...]) -> None:
    """Add a weight vector to the validator's history."""
    text = msgspec.json.encode(pairs).decode()
    connection.execute("INSERT INTO weights (hotkey, block, pairs) VALUES (?, ?, ?)", (hotkey, block, text))


def add_neuron(connection: sqlite3.Connection, hotkey: str, coldkey: str, block: int, max_uids: int) -> int | None:
    """Register on the lowest free uid; returns the uid, or None when the subnet is full."""
    taken = {row[0] for row in connection.execute("SELECT uid FROM neuron WHERE until_block IS NULL")}
    uid = next((candidate for candidate in range(max_uids) if candidate not in taken), None)
    if uid is not None:
        connection.execute("INSERT INTO neuron VALUES (?, ?, ?, ?, NULL)", (uid, hotkey, coldkey, block))
    return uid


def write_stake(connection: sqlite3.Connection, hotkey: str, block: int, stake_rao: int) -> None:
    """Set the stake behind a hotkey from `block` on."""
    connection.execute("INSERT INTO stake (hotkey, block, stake_rao) VALUES (?, ?, ?)", (hotkey, block, stake_rao))

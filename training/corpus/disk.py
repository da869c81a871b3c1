"""What a build keeps on disk, in SQLite: the journal of its appraisals, counts of tokens, and what is sorted.

A journal with a path is taken up again by a run of the same identity, up to the last shard that was written whole (each
has its checksum); one that is damaged is begun anew from there. One run at a time has it. A journal without a path, and
what is sorted, lie in files without a name and go with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

import msgspec

from foundation.errors import ArenaError
from training.corpus.model import Appraisal, TokenWork, UnreadCount

NO_IDENTITY = "0" * 64

_QUICK = "PRAGMA synchronous = OFF"  # what a failing machine loses is read again
_CACHE = "PRAGMA cache_size = -8192"  # 8 MiB of pages in memory, the rest on disk
_TABLES = """
CREATE TABLE IF NOT EXISTS run (identity TEXT);
CREATE TABLE IF NOT EXISTS shard (number INTEGER PRIMARY KEY, traces INTEGER, head BLOB, checksum INTEGER);
CREATE TABLE IF NOT EXISTS trace (number INTEGER PRIMARY KEY, packed BLOB);
"""
# of a file that another run has, that can't be read or written here, or has no room: what it holds is not to blame
_NOT_TO_BE_USED = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
}
_TRACE = msgspec.msgpack.Decoder(Appraisal).decode


@contextlib.contextmanager
def scratch(folder: Path | None = None) -> Iterator[sqlite3.Connection]:
    """An empty database in a file without a name, in `folder` or where the system puts what is temporary.

    Raises OSError or sqlite3.Error when the disk does not take it.
    """
    with contextlib.closing(_scratch(folder)) as store:
        yield store


def _scratch(folder: Path | None) -> sqlite3.Connection:
    with tempfile.NamedTemporaryFile(dir=folder) as file:  # SQLite has it open when the name goes
        store = sqlite3.connect(file.name, isolation_level=None, check_same_thread=False)
        for line in ("PRAGMA journal_mode = OFF", "PRAGMA locking_mode = EXCLUSIVE", _QUICK, _CACHE):
            store.execute(line)
        store.execute("CREATE TABLE opened (here)")
    return store


def sorted_on_disk(
    pairs: Iterable[tuple[bytes, bytes]], *, folder: Path | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs by key, then by value, whatever their number. Raises OSError or sqlite3.Error when the disk is full."""
    with scratch(folder) as store:
        store.execute("CREATE TABLE pair (key BLOB, value BLOB)")
        store.execute("BEGIN")
        store.executemany("INSERT INTO pair VALUES (?, ?)", pairs)
        store.execute("COMMIT")
        yield from store.execute("SELECT key, value FROM pair ORDER BY key, value")


class ShardHead(msgspec.Struct, frozen=True, array_like=True):
    """A shard beside its appraisals: rows quarantined, by code, and the tokens counted anew, by `text_key`."""

    quarantined: tuple[UnreadCount, ...]
    counts: dict[str, int]
    work: TokenWork


class PackedShard(msgspec.Struct, frozen=True, array_like=True):
    """A shard as it comes from where it was read: appraisals in order, each packed."""

    traces: list[msgspec.Raw]
    head: ShardHead


_HEAD, _SHARD = msgspec.msgpack.Decoder(ShardHead).decode, msgspec.msgpack.Decoder(PackedShard).decode


def added_up(counts: Iterable[UnreadCount]) -> list[UnreadCount]:
    """One count a code, sorted; its example is the first place by number, whatever the order."""
    found: dict[str, UnreadCount] = {}
    for one in counts:
        known = found.get(one.code, UnreadCount(code=one.code, count=0, example=one.example))
        example = min(known.example, one.example, key=lambda place: (len(place), place))
        found[one.code] = UnreadCount(code=one.code, count=known.count + one.count, example=example)
    return [found[code] for code in sorted(found)]


class AppraisalJournal(Sequence[Appraisal]):
    """One run's appraisals, in the order of shards, and what each shard says beside them.

    Raises ArenaError V2027 when the file cannot be used, or another run is using it.
    """

    def __init__(self, path: Path | None = None, identity: str = NO_IDENTITY) -> None:
        self._path = path
        self._traces = self.shards = 0
        try:
            if path is None:
                self._store = _scratch(None)
                weakref.finalize(self, self._store.close)
                self._store.executescript(_TABLES)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._open(path, identity)
            except (sqlite3.Error, msgspec.DecodeError, TypeError) as wrong:
                if getattr(wrong, "sqlite_errorcode", 0) & 0xFF in _NOT_TO_BE_USED:
                    raise
                self._store.close()  # it is not, or no longer, a journal
                self.discard()
                self._traces = self.shards = 0
                self._open(path, identity)
        except sqlite3.OperationalError as wrong:
            reason = "another build is using it" if "locked" in str(wrong) else str(wrong)
            raise ArenaError("V2027", f"{path or tempfile.gettempdir()}: {reason}") from None
        except OSError as wrong:
            raise ArenaError("V2027", f"{path or tempfile.gettempdir()}: {wrong.strerror}") from None

    def _open(self, path: Path, identity: str) -> None:
        self._store = store = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, store.close)  # the lock ends with this object, not with the next collection of garbage
        for line in ("PRAGMA locking_mode = EXCLUSIVE", _QUICK, _CACHE, "BEGIN EXCLUSIVE"):
            store.execute(line)
        for line in _TABLES.split(";"):
            store.execute(line)
        if store.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise sqlite3.DatabaseError("a page is damaged")
        if store.execute("SELECT identity FROM run").fetchall() != [(identity,)]:
            for table in ("run", "shard", "trace"):
                store.execute(f"DELETE FROM {table}")
            store.execute("INSERT INTO run VALUES (?)", (identity,))
        for number, traces, head, checksum in store.execute("SELECT * FROM shard ORDER BY number").fetchall():
            rows = [row for (row,) in self._rows(self._traces, self._traces + traces)]
            if number != self.shards or len(rows) != traces or _checksum(head, rows) != checksum:
                break  # the disk changed it: read again
            _HEAD(head)
            self.shards, self._traces = self.shards + 1, self._traces + traces
        store.execute("DELETE FROM shard WHERE number >= ?", (self.shards,))
        store.execute("DELETE FROM trace WHERE number >= ?", (self._traces,))
        store.execute("COMMIT")

    def _rows(self, start: int, stop: int) -> Iterator[tuple[bytes]]:
        return self._store.execute(
            "SELECT packed FROM trace WHERE number >= ? AND number < ? ORDER BY number", (start, stop)
        )

    def __len__(self) -> int:
        return self._traces

    @overload
    def __getitem__(self, index: int) -> Appraisal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Appraisal]: ...
    def __getitem__(self, index: int | slice) -> Appraisal | list[Appraisal]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        row = self._store.execute("SELECT packed FROM trace WHERE number = ?", (index,)).fetchone()
        if row is None:
            raise IndexError(index)
        return _TRACE(row[0])

    def __iter__(self) -> Iterator[Appraisal]:
        return (_TRACE(packed) for (packed,) in self._rows(0, self._traces))

    @property
    def folder(self) -> Path | None:
        """The folder it lies in: the place for what else a build puts on disk. None for one without a path."""
        return self._path and self._path.parent

    def add(self, packed: bytes) -> None:
        """Put the next shard down. Raises ArenaError V2027 when the disk does not take it."""
        shard = _SHARD(packed)
        head, rows = msgspec.msgpack.encode(shard.head), [bytes(one) for one in shard.traces]
        try:
            self._store.execute("BEGIN")
            self._store.executemany("INSERT INTO trace VALUES (?, ?)", enumerate(rows, self._traces))
            self._store.execute(
                "INSERT INTO shard VALUES (?, ?, ?, ?)", (self.shards, len(rows), head, _checksum(head, rows))
            )
            self._store.execute("COMMIT")
        except sqlite3.Error as wrong:
            raise ArenaError("V2027", f"{self._path or tempfile.gettempdir()}: {wrong}") from None
        self.shards, self._traces = self.shards + 1, self._traces + len(rows)

    def heads(self) -> Iterator[ShardHead]:
        """What each shard says beside its appraisals."""
        return (_HEAD(head) for (head,) in self._store.execute("SELECT head FROM shard ORDER BY number"))

    @property
    def quarantined(self) -> tuple[UnreadCount, ...]:
        """Rows that could not be converted, by code."""
        return tuple(added_up(one for head in self.heads() for one in head.quarantined))

    @property
    def work(self) -> TokenWork:
        """What counting tokens cost in all."""
        parts = [head.work for head in self.heads()]
        sums = {name: sum(getattr(one, name) for one in parts) for name in TokenWork.__struct_fields__[1:]}
        return TokenWork(counter=next((one.counter for one in parts if one.counter), ""), **sums)

    def discard(self) -> None:
        """Take the file away: what it was for is done. The appraisals can still be read by whoever has them."""
        if self._path is not None:
            for path in (self._path, self._path.with_name(f"{self._path.name}-journal")):
                path.unlink(missing_ok=True)


def _checksum(head: bytes, rows: Sequence[bytes]) -> int:
    return zlib.crc32(b"".join((head, *rows)))


class TokenCounts:
    """Counts by `text_key`, in a file of one tokenizer. One that is damaged is begun anew: it costs a recount."""

    def __init__(self, path: Path) -> None:
        """Raises ArenaError V2027 when the file cannot be used."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._open(path)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                path.unlink(missing_ok=True)
                self._open(path)
        except (OSError, sqlite3.Error) as wrong:
            raise ArenaError("V2027", f"{path}: {wrong}") from None
        self._path = path

    def _open(self, path: Path) -> None:
        self._store = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._store.execute("CREATE TABLE IF NOT EXISTS count (key TEXT PRIMARY KEY, tokens INTEGER) WITHOUT ROWID")
        self._store.execute("SELECT count(*) FROM count").fetchone()

    def get(self, key: str) -> int | None:
        """The tokens of a text that was counted before."""
        found = self._store.execute("SELECT tokens FROM count WHERE key = ?", (key,)).fetchone()
        return None if found is None else int(found[0])

    def add(self, counts: Iterable[tuple[str, int]]) -> None:
        """Keep counts, all or none of them. Raises ArenaError V2027."""
        try:
            self._store.execute("BEGIN IMMEDIATE")
            self._store.executemany("INSERT OR IGNORE INTO count VALUES (?, ?)", counts)
            self._store.execute("COMMIT")
        except sqlite3.Error as wrong:
            raise ArenaError("V2027", f"{self._path}: {wrong}") from None

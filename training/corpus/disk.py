"""What a build keeps on disk: packed values and what is sorted, in files without a name that go with the process."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from array import array
from collections.abc import Iterable, Iterator


@contextlib.contextmanager
def scratch() -> Iterator[sqlite3.Connection]:
    """An empty database in a file without a name, where the system puts what is temporary.

    Raises OSError or sqlite3.Error when the disk does not take it.
    """
    with tempfile.NamedTemporaryFile() as file:  # SQLite has it open when the name goes
        store = sqlite3.connect(file.name, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = OFF", "locking_mode = EXCLUSIVE", "synchronous = OFF", "cache_size = -8192"):
            store.execute(f"PRAGMA {pragma}")
        store.execute("CREATE TABLE opened (here)")
    with contextlib.closing(store):
        yield store


def sorted_on_disk(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Pairs by key, then by value, whatever their number. Raises OSError or sqlite3.Error when the disk is full."""
    with scratch() as store:
        store.execute("CREATE TABLE pair (key BLOB, value BLOB)")
        store.execute("BEGIN")
        store.executemany("INSERT INTO pair VALUES (?, ?)", pairs)
        store.execute("COMMIT")
        yield from store.execute("SELECT key, value FROM pair ORDER BY key, value")


class Spool:
    """Packed values in a file without a name, each read again by its number. Eight bytes of memory a value."""

    def __init__(self) -> None:
        """Raises OSError when the disk does not take it."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with this object
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, packed: bytes) -> None:
        """Add a value. Raises OSError when the disk is full."""
        self._file.seek(self._ends[-1])
        self._file.write(packed)
        self._ends.append(self._ends[-1] + len(packed))

    def get(self, number: int) -> bytes:
        """The value of this number, from 0. Raises IndexError for one that is not there."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        self._file.seek(self._ends[number])
        return self._file.read(self._ends[number + 1] - self._ends[number])

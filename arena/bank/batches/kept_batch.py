"""The open batch of the race that is run, kept in memory for as long as its file stays as it was.

Promise: a read gives what `read_batch` would give now, and costs a look at the file: every episode of a race asks for
its batch, and reading one checks every problem and hash in it, which takes longer than the episode where a race is
long. A file that was changed, written again or taken away is read again.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from arena.bank.batches.batch import SealedBatch, read_batch
from foundation.errors import ArenaError


class _Stamp(NamedTuple):
    """A file as it stood when it was read."""

    path: Path
    inode: int
    size: int
    changed_ns: int
    status_changed_ns: int  # the clock of a user can't set this one back


class KeptBatch:
    """Reads batch files, and keeps the one read last."""

    def __init__(self) -> None:
        self._kept: tuple[_Stamp, SealedBatch] | None = None

    def read(self, path: Path) -> SealedBatch:
        """The batch in a file. Raises ArenaError P4001 or P4010 as `read_batch` does."""
        try:
            now = path.stat()
        except OSError as error:
            raise ArenaError("P4001", f"{path}: {error.strerror or error}") from error
        stamp = _Stamp(path, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        kept = self._kept
        if kept is None or kept[0] != stamp:
            kept = self._kept = (stamp, read_batch(path))
        return kept[1]

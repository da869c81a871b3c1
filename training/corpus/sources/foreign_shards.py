"""A foreign file in pieces, so that no process has to hold what is kept of all its rows, and several can read it.

The pieces together give the rows of `read_foreign`, in order and under the same places; where a file is cut
follows from its bytes alone. A `.json`, `.traj` or `.eval` file is one piece: it has to be decoded whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from foundation.codes.names import UNKNOWN_FORMAT
from training.corpus.model import Quarantined, Trace
from training.corpus.sources.foreign import ARCHIVE, is_lines, lines_from, read_foreign, read_line

SHARD_ROWS, SHARD_BYTES = 512, 4 << 20
ARCHIVE_SHARDS_MAX = 16  # each piece of an archive is unpacked from its beginning


class ForeignShard(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a foreign file that stand together. Calling it reads them.

    `first` is the number of the first, from 1; `start` its place in the file, in bytes (0 for an archive); `rows` None
    is all that follow.
    """

    path: str
    first: int
    start: int
    rows: int | None

    def __call__(self) -> Iterator[Trace | Quarantined]:
        """Its rows, in order. Raises ArenaError V2050 for a broken archive."""
        path, skipped = Path(self.path), 0 if self.start else self.first - 1
        lines = islice(lines_from(path, self.start), skipped, None if self.rows is None else skipped + self.rows)
        for number, line in enumerate(lines, self.first):
            yield read_line(line, f"{path.name}:{number}")


def foreign_shards(path: Path) -> tuple[ForeignShard, ...]:
    """A foreign file as pieces of up to `SHARD_ROWS` rows and `SHARD_BYTES` bytes, a row at least; none without rows.

    Reads it once. Raises as `read_foreign`, and OSError.
    """
    for row in read_foreign(path):
        if not (isinstance(row, Quarantined) and row.code == UNKNOWN_FORMAT):
            break
    if not is_lines(path):
        return (ForeignShard(path=str(path), first=1, start=0, rows=None),)
    cuts: list[tuple[int, int]] = []  # number and start of each piece's first row
    number = end = 0
    for start, size in _sizes(path):
        number, end = number + 1, start + size
        if not cuts or number - cuts[-1][0] >= SHARD_ROWS or end - cuts[-1][1] > SHARD_BYTES:
            cuts.append((number, start))
    is_archive = path.name.endswith(ARCHIVE)
    cuts = cuts[:: max(1, -(-len(cuts) // ARCHIVE_SHARDS_MAX))] if is_archive else cuts
    ends = (first for first, _ in [*cuts[1:], (number + 1, end)])
    return tuple(
        ForeignShard(path=str(path), first=first, start=0 if is_archive else start, rows=after - first)
        for (first, start), after in zip(cuts, ends, strict=False)
    )


def _sizes(path: Path) -> Iterator[tuple[int, int]]:
    """Where each row starts, in bytes of the unpacked text, and how long it is."""
    if path.name.endswith(ARCHIVE):
        start = 0
        for line in lines_from(path):
            yield start, len(line)
            start += len(line)
        return
    with path.open("rb") as file:
        start = 0
        for line in file:
            if line.strip():
                yield start, len(line)
            start += len(line)

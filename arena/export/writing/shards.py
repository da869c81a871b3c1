"""Shards: the files of an export, some thousand trajectories at a time, each complete before it is named anywhere.

Where a shard ends depends on the rows alone, so an interrupted shard is made again with the same rows and names. What
is in a file depends on its rows, not on how they were handed over: verification writes each shard's views again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from arena.export.model import Request, ShardFile, Trajectory
from arena.export.row import ViewContext, row_of
from arena.export.writing.lines import LinesFile
from foundation.errors import ArenaError

if TYPE_CHECKING:
    from arena.export.formats.parquet import ParquetFile

LOG_ROWS_PER_ROW = 10  # a shard has at most so many log rows per row the request allows it: stubs are small, not free
SCRUBBED, LOG, VIEWS = "scrubbed", "log", "views"
REFERENCES = "references.jsonl.zst"  # log rows from outside the range that rows in it refer to
_HASHED_AT_ONCE = 1 << 20


class Outgoing(msgspec.Struct, frozen=True):
    """A row as it is written. `line`: of `log/`, without its end; empty for a row that only views are made of."""

    line: bytes
    trajectory: Trajectory | None = None
    is_scrubbed: bool = False


def require_views(request: Request) -> None:
    """Load what writes views, where any is asked for. Raises ArenaError V2073: better now than half-way."""
    if request.forms:
        try:
            import arena.export.formats.forms  # noqa: F401
        except ImportError as error:
            raise ArenaError("V2073", f"views need pyarrow: {error}") from error


class ShardWriter:
    """One shard being written: its files of lines and its Parquet file, each begun with its first row."""

    def __init__(self, folder: Path, request: Request, number: int, context: ViewContext, threads: Executor) -> None:
        """`folder` is the export's; lines are compressed on `threads`, beside the rows of the views."""
        self.number, self._context, self._threads = number, context, threads
        self._folder, self._request = folder, request
        self._lines: dict[str, LinesFile] = {}
        self._rows: ParquetFile | None = None

    def write(self, rows: Sequence[Outgoing]) -> None:
        """Add rows, in log order. Returns when every file has taken them."""
        shown = [row.trajectory for row in rows if row.trajectory is not None]
        scrubbed = [row.trajectory for row in rows if row.trajectory is not None and row.is_scrubbed]
        lines = [row.line for row in rows if row.line]
        written = self._threads.submit(self._part(LOG).write, lines) if lines else None
        if scrubbed:
            self._part(SCRUBBED).write([msgspec.json.encode(one) for one in scrubbed])
        if shown and self._request.forms:
            file = self._parquet()
            for trajectory in shown:
                file.add(row_of(trajectory, self._context))
        if written:
            written.result()

    def finish(self) -> list[ShardFile]:
        """Complete every file, and make the other forms: the files as the manifest names them, on disk for good."""
        for lines in self._lines.values():
            lines.close()
        files = [(lines.path, lines.rows) for lines in self._lines.values()]
        if self._rows is not None:
            from arena.export.formats.forms import convert

            self._rows.close()
            files.append((self._rows.path, self._rows.rows))
            for form in self._request.forms[1:]:
                view = self._folder / VIEWS / form
                files += convert(form, self._rows.path, view, self.number, self._request.arguments)
        return [describe(self._folder, path, rows) for path, rows in files]

    def _part(self, part: str) -> LinesFile:
        if part not in self._lines:
            self._lines[part] = LinesFile(self._folder / part / shard_name(self.number))
        return self._lines[part]

    def _parquet(self) -> ParquetFile:
        if self._rows is None:
            from arena.export.formats.parquet import ParquetFile

            self._rows = ParquetFile(self._folder / VIEWS / "parquet" / f"{self.number:06d}.parquet")
        return self._rows


def shard_name(number: int) -> str:
    """The file name of a shard in `log/` and `scrubbed/`."""
    return f"{number:06d}.jsonl.zst"


def shard_is_full(trajectories: int, rows: int, rows_per_shard: int) -> bool:
    """Whether the next row begins another shard."""
    return trajectories >= rows_per_shard or rows >= rows_per_shard * LOG_ROWS_PER_ROW


def describe(folder: Path, path: Path, rows: int) -> ShardFile:
    """A complete file as the manifest names it, on disk for good."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sha256, size_bytes = file_hash(path)
    return ShardFile(path=path.relative_to(folder).as_posix(), sha256=sha256, size_bytes=size_bytes, rows=rows)


def file_hash(path: Path) -> tuple[str, int]:
    """sha256 (hex) and size in bytes of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_HASHED_AT_ONCE):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size

"""Shards: the files of an export, some thousand trajectories at a time, each complete before it is named anywhere.

Where a shard ends depends on the rows alone, so an interrupted shard is made again with the same rows and
names. What is in a file depends on its rows, not on how they were handed over. Who writes them is
`arena.export.writing.sink`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec
import zstandard

from arena.export.facts import ViewContext
from arena.export.model import Format, ShardFile, Trajectory
from arena.export.views import ViewWriter, open_view

ZSTD_LEVEL = 1
LOG_ROWS_PER_ROW = 10  # a shard has at most so many log rows per row the request allows it: stubs are small, not free
SCRUBBED, LOG, VIEWS = "scrubbed", "log", "views"
REFERENCES = "references.jsonl.zst"  # log rows from outside the range that rows in it refer to
_HASHED_AT_ONCE = 1 << 20

ViewFiles = dict[Format, tuple[ShardFile, ...]]  # paths relative to the view's folder


class Outgoing(msgspec.Struct, frozen=True):
    """A row as it is written. `line`: of `log/`, without its end; empty for a row that only views are made of."""

    line: bytes
    trajectory: Trajectory | None = None
    is_scrubbed: bool = False


class WrittenShard(msgspec.Struct, frozen=True):
    """A closed shard: rows of each file of lines, by its path in the export, and the files of its views."""

    lines: dict[str, int] = {}
    views: ViewFiles = {}


class LinesFile:
    """Lines into one zstd-compressed file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = path, 0
        self._file = path.open("wb")
        self._stream = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).stream_writer(
            self._file, closefd=False
        )

    def write(self, lines: Sequence[bytes]) -> None:
        """Add lines, given without their ends."""
        if lines:
            self._stream.write(b"\n".join((*lines, b"")))
            self.rows += len(lines)

    def close(self) -> None:
        """Complete the file."""
        self._stream.flush(zstandard.FLUSH_FRAME)
        self._file.close()

    def __enter__(self) -> LinesFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ShardWriter:
    """One shard being written: its files of lines and its views, each begun with its first row."""

    def __init__(self, folder: Path, views: Sequence[Format], number: int, context: ViewContext) -> None:
        """`folder` is the export's."""
        self.number, self._context = number, context
        self._folder, self._formats = folder, views
        self._lines: dict[str, LinesFile] = {}
        self._views: dict[Format, ViewWriter] = {}

    def jobs(self, rows: Sequence[Outgoing]) -> list[Callable[[], None]]:
        """What adds these rows, in log order: a job a file, to be done side by side or one after the other."""
        shown = [row.trajectory for row in rows if row.trajectory is not None]
        scrubbed = [row.trajectory for row in rows if row.trajectory is not None and row.is_scrubbed]
        jobs: list[Callable[[], None]] = []
        if lines := [row.line for row in rows if row.line]:
            jobs.append(partial(self._part(LOG).write, lines))
        if scrubbed:
            jobs.append(partial(self._part(SCRUBBED).write, [msgspec.json.encode(one) for one in scrubbed]))
        if shown and not self._views:
            for view in self._formats:
                folder = self._folder / VIEWS / view
                folder.mkdir(parents=True, exist_ok=True)
                self._views[view] = open_view(view, folder, self.number, self._context)
        return jobs + [partial(writer.write, shown) for writer in self._views.values() if shown]

    def close(self) -> WrittenShard:
        """Complete every file."""
        for file in self._lines.values():
            file.close()
        return WrittenShard(
            lines={f"{part}/{file.path.name}": file.rows for part, file in self._lines.items()},
            views={view: writer.finish() for view, writer in self._views.items()},
        )

    def _part(self, part: str) -> LinesFile:
        if part not in self._lines:
            self._lines[part] = LinesFile(self._folder / part / shard_name(self.number))
        return self._lines[part]


def described(folder: Path, written: WrittenShard) -> list[ShardFile]:
    """A closed shard's files as the manifest names them, on disk for good."""
    files = [describe(folder, folder / path, rows) for path, rows in written.lines.items()]
    for view, made in written.views.items():
        files += adopt(folder, view, made)
    return files


def shard_name(number: int) -> str:
    """The file name of a shard in `log/` and `scrubbed/`."""
    return f"{number:06d}.jsonl.zst"


def shard_is_full(trajectories: int, rows: int, rows_per_shard: int) -> bool:
    """Whether the next row begins another shard."""
    return trajectories >= rows_per_shard or rows >= rows_per_shard * LOG_ROWS_PER_ROW


def adopt(folder: Path, view: Format, files: Sequence[ShardFile]) -> list[ShardFile]:
    """A view's files as files of the export, on disk for good."""
    adopted = []
    for file in files:
        path = f"{VIEWS}/{view}/{file.path}"
        _sync(folder / path)
        adopted.append(msgspec.structs.replace(file, path=path))
    return adopted


def describe(folder: Path, path: Path, rows: int) -> ShardFile:
    """A complete file as the manifest names it, on disk for good."""
    _sync(path)
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


def scrubbed_line(line: bytes) -> Trajectory:
    """The trajectory of a line of `scrubbed/`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=Trajectory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Shards: the files of an export, some thousand trajectories at a time, each complete before it is named anywhere.

Promise: where a shard ends depends on the rows alone, so an interrupted shard is made again with the same rows and
names. Log and views of a shard are written side by side.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import TracebackType

import msgspec
import zstandard

from arena.export.assembly import Assembled
from arena.export.model import Format, ShardFile, Trajectory
from arena.export.viewing import Viewing

ZSTD_LEVEL = 1
LOG_ROWS_PER_ROW = 10  # a shard has at most so many log rows per row the request allows it: stubs are small, not free
SCRUBBED, LOG, VIEWS = "scrubbed", "log", "views"
_HASHED_AT_ONCE = 1 << 20


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
    """One shard being written: log, scrubbed rows and every view asked for."""

    def __init__(self, folder: Path, number: int, viewing: Viewing, threads: Executor) -> None:
        self._folder, self._number, self._viewing, self._threads = folder, number, viewing, threads
        self._log = LinesFile(folder / LOG / shard_name(number))
        self._scrubbed: LinesFile | None = None
        self.trajectories = 0

    @property
    def rows(self) -> int:
        """Log rows so far."""
        return self._log.rows

    def write(self, rows: Sequence[Assembled]) -> None:
        """Add rows, in log order."""
        trajectories = [row.trajectory for row in rows if row.trajectory is not None]
        scrubbed = [row.trajectory for row in rows if row.trajectory is not None and row.is_scrubbed]
        logged = self._threads.submit(self._log.write, [row.line for row in rows])
        if trajectories:
            self.trajectories += len(trajectories)
            self._viewing.write(self._number, trajectories)
        if scrubbed:
            self._scrubbed = self._scrubbed or LinesFile(self._folder / SCRUBBED / shard_name(self._number))
            self._scrubbed.write([msgspec.json.encode(trajectory) for trajectory in scrubbed])
        logged.result()

    def finish(self) -> Callable[[], list[ShardFile]]:
        """Complete every file of the shard, beside what comes next: what it returns waits, and describes them."""
        lines = [file for file in (self._log, self._scrubbed) if file]
        described = [self._threads.submit(_complete, self._folder, file) for file in lines]
        viewed = self._viewing.finish()

        def finished() -> list[ShardFile]:
            files = [one.result() for one in described]
            for view, made in viewed().items():
                files += adopt(self._folder, view, made)
            return files

        return finished


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


def _complete(folder: Path, lines: LinesFile) -> ShardFile:
    lines.close()
    return describe(folder, lines.path, lines.rows)


def scrubbed_line(line: bytes) -> Trajectory:
    """The trajectory of a line of `scrubbed/`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(line, type=Trajectory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files and folders that appear whole or not at all: written beside, synced, renamed, and the folder around synced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from foundation.errors import ArenaError

SCRATCH = ".part"  # how a file ends that a kill may leave


@contextlib.contextmanager
def coded(place: object, code: str = "V2064") -> Iterator[None]:
    """What the file system refuses in the block is an ArenaError of this code, which names the place."""
    try:
        yield
    except OSError as error:
        raise ArenaError(code, f"{place}: {error.strerror or error}") from error


def write_whole(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write or replace a file; `mode` as for `os.open`. Raises OSError; then the old one still stands."""
    with replacing(path, mode=mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file when the block ends well; after an error the old one still stands.

    One writer at a time: all write the same scratch file. Raises OSError.
    """
    scratch = path.with_name(path.name + SCRATCH)
    scratch.unlink(missing_ok=True)  # of a killed writer, perhaps with another mode
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    move_into_place(scratch, path)


def move_into_place(finished: Path, path: Path) -> None:
    """Rename what is finished and synced (a file or a folder of the same file system), durably. Raises OSError."""
    finished.rename(path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Make a file's bytes, or the renames in a folder, durable. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Files and folders that appear whole or not at all: written beside, synced, renamed, and the folder around synced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError

_DETAIL_CHARS = 300  # of what is wrong with foreign JSON, which may quote it
SCRATCH = ".part"  # how a file ends that a kill may leave


@contextlib.contextmanager
def coded(place: object, code: str = "V2064") -> Iterator[None]:
    """What the file system refuses in the block, or no JSON reader can read, is an ArenaError of this code, which names
    the place."""
    try:
        yield
    except OSError as error:
        which = f"{error.filename}: " if error.filename and str(error.filename) not in str(place) else ""
        raise ArenaError(code, f"{place}: {which}{error.strerror or error}") from error
    except UNREADABLE_JSON as error:
        raise ArenaError(code, f"{place}: {str(error)[:_DETAIL_CHARS]}") from error


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


@contextlib.contextmanager
def whole_folder(folder: Path, *, replaced: str = "") -> Iterator[Path]:
    """A folder beside `folder` to write into, which takes its name and place when the block ends well.

    `replaced`: a folder that holds a file of this name gives way. What a killed writer left is begun anew. Raises
    ArenaError V2027 when `folder` holds something else, when another writes to it, and when a file can't be written.
    """
    folder = folder.absolute()  # "." has no name
    try:
        is_replaced = bool(replaced) and (folder / replaced).is_file()
        if folder.exists() and not is_replaced and (not folder.is_dir() or any(folder.iterdir())):
            raise ArenaError("V2027", f"{folder} holds something already; choose another folder")
        part, retired = (folder.with_name(f".{folder.name}{end}") for end in (SCRATCH, f"{SCRATCH}.old"))
        part.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_RDONLY)
        try:
            if not try_lock(descriptor):
                raise ArenaError("V2027", f"another command is writing to {folder}")
            try:
                for left in part.iterdir():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                yield part
                if is_replaced:
                    shutil.rmtree(retired, ignore_errors=True)  # of a kill at this place
                    folder.rename(retired)
                move_into_place(part, folder)
                shutil.rmtree(retired, ignore_errors=True)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        finally:
            os.close(descriptor)
    except OSError as error:  # of what is written in the block, too; a bug in it stays one
        raise ArenaError("V2027", f"{folder}: {error.strerror or error}") from error


def try_lock(file: int | IO[Any]) -> bool:
    """Whether the lock of an open file could be had at once. It lasts until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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

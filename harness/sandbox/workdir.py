"""The work directory of a guest on a real disk: made fresh, measured while it runs, gone afterwards.

`measure` never reports less than what the guest holds on the disk, files that it deleted but still has open or
mapped included; trees that were built to be unmeasurable count as too large. `remove` deletes any tree a guest can
build, however deep, follows no symbolic link, and needs no recursion. For jails without a sized tmpfs of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.sandbox.processes import UNMEASURABLE, faces, shown_memory

_PREFIX = "arena-work-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+")
_BLOCK_BYTES = 512
FILES_AT_MOST = 20_000  # names in a guest's own folders, at every level
_DEPTH_AT_MOST = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """One guest's directory, 0700. `device` is its file system's number, `owner` the guest's uid (None: our own)."""

    path: Path
    device: int
    owner: int | None


def make_work_directory(owner: int | None) -> WorkDirectory:
    """A fresh directory where temporary files live, given to uid `owner` (None: it stays ours). Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    if owner is not None:
        os.chown(path, owner, owner)
    return WorkDirectory(path=path, device=path.stat().st_dev, owner=owner)


def sweep_work_directories() -> None:
    """Remove directories of ours whose host process is gone."""
    parent = Path(tempfile.gettempdir())
    for path in parent.glob(f"{_PREFIX}*"):
        match = _NAME.fullmatch(path.name)
        if match and not Path("/proc", match[1]).exists() and os.access(path, os.R_OK | os.W_OK | os.X_OK):
            remove(path)


def measure(work: WorkDirectory, pids: tuple[int, ...], file_limit_bytes: int) -> int:
    """Bytes on the disk that the guest holds, at least; `pids` are all its processes.

    A deleted file that is only mapped is in no descriptor table; it counts as `file_limit_bytes`, the most one file may
    have (RLIMIT_FSIZE). What cannot be looked at counts as `UNMEASURABLE`.
    """
    open_files: dict[int, int] = {}
    mapped: set[int] = set()
    try:
        with reading_as(work.owner):
            total = _listed_bytes(work.path)
            for pid in pids:
                open_files |= _deleted_open_files(pid, work.device)
                mapped |= _deleted_mapped_files(pid, work.path)
    except PermissionError:
        return UNMEASURABLE
    return total + sum(open_files.values()) + file_limit_bytes * len(mapped - open_files.keys())


def remove(path: Path) -> None:
    """Delete the directory `path` and everything in it. Nobody may be changing it any more. Raises OSError."""
    here = os.open(path, _DIRECTORY)
    # One step at a time, by descriptors: no path is ever longer than a name, and there is no recursion to exhaust.
    waiting = [_empty(here)]  # for each level down to `here`, the directories in it that are still there
    try:
        while True:
            if waiting[-1]:
                name = waiting[-1][-1]
                os.chmod(name, 0o700, dir_fd=here)
                here = _move(here, name)
                waiting.append(_empty(here))
                continue
            waiting.pop()
            if not waiting:
                break
            here = _move(here, "..")
            os.rmdir(waiting[-1].pop(), dir_fd=here)
    finally:
        os.close(here)
    path.rmdir()


def _move(here: int, name: str) -> int:
    there = os.open(name, _DIRECTORY, dir_fd=here)
    os.close(here)
    return there


def _empty(directory: int) -> list[str]:
    """Delete what is no directory; the names of the directories."""
    with os.scandir(directory) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_directory in entries:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
    return [name for name, is_directory in entries if is_directory]


@contextlib.contextmanager
def reading_as(uid: int | None) -> Iterator[None]:
    """This thread looks at files and processes as `uid` (None: as itself). What that uid owns is open to it, without a
    capability that root may lack in a container, and nothing that a guest puts in the way is looked at with root's
    rights."""
    if uid is None:
        yield
        return
    libc = ctypes.CDLL(None)
    try:
        libc.setfsgid(uid)
        libc.setfsuid(uid)
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())


def _listed_bytes(path: Path) -> int:
    total = entries = 0
    waiting = [(str(path), 0)]
    try:
        while waiting:
            directory, depth = waiting.pop()
            with os.scandir(directory) as found:
                for entry in found:
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # it was deleted meanwhile
                    total += facts.st_blocks * _BLOCK_BYTES
                    entries += 1
                    if entries > FILES_AT_MOST or depth > _DEPTH_AT_MOST:
                        return UNMEASURABLE
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append((entry.path, depth + 1))
    except FileNotFoundError:
        return total  # a directory was deleted meanwhile; the next measurement sees what is left
    except PermissionError:
        raise
    except OSError:  # a path that is too long
        return UNMEASURABLE
    return total


def _deleted_open_files(pid: int, device: int) -> dict[int, int]:
    """inode -> bytes of files without a name that `pid` has open."""
    found: dict[int, int] = {}
    for face in _living(pid):
        try:
            for descriptor in (face / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it was closed
                    facts = descriptor.stat()
                    if facts.st_nlink == 0 and facts.st_dev == device and stat.S_ISREG(facts.st_mode):
                        found[facts.st_ino] = facts.st_blocks * _BLOCK_BYTES
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
        except PermissionError:
            if shown_memory(face) is not None:
                raise
            continue  # it is about to end, which shows in its list of files or in one of them
    return found


def _living(pid: int) -> Iterator[Path]:
    """A face of `pid` that is not dead: the kernel shows nothing of one that is. One is enough, as all threads of a
    process have the same files and mappings."""
    return itertools.islice((face for face in faces(pid) if shown_memory(face) is not None), 1)


def _deleted_mapped_files(pid: int, path: Path) -> set[int]:
    """Inodes of files without a name, once below `path`, that `pid` has mapped."""
    lines: list[str] = []
    for face in _living(pid):
        try:
            lines = (face / "maps").read_text(errors="replace").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            if shown_memory(face) is not None:  # else it is about to end
                raise
    fields = (line.split(None, 5) for line in lines if line.endswith(" (deleted)"))
    return {int(field[4]) for field in fields if len(field) == 6 and field[5].startswith(f"{path}/")}

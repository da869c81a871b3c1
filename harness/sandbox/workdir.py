"""The work directory of a guest on a real disk: made fresh, measured while it runs, gone afterwards.

`measure` never reports less than what the guest holds on the disk, files that it deleted but still has open or
mapped included; trees that were built to be unmeasurable count as too large. `remove` deletes any tree a guest can
build, however deep, follows no symbolic link, and needs no recursion. For jails without a sized tmpfs of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path

import msgspec

from harness.sandbox.processes import UNMEASURABLE, open_files, read_face, reading_as

_PREFIX = "arena-work-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+")
_BLOCK_BYTES = 512
FILES_AT_MOST = 20_000  # names in a guest's own folders, at every level
_DEPTH_AT_MOST = 64


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
        is_dead = match is not None and not Path("/proc", match[1]).exists()
        if is_dead and not path.is_symlink() and os.access(path, os.R_OK | os.W_OK | os.X_OK):
            remove(path)


def measure(work: WorkDirectory, pids: tuple[int, ...], file_limit_bytes: int) -> int:
    """Bytes on the disk that the guest holds, at least; `pids` are all its processes.

    A deleted file that is only mapped is in no descriptor table; it counts as `file_limit_bytes`, the most one file may
    have (RLIMIT_FSIZE). What cannot be looked at counts as `UNMEASURABLE`.
    """
    held: dict[int, int] = {}
    mapped: set[int] = set()
    try:
        with reading_as(work.owner):
            total = _listed_bytes(work.path)
            for pid in pids:
                for (device, inode), size in (read_face(pid, _deleted_open_files) or {}).items():
                    if device == work.device:
                        held[inode] = size
                for path, inode in read_face(pid, _deleted_mapped_files) or ():
                    if path.startswith(f"{work.path}/"):
                        mapped.add(inode)
    except PermissionError:
        return UNMEASURABLE
    return total + sum(held.values()) + file_limit_bytes * len(mapped - held.keys())


def remove(path: Path) -> None:
    """Delete the directory `path` and everything in it. Nobody may be changing it any more. Raises OSError."""
    # rm follows no link and has no recursion to exhaust; a directory that a guest closed to everybody is opened first
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if path.exists():
            subprocess.run([*command, "--", path], capture_output=True, check=False)
    if path.exists():
        raise OSError(f"{path} cannot be removed")


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


def _deleted_open_files(face: Path) -> dict[tuple[int, int], int]:
    """(device, inode) -> bytes of files without a name that a process has open."""
    found: dict[tuple[int, int], int] = {}
    for descriptor in open_files(face):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it was closed
            facts = descriptor.stat()
            if facts.st_nlink == 0 and stat.S_ISREG(facts.st_mode):
                found[facts.st_dev, facts.st_ino] = facts.st_blocks * _BLOCK_BYTES
    return found


def _deleted_mapped_files(face: Path) -> list[tuple[str, int]]:
    """Former path and inode of files without a name that a process has mapped."""
    lines = (face / "maps").read_text(errors="replace").splitlines()
    fields = (line.split(None, 5) for line in lines if line.endswith(" (deleted)"))
    return [(field[5], int(field[4])) for field in fields if len(field) == 6]

"""The work directory of a guest on a real disk: made fresh, measured while it runs, gone afterwards.

Promise: `measure` never reports less than what the guest holds on the disk, files that it deleted but still has open or
mapped included; trees that were built to be unmeasurable count as too large. `remove` deletes any tree a guest can
build, however deep, follows no symbolic link, and needs no recursion. For jails without a sized tmpfs of their own.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path

import msgspec

_PREFIX = "arena-work-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-\w+")
_BLOCK_BYTES = 512
_ENTRIES_AT_MOST = 20_000
_DEPTH_AT_MOST = 64
UNMEASURABLE = 1 << 62


class WorkDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """One guest's directory, 0700 and owned by the guest. `device` is its file system's number."""

    path: Path
    device: int


def make_work_directory(owner: int | None) -> WorkDirectory:
    """A fresh directory where temporary files live, given to uid `owner` (None: it stays ours). Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    if owner is not None:
        os.chown(path, owner, owner)
    return WorkDirectory(path=path, device=path.stat().st_dev)


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
    have (RLIMIT_FSIZE).
    """
    total = _listed_bytes(work.path)
    open_files: dict[int, int] = {}
    mapped: set[int] = set()
    for pid in pids:
        open_files |= _deleted_open_files(pid, work.device)
        mapped |= _deleted_mapped_files(pid, work.path)
    return total + sum(open_files.values()) + file_limit_bytes * len(mapped - open_files.keys())


def remove(path: Path) -> None:
    """Delete the directory `path` and everything in it. Nobody may be changing it any more. Raises OSError."""
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Deep trees are made flat: what lies in a directory is moved to the top, so no path is ever longer than one name.
        serial = 0
        while names := os.listdir(root):
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=root).st_mode):
                    os.unlink(name, dir_fd=root)
                    continue
                os.chmod(name, 0o700, dir_fd=root)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
                try:
                    for child in os.listdir(inner):
                        if stat.S_ISDIR(os.lstat(child, dir_fd=inner).st_mode):
                            os.chmod(child, 0o700, dir_fd=inner)  # moving a directory rewrites its parent entry
                            serial += 1
                            os.rename(child, f"flat {serial} {os.urandom(8).hex()}", src_dir_fd=inner, dst_dir_fd=root)
                        else:
                            os.unlink(child, dir_fd=inner)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=root)
    finally:
        os.close(root)
    path.rmdir()


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
                    if entries > _ENTRIES_AT_MOST or depth > _DEPTH_AT_MOST:
                        return UNMEASURABLE
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append((entry.path, depth + 1))
    except FileNotFoundError:
        return total  # a directory was deleted meanwhile; the next measurement sees what is left
    except OSError:  # unreadable on purpose, or a path that is too long
        return UNMEASURABLE
    return total


def _deleted_open_files(pid: int, device: int) -> dict[int, int]:
    """inode -> bytes of files without a name that any thread of `pid` has open. Threads may have tables of their own."""
    found: dict[int, int] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found  # it ended
    for thread in threads:
        directory = f"/proc/{pid}/task/{thread}/fd"
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            try:
                facts = os.stat(f"{directory}/{name}")
            except OSError:
                continue
            if facts.st_nlink == 0 and facts.st_dev == device and stat.S_ISREG(facts.st_mode):
                found[facts.st_ino] = facts.st_blocks * _BLOCK_BYTES
    return found


def _deleted_mapped_files(pid: int, path: Path) -> set[int]:
    """Inodes of files without a name, once below `path`, that `pid` has mapped."""
    try:
        lines = Path("/proc", str(pid), "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    fields = (line.split(None, 5) for line in lines if line.endswith(" (deleted)"))
    return {int(field[4]) for field in fields if len(field) == 6 and field[5].startswith(f"{path}/")}

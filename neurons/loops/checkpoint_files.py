"""Signed checkpoints as files, `<size>.txt` in a folder: public, so that they leave the machine and outlive the store.

A file appears whole or not at all, is readable by everybody, and a note that exists is never changed. Beside
the notes lies `frontier.json`: where the tree stood at the last of them, so that a start need not read the log from its
first record. It proves nothing by itself: its root must be the signed one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from arena.store.port import StoredCheckpoint
from foundation.canonical import UNREADABLE_JSON
from foundation.durable_files import replacing

PUBLIC_MODE = 0o644
FRONTIER = "frontier.json"
_SUFFIX = ".txt"


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """The tree over the first `size` records of a log: roots of its complete subtrees, largest first, hex; and the
    chain's hash there."""

    validator: str
    size: int
    head: str
    peaks: tuple[str, ...]


def last_size(folder: Path) -> int:
    """The size of the largest checkpoint in `folder`, 0 for none. Raises OSError when it can't be listed."""
    if not folder.is_dir():
        return 0
    return max((int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal()), default=0)


def read_last(folder: Path) -> str:
    """The note of the largest checkpoint in `folder`, "" for none. Raises OSError when it can't be read."""
    size = last_size(folder)
    return (folder / f"{size}{_SUFFIX}").read_text(encoding="utf-8", errors="replace") if size else ""


def write_all(folder: Path, checkpoints: Iterable[StoredCheckpoint]) -> int:
    """Write the notes that are not there yet; returns how many. Raises OSError when the folder can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for checkpoint in checkpoints:
        path = folder / f"{checkpoint.size}{_SUFFIX}"
        if not path.exists():
            _replace(path, checkpoint.note.encode())
            written += 1
    return written


def write_frontier(folder: Path, frontier: Frontier) -> None:
    """Replace the frontier in `folder`. Raises OSError when the folder can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / FRONTIER, msgspec.json.encode(frontier))


def read_frontier(folder: Path) -> Frontier | None:
    """The frontier in `folder`; None where there is none that can be read."""
    try:
        return msgspec.json.decode((folder / FRONTIER).read_bytes(), type=Frontier)
    except (OSError, *UNREADABLE_JSON):
        return None


def _replace(path: Path, content: bytes) -> None:
    with replacing(path) as stream:
        os.fchmod(stream.fileno(), PUBLIC_MODE)  # whatever the umask says
        stream.write(content)

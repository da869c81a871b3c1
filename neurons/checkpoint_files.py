"""Signed checkpoints as files, `<size>.txt` in a folder: public, so that they leave the machine and outlive the store.

Promise: a file appears whole or not at all, is readable by everybody, and one that exists is never changed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from arena.store.port import StoredCheckpoint

PUBLIC_MODE = 0o644
_SUFFIX = ".txt"


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
            _write(path, checkpoint.note)
            written += 1
    return written


def _write(path: Path, note: str) -> None:
    handle, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(note.encode())
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(handle, PUBLIC_MODE)
        Path(draft).replace(path)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise

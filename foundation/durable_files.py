"""Files that appear whole or not at all: written beside, synced, renamed, and the folder synced."""

from __future__ import annotations

import os
from pathlib import Path

SCRATCH = ".part"  # how a file ends that a kill may leave


def write_whole(path: Path, data: bytes) -> None:
    """Write or replace a file. Raises OSError; then the old one still stands."""
    scratch = path.with_name(path.name + SCRATCH)
    with scratch.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

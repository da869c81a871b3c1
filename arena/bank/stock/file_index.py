"""The index of a bank's folder: what its batches and stock files hold, without reading them again.

Each file is read once in its life; after that it costs a look at its size and time of change, and a process
that starts costs one read of the index. An entry counts only while its file is there as it was: a file that was changed
or taken away is read again or forgotten. The index is only a cache: if a line can't be read or the index can't be
written, the files are read again. It names answers, so its owner alone may read it, as with the files themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from foundation.errors import ArenaError

INDEX_FILE = "index.jsonl"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds, as far as later races must know it."""

    race_id: str = ""  # of a batch
    problem_ids: tuple[str, ...]
    product_ids: tuple[str, ...]  # that answer
    contents: tuple[str, ...] = ()  # per problem, a hash (hex) of what it asks and answers, whatever its id


class IndexedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the index: a file as it stood when it was read."""

    name: str
    size: int
    changed_ns: int
    held: Held


class FileIndex:
    """The index of one folder. `describe` reads a file; what it raises is raised, and nothing is entered."""

    def __init__(self, folder: Path, describe: Callable[[Path], Held]) -> None:
        self._folder = folder
        self._describe = describe
        self._known: dict[str, IndexedFile] | None = None

    def files(self, pattern: str) -> list[IndexedFile]:
        """Every file that matches, in order of its name. Raises what `describe` does, P4001 for one that is gone."""
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError):
                for line in (self._folder / INDEX_FILE).read_bytes().splitlines():
                    with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                        entry = msgspec.json.decode(line, type=IndexedFile)
                        self._known[entry.name] = entry  # the latest line of a file counts
        found, fresh = [], []
        for path in sorted(self._folder.glob(pattern)):
            try:
                now = path.stat()
            except OSError as error:
                raise ArenaError("P4001", f"{path}: {error.strerror or error}") from error
            known = self._known.get(path.name)
            if known is None or (known.size, known.changed_ns) != (now.st_size, now.st_mtime_ns):
                known = IndexedFile(
                    name=path.name, size=now.st_size, changed_ns=now.st_mtime_ns, held=self._describe(path)
                )
                self._known[path.name] = known
                fresh.append(known)
            found.append(known)
        if fresh:
            # one write, after a line break: a line that a kill cut short spoils no other
            text = b"".join(b"\n" + msgspec.json.encode(entry) for entry in fresh)
            with contextlib.suppress(OSError):
                descriptor = os.open(self._folder / INDEX_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(text)
        return found

"""An export that lies in an object store: brought here whole to be verified, its shards fetched where they are read.

What is read is what the manifest names: a file fetched for a shard is held against its sha256 before a row of
it is read, and a folder brought here holds every object below the location, so that verification finds one too many.
Nothing is written to the store. Credentials come from each machine's environment (AWS_*), never from the location.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from arena.export.files import CHECKSUM, MANIFEST, SIGNATURE, file_hash, read_manifest
from foundation.errors import ArenaError
from foundation.progress import PhaseProgress

if TYPE_CHECKING:
    from arena.store.objects import ObjectFolder

SCHEMES = ("s3://", "file://")
_FETCHED_KEPT = 4  # of a process: the row groups of a file are read one after the other


def is_location(text: str) -> bool:
    """Whether this names an export in an object store, and no folder."""
    return text.startswith(SCHEMES)


def bring_export(location: str, below: Path, progress: PhaseProgress | None = None) -> Path:
    """The folder below `below` in which the export at `location` lies now, as it lies there.

    What an earlier call brought and the manifest still names is not fetched again. Raises ArenaError V2028 when the
    store is away, V2029 when it refuses or names an object with a control character, V2095 without a readable manifest,
    V2050 for an object that no file can be, and for one whose name has what is not printable otherwise.
    """
    folder = below / hashlib.sha256(location.encode()).hexdigest()[:32]
    there = _opened(location)
    names = there.names()
    for name in names:
        is_path = not PurePosixPath(name).is_absolute() and not {"", ".", ".."} & set(name.split("/"))
        if not is_path or not name.isprintable():  # control characters, and what turns the reading direction
            raise ArenaError("V2050", f"{location}: {name!r} is no file of an export")
    folder.mkdir(parents=True, exist_ok=True)
    beside = [name for name in (MANIFEST, CHECKSUM, SIGNATURE) if name in names]
    for name in beside:
        there.fetch(name, folder / name)
    named = {file.path: (file.sha256, file.size_bytes) for file in read_manifest(folder).files}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in names:
            path.unlink()
    for number, name in enumerate(names, 1):
        path = folder / name
        if name not in beside and not (path.is_file() and file_hash(path) == named.get(name)):
            there.fetch(name, path)
        if progress:
            progress(number, len(names))
    return folder


class ExportFiles(msgspec.Struct, frozen=True):
    """Some files of a verified export, by name and sha256: in `folder`, and on machines without it at `location`, where
    that is not ""."""

    folder: str
    location: str = ""
    sha256s: tuple[tuple[str, str], ...] = ()

    @contextlib.contextmanager
    def here(self) -> Iterator[Path]:
        """A folder in which they lie while the block runs. Raises ArenaError V2028, V2029, and V2050 for a file that is
        not the one the manifest names."""
        folder = Path(self.folder)
        if not self.location or all(_is(folder / name, sha256) for name, sha256 in self.sha256s):
            yield folder
            return
        held = _fetched(self.location, self.sha256s)
        yield Path(held.name)


def _opened(location: str) -> ObjectFolder:
    from arena.store.objects import ObjectFolder  # a process that reads a folder starts in less time without it

    return ObjectFolder(location)


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and file_hash(path)[0] == sha256


@functools.lru_cache(maxsize=_FETCHED_KEPT)
def _fetched(location: str, sha256s: tuple[tuple[str, str], ...]) -> tempfile.TemporaryDirectory[str]:
    held = tempfile.TemporaryDirectory(prefix="arena-shards-")
    for name, sha256 in sha256s:
        _opened(location).fetch(name, Path(held.name) / name)
        if not _is(Path(held.name) / name, sha256):
            raise ArenaError("V2050", f"{location}: {name} is not the file that was verified")
    return held

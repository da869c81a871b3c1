"""What an index folder holds: flat little-endian arrays, the products, and a manifest that names every byte.

Documents are numbered in product-id string order and terms in UTF-8 order, so the same documents give the same files
whatever their order, compression or builder. `content_sha256` is the hash of that content: it names documents and index
together and is in every record. Nothing here scores or searches.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.canonical import content_hash
from foundation.errors import ArenaError

FORMAT = "arena-index/1"
MANIFEST = "manifest.json"
PRODUCTS = "products.jsonl"  # one compact product object a line, in document order
VOCABULARY = "vocabulary.txt"  # term t on line t
SHOPS = "shops.json"  # list of shop ids, sorted; a shop id may hold any character

ARRAYS: dict[str, str] = {
    "documents": "<i4",  # [P] document numbers, ascending within a term
    "codes": "<u2",  # [P] index into pairs
    "starts": "<i8",  # [V + 1] term t owns postings starts[t]:starts[t + 1]
    "pairs": "<u4",  # [G] distinct tf << 8 | length byte
    "prices": "<f8",  # [N] PHP
    "sold_counts": "<i8",  # [N]
    "services": "|u1",  # [N] bit i is SERVICES[i]
    "shops": "<i4",  # [N] place in shops.json
    "offsets": "<i8",  # [N + 1] product n is bytes offsets[n]:offsets[n + 1] of products.jsonl
}  # and ids: bytes, width in the manifest, [N] ascending
_HASHED_AT_OPEN = 8 << 20  # bytes; larger files are hashed only when asked, or when the index is small
_SMALL_INDEX = 64 << 20


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the index."""

    name: str
    size: int  # bytes
    sha256: str


class IndexedSource(msgspec.Struct, frozen=True, kw_only=True):
    """The documents file an index was built from. Not part of the index's identity."""

    name: str
    size: int  # bytes
    sha256: str


class IndexContent(msgspec.Struct, frozen=True, kw_only=True):
    """What an index holds; its canonical hash is the catalogue's identity."""

    format: str = FORMAT
    analyzer_sha256: str
    documents: int
    scored_documents: int  # those with at least one term: the N of BM25
    total_terms: int
    terms: int
    postings: int
    pairs: int
    id_bytes: int  # width of one id
    files: tuple[FileEntry, ...]


class IndexManifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json: written last, so a folder without it is not an index."""

    content: IndexContent
    content_sha256: str
    source: IndexedSource
    blank_dropped: int  # documents with blank contents, which the reference drops too
    malformed: int  # lines left out

    def file(self, name: str) -> FileEntry:
        """The entry of a file by name; KeyError when the manifest has none."""
        for entry in self.content.files:
            if entry.name == name:
                return entry
        raise KeyError(name)


def array_path(folder: Path, name: str) -> Path:
    """Where an array lies."""
    return folder / f"{name}.bin"


def describe_file(path: Path) -> FileEntry:
    """Name, size and hash of a file, read once in blocks."""
    return FileEntry(name=path.name, size=path.stat().st_size, sha256=file_sha256(path))


def describe_source(path: Path) -> IndexedSource:
    """Name, size and hash of a documents file."""
    return IndexedSource(name=path.name, size=path.stat().st_size, sha256=file_sha256(path))


def file_sha256(path: Path) -> str:
    """sha256 hex of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: IndexManifest) -> None:
    """Write manifest.json, the last file of an index."""
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")


def read_manifest(folder: Path) -> IndexManifest:
    """The manifest.

    Raises ArenaError V2011 when there is none, V2010 when it is unreadable, edited or of another format.
    """
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ArenaError("V2011", f"{path}: {error.strerror or error}") from error
    try:
        manifest = msgspec.json.decode(raw, type=IndexManifest)
    except msgspec.DecodeError as error:
        raise ArenaError("V2010", f"{path}: {error}") from error
    if manifest.content.format != FORMAT:
        raise ArenaError("V2010", f"{path}: format {manifest.content.format!r}, this code reads {FORMAT!r}")
    if content_hash(manifest.content) != manifest.content_sha256:
        raise ArenaError("V2010", f"{path}: content does not match its own hash")
    return manifest


def check_files(folder: Path, manifest: IndexManifest, *, is_full: bool) -> None:
    """Compare the files with the manifest, as `check_entries` does. Raises ArenaError V2010 naming the file."""
    check_entries(folder, manifest.content.files, is_full=is_full)


def check_entries(folder: Path, entries: Iterable[FileEntry], *, is_full: bool) -> None:
    """Compare files with their entries.

    Sizes always; hashes of every file when `is_full` or when the index is small, of files up to 8 MiB otherwise.
    Raises ArenaError V2010 naming the file.
    """
    entries = tuple(entries)
    is_full = is_full or sum(entry.size for entry in entries) <= _SMALL_INDEX
    for entry, path in ((entry, folder / entry.name) for entry in entries):
        if not path.is_file():
            raise ArenaError("V2010", f"{path} is missing")
        size = path.stat().st_size
        if size != entry.size:
            raise ArenaError("V2010", f"{path} has {size} bytes, the manifest says {entry.size}")
        if (is_full or size <= _HASHED_AT_OPEN) and file_sha256(path) != entry.sha256:
            raise ArenaError("V2010", f"{path} was edited: its sha256 is not the manifest's")


@contextmanager
def folder_in_the_making(target: Path, manifest_name: str) -> Iterator[Path]:
    """A fresh folder beside `target` that takes its place on success and vanishes on failure.

    A target that stands is replaced only when it is empty or an index, which is a folder holding `manifest_name`.
    Raises ArenaError V2012 when it is something else or the place is not writable.
    """
    is_empty = target.is_dir() and not any(target.iterdir())
    if target.exists() and not is_empty and not (target / manifest_name).is_file():
        raise ArenaError("V2012", f"{target} exists and is not such an index; choose another folder")
    mark = secrets.token_hex(4)
    making = target.with_name(f".{target.name}.{mark}.making")
    try:
        _remove_abandoned(target)
        making.mkdir(parents=True)
        lock = _lock(making)
    except OSError as error:
        raise ArenaError("V2012", f"{making.parent}: {error.strerror or error}") from error
    try:
        yield making
        if target.exists():
            retired = target.with_name(f".{target.name}.{mark}.retired")
            target.rename(retired)
            making.rename(target)
            shutil.rmtree(retired)
        else:
            making.rename(target)
    finally:
        shutil.rmtree(making, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """A descriptor that holds the folder for this process, until it is closed or the process dies."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(target: Path) -> None:
    """Remove what builds of this target left that were killed; a build that runs holds its folder."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.making"):
        try:
            lock = _lock(path)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def map_array(folder: Path, name: str, dtype: str) -> npt.NDArray[np.generic]:
    """A read-only array over the file's bytes: mapped, shared between processes, plain `ndarray` to numpy."""
    path = array_path(folder, name)
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


def read_vocabulary(folder: Path) -> list[str]:
    """Terms in number order; no term holds a line break."""
    text = (folder / VOCABULARY).read_bytes().decode()
    return text.split("\n") if text else []


def read_shops(folder: Path) -> list[str]:
    """Shop ids in number order."""
    return msgspec.json.decode((folder / SHOPS).read_bytes(), type=list[str])

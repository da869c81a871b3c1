"""What an index folder holds: flat little-endian arrays, the products, and a manifest that names every byte.

Documents are numbered in product-id string order and terms in UTF-8 order, so the same documents give the same files
whatever their order, compression or builder. `content_sha256` is the hash of that content: it names documents and index
together and is in every record. Nothing here scores or searches.
"""

from __future__ import annotations

import functools
import mmap
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from foundation.canonical import content_hash, file_sha256
from foundation.durable_files import coded
from foundation.errors import ArenaError

FORMAT = "arena-index/1"
MANIFEST = "manifest.json"
LUCENE_FORMAT = "arena-lucene-index/1"
LUCENE_MANIFEST = "lucene.json"
ANSERINI = "1.7.1"  # the jar in the pinned pyserini; Lucene 9.9.1
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
_BLOCK = 64  # terms of the vocabulary between two that are remembered
_REMEMBERED = 1 << 16  # look-ups of terms


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file: of the index, or the documents it was built from."""

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


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What every kind of index says of itself. It is written last, so a folder without it is not an index."""

    content_sha256: str  # of its `content`: the catalogue's identity
    source: FileEntry  # no part of the identity, like what follows
    blank_dropped: int  # documents with blank contents, which the reference drops too
    malformed: int  # lines left out


class IndexManifest(Manifest, frozen=True, kw_only=True):
    """manifest.json of an index of ours."""

    content: IndexContent

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file of the index."""
        return self.content.files


class LuceneContent(msgspec.Struct, frozen=True, kw_only=True):
    """What names the catalogue. Lucene's files differ from build to build, so the documents stand for them."""

    format: str = LUCENE_FORMAT
    anserini: str = ANSERINI
    documents: int
    id_bytes: int  # width of one id
    documents_sha256: str  # of `{"id", "contents", "product"}` lines, compact, in id order


class LuceneManifest(Manifest, frozen=True, kw_only=True):
    """lucene.json."""

    content: LuceneContent
    files: tuple[FileEntry, ...]


ManifestT = TypeVar("ManifestT", IndexManifest, LuceneManifest)


def array_path(folder: Path, name: str) -> Path:
    """Where an array lies."""
    return folder / f"{name}.bin"


def describe_file(path: Path) -> FileEntry:
    """Name, size and hash of a file, read once in blocks."""
    return FileEntry(name=path.name, size=path.stat().st_size, sha256=file_sha256(path))


def write_manifest(path: Path, manifest: msgspec.Struct) -> None:
    """Write a manifest, the last file of an index."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")


def read_manifest(folder: Path) -> IndexManifest:
    """The manifest of an index of ours. Raises as `read_manifest_of`."""
    return read_manifest_of(folder / MANIFEST, IndexManifest, format=FORMAT)


def read_manifest_of(path: Path, kind: type[ManifestT], **made_with: str) -> ManifestT:
    """A manifest whose content says `made_with`.

    Raises ArenaError V2010 when there is none, V2010 when it is unreadable, edited or made with something else.
    """
    with coded(path, "V2010"):
        manifest = msgspec.json.decode(path.read_bytes(), type=kind)
    for name, wanted in made_with.items():
        found = getattr(manifest.content, name)
        if found != wanted:
            raise ArenaError("V2010", f"{path}: {name} {found!r}, this code reads {wanted!r}")
    if content_hash(manifest.content) != manifest.content_sha256:
        raise ArenaError("V2010", f"{path}: content does not match its own hash")
    return manifest


def check_entries(folder: Path, entries: Iterable[FileEntry], *, is_full: bool = False) -> None:
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


def map_array(folder: Path, name: str, dtype: str | None = None) -> npt.NDArray[Any]:
    """A read-only array over the file's bytes, of its type in `ARRAYS` unless another is given: mapped, shared between
    processes, plain `ndarray` to numpy."""
    path, dtype = array_path(folder, name), dtype or ARRAYS[name]
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))


class Vocabulary:
    """Term -> number. Thread-safe.

    Found in the mapped file: no table of terms in memory. Terms stand sorted, one a line; every 64th is remembered with
    its place, and a look-up bisects those and reads one block.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / VOCABULARY
        self._firsts: list[bytes] = []
        self._places: list[int] = []  # where each block starts, and the end
        if path.stat().st_size:
            with path.open("rb") as stream:
                self._text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            breaks = np.flatnonzero(np.frombuffer(self._text, np.uint8) == ord("\n"))
            self._places = [0, *(breaks[_BLOCK - 1 :: _BLOCK] + 1).tolist(), len(self._text) + 1]
            ends = np.append(breaks, len(self._text))[::_BLOCK].tolist()  # of the first term of each block
            self._firsts = [self._text[start:end] for start, end in zip(self._places[:-1], ends, strict=True)]
        self.number = functools.lru_cache(_REMEMBERED)(self._find)

    def _find(self, term: str) -> int | None:
        key = term.encode("utf-8", "surrogatepass")
        block = bisect_right(self._firsts, key) - 1
        if block < 0:
            return None
        terms = self._text[self._places[block] : self._places[block + 1] - 1].split(b"\n")
        return block * _BLOCK + terms.index(key) if key in terms else None

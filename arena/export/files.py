"""The files of an export: how they are named, written, hashed and read back.

Lines are compressed with zstd; what cannot be read raises ArenaError V2050 or V2095 with file and line. The manifest
is written last and atomically, so a folder with one is complete: its sha256 file shows a damaged
manifest, the signature a false one. Trajectories come out as the exporter handed them to the views. An export in an
object store is brought here whole to be verified; a shard that is fetched where it is read is held against its sha256.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec
import zstandard

from arena.chain.port import Signer, Verifier
from arena.export.model import MANIFEST_DOMAIN, MANIFEST_VERSION, LogRow, Manifest, ShardFile, Trajectory, Withheld
from arena.records.model import Envelope
from foundation.canonical import UNREADABLE_JSON, canonical_bytes, file_sha256, read_canonical
from foundation.durable_files import coded, sync_path, write_whole
from foundation.errors import ArenaError
from foundation.long_work import PhaseProgress

if TYPE_CHECKING:
    from arena.store.objects import ObjectFolder

ZSTD_LEVEL = 1


class LinesFile:
    """A file of lines being written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = path, 0
        self._file = path.open("wb")
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        self._stream = compressor.stream_writer(self._file, closefd=False)

    def write(self, lines: Sequence[bytes]) -> None:
        """Add lines, given without their ends."""
        if lines:
            self._stream.write(b"\n".join((*lines, b"")))
            self.rows += len(lines)

    def close(self) -> None:
        """Complete the file."""
        self._stream.flush(zstandard.FLUSH_FRAME)
        self._file.close()


LOG_ROWS_PER_ROW = 10  # a shard has at most so many log rows per row the request allows it: stubs are small, not free
SCRUBBED, LOG, VIEWS = "scrubbed", "log", "views"
AGENTS, SOURCES, POLICIES, LAYOUT = "agents.jsonl", "agents", "policies", "FORMATS.md"
REFERENCES = "references.jsonl.zst"  # log rows from outside the range that rows in it refer to


def shard_name(number: int) -> str:
    """The file name of a shard in `log/` and `scrubbed/`."""
    return f"{number:06d}.jsonl.zst"


def describe(folder: Path, path: Path, rows: int) -> ShardFile:
    """A complete file as the manifest names it, on disk for good."""
    sync_path(path)
    name, size_bytes = path.relative_to(folder).as_posix(), path.stat().st_size
    return ShardFile(path=name, sha256=file_sha256(path), size_bytes=size_bytes, rows=rows)


def write_named(folder: Path, name: str, content: bytes, rows: int) -> ShardFile:
    """Write a file of an export: as the manifest names it."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    write_whole(path, content)
    return describe(folder, path, rows)


MANIFEST, CHECKSUM, SIGNATURE = "manifest.json", "manifest.sha256", "manifest.sig"


def write_manifest(folder: Path, manifest: Manifest, signer: Signer | None = None) -> None:
    """Write the manifest and what goes with it, the manifest itself last."""
    content = canonical_bytes(manifest)
    digest = hashlib.sha256(content)
    write_whole(folder / CHECKSUM, _checksum_text(digest.hexdigest()))
    if signer:
        signature = signer.sign(MANIFEST_DOMAIN + digest.digest()).hex()
        write_whole(folder / SIGNATURE, f"{signer.hotkey} {signature}\n".encode())
    write_whole(folder / MANIFEST, content)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an export. Raises ArenaError V2095 when there is none or it is of no version known."""
    with coded(folder / MANIFEST, "V2095"):
        content = (folder / MANIFEST).read_bytes()
        manifest = read_canonical(content, Manifest)
    if manifest.version != MANIFEST_VERSION:
        detail = f"version {manifest.version}, this release reads version {MANIFEST_VERSION}; export again"
        raise ArenaError("V2095", f"{folder / MANIFEST}: {detail}")
    if canonical_bytes(manifest) != content:
        raise ArenaError("V2095", f"{folder / MANIFEST}: not in canonical form")
    return manifest


def signer_of(folder: Path, verify_signature: Verifier) -> str:
    """The hotkey that signed the manifest, "" for an unsigned one.

    Raises ArenaError V2095 when the checksum does not fit the manifest, or the signature does not.
    """
    digest = hashlib.sha256((folder / MANIFEST).read_bytes())
    with coded(CHECKSUM, "V2095"):
        if (folder / CHECKSUM).read_bytes() != _checksum_text(digest.hexdigest()):
            raise ArenaError("V2095", f"{CHECKSUM} is not that of the manifest")
    if not (folder / SIGNATURE).exists():
        return ""
    try:
        text = (folder / SIGNATURE).read_text("ascii")
        hotkey, _, signature = text.removesuffix("\n").partition(" ")
        raw = bytes.fromhex(signature)
    except ValueError as error:
        raise ArenaError("V2095", f"{SIGNATURE}: {error}") from error
    if text != f"{hotkey} {raw.hex()}\n" or not verify_signature(hotkey, MANIFEST_DOMAIN + digest.digest(), raw):
        raise ArenaError("V2095", f"{SIGNATURE} is not a signature of this manifest")
    return hotkey


def _checksum_text(sha256: str) -> bytes:
    return f"{sha256}  {MANIFEST}\n".encode()


LINE_BYTES_MAX = 160 << 20  # two bodies of the largest size, and their envelope
_READ_AT_ONCE = 1 << 20


class _Line(Envelope, frozen=True, kw_only=True):
    """A LogRow as it is decoded: its type says whether it is a raw value or null."""

    content: msgspec.Raw
    body: msgspec.Raw
    withheld: Withheld | None

    def row(self) -> LogRow:
        """The row. Raw values are copied, so that the line they are part of can go."""
        fields = msgspec.structs.asdict(self)
        for name in ("content", "body"):
            fields[name] = None if bytes(fields[name]) == b"null" else fields[name].copy()
        return LogRow(**fields)


_LINE = msgspec.json.Decoder(_Line)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a zstd-compressed file, without their ends. Raises ArenaError V2050."""
    rest = b""
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            while chunk := stream.read(_READ_AT_ONCE):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > LINE_BYTES_MAX:
                    raise ArenaError("V2050", f"{path.name}: a line is over {LINE_BYTES_MAX} bytes")
    except zstandard.ZstdError as error:
        raise ArenaError("V2050", f"{path.name}: {error}") from error
    if rest:
        raise ArenaError("V2050", f"{path.name}: the last line has no end")


def read_row(line: bytes) -> LogRow:
    """The log row of one line, without its end. Raises ArenaError V2050 when it is not one in canonical form."""
    try:
        row = _LINE.decode(line).row()
    except UNREADABLE_JSON as error:
        raise ArenaError("V2050", str(error)) from error
    if msgspec.json.encode(row) != line:
        raise ArenaError("V2050", "not in canonical form")
    return row


def read_rows(path: Path) -> Iterator[LogRow]:
    """The log rows of a file. Raises ArenaError V2050 for a line that is not one in canonical form."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield read_row(line)
        except ArenaError as error:
            raise ArenaError("V2050", f"{path.name}, line {number}: {error.failure.detail}") from error


def read_scrubbed(folder: Path, number: int) -> dict[int, Trajectory]:
    """The scrubbed trajectories of a shard by record number. Raises ArenaError V2050."""
    path = folder / SCRUBBED / shard_name(number)
    if not path.exists():
        return {}
    with coded(f"{SCRUBBED}/{path.name}", "V2050"):
        rows = [msgspec.json.decode(line, type=Trajectory) for line in read_lines(path)]
    return {row.seq: row for row in rows}


# -- an export in an object store: nothing is written there; credentials come from each machine's environment (AWS_*)
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
            raise ArenaError("V2050", f"{location}: {name!r} is not a file of an export")
    folder.mkdir(parents=True, exist_ok=True)
    beside = [name for name in (MANIFEST, CHECKSUM, SIGNATURE) if name in names]
    for name in beside:
        there.fetch(name, folder / name)
    named = {file.path: file.sha256 for file in read_manifest(folder).files}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in names:
            path.unlink()
    for number, name in enumerate(names, 1):
        path = folder / name
        if name not in beside and not (name in named and _is(path, named[name])):
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
    return path.is_file() and file_sha256(path) == sha256


@functools.lru_cache(maxsize=_FETCHED_KEPT)
def _fetched(location: str, sha256s: tuple[tuple[str, str], ...]) -> tempfile.TemporaryDirectory[str]:
    held = tempfile.TemporaryDirectory(prefix="arena-shards-")
    for name, sha256 in sha256s:
        _opened(location).fetch(name, Path(held.name) / name)
        if not _is(Path(held.name) / name, sha256):
            raise ArenaError("V2050", f"{location}: {name} is not the file that was verified")
    return held

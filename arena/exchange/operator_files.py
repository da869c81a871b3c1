"""A release of the operator's files: one numbered, signed list of everything that validators must share.

A release names each file by kind, name, size and hash, and each piece of a long one by its hash, so that a
reader needs to trust nobody who passes it on. `check_release` accepts exactly what the operator's key signed for this
subnet. A name is a plain file name of the form that its kind demands: no path can be spelled with one. This is not the
release record of a race (`arena.records.model.ReleaseRecord`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from arena.bank.signed import signed_bytes
from arena.chain.keys import canonical_hotkey
from arena.chain.port import Signer, Verifier
from foundation.canonical import UNREADABLE_JSON, content_hash, file_sha256, read_canonical
from foundation.codes import PEER_LIED, RELEASE_OLDER
from foundation.durable_files import coded, move_into_place, sync_path, write_whole
from foundation.errors import ArenaError

PIECE_BYTES = 4 << 20  # what travels, is checked and is kept at once
FILES_MAX = 4_096
FILE_BYTES_MAX = 8 << 30
ALL_BYTES_MAX = 32 << 30
RELEASE_BYTES_MAX = 4 << 20  # of the signed list itself
_DOMAIN = b"agent-arena/operator-files/1\n"

# in the order in which they are fetched
FileKind = Literal["policy", "suite", "titles", "sketch", "batch", "catalogue"]
KINDS: tuple[FileKind, ...] = get_args(FileKind)
SUITE_ENDINGS = (".jsonl", ".titles.json", ".manifest.json", ".signature.json")
_STEM = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_NAMES: dict[FileKind, re.Pattern[str]] = {
    "policy": re.compile(rf"{_STEM}\.json"),
    "suite": re.compile(rf"{_STEM}({'|'.join(map(re.escape, SUITE_ENDINGS))})"),
    "titles": re.compile(r"titles(-[A-Za-z0-9_.-]{1,99})?\.json"),
    "sketch": re.compile(rf"{_STEM}\.sketch"),
    "batch": re.compile(rf"{_STEM}\.sealed\.json"),
    "catalogue": re.compile(_STEM),
}
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class SharedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file by content. `pieces` are the sha256 of every PIECE_BYTES of it, none where it is one piece."""

    kind: FileKind
    name: str
    sha256: Sha256
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=FILE_BYTES_MAX)]
    pieces: tuple[Sha256, ...] = ()

    @property
    def piece_sha256s(self) -> tuple[str, ...]:
        """The hash of each of its pieces, in order."""
        return self.pieces or (self.sha256,)


class FilesRelease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator of a subnet hands to its validators. A higher `sequence` takes the place of a lower one."""

    version: Literal[1] = 1
    netuid: int
    sequence: Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
    made_ms: int  # unix milliseconds, by the operator's clock; for people
    signer: str  # hotkey, ss58
    files: Annotated[tuple[SharedFile, ...], msgspec.Meta(max_length=FILES_MAX)]

    @property
    def release_sha256(self) -> str:
        """Its identity."""
        return content_hash(self)

    def of_kind(self, *kinds: FileKind) -> tuple[SharedFile, ...]:
        """Its files of some kinds, in its order."""
        return tuple(file for file in self.files if file.kind in kinds)


class SignedRelease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release with its signer's signature (hex, randomised: never an identity)."""

    release: FilesRelease
    signature: str


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """Whose releases are taken, and for which subnet. `hotkey` is ss58."""

    hotkey: str
    netuid: int


def sign_release(release: FilesRelease, signer: Signer) -> SignedRelease:
    """The release signed by the key that it names."""
    return SignedRelease(release=release, signature=signer.sign(signed_bytes(_DOMAIN, release)).hex())


def check_release(signed: SignedRelease, operator: Operator, verify: Verifier) -> None:
    """Raise ArenaError U3042 unless this is a well-formed release that this operator signed for this subnet."""
    release = signed.release
    about = f"release {release.sequence} of {release.signer[:64]!a}"
    if canonical_hotkey(release.signer) != release.signer or release.signer != canonical_hotkey(operator.hotkey):
        raise ArenaError(PEER_LIED, f"{about}: the operator is {operator.hotkey}")
    if release.netuid != operator.netuid:
        raise ArenaError(PEER_LIED, f"{about}: it is for netuid {release.netuid}, not {operator.netuid}")
    try:
        msgspec.convert(msgspec.to_builtins(release), FilesRelease)
        signature, message = bytes.fromhex(signed.signature), signed_bytes(_DOMAIN, release)
    except (ValueError, TypeError) as error:
        raise ArenaError(PEER_LIED, f"{about}: {error}") from error
    if fault := _fault_of(release):
        raise ArenaError(PEER_LIED, f"{about}: {fault}")
    if not verify(operator.hotkey, message, signature):
        raise ArenaError(PEER_LIED, f"{about}: the signature does not hold")


def of_operator(signed: SignedRelease | None, operator: Operator) -> SignedRelease | None:
    """A kept release, if it is this operator's for this subnet; None otherwise: settings may name another by now."""
    whose = (canonical_hotkey(operator.hotkey), operator.netuid)
    return signed if signed and (signed.release.signer, signed.release.netuid) == whose else None


def is_file_name(kind: FileKind, name: str) -> bool:
    """Whether a file of that kind may have this name."""
    return _NAMES[kind].fullmatch(name) is not None


def _fault_of(release: FilesRelease) -> str:
    """What is wrong with the form of a release; "" for nothing."""
    for file in release.files:
        if not is_file_name(file.kind, file.name):
            return f"{file.name[:128]!a} is not the name of a {file.kind} file"
        pieces = 0 if file.size_bytes <= PIECE_BYTES else -(-file.size_bytes // PIECE_BYTES)
        if len(file.pieces) != pieces:
            return f"{file.name} has {pieces} pieces, {len(file.pieces)} are named"
    if sum(file.size_bytes for file in release.files) > ALL_BYTES_MAX:
        return f"its files have more than {ALL_BYTES_MAX} bytes"
    if len({(file.kind, file.name) for file in release.files}) != len(release.files):
        return "a name stands there twice"
    return "more than one policy" if len(release.of_kind("policy")) > 1 else ""


MODE = 0o600  # sealed batches are readable by their holder one day
FREE_BYTES_LEAST = 2 << 30  # left free on the disk by what is fetched
_NEWEST, _WHOLE = "newest.json", "whole.json"


class ReleaseStore:
    """One folder of a node."""

    def __init__(self, folder: Path) -> None:
        """Raises ArenaError V2064 when the folder can't be made."""
        self.folder, self._files, self._parts = folder, folder / "files", folder / "parts"
        with coded(folder):
            for path in (self._files, self._parts):
                path.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- releases
    def newest(self) -> SignedRelease | None:
        """The release with the highest number seen, whether or not its files are here. One that can't be read is none.

        Raises ArenaError V2064."""
        return self._read(_NEWEST)

    def whole(self) -> SignedRelease | None:
        """The newest release that was whole, if all its files are still here. Raises ArenaError V2064."""
        whole = self._read(_WHOLE)
        return None if whole is None or self.missing(whole.release) else whole

    def keep(self, signed: SignedRelease) -> bool:
        """Keep a checked release, within `locked`; True when it is new here.

        Raises ArenaError U3046 for a lower number than the newest of its signer, or for its number with another
        content; V2064.
        """
        release, held = signed.release, self.newest()
        if held is not None and (held.release.signer, held.release.netuid) == (release.signer, release.netuid):
            if release == held.release:
                return False
            if release.sequence <= held.release.sequence:
                shown, kept = (f"{one.sequence} ({one.release_sha256[:16]})" for one in (release, held.release))
                raise ArenaError(RELEASE_OLDER, f"release {shown} of {release.signer}: {kept} is held")
        self._write(_NEWEST, signed)
        return True

    def settle(self) -> bool:
        """Make the newest release the whole one once all its files are here, and forget files of no release kept; True
        when that happened now. Raises ArenaError V2064."""
        with self.locked(), coded(self.folder):
            newest = self.newest()
            if newest is None or newest == self._read(_WHOLE) or self.missing(newest.release):
                return False
            self._write(_WHOLE, newest)
            kept = {file.sha256 for file in newest.release.files}
            for path in (*self._files.iterdir(), *self._parts.iterdir()):
                if path.name not in kept:
                    path.unlink(missing_ok=True)
            return True

    # -- files
    def path_of(self, file: SharedFile) -> Path:
        """Where a file lies that is here."""
        return self._files / file.sha256

    def content(self, file: SharedFile) -> bytes:
        """A file's bytes, checked again. Raises ArenaError V2064 for one that was damaged: it is thrown away, and asked
        for anew."""
        path = self.path_of(file)
        with coded(path):
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != file.sha256:
                path.unlink()
                raise ArenaError("V2064", f"{path}: {file.name} was damaged; it is fetched again")
        return content

    def missing(self, release: FilesRelease) -> tuple[SharedFile, ...]:
        """The files of a release that are not here, in the order in which they are fetched, each content once."""
        lacking = {file.sha256: file for file in release.files if not self._has(file)}
        return tuple(sorted(lacking.values(), key=lambda file: (KINDS.index(file.kind), file.name)))

    def pieces_held(self, file: SharedFile) -> int:
        """How many of its pieces are in the part of a file; what a kill left behind the last of them is cut off."""
        part = self._parts / file.sha256
        with coded(part):
            if not part.exists():
                return 0
            pieces = min(part.stat().st_size // PIECE_BYTES, len(file.piece_sha256s))
            os.truncate(part, pieces * PIECE_BYTES)
            return pieces

    def add_piece(self, file: SharedFile, piece: bytes) -> None:
        """Add the next checked piece to the part of a file. Raises ArenaError V2064."""
        part = self._parts / file.sha256
        with coded(part), os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND, MODE), "wb") as stream:
            stream.write(piece)

    def finish(self, file: SharedFile) -> None:
        """Turn a complete part into the file. Raises ArenaError V2064 when it is not what was checked: it is thrown
        away and fetched anew."""
        part = self._parts / file.sha256
        with coded(part):
            sync_path(part)
            if file_sha256(part) != file.sha256:
                part.unlink()
                raise ArenaError("V2064", f"{part}: what was written is not what was read; it is fetched again")
            move_into_place(part, self.path_of(file))

    def add(self, kind: FileKind, name: str, source: Path) -> SharedFile:
        """Copy a file in, within `locked`. Raises ArenaError V2064; OSError where the source can't be read."""
        whole, pieces, size_bytes = hashlib.sha256(), list[str](), 0
        scratch = self._parts / "publishing"
        with source.open("rb") as stream, coded(scratch):
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "wb") as copy:
                while piece := stream.read(PIECE_BYTES):
                    whole.update(piece)
                    pieces.append(hashlib.sha256(piece).hexdigest())
                    size_bytes += copy.write(piece)
                copy.flush()
                os.fsync(copy.fileno())
            listed = tuple(pieces) if len(pieces) > 1 else ()
            file = SharedFile(kind=kind, name=name, sha256=whole.hexdigest(), size_bytes=size_bytes, pieces=listed)
            move_into_place(scratch, self.path_of(file))
        return file

    def piece(self, sha256: str, start: int) -> bytes | None:
        """PIECE_BYTES of a file of a kept release from byte `start` on, or what there is of them; None where the file
        is not here. Raises ArenaError V2064."""
        for signed in (self.newest(), self.whole()):
            for file in signed.release.files if signed else ():
                if file.sha256 == sha256 and self._has(file) and start < max(1, file.size_bytes):
                    with coded(self.path_of(file)), self.path_of(file).open("rb") as stream:
                        stream.seek(start)
                        return stream.read(PIECE_BYTES)
        return None

    def _has(self, file: SharedFile) -> bool:
        path = self.path_of(file)
        return path.is_file() and path.stat().st_size == file.size_bytes

    def _read(self, name: str) -> SignedRelease | None:
        with coded(self.folder / name), contextlib.suppress(FileNotFoundError, *UNREADABLE_JSON):
            return read_canonical((self.folder / name).read_bytes(), SignedRelease)
        return None

    def _write(self, name: str, signed: SignedRelease) -> None:
        with coded(self.folder / name):
            write_whole(self.folder / name, msgspec.json.encode(signed), mode=MODE)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time, of all processes."""
        with coded(self.folder):
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def require_room(folder: Path, wanted_bytes: int = 0) -> None:
    """Raises ArenaError V2115 unless the disk of a folder holds so many bytes more of what others send; V2064."""
    with coded(folder):
        free = shutil.disk_usage(folder).free
    if free < wanted_bytes + FREE_BYTES_LEAST:
        raise ArenaError("V2115", f"{folder}: {free} bytes are free, and {wanted_bytes} or more are to come")

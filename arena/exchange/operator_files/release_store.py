"""The operator's files as a node keeps them: the newest release seen, the newest that is whole, and files by hash.

What lies under a hash in `files` has that hash. A file that is being fetched grows in `parts` by checked
pieces, so a kill costs one piece. A release is never taken back: a lower number is refused (U3046), and so is a second
release of one number (U3047), which is kept as evidence. Nothing a peer sends names a path. Processes may share a
folder: `arena operator publish` writes beside a running node.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.exchange.operator_files.release import (
    PIECE_BYTES,
    THING_OF,
    FileKind,
    FilesRelease,
    SharedFile,
    SignedRelease,
    decode_release,
)
from arena.visibility.rule import may_see
from foundation.codes.names import RELEASE_OLDER, RELEASE_TWICE
from foundation.durable_files import move_into_place, write_whole
from foundation.errors import ArenaError

MODE = 0o600  # sealed batches are readable by their holder one day
FREE_BYTES_LEAST = 2 << 30  # left free on the disk by what is fetched
_NEWEST, _WHOLE, _SECOND = "newest.json", "whole.json", "second.json"


class ReleaseStore:
    """One folder of a node."""

    def __init__(self, folder: Path) -> None:
        """Raises ArenaError V2114 when the folder can't be made."""
        self.folder = folder
        with _coded(folder):
            for path in (self._files, self._parts):
                path.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- releases
    def newest(self) -> SignedRelease | None:
        """The release with the highest number seen, whether or not its files are here. One that can't be read is none.

        Raises ArenaError V2114."""
        return self._read(_NEWEST)

    def whole(self) -> SignedRelease | None:
        """The newest release that was whole, if all its files are still here. Raises ArenaError V2114."""
        whole = self._read(_WHOLE)
        return None if whole is None or self.missing(whole.release) else whole

    def second(self) -> SignedRelease | None:
        """Another release with the number of one that was kept: evidence against the operator. Raises V2114."""
        return self._read(_SECOND)

    def keep(self, signed: SignedRelease) -> bool:
        """Keep a checked release; True when it is new here.

        Raises ArenaError U3046 for a lower number than the newest of its signer, U3047 for its number with another
        content, V2114.
        """
        with self._locked():
            return self._keep(signed)

    def settle(self) -> bool:
        """Make the newest release the whole one once all its files are here, and forget files of no release kept; True
        when that happened now. Raises ArenaError V2114."""
        with self._locked():
            return self._settle()

    def publish(
        self,
        sources: Sequence[tuple[FileKind, str, Path]],
        sign: Callable[[tuple[SharedFile, ...], SignedRelease | None], SignedRelease],
    ) -> SignedRelease:
        """Copy files in (kind, name, source), and keep the release that `sign` makes of them and of the newest before.

        Raises ArenaError U3046 and U3047 as `keep` does, V2114; OSError where a source can't be read.
        """
        with self._locked():
            signed = sign(tuple(self._add(*source) for source in sources), self.newest())
            self._keep(signed)
            self._settle()
            return signed

    def _keep(self, signed: SignedRelease) -> bool:
        release, held = signed.release, self.newest()
        if held is not None and (held.release.signer, held.release.netuid) == (release.signer, release.netuid):
            about = f"release {release.sequence} of {release.signer}"
            if release.sequence < held.release.sequence:
                raise ArenaError(RELEASE_OLDER, f"{about}: {held.release.sequence} is held")
            if release.sequence == held.release.sequence:
                if release == held.release:
                    return False
                self._write(_SECOND, signed)
                one, other = held.release.release_sha256[:16], release.release_sha256[:16]
                raise ArenaError(RELEASE_TWICE, f"{about}: {one} is held, {other} was shown")
        self._write(_NEWEST, signed)
        return True

    def _settle(self) -> bool:
        newest = self.newest()
        if newest is None or newest == self._read(_WHOLE) or self.missing(newest.release):
            return False
        self._write(_WHOLE, newest)
        kept = {file.sha256 for file in newest.release.files}
        with _coded(self.folder):
            for path in (*self._files.iterdir(), *self._parts.iterdir()):
                if path.name not in kept:
                    path.unlink(missing_ok=True)
        return True

    # -- files
    def path_of(self, file: SharedFile) -> Path:
        """Where a file lies that is here."""
        return self._files / file.sha256

    def content(self, file: SharedFile) -> bytes:
        """A file's bytes, checked again. Raises ArenaError V2114 for one that was damaged: it is thrown away, and asked
        for anew."""
        path = self.path_of(file)
        with _coded(path):
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != file.sha256:
                path.unlink()
                raise ArenaError("V2114", f"{path}: {file.name} was damaged; it is fetched again")
        return content

    def missing(self, release: FilesRelease) -> tuple[SharedFile, ...]:
        """The files of a release that are not here, in the order in which they are fetched, each content once."""
        order: tuple[FileKind, ...] = tuple(THING_OF)
        lacking = {file.sha256: file for file in release.files if not self._has(file)}
        return tuple(sorted(lacking.values(), key=lambda file: (order.index(file.kind), file.name)))

    def require_room(self, files: tuple[SharedFile, ...]) -> None:
        """Raises ArenaError V2115 when the disk does not hold these files too."""
        wanted = sum(file.size_bytes for file in files)
        if shutil.disk_usage(self.folder).free < wanted + FREE_BYTES_LEAST:
            raise ArenaError("V2115", f"{self.folder}: {wanted} bytes of the operator's files are to come")

    def pieces_held(self, file: SharedFile) -> int:
        """How many of its pieces are in the part of a file; what a kill left behind the last of them is cut off."""
        part = self._parts / file.sha256
        with _coded(part):
            if not part.exists():
                return 0
            pieces = min(part.stat().st_size // PIECE_BYTES, len(file.piece_sha256s))
            os.truncate(part, pieces * PIECE_BYTES)
            return pieces

    def add_piece(self, file: SharedFile, piece: bytes) -> None:
        """Add the next checked piece to the part of a file. Raises ArenaError V2114."""
        part = self._parts / file.sha256
        with _coded(part), os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND, MODE), "wb") as stream:
            stream.write(piece)

    def finish(self, file: SharedFile) -> None:
        """Turn a complete part into the file. Raises ArenaError V2114 when it is not what was checked: it is thrown
        away and fetched anew."""
        part = self._parts / file.sha256
        with _coded(part):
            with part.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
                os.fsync(stream.fileno())
            if found != file.sha256:
                part.unlink()
                raise ArenaError("V2114", f"{part}: what was written is not what was read; it is fetched again")
            move_into_place(part, self.path_of(file))

    def _add(self, kind: FileKind, name: str, source: Path) -> SharedFile:
        whole, pieces, size_bytes = hashlib.sha256(), list[str](), 0
        scratch = self._parts / "publishing"
        with source.open("rb") as stream, _coded(scratch):
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
        is not here, or is none that other validators may see. Raises ArenaError V2114."""
        for signed in (self.newest(), self.whole()):
            for file in signed.release.files if signed else ():
                if file.sha256 == sha256 and self._has(file) and start < max(1, file.size_bytes):
                    if not may_see("validator", THING_OF[file.kind], "open").is_seen:
                        return None
                    with _coded(self.path_of(file)), self.path_of(file).open("rb") as stream:
                        stream.seek(start)
                        return stream.read(PIECE_BYTES)
        return None

    def _has(self, file: SharedFile) -> bool:
        try:
            return self.path_of(file).stat().st_size == file.size_bytes
        except FileNotFoundError:
            return False

    @property
    def _files(self) -> Path:
        return self.folder / "files"

    @property
    def _parts(self) -> Path:
        return self.folder / "parts"

    def _read(self, name: str) -> SignedRelease | None:
        with _coded(self.folder / name):
            try:
                return decode_release((self.folder / name).read_bytes())
            except FileNotFoundError:
                return None

    def _write(self, name: str, signed: SignedRelease) -> None:
        with _coded(self.folder / name):
            write_whole(self.folder / name, msgspec.json.encode(signed), mode=MODE)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, of all processes."""
        with _coded(self.folder):
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@contextlib.contextmanager
def _coded(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArenaError("V2114", f"{path}: {error.strerror or error}") from error

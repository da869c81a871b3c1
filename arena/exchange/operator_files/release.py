"""A release of the operator's files: one numbered, signed list of everything that validators must share.

A release names each file by kind, name, size and hash, and each piece of a long one by its hash, so that a
reader needs to trust nobody who passes it on. `check_release` accepts exactly what the operator's key signed for this
subnet. A name is a plain file name of the form that its kind demands: no path can be spelled with one. This is not the
release record of a race (`arena.records.model.ReleaseRecord`).
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal, get_args

import msgspec

from arena.chain.keys import canonical_hotkey
from arena.chain.port import Signer, Verifier
from arena.visibility.rule import Thing
from foundation.canonical import UNREADABLE_JSON, canonical_bytes, content_hash, read_canonical
from foundation.codes.names import RELEASE_UNSIGNED
from foundation.errors import ArenaError

RELEASE_VERSION = 1
PIECE_BYTES = 4 << 20  # what travels, is checked and is kept at once
FILES_MAX = 4_096
FILE_BYTES_MAX = 8 << 30
ALL_BYTES_MAX = 32 << 30
RELEASE_BYTES_MAX = 4 << 20  # of the signed list itself
_DOMAIN = b"agent-arena/operator-files/1\n"

FileKind = Literal["policy", "suite", "titles", "batch", "catalogue"]  # in the order in which they are fetched
KINDS: tuple[FileKind, ...] = get_args(FileKind)
SUITE_ENDINGS = (".jsonl", ".titles.json", ".manifest.json", ".signature.json")
THING_OF: dict[FileKind, Thing] = {  # what a file is to the rule of who may see what
    "policy": "policy",
    "suite": "suite",
    "titles": "titles",
    "batch": "sealed_batch",
    "catalogue": "catalogue",
}
_STEM = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
_NAMES: dict[FileKind, re.Pattern[str]] = {
    "policy": re.compile(rf"{_STEM}\.json"),
    "suite": re.compile(rf"{_STEM}({'|'.join(map(re.escape, SUITE_ENDINGS))})"),
    "titles": re.compile(r"titles(-[A-Za-z0-9_.-]{1,99})?\.json"),
    "batch": re.compile(rf"{_STEM}\.sealed\.json"),
    "catalogue": re.compile(_STEM),
}
_SHA256 = re.compile("[0-9a-f]{64}")


class SharedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file by content. `pieces` are the sha256 of every PIECE_BYTES of it, none where it is one piece."""

    kind: FileKind
    name: str
    sha256: str
    size_bytes: int
    pieces: tuple[str, ...] = ()

    @property
    def piece_sha256s(self) -> tuple[str, ...]:
        """The hash of each of its pieces, in order."""
        return self.pieces or (self.sha256,)

    def piece_bytes(self, number: int) -> int:
        """How long a piece is, counted from 0."""
        return min(PIECE_BYTES, self.size_bytes - number * PIECE_BYTES)


class FilesRelease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the operator of a subnet hands to its validators. A higher `sequence` takes the place of a lower one."""

    version: int
    netuid: int
    sequence: int  # from 1
    made_ms: int  # unix milliseconds, by the operator's clock; for people
    signer: str  # hotkey, ss58
    files: tuple[SharedFile, ...]

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
    """The release signed. Raises ValueError when it names another signer."""
    if release.signer != signer.hotkey:
        raise ValueError(f"the release names {release.signer}, the key is {signer.hotkey}")
    return SignedRelease(release=release, signature=signer.sign(_message(release)).hex())


def check_release(signed: SignedRelease, operator: Operator, verify: Verifier) -> None:
    """Raise ArenaError U3045 unless this is a well-formed release that this operator signed for this subnet."""
    release = signed.release
    about = f"release {release.sequence} of {release.signer[:64]!a}"
    if canonical_hotkey(release.signer) != release.signer or release.signer != canonical_hotkey(operator.hotkey):
        raise ArenaError(RELEASE_UNSIGNED, f"{about}: the operator is {operator.hotkey}")
    if release.netuid != operator.netuid:
        raise ArenaError(RELEASE_UNSIGNED, f"{about}: it is for netuid {release.netuid}, not {operator.netuid}")
    if fault := _fault_of(release):
        raise ArenaError(RELEASE_UNSIGNED, f"{about}: {fault}")
    try:
        signature, message = bytes.fromhex(signed.signature), _message(release)
    except (ValueError, TypeError) as error:
        raise ArenaError(RELEASE_UNSIGNED, f"{about}: {error}") from error
    if not verify(operator.hotkey, message, signature):
        raise ArenaError(RELEASE_UNSIGNED, f"{about}: the signature does not hold")


def is_file_name(kind: FileKind, name: str) -> bool:
    """Whether a file of that kind may have this name."""
    return _NAMES[kind].fullmatch(name) is not None


def kind_by_name(name: str) -> FileKind | None:
    """What a file seems to be by its name alone; None for none of ours. A policy is known by what it holds."""
    if is_file_name("batch", name):
        return "batch"
    if is_file_name("titles", name):
        return "titles"
    return "suite" if is_file_name("suite", name) else None


def decode_release(content: bytes) -> SignedRelease | None:
    """A signed release in its file's bytes, unchecked; None for bytes that are none."""
    try:
        return read_canonical(content, SignedRelease)
    except UNREADABLE_JSON:
        return None


def _fault_of(release: FilesRelease) -> str:
    """What is wrong with the form of a release; "" for nothing."""
    if release.version != RELEASE_VERSION:
        return f"format {release.version} is not {RELEASE_VERSION}"
    if not 1 <= release.sequence < 2**53 or len(release.files) > FILES_MAX:
        return f"number {release.sequence}, {len(release.files)} files: at most {FILES_MAX} files, numbers from 1"
    for file in release.files:
        if not is_file_name(file.kind, file.name):
            return f"{file.name[:128]!a} is no name of a {file.kind} file"
        if not 0 <= file.size_bytes <= FILE_BYTES_MAX:
            return f"{file.name} has {file.size_bytes} bytes, at most {FILE_BYTES_MAX} are taken"
        pieces = 0 if file.size_bytes <= PIECE_BYTES else -(-file.size_bytes // PIECE_BYTES)
        if len(file.pieces) != pieces or not all(map(_SHA256.fullmatch, (file.sha256, *file.pieces))):
            return f"{file.name} is not described by hashes of its content and its {pieces} pieces"
    if sum(file.size_bytes for file in release.files) > ALL_BYTES_MAX:
        return f"its files have more than {ALL_BYTES_MAX} bytes"
    if len({(file.kind, file.name) for file in release.files}) != len(release.files):
        return "a name stands there twice"
    described: dict[str, tuple[int, tuple[str, ...]]] = {}
    for file in release.files:
        is_described = (file.size_bytes, file.pieces)
        if described.setdefault(file.sha256, is_described) != is_described:
            return f"the content of {file.name} stands there with two descriptions"
    return "more than one policy" if len(release.of_kind("policy")) > 1 else ""


def _message(release: FilesRelease) -> bytes:
    return _DOMAIN + hashlib.sha256(canonical_bytes(release)).digest()

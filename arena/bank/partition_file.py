"""Partition files: a frozen partition manifest on disk, signed; in private together with its key.

A manifest read from here is the one its signer signed, byte for byte (P4028 otherwise), and disjoint as every
manifest is. The private file (mode 0600) tells the pool of any problem and grows by `assign`; each manifest it ever was
is kept beside it in public form, since batches and records name manifests by hash: `partitions/<sha256>.json` whole, or
`<sha256>.change.json` with what the manifest before it did not say, so that a race costs what entered with it and not
the bank. The public form holds keyed tokens only: it says nothing of a problem before that problem's tokens are opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from arena.chain.port import Signer, Verifier
from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from problems.clusters import NO_CATALOGUE, ProductClasses, answer_marks, cluster_id
from problems.model import Pool, Problem
from problems.partition import (
    ManifestChange,
    OpenPartition,
    PartitionManifest,
    apply_changes,
    change_between,
    extend,
    manifest_bytes,
)

_DOMAIN = b"agent-arena/partition-manifest/1\n"

_CHANGE = ".change.json"
PARTITION_FILE = "partition.json"  # the private form, in the folder of a bank

_Shape = TypeVar("_Shape")


class SignedManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public form: a manifest with the signature (hex) of the bank that ships it."""

    manifest: PartitionManifest
    signer: str  # hotkey, ss58
    signature: str


class SignedChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public form of a manifest by its difference from the one before; the signature is that of the whole one."""

    change: ManifestChange
    signer: str
    signature: str


class _PrivateFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    signed: SignedManifest
    key: str  # 32 bytes, hex


class PoolAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition says of some problems: pool and cluster of each, in order, under that manifest."""

    problems: tuple[Problem, ...]  # those that may be raced
    pools: tuple[Pool, ...]
    cluster_ids: tuple[str, ...]
    partition_sha256: str
    refused: tuple[str, ...] = ()  # public ids: they would join two pools, or share a cluster with a suite


def unpartitioned(problems: Sequence[Problem]) -> PoolAssignment:
    """What a bank without a partition says: all `train`, each in the cluster of its own answers."""
    return PoolAssignment(
        problems=tuple(problems),
        pools=tuple[Pool, ...]("train" for _ in problems),
        cluster_ids=tuple(cluster_id(problem) for problem in problems),
        partition_sha256="",
    )


def sign_manifest(manifest: PartitionManifest, signer: Signer) -> SignedManifest:
    """The manifest in public form."""
    return SignedManifest(manifest=manifest, signer=signer.hotkey, signature=signer.sign(_message(manifest)).hex())


def write_partition(
    path: Path, manifest: PartitionManifest, key: bytes, signer: Signer, before: PartitionManifest | None = None
) -> Path:
    """Write the private file and the public form beside it, whose path is returned.

    Where the public form of `before`, the manifest that this one follows, is there, the change alone is written. Raises
    OSError when the folder can't be written, ArenaError P4023 when the key is another manifest's, P4021 when the
    manifest does not follow `before`.
    """
    OpenPartition(manifest, key)
    signed = sign_manifest(manifest, signer)
    folder = path.parent / "partitions"
    folder.mkdir(parents=True, exist_ok=True)
    public, content = _whole(folder, manifest.sha256), msgspec.json.encode(signed)
    if before is not None and any(form(folder, before.sha256).exists() for form in (_whole, _changed)):
        change = SignedChange(change=change_between(before, manifest), signer=signed.signer, signature=signed.signature)
        public, content = _changed(folder, manifest.sha256), msgspec.json.encode(change)
    write_whole(public, content, mode=0o600)
    write_whole(path, msgspec.json.encode(_PrivateFile(signed=signed, key=key.hex())), mode=0o600)
    return public


def read_partition(path: Path, verify: Verifier) -> OpenPartition:
    """The partition of a private file. Raises ArenaError P4028 unless it is what its signer signed, P4023 for a key of
    another manifest, P4001 when it can't be read."""
    return _read_private(path, verify)[0]


def read_public_manifest(path: Path, bank_hotkey: str, verify: Verifier) -> PartitionManifest:
    """The manifest of a public form, whole or by its changes; a change needs those before it in the same folder.

    Raises ArenaError P4028 unless that bank signed it as it stands, P4001 naming a file that is missing.
    """
    if not path.name.endswith(_CHANGE):
        signed = _decoded(path, SignedManifest)
        _check(signed, bank_hotkey, verify, path)
        return signed.manifest
    last = _decoded(path, SignedChange)
    changes, whole = [last.change], _whole(path.parent, last.change.previous_sha256)
    while not whole.exists():
        earlier = _decoded(_changed(path.parent, changes[-1].previous_sha256), SignedChange).change
        if earlier.serial != changes[-1].serial - 1:  # serials go down, so files that name one another end
            raise ArenaError("P4028", f"{path}: {changes[-1].serial} does not follow {earlier.serial}")
        changes.append(earlier)
        whole = _whole(path.parent, earlier.previous_sha256)
    try:
        manifest = apply_changes(_decoded(whole, SignedManifest).manifest, changes[::-1])
    except ArenaError as error:
        raise ArenaError("P4028", f"{path}: {error.failure.detail}") from error
    _check(SignedManifest(manifest=manifest, signer=last.signer, signature=last.signature), bank_hotkey, verify, path)
    return manifest


class PartitionFile:
    """A private partition file that new problems enter, whose manifests its bank signs."""

    def __init__(
        self, path: Path, signer: Signer, verify: Verifier, classes: Callable[[], ProductClasses] = lambda: NO_CATALOGUE
    ) -> None:
        """`classes` gives those of the catalogue, so that near-identical products of several shops count as one. It is
        asked when a problem enters, and not where all stand there already: finding classes takes a while."""
        self._path = path
        self._signer = signer
        self._verify = verify
        self._classes = classes

    def assign(self, problems: Sequence[Problem]) -> PoolAssignment:
        """Enter the problems and say where they belong; entering them again changes nothing.

        Raises ArenaError P4028, P4023 or P4001 as `read_partition`, P4007 when two share an id, V2064 when the
        successor can't be written.
        """
        partition, key = _read_private(self._path, self._verify)
        is_known = all(partition.is_entered(problem) for problem in problems)
        classes = NO_CATALOGUE if is_known else self._classes()
        extension = extend(partition, problems, classes)
        if extension.manifest is not partition.manifest:
            try:
                write_partition(self._path, extension.manifest, key, self._signer, before=partition.manifest)
            except OSError as error:
                raise ArenaError("V2064", f"{self._path}: {error.strerror or error}") from error
            partition = OpenPartition(extension.manifest, key)
        racing = tuple(
            problem for problem in problems if extension.pools.get(problem.problem_id, "never_touch") != "never_touch"
        )
        ids = {problem.problem_id for problem in racing}
        return PoolAssignment(
            problems=racing,
            pools=tuple(extension.pools[problem.problem_id] for problem in racing),
            cluster_ids=tuple(_cluster(partition, problem) for problem in racing),
            partition_sha256=partition.manifest.sha256,
            refused=tuple(problem.problem_id for problem in problems if problem.problem_id not in ids),
        )


def _cluster(partition: OpenPartition, problem: Problem) -> str:
    """The token of the frozen cluster, which all marks of an entered problem lead to."""
    row = partition.row_of(partition.token(min(answer_marks(problem))))
    assert row is not None, "a problem that was entered stands in a row"
    return row.cluster


def _whole(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}.json"


def _changed(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}{_CHANGE}"


def _read_private(path: Path, verify: Verifier) -> tuple[OpenPartition, bytes]:
    held = _decoded(path, _PrivateFile)
    _check(held.signed, held.signed.signer, verify, path)
    try:
        key = bytes.fromhex(held.key)
        return OpenPartition(held.signed.manifest, key), key
    except ValueError as error:
        raise ArenaError("P4028", f"{path}: {error}") from error


def _check(signed: SignedManifest, signer: str, verify: Verifier, path: Path) -> None:
    if signed.signer != signer:
        raise ArenaError("P4028", f"{path}: signed by {signed.signer}, the bank is {signer}")
    try:
        signature = bytes.fromhex(signed.signature)
    except ValueError as error:
        raise ArenaError("P4028", f"{path}: {error}") from error
    if signature.hex() != signed.signature or not verify(signer, _message(signed.manifest), signature):
        raise ArenaError("P4028", f"{path}: the signature does not fit")


def _decoded(path: Path, shape: type[_Shape]) -> _Shape:
    try:
        content = path.read_bytes()
        held = msgspec.json.decode(content, type=shape)
    except OSError as error:
        raise ArenaError("P4001", f"{path}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ArenaError("P4028", f"{path}: {error}") from error
    if msgspec.json.encode(held) != content:
        raise ArenaError("P4028", f"{path}: it was written again by another program")
    return held


def _message(manifest: PartitionManifest) -> bytes:
    return _DOMAIN + hashlib.sha256(manifest_bytes(manifest)).digest()

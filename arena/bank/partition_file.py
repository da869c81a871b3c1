"""Partition files: a frozen partition manifest on disk, signed; in private together with its key.

A manifest read from here is the one its signer signed, byte for byte (P4010 otherwise), and disjoint as every
manifest is. The private file (mode 0600) tells the pool of any problem and grows by `assign`; each manifest it ever was
is kept beside it in public form, `partitions/<sha256>.json`, since batches and records name manifests by hash. The
public form holds keyed tokens only: it says nothing of a problem before that problem's tokens are opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from arena.bank.signed import check_signed, decode_written, read_file, signed_bytes
from arena.chain.port import Signer, Verifier
from foundation.durable_files import coded, write_whole
from foundation.errors import ArenaError
from problems.clusters import NO_CATALOGUE, ProductClasses, answer_marks, cluster_id
from problems.model import Pool, Problem
from problems.partition import OpenPartition, PartitionManifest, extend

_DOMAIN = b"agent-arena/partition-manifest/1\n"


class SignedManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The public form: a manifest with the signature (hex) of the bank that ships it."""

    manifest: PartitionManifest
    signer: str  # hotkey, ss58
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


def write_partition(path: Path, manifest: PartitionManifest, key: bytes, signer: Signer) -> Path:
    """Write the private file and the public form beside it, whose path is returned.

    Raises OSError when the folder can't be written, ArenaError P4026 when the key is another manifest's.
    """
    OpenPartition(manifest, key)
    signature = signer.sign(signed_bytes(_DOMAIN, manifest)).hex()
    signed = SignedManifest(manifest=manifest, signer=signer.hotkey, signature=signature)
    public = path.parent / "partitions" / f"{manifest.sha256}.json"
    public.parent.mkdir(parents=True, exist_ok=True)
    write_whole(public, msgspec.json.encode(signed), mode=0o600)
    write_whole(path, msgspec.json.encode(_PrivateFile(signed=signed, key=key.hex())), mode=0o600)
    return public


def read_partition(path: Path, verify: Verifier) -> OpenPartition:
    """The partition of a private file. Raises ArenaError P4010 unless it is what its signer signed, P4026 for a key of
    another manifest, P4001 when it can't be read."""
    held = decode_written(read_file(path), _PrivateFile, str(path))
    _check(held.signed, held.signed.signer, verify, path)
    try:
        return OpenPartition(held.signed.manifest, bytes.fromhex(held.key))
    except ValueError as error:
        raise ArenaError("P4010", f"{path}: {error}") from error


def read_public_manifest(path: Path, bank_hotkey: str, verify: Verifier) -> PartitionManifest:
    """The manifest of a public form. Raises ArenaError P4010 unless that bank signed it as it stands, P4001 when it
    can't be read."""
    signed = decode_written(read_file(path), SignedManifest, str(path))
    _check(signed, bank_hotkey, verify, path)
    return signed.manifest


def assign(
    path: Path,
    problems: Sequence[Problem],
    signer: Signer,
    verify: Verifier,
    classes: Callable[[], ProductClasses] = lambda: NO_CATALOGUE,
) -> PoolAssignment:
    """Enter problems into a private partition file and say where they belong; entering them again changes nothing.

    `classes` gives those of the catalogue, so that near-identical products of several shops count as one. It is asked
    when a problem enters, and not where all stand there already: finding classes takes a while. Raises ArenaError
    P4010, P4026 or P4001 as `read_partition`, P4009 when two share an id, V2064 when the successor can't be written.
    """
    partition = read_partition(path, verify)
    is_known = all(partition.is_entered(problem) for problem in problems)
    extension = extend(partition, problems, NO_CATALOGUE if is_known else classes())
    if extension.manifest is not partition.manifest:
        with coded(path):
            write_partition(path, extension.manifest, partition.key, signer)
        partition = OpenPartition(extension.manifest, partition.key)
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


def _check(signed: SignedManifest, signer: str, verify: Verifier, path: Path) -> None:
    message = signed_bytes(_DOMAIN, signed.manifest)
    check_signed(signed.signer, signed.signature, message, signer, verify, str(path))

"""Proof files: a record is in the log whose state its validator signed, and nothing before an older state changed.

A proof is canonical JSON and a line feed, so that a file has one form:

    format          "agent-arena/proof/1"
    validator seq prev content_sha256 signature     the record's envelope; the content is a file of its own
    checkpoint      the signed checkpoint, as text  (arena.records.log.checkpoint)
    inclusion       hashes from the record's leaf to the checkpoint's root, hex (RFC 9162 section 2.1.3)
    older           null, or {checkpoint, consistency}: an older signed checkpoint, and the hashes that lead from it to
                    the newer root (RFC 9162 section 2.1.4)

It says nothing about what the record holds (contents are blinded), so a proof may be published before a release.
`verify_proof.py` beside this file checks one without any of this software. JSON and not the text form of C2SP
tlog-proof, which has no place for a consistency proof or for the record's signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from arena.chain.port import Verifier
from arena.records.log.checkpoint import Checkpoint, read_checkpoint
from arena.records.log.hash_chain import signing_message
from arena.records.log.merkle import (
    HASH_BYTES,
    MerkleFrontier,
    RangeHashes,
    consistency_ranges,
    inclusion_ranges,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)
from arena.records.model import SignedRecord
from arena.store.port import LogLeaf, Store
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError

PROOF_FORMAT: Literal["agent-arena/proof/1"] = "agent-arena/proof/1"


class OlderCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An older signed checkpoint, and the consistency proof from it."""

    checkpoint: str
    consistency: tuple[str, ...]


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a proof file holds; see the module."""

    format: Literal["agent-arena/proof/1"] = PROOF_FORMAT
    validator: str
    seq: int
    prev: str
    content_sha256: str
    signature: str
    checkpoint: str
    inclusion: tuple[str, ...]
    older: OlderCheckpoint | None = None


def encode_proof(proof: Proof) -> bytes:
    """The bytes of a proof file."""
    return canonical_bytes(proof) + b"\n"


def check_proof(proof: Proof, verify_signature: Verifier, content: bytes | None = None) -> Checkpoint:
    """The signed checkpoint under which the record is proven. `content`: the bytes it is said to hold.

    Raises ArenaError V2051 when anything about the proof does not hold, V2050 for a checkpoint that is not signed.
    """
    if not 0 < proof.seq < 2**53 or not proof.signature.isascii() or proof.signature != proof.signature.lower():
        raise ArenaError("V2051", "proof file: the record's envelope is malformed")
    _hashes((proof.prev, proof.content_sha256))
    try:
        message = signing_message(proof.validator, proof.seq, proof.prev, proof.content_sha256)
        signature = bytes.fromhex(proof.signature)
    except (ValueError, OverflowError) as error:
        raise ArenaError("V2051", "proof file: the record's envelope is malformed") from error
    point = read_checkpoint(proof.checkpoint, verify_signature)
    if point.validator != proof.validator or not verify_signature(proof.validator, message, signature):
        raise ArenaError("V2051", f"record {proof.seq} or its checkpoint is not signed by {proof.validator}")
    path, root = _hashes(proof.inclusion), bytes.fromhex(point.root)
    if not verify_inclusion(leaf_hash(message), proof.seq - 1, point.size, path, root):
        raise ArenaError("V2051", f"record {proof.seq} is not in the log of {point.size} records")
    if content is not None and hashlib.sha256(content).hexdigest() != proof.content_sha256:
        raise ArenaError("V2051", f"record {proof.seq} holds another content")
    if proof.older is not None:
        older = read_checkpoint(proof.older.checkpoint, verify_signature)
        path = _hashes(proof.older.consistency)
        is_kept = verify_consistency(older.size, point.size, path, bytes.fromhex(older.root), root)
        if older.validator != proof.validator or older.size == point.size or not is_kept:
            raise ArenaError("V2051", f"the log was changed since its checkpoint of {older.size} records")
    return point


async def prove(
    store: Store, validator: str, seq: int, note: str, verify_signature: Verifier, *, older_note: str = ""
) -> tuple[Proof, SignedRecord]:
    """A proof of one record under a signed checkpoint, and the record. `older_note`: prove consistency from it too.

    Reads the log's leaves once, in the memory of a few hashes. Raises ArenaError V2053 when the log has no such record
    or the checkpoints do not cover it, V2050 when a note is not signed or the log does not have its root.
    """
    point = read_checkpoint(note, verify_signature)
    older = read_checkpoint(older_note, verify_signature) if older_note else None
    if point.validator != validator or (older and older.validator != validator):
        raise ArenaError("V2053", f"the checkpoint is of another log than {validator}")
    if not 0 < seq <= point.size:
        raise ArenaError("V2053", f"a checkpoint of {point.size} records does not cover record {seq}")
    if older and not 0 < older.size < point.size:
        raise ArenaError("V2053", f"a checkpoint of {older.size} records is not older than one of {point.size}")
    record = await anext(aiter(store.records(validator, after_seq=seq - 1)), None)
    if record is None or record.seq != seq:
        raise ArenaError("V2053", f"the log of {validator} has no record {seq}")
    inclusion = RangeHashes(inclusion_ranges(seq - 1, point.size))
    consistency = RangeHashes(consistency_ranges(older.size, point.size) if older else [])
    points = [other for other in (older, point) if other]
    await _read_leaves(store.leaves(validator, to_seq=point.size), points, inclusion, consistency)
    steps = tuple(hash_.hex() for hash_ in consistency.hashes())
    proof = Proof(
        validator=validator,
        seq=seq,
        prev=record.prev,
        content_sha256=record.content_sha256,
        signature=record.signature,
        checkpoint=note,
        inclusion=tuple(hash_.hex() for hash_ in inclusion.hashes()),
        older=OlderCheckpoint(checkpoint=older_note, consistency=steps) if older_note else None,
    )
    check_proof(proof, verify_signature, record.content)
    return proof, record


async def _read_leaves(leaves: AsyncIterator[LogLeaf], points: list[Checkpoint], *wanted: RangeHashes) -> None:
    """One pass over a log up to the last of `points`, which it must contain. Raises ArenaError V2050."""
    tree, roots = MerkleFrontier(), {point.size: point.root for point in points}
    async for leaf in leaves:
        entry = signing_message(points[0].validator, leaf.seq, leaf.prev, leaf.content_sha256)
        tree.append(entry)
        for hashes in wanted:
            hashes.append(entry)
        root = roots.pop(tree.size, None)
        if root is not None and tree.root().hex() != root:
            raise ArenaError("V2050", f"the log of {tree.size} records does not have the signed root")
    if roots:
        raise ArenaError("V2050", f"the checkpoint says {max(roots)} records, the log has {tree.size}")


def _hashes(texts: tuple[str, ...]) -> list[bytes]:
    """Hashes of their hex. Raises ArenaError V2051 for what is no hash in lower-case hex."""
    try:
        found = [bytes.fromhex(text) for text in texts]
    except ValueError as error:
        raise ArenaError("V2051", f"proof file: {error}") from error
    if any(len(hash_) != HASH_BYTES or hash_.hex() != text for hash_, text in zip(found, texts, strict=True)):
        raise ArenaError("V2051", "proof file: a hash is 64 lower-case hex digits")
    return found

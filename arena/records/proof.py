"""Proof files: a record is in the log whose state its validator signed, and nothing before an older state changed.

A proof is canonical JSON and a line feed, so that a file has one form:

    format          "agent-arena/proof/1"
    validator seq prev content_sha256 signature     the record's envelope; the content is a file of its own
    checkpoint      the signed checkpoint, as text  (arena.records.log)
    inclusion       hashes from the record's leaf to the checkpoint's root, hex (RFC 9162 section 2.1.3)
    older           null, or {checkpoint, consistency}: an older signed checkpoint, and the hashes that lead from it to
                    the newer root (RFC 9162 section 2.1.4)

It says nothing about what the record holds (contents are blinded), so a proof may be published before a release.
`verify_proof.py` beside this file checks one without any of this software. JSON and not the text form of C2SP
tlog-proof, which has no place for a consistency proof or for the record's signature.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Literal

import msgspec

from arena.chain.port import Verifier
from arena.records.log import (
    LeafRange,
    MerkleFrontier,
    consistency_ranges,
    inclusion_ranges,
    message_of,
    node_hash,
    read_checkpoint,
    split_at,
)
from arena.records.model import Envelope, SignedRecord, envelope_of
from arena.records.port import RecordStore
from arena.records.verify_proof import check
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError

TILE = 256  # leaves


class OlderCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An older signed checkpoint, and the consistency proof from it."""

    checkpoint: str
    consistency: tuple[str, ...]


class Proof(Envelope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a proof file holds; see the module."""

    format: Literal["agent-arena/proof/1"] = "agent-arena/proof/1"
    checkpoint: str
    inclusion: tuple[str, ...]
    older: OlderCheckpoint | None = None


def encode_proof(proof: Proof) -> bytes:
    """The bytes of a proof file."""
    return canonical_bytes(proof) + b"\n"


async def prove(
    store: RecordStore, validator: str, seq: int, note: str, verify_signature: Verifier, *, older_note: str = ""
) -> tuple[Proof, SignedRecord]:
    """A proof of one record under a signed checkpoint, and the record. `older_note`: prove consistency from it too.

    Raises ArenaError V2053 when the log has no such record or the checkpoints do not cover it, V2050 when a note is not
    signed or the log does not have its root.
    """
    point = read_checkpoint(note, verify_signature)
    if point.validator != validator:
        raise ArenaError("V2053", f"the checkpoint is of another log than {validator}")
    if not 0 < seq <= point.size:
        raise ArenaError("V2053", f"a checkpoint of {point.size} records does not cover record {seq}")
    record = await anext(aiter(store.records(validator, after_seq=seq - 1)), None)
    if record is None or record.seq != seq:
        raise ArenaError("V2053", f"the log of {validator} has no record {seq}")
    tiles, older = TiledLogs(store), None
    inclusion = await tiles.inclusion(validator, seq, point.size)
    if older_note:
        first = read_checkpoint(older_note, verify_signature)
        if first.validator != validator or not 0 < first.size < point.size:
            given = f"the checkpoint of {first.size} records of {first.validator}"
            raise ArenaError("V2053", f"{given} is not older than that of {point.size} records of {validator}")
        steps = await tiles.consistency(validator, first.size, point.size)
        older = OlderCheckpoint(checkpoint=older_note, consistency=steps)
    proof = Proof(**envelope_of(record), checkpoint=note, inclusion=inclusion, older=older)
    try:
        check(encode_proof(proof), record.content, [note, older_note] if older else [note])
    except ValueError as error:
        raise ArenaError("V2050", f"record {seq} of {validator}: {error}") from error
    return proof, record


class TiledLogs:
    """The roots of the complete tiles of some logs: a proof reads two tiles of a log and not all of it. Tiles never
    change, so each is read once. What is proven is checked by its reader against a signed root."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._roots: dict[str, list[bytes]] = defaultdict(list)
        self._growing = asyncio.Lock()

    async def inclusion(self, validator: str, seq: int, size: int) -> tuple[str, ...]:
        """The hashes (hex) that lead from record `seq` to the root over the first `size`, in proof order.

        Raises ArenaError V2053 where the log is shorter; V2021 when the store is away.
        """
        return await self._hashes(validator, size, inclusion_ranges(seq - 1, size))

    async def consistency(self, validator: str, first: int, second: int) -> tuple[str, ...]:
        """Those that prove that the log of `second` records begins with that of `first`. Raises as `inclusion`."""
        return await self._hashes(validator, second, consistency_ranges(first, second))

    async def _hashes(self, validator: str, size: int, ranges: list[LeafRange]) -> tuple[str, ...]:
        roots, tiles = self._roots[validator], size // TILE
        async with self._growing:
            if len(roots) < tiles:
                tree = MerkleFrontier()
                leaves = self._store.leaves(validator, after_seq=len(roots) * TILE, to_seq=tiles * TILE)
                async for leaf in leaves:
                    tree.append(message_of(leaf))
                    if tree.size == TILE:
                        roots.append(tree.root())
                        tree = MerkleFrontier()
                        await asyncio.sleep(0)  # others that are served in this loop go on
            if len(roots) < tiles:
                raise ArenaError("V2053", f"the log of {validator} holds fewer than {tiles * TILE} records")
        return tuple([(await self._root(validator, first, end)).hex() for first, end in ranges])

    async def _root(self, validator: str, first: int, end: int) -> bytes:
        """The root over leaves `first` to `end` - 1, which are a subtree: of whole tiles, or of leaves within one."""
        if end - first > TILE:
            middle = split_at(first, end)
            return node_hash(await self._root(validator, first, middle), await self._root(validator, middle, end))
        if end - first == TILE:
            return self._roots[validator][first // TILE]
        tree = MerkleFrontier()
        async for leaf in self._store.leaves(validator, after_seq=first, to_seq=end):
            tree.append(message_of(leaf))
        if tree.size != end - first:
            raise ArenaError("V2053", f"the log of {validator} holds fewer than {end} records")
        return tree.root()

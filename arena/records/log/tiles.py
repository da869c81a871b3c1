"""The Merkle tree of a growing log in tiles of 256 leaves: a proof reads two tiles of the log and not all of it.

Memory is one hash for 256 records. Tiles of a log never change, so each is read once; what is proven is
checked by the reader against a signed root, so a wrong tile gives a proof that does not hold, and no more.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Protocol

from arena.records.log.hash_chain import signing_message
from arena.records.log.merkle import MerkleFrontier, inclusion_ranges, node_hash
from arena.store.port import LogLeaf
from foundation.errors import ArenaError

TILE = 256


class LeafReader(Protocol):
    """The part of a store that holds leaves."""

    def leaves(self, validator: str, *, after_seq: int = 0, to_seq: int | None = None) -> AsyncIterator[LogLeaf]:
        """As `arena.store.port.Store.leaves`."""
        ...


class TiledLogs:
    """The roots of the complete tiles of some logs."""

    def __init__(self, store: LeafReader) -> None:
        self._store = store
        self._roots: dict[str, list[bytes]] = defaultdict(list)
        self._growing = asyncio.Lock()

    async def inclusion(self, validator: str, seq: int, size: int) -> tuple[bytes, ...]:
        """The hashes that lead from record `seq` to the root over the first `size`, in proof order.

        Raises ArenaError V2053 where the log is shorter; V2021 when the store is away.
        """
        roots, tiles = self._roots[validator], size // TILE
        async with self._growing:
            if len(roots) < tiles:
                tree = MerkleFrontier()
                leaves = self._store.leaves(validator, after_seq=len(roots) * TILE, to_seq=tiles * TILE)
                async for leaf in leaves:
                    tree.append(signing_message(validator, leaf.seq, leaf.prev, leaf.content_sha256))
                    if tree.size == TILE:
                        roots.append(tree.root())
                        tree = MerkleFrontier()
                        await asyncio.sleep(0)  # whoever else is served in this loop goes on
            if len(roots) < tiles:
                raise ArenaError("V2053", f"the log of {validator} holds fewer than {tiles * TILE} records")
        return tuple([await self._root(validator, first, end) for first, end in inclusion_ranges(seq - 1, size)])

    async def _root(self, validator: str, first: int, end: int) -> bytes:
        """The root over leaves `first` to `end` - 1: whole tiles as far as there are, then leaves."""
        peaks: list[bytes] = []
        tiles = 0
        if first % TILE == 0:
            for root in self._roots[validator][first // TILE : end // TILE]:
                merged, place = root, tiles
                while place & 1:
                    merged, place = node_hash(peaks.pop(), merged), place >> 1
                peaks.append(merged)
                tiles += 1
        tree, start = MerkleFrontier(tiles * TILE, peaks), first + tiles * TILE
        if start < end:
            async for leaf in self._store.leaves(validator, after_seq=start, to_seq=end):
                tree.append(signing_message(validator, leaf.seq, leaf.prev, leaf.content_sha256))
        if tree.size != end - first:
            raise ArenaError("V2053", f"the log of {validator} holds fewer than {end} records")
        return tree.root()

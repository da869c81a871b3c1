"""A tree in tiles proves what the whole tree proves, and reads little of the log."""

from __future__ import annotations

import pytest

from arena.records.log import signing_message
from arena.records.merkle import RangeHashes, inclusion_ranges
from arena.records.model import LogLeaf
from arena.records.proof import TILE, TiledLogs
from foundation.errors import ArenaError


class Leaves:
    """A log of numbered leaves that counts what is read of it."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    async def leaves(self, validator, *, after_seq=0, to_seq=None):
        for seq in range(after_seq + 1, min(self.size, to_seq if to_seq is not None else self.size) + 1):
            self.read += 1
            yield LogLeaf(seq=seq, prev=f"{seq:064x}", content_sha256=f"{seq + 1:064x}")


async def test_tiles_give_the_proofs_of_the_whole_tree_and_read_little():
    size = 5 * TILE + 77
    store = Leaves(size)
    tiles = TiledLogs(store)
    await tiles.inclusion("v", 1, size)
    for seq in (1, 2, TILE - 1, TILE, TILE + 1, 3 * TILE + 5, 5 * TILE, 5 * TILE + 1, size):
        for upto in {size, 4 * TILE, seq, 5 * TILE + 1}:
            if seq > upto:
                continue
            hashes = RangeHashes(inclusion_ranges(seq - 1, upto))
            async for leaf in store.leaves("v", to_seq=upto):
                hashes.append(signing_message("v", leaf.seq, leaf.prev, leaf.content_sha256))
            store.read = 0
            assert await tiles.inclusion("v", seq, upto) == tuple(hashes.hashes())
            assert store.read <= 2 * TILE
    with pytest.raises(ArenaError, match="V2053"):
        await TiledLogs(Leaves(300)).inclusion("v", 1, 1_000)

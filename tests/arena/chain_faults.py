"""What a simulated network does to a local chain: takes unfinalized blocks back, holds up finality, frees uids.

A finalized block is never touched: its state and its hash stay what they were. A reorg takes back everything accepted
in the blocks it replaces and, as a transaction pool does, may accept it again in a later one; the hash of every
replaced block changes. All of it is in the chain's file, so that every process sees the same.
"""

from __future__ import annotations

import sqlite3

from arena.chain.keys import canonical_hotkey
from arena.chain.local import LocalSubtensor, finalized_at

_BY_BLOCK = ("stake", "commitment", "weights", "endpoint")


async def deregister(chain: LocalSubtensor, hotkey: str) -> None:
    """Take a hotkey off the subnet, as the chain does when its uid is bought by another."""
    end = "UPDATE neuron SET until_block = ? WHERE hotkey = ? AND until_block IS NULL"
    await chain.control(lambda db, block: db.execute(end, (block, canonical_hotkey(hotkey) or hotkey)))


async def set_finality_lag(chain: LocalSubtensor, blocks: int) -> None:
    """From now on, finality is that many blocks behind the head. What is final stays final."""

    def change(db: sqlite3.Connection, block: int) -> None:
        finalized = finalized_at(db, block - 1, chain.rules.finality_blocks)
        db.execute("INSERT OR REPLACE INTO finality VALUES (1, ?, ?)", (blocks, finalized))

    await chain.control(change)


async def reorg(chain: LocalSubtensor, depth: int, *, is_accepted_again: bool = False) -> None:
    """Replace the newest `depth` blocks by empty ones, and drop what waits for the next.

    Their extrinsics are gone, or are in the next block where the network accepts them again. Blocks the network never
    wrote to have no content to lose; their hashes change all the same. Raises ValueError when one of them is final.
    """

    def change(db: sqlite3.Connection, block: int) -> None:
        from_block, sealed = block - depth, block - 1
        finalized = finalized_at(db, sealed, chain.rules.finality_blocks)
        if not 0 < depth <= sealed - finalized:
            raise ValueError(f"{depth} blocks can't be replaced: {finalized} of {sealed} are final")
        db.execute("INSERT INTO reorg VALUES (?, ?)", (from_block, sealed))
        if is_accepted_again:
            for table in _BY_BLOCK:
                db.execute(f"UPDATE {table} SET block = ? WHERE block >= ?", (sealed + 1, from_block))
            db.execute("UPDATE neuron SET from_block = ? WHERE from_block >= ?", (sealed + 1, from_block))
            db.execute("UPDATE neuron SET until_block = ? WHERE until_block >= ?", (sealed + 1, from_block))
            return
        for table in _BY_BLOCK:
            db.execute(f"DELETE FROM {table} WHERE block >= ?", (from_block,))
        db.execute("DELETE FROM neuron WHERE from_block >= ?", (from_block,))
        db.execute("UPDATE neuron SET until_block = NULL WHERE until_block >= ?", (from_block,))

    await chain.control(change)

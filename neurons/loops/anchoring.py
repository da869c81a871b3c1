"""The anchor loop: puts the hash of the newest signed checkpoint on chain, and records in which block it stands.

The store is told of an anchor only after the block that holds it is finalized and the chain, asked at that
block, answers with it. Everything follows from the store and the chain, so a restart neither forgets an anchor that was
under way nor commits twice. A chain that is away or refuses costs an anchor and is asked again later, never sooner than
its own rate limit makes sense. The commitment is one slot per hotkey (arena/chain/README.md): while a race needs it, no
ordinary anchor is put there.
"""

from __future__ import annotations

from collections.abc import Callable

from arena.records.log.anchors import committed_checkpoint, note_sha256
from arena.store.port import StoredCheckpoint
from foundation.backoff import Backoff, NextTry
from neurons.loops.node import Node

PAUSES = Backoff(first_ms=60_000, most_ms=1_200_000)  # up to a hundred blocks of the real chain, its limit


class AnchorLoop:
    """Anchors one node's checkpoints."""

    name, every_s = "anchors", 6.0

    def __init__(self, node: Node, every_s: int, *, is_quiet: Callable[[int], bool] = lambda _: False) -> None:
        """`is_quiet` says of a moment (unix ms) whether the slot belongs to a race: nothing is committed then."""
        self._is_quiet = is_quiet
        self._node = node
        self._every_ms = every_s * 1_000
        self._anchored: StoredCheckpoint | None = None
        self._retry = NextTry()

    async def turn(self) -> StoredCheckpoint | None:
        """Take the anchor one step further; the checkpoint once its anchor is final, else None."""
        node = self._node
        found = await node.store.checkpoints(after_size=self._anchored.size if self._anchored else 0)
        for checkpoint in found:
            if checkpoint.anchor_block:
                self._keep(checkpoint, checkpoint.anchor_block)
        waiting = [each for each in found if each.size > (self._anchored.size if self._anchored else 0)]
        if not waiting:
            return None
        held = await node.chain.commitment(node.signer.hotkey)
        committed = committed_checkpoint(waiting, held)
        if committed is None or held is None:
            await self._commit_if_due(waiting[-1])
            return None
        if await node.chain.finalized_block() < held.block:
            return None
        final = await node.chain.commitment(node.signer.hotkey, held.block)
        if committed_checkpoint([committed], final) is None or final is None:
            return None  # that block is not the one it was: the next turn sees where it stands now
        await node.store.put_anchor(committed.size, note_sha256(committed.note), final.block)
        self._keep(committed, final.block)
        text = f"the log up to record {committed.size:,} is anchored on chain: block {final.block} is final"
        node.log.info("checkpoint anchored", size=committed.size, block=final.block, text=text)
        return committed

    async def _commit_if_due(self, newest: StoredCheckpoint) -> None:
        node, now_ms = self._node, self._node.now_ms()
        since_ms = newest.signed_ms - (self._anchored.signed_ms if self._anchored else 0)
        if since_ms < self._every_ms or now_ms < self._retry.not_before_ms or self._is_quiet(now_ms):
            return
        self._retry = PAUSES.after(self._retry, now_ms)  # also when no answer comes: it may stand on chain all the same
        result = await node.chain.commit(node.signer, note_sha256(newest.note))
        if result.status == "ok":
            text = f"the log up to record {newest.size:,} is committed on chain in block {result.block}"
            node.log.info("checkpoint committed", size=newest.size, block=result.block, text=text)
            return
        node.log.warning(
            "checkpoint not committed",
            size=newest.size,
            status=result.status,
            detail=result.detail,
            seconds=self._retry.pause_ms // 1_000,
        )

    def _keep(self, checkpoint: StoredCheckpoint, block: int) -> None:
        self._anchored = checkpoint
        self._retry = NextTry()
        self._node.metrics.anchor_size.set(checkpoint.size)
        self._node.metrics.anchor_block.set(block)
        self._node.metrics.anchor_ms.set(checkpoint.signed_ms)

"""What a reader is told of a record's place on the chain. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from arena.records.model import StoredCheckpoint
from arena.view.model import Field


def chain_fact(seq: int, points: Sequence[StoredCheckpoint]) -> Field:
    """The first signed checkpoint over a record, and the block that holds it."""
    over = [point for point in points if point.size >= seq]
    anchored = [point for point in over if point.anchor_block]
    if anchored:
        first = min(anchored, key=lambda point: point.size)
        return "chain", f"under the checkpoint of {first.size} records, anchored in block {first.anchor_block}"
    if over:
        first = min(over, key=lambda point: point.size)
        return "chain", f"under the signed checkpoint of {first.size} records, not anchored on chain yet"
    return "chain", "no signed checkpoint covers it yet"

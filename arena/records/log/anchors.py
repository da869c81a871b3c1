"""Anchors: which signed checkpoint of a log the chain held at a block, as pure functions.

A validator's hotkey commits sha256(note) of a checkpoint it signed. A commitment is one slot: a later one takes its
place, but the chain still answers for every past block, so an anchor stays provable. A checkpoint counts as
anchored by block B when it was committed in a block up to B, whatever was committed later. What a store *says* of
anchors is checked against the chain with `require_anchor`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from arena.chain.port import Commitment, Verifier
from arena.records.log.checkpoint import Checkpoint, read_checkpoint
from arena.store.port import StoredCheckpoint
from foundation.errors import ArenaError


def note_sha256(note: str) -> str:
    """What the chain holds of a signed note: sha256 (hex) of its UTF-8 bytes."""
    return hashlib.sha256(note.encode()).hexdigest()


def committed_checkpoint(
    checkpoints: Iterable[StoredCheckpoint], commitment: Commitment | None
) -> StoredCheckpoint | None:
    """The one of a hotkey's checkpoints that its commitment holds; None for an empty slot or another hash."""
    if commitment is None:
        return None
    for checkpoint in checkpoints:
        if checkpoint.validator == commitment.hotkey and note_sha256(checkpoint.note) == commitment.sha256:
            return checkpoint
    return None


def require_anchor(
    checkpoint: StoredCheckpoint, commitment: Commitment | None, verify_signature: Verifier
) -> Checkpoint:
    """The checkpoint, proven: signed by its validator, and held by the chain in the block that its anchor names.

    `commitment` is the chain's answer for the validator's hotkey at `checkpoint.anchor_block`. Raises ArenaError V2050
    for a note that is malformed, not signed by its validator or not the one it is stored as, and for a commitment that
    is missing, of another hotkey or block, or of another hash.
    """
    signed = read_checkpoint(checkpoint.note, verify_signature)
    if (signed.validator, signed.size) != (checkpoint.validator, checkpoint.size):
        raise ArenaError("V2050", f"checkpoint {checkpoint.size} holds the note of {signed.validator} {signed.size}")
    is_held = commitment is not None and committed_checkpoint([checkpoint], commitment) is not None
    if commitment is None or not is_held or not 0 < checkpoint.anchor_block == commitment.block:
        held = f"{commitment.sha256[:16]} of block {commitment.block}" if commitment else "nothing"
        about = f"checkpoint {checkpoint.size} of {checkpoint.validator}, block {checkpoint.anchor_block}"
        raise ArenaError("V2050", f"{about}: the chain holds {held}")
    return signed

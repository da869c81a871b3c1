"""Which checkpoint of a hotkey the chain held at a block, from values alone."""

from __future__ import annotations

import hashlib

import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment, Signer
from arena.records.log import Checkpoint, committed_checkpoint, note_sha256, require_anchor, sign_checkpoint
from arena.records.model import StoredCheckpoint
from foundation.errors import ArenaError

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")


def point(size: int, *, block: int = 0, signer: Signer = ALICE) -> StoredCheckpoint:
    state = Checkpoint(validator=signer.hotkey, size=size, root=hashlib.sha256(b"%d" % size).hexdigest())
    return StoredCheckpoint(
        validator=signer.hotkey, size=size, note=sign_checkpoint(state, signer), signed_ms=size, anchor_block=block
    )


def held(checkpoint: StoredCheckpoint, block: int) -> Commitment:
    return Commitment(hotkey=checkpoint.validator, sha256=note_sha256(checkpoint.note), block=block)


POINTS = [point(size) for size in (3, 5, 9)]


def test_a_commitment_names_the_checkpoint_whose_note_it_hashes() -> None:
    assert [committed_checkpoint(POINTS, held(checkpoint, 7)) for checkpoint in POINTS] == POINTS


def test_an_empty_slot_another_hash_and_another_hotkey_name_none() -> None:
    assert committed_checkpoint(POINTS, None) is None
    assert committed_checkpoint(POINTS, Commitment(hotkey=ALICE.hotkey, sha256="ab" * 32, block=7)) is None
    assert committed_checkpoint(POINTS, replace(held(POINTS[0], 7), hotkey=BOB.hotkey)) is None


def test_an_anchor_the_chain_confirms_is_proven() -> None:
    checkpoint = point(4, block=11)
    assert require_anchor(checkpoint, held(checkpoint, 11), verify).size == 4


@pytest.mark.parametrize(
    ("checkpoint", "commitment"),
    [
        (point(4, block=11), None),
        (POINTS[0], held(POINTS[0], 0)),
        (point(4, block=11), held(point(5), 11)),
        (replace(POINTS[0], anchor_block=11), held(POINTS[0], 12)),
        (replace(POINTS[0], anchor_block=11), replace(held(POINTS[0], 11), hotkey=BOB.hotkey)),
        (replace(POINTS[0], anchor_block=11, size=4), held(POINTS[0], 11)),
        (replace(POINTS[0], anchor_block=11, validator=BOB.hotkey), held(POINTS[0], 11)),
        (replace(POINTS[0], anchor_block=11, note=POINTS[0].note.replace("\n3\n", "\n4\n")), held(POINTS[0], 11)),
        (replace(POINTS[0], anchor_block=11, note="no note"), held(POINTS[0], 11)),
    ],
    ids=["nothing", "not anchored", "another note", "block", "hotkey", "size", "validator", "changed", "no note"],
)
def test_an_anchor_the_chain_does_not_confirm_is_refused(
    checkpoint: StoredCheckpoint, commitment: Commitment | None
) -> None:
    with pytest.raises(ArenaError, match="V2050"):
        require_anchor(checkpoint, commitment, verify)

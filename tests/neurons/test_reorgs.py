"""A chain that takes blocks back takes no anchor with it: what the store is told is in a final block."""

from __future__ import annotations

import pytest

from arena.records.log import note_sha256
from neurons.health.node_file import ANCHOR_EVERY_S
from neurons.loops.checkpoints import PAUSES
from tests.arena.chain_faults import reorg, set_finality_lag
from tests.neurons.checkpoint_stand import LogDesk
from tests.neurons.clock_stand import BLOCK_MS


@pytest.fixture
async def desk(log_desk: LogDesk) -> LogDesk:
    """A log with a checkpoint that is due to be anchored."""
    log_desk.time.pass_s(20)
    await log_desk.signed()
    log_desk.time.pass_s(ANCHOR_EVERY_S)
    await log_desk.checkpoints.open()
    return log_desk


async def anchored_block(desk: LogDesk, seconds: float, turns: int = 40) -> int:
    """Turn, with time passing, until the checkpoint is anchored; in which block."""
    for _ in range(turns):
        if (done := await desk.anchors.turn()) is not None:
            (stored,) = await desk.stored()
            assert stored.size == done.size
            return stored.anchor_block
        desk.time.pass_s(seconds)
    raise AssertionError(f"not anchored after {turns} turns: {desk.chain.commits}")


@pytest.mark.parametrize("is_accepted_again", [False, True])
async def test_a_commitment_in_a_block_that_was_replaced_is_anchored_where_it_ends_up(
    desk: LogDesk, is_accepted_again: bool
) -> None:
    chain = desk.chain.twin
    await desk.anchors.turn()
    before = await chain.commitment(desk.signer.hotkey)
    assert before is not None and len(desk.chain.commits) == 1
    desk.time.pass_s(BLOCK_MS / 1_000)
    await reorg(chain, 1, is_accepted_again=is_accepted_again)
    block = await anchored_block(desk, PAUSES.most_ms / 1_000 / 20)
    final = await chain.commitment(desk.signer.hotkey, block)
    (stored,) = await desk.stored()
    assert final is not None and (final.sha256, final.block) == (note_sha256(stored.note), block)
    assert before.block < block <= await chain.finalized_block()
    assert len(desk.chain.commits) == (1 if is_accepted_again else 2)


async def test_while_finality_stands_still_nothing_is_called_anchored(desk: LogDesk) -> None:
    await set_finality_lag(desk.chain.twin, 10_000)
    for _ in range(10):
        assert await desk.anchors.turn() is None
        desk.time.pass_s(10)
    (stored,) = await desk.stored()
    assert stored.anchor_block == 0 and len(desk.chain.commits) == 1
    await set_finality_lag(desk.chain.twin, 2)
    assert await anchored_block(desk, 1) > 0

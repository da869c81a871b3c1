"""Anchors of signed checkpoints: on real Postgres, over the chain's local twin and over the real adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arena.chain.keys import verify
from arena.records.log import note_sha256, read_checkpoint, require_anchor
from foundation.errors import ArenaError
from tests.arena.chain_stands import ChainStand, LocalStand, make_node, node_stand
from tests.neurons.checkpoint_stand import LogDesk
from tests.neurons.clock_stand import BLOCK_MS


async def test_an_anchor_counts_only_once_its_block_is_final(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    point = await log_desk.signed()
    assert await log_desk.anchors.turn() is None  # commits
    assert log_desk.chain.commits == [note_sha256(point.note)]
    held = await log_desk.chain.twin.commitment(log_desk.signer.hotkey)
    while await log_desk.chain.twin.finalized_block() < held.block:
        assert await log_desk.anchors.turn() is None
        assert (await log_desk.stored())[0].anchor_block == 0
        log_desk.time.pass_s(BLOCK_MS / 1_000)
    assert (await log_desk.anchors.turn()).size == point.size
    (stored,) = await log_desk.stored()
    assert stored.anchor_block == held.block
    assert len(log_desk.chain.commits) == 1
    at = await log_desk.chain.twin.commitment(log_desk.signer.hotkey, stored.anchor_block)
    assert require_anchor(stored, at, verify).size == point.size
    assert (log_desk.metric("anchor_size"), log_desk.metric("anchor_block")) == (point.size, held.block)


async def anchor(log_desk: LogDesk) -> None:
    for _ in range(10):
        if await log_desk.anchors.turn():
            return
        log_desk.time.pass_s(BLOCK_MS / 1_000)
    raise AssertionError("no anchor in ten blocks")


async def test_a_commitment_whose_reply_was_lost_is_found_and_not_made_again(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed()
    log_desk.chain.is_reply_lost = True
    with pytest.raises(ArenaError, match="U3030"):
        await log_desk.anchors.turn()
    await anchor(log_desk)
    assert len(log_desk.chain.commits) == 1


# -- both chains


@pytest.fixture(params=["local", "real"])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChainStand]:
    if request.param == "local":
        yield LocalStand(tmp_path / "other.sqlite")
    else:
        async with node_stand(make_node()) as made:
            yield made


async def test_an_anchor_is_made_and_proven_on_every_chain_behind_the_port(
    log_desk: LogDesk, stand: ChainStand
) -> None:
    await stand.enrol(log_desk.signer)
    await stand.advance(3)
    log_desk.chain = stand.chain
    log_desk.start()
    await log_desk.checkpoints.open()
    point = await log_desk.signed()
    for _ in range(6):
        if await log_desk.anchors.turn():
            break
        await stand.advance()
    (stored,) = await log_desk.stored()
    assert stored.anchor_block > 0
    at = await stand.chain.commitment(log_desk.signer.hotkey, stored.anchor_block)
    assert require_anchor(stored, at, verify) == read_checkpoint(point.note, verify)
    assert (await stand.chain.commitment(log_desk.signer.hotkey, stored.anchor_block - 1)) is None

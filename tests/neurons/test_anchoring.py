"""Anchors of signed checkpoints: on real Postgres, over the chain's local twin and over the real adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arena.chain.keys import verify
from arena.chain.port import ChainResult
from arena.records.log.anchors import note_sha256, require_anchor
from arena.records.log.checkpoint import read_checkpoint
from foundation.errors import ArenaError
from tests.arena.chain_stands import ChainStand, LocalStand, make_node, node_stand
from tests.neurons.checkpoint_stand import RULES, LogDesk
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


async def test_the_next_anchor_waits_for_its_time_and_takes_the_newest_checkpoint(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed()
    await anchor(log_desk)
    log_desk.time.pass_s(RULES.anchor_every_s / 2)
    await log_desk.signed()
    assert await log_desk.anchors.turn() is None
    log_desk.time.pass_s(RULES.anchor_every_s / 2)
    await log_desk.signed()
    await anchor(log_desk)
    assert [bool(point.anchor_block) for point in await log_desk.stored()] == [True, False, True]


async def test_a_chain_that_is_away_costs_an_anchor_and_no_checkpoint(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    log_desk.chain.is_away = True
    for _ in range(3):
        await log_desk.append()
        assert await log_desk.checkpoints.turn() is not None
        with pytest.raises(ArenaError) as away:
            await log_desk.anchors.turn()
        assert away.value.entry.is_retryable
        log_desk.time.pass_s(RULES.every_s)
    log_desk.chain.is_away = False
    log_desk.time.pass_s(60)
    await anchor(log_desk)
    assert [bool(point.anchor_block) for point in await log_desk.stored()] == [False, False, True]


async def test_a_refusal_is_asked_again_later_and_not_at_every_turn(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed()
    log_desk.chain.refusal = ChainResult(status="rate_limited", block=1, detail="90 blocks left")
    for _ in range(20):
        await log_desk.anchors.turn()
        log_desk.time.pass_s(6)
    assert len(log_desk.chain.commits) == 2  # at once, and after a minute
    log_desk.chain.refusal = None
    log_desk.time.pass_s(120)
    await anchor(log_desk)


async def test_a_commitment_whose_reply_was_lost_is_found_and_not_made_again(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed()
    log_desk.chain.is_reply_lost = True
    with pytest.raises(ArenaError, match="U3030"):
        await log_desk.anchors.turn()
    await anchor(log_desk)
    assert len(log_desk.chain.commits) == 1


async def test_a_restart_finds_an_anchor_that_was_under_way(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed()
    await log_desk.anchors.turn()
    log_desk.start()
    await log_desk.checkpoints.open()
    await log_desk.signed()
    await anchor(log_desk)
    assert len(log_desk.chain.commits) == 1
    assert [bool(point.anchor_block) for point in await log_desk.stored()] == [True, False]


async def test_a_slot_that_somebody_else_wrote_is_no_anchor_and_is_written_again(log_desk: LogDesk) -> None:
    """The same hotkey submits an agent between the commitment and its finality."""
    await log_desk.checkpoints.open()
    await log_desk.signed()
    await log_desk.anchors.turn()
    await log_desk.chain.twin.commit(log_desk.signer, "ab" * 32)
    for _ in range(5):
        log_desk.time.pass_s(BLOCK_MS / 1_000)
        await log_desk.anchors.turn()
    assert (await log_desk.stored())[0].anchor_block == 0
    log_desk.time.pass_s(60)
    await anchor(log_desk)
    assert len(log_desk.chain.commits) == 2


async def test_an_anchor_stays_the_answer_for_its_block_whatever_was_committed_later(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.signed()
    await anchor(log_desk)
    log_desk.time.pass_s(RULES.anchor_every_s)
    await log_desk.signed()
    await anchor(log_desk)
    first, second = await log_desk.stored()
    for point in (first, second):
        held = await log_desk.chain.twin.commitment(log_desk.signer.hotkey, point.anchor_block)
        assert require_anchor(point, held, verify).size == point.size


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

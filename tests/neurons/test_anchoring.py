"""Anchors of signed checkpoints: on real Postgres, over the chain's local twin and over the real adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arena.chain.keys import generate_signer, verify
from arena.chain.port import ChainResult
from arena.records.anchors import anchored_by, note_sha256, require_anchor
from arena.records.checkpoint import read_checkpoint
from arena.store.embedded import EmbeddedServer, start_embedded
from problems.errors import ArenaError
from tests.arena.chain_stands import ChainStand, LocalStand, make_node, node_stand
from tests.neurons.arena_stand import short_folder
from tests.neurons.checkpoint_stand import RULES, LogDesk, log_desk
from tests.neurons.clock_stand import BLOCK_MS


@pytest.fixture(scope="module")
def server():
    with short_folder() as folder:
        started = start_embedded(folder)
        yield started
        started.stop()


@pytest.fixture
async def desk(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[LogDesk]:
    async with log_desk(server, tmp_path) as made:
        yield made


async def test_an_anchor_counts_only_once_its_block_is_final(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    point = await desk.signed()
    assert await desk.anchors.turn() is None  # commits
    assert desk.chain.commits == [note_sha256(point.note)]
    held = await desk.chain.twin.commitment(desk.signer.hotkey)
    while await desk.chain.twin.finalized_block() < held.block:
        assert await desk.anchors.turn() is None
        assert (await desk.stored())[0].anchor_block == 0
        desk.time.pass_s(BLOCK_MS / 1_000)
    assert (await desk.anchors.turn()).size == point.size
    (stored,) = await desk.stored()
    assert stored.anchor_block == held.block
    assert len(desk.chain.commits) == 1
    at = await desk.chain.twin.commitment(desk.signer.hotkey, stored.anchor_block)
    assert require_anchor(stored, at, verify).size == point.size
    assert (desk.metric("anchor_size"), desk.metric("anchor_block")) == (point.size, held.block)


async def anchor(desk: LogDesk) -> None:
    for _ in range(10):
        if await desk.anchors.turn():
            return
        desk.time.pass_s(BLOCK_MS / 1_000)
    raise AssertionError("no anchor in ten blocks")


async def test_the_next_anchor_waits_for_its_time_and_takes_the_newest_checkpoint(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.signed()
    await anchor(desk)
    desk.time.pass_s(RULES.anchor_every_s / 2)
    await desk.signed()
    assert await desk.anchors.turn() is None
    desk.time.pass_s(RULES.anchor_every_s / 2)
    await desk.signed()
    await anchor(desk)
    assert [bool(point.anchor_block) for point in await desk.stored()] == [True, False, True]


async def test_a_chain_that_is_away_costs_an_anchor_and_no_checkpoint(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    desk.chain.is_away = True
    for _ in range(3):
        await desk.append()
        assert await desk.checkpoints.turn() is not None
        with pytest.raises(ArenaError) as away:
            await desk.anchors.turn()
        assert away.value.entry.is_retryable
        desk.time.pass_s(RULES.every_s)
    desk.chain.is_away = False
    desk.time.pass_s(60)
    await anchor(desk)
    assert [bool(point.anchor_block) for point in await desk.stored()] == [False, False, True]


async def test_a_refusal_is_asked_again_later_and_not_at_every_turn(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.signed()
    desk.chain.refusal = ChainResult(status="rate_limited", block=1, detail="90 blocks left")
    for _ in range(20):
        await desk.anchors.turn()
        desk.time.pass_s(6)
    assert len(desk.chain.commits) == 2  # at once, and after a minute
    desk.chain.refusal = None
    desk.time.pass_s(120)
    await anchor(desk)


async def test_a_commitment_whose_reply_was_lost_is_found_and_not_made_again(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.signed()
    desk.chain.is_reply_lost = True
    with pytest.raises(ArenaError, match="U3030"):
        await desk.anchors.turn()
    await anchor(desk)
    assert len(desk.chain.commits) == 1


async def test_a_restart_finds_an_anchor_that_was_under_way(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.signed()
    await desk.anchors.turn()
    desk.start()
    await desk.checkpoints.open()
    await desk.signed()
    await anchor(desk)
    assert len(desk.chain.commits) == 1
    assert [bool(point.anchor_block) for point in await desk.stored()] == [True, False]


async def test_a_slot_that_somebody_else_wrote_is_no_anchor_and_is_written_again(desk: LogDesk) -> None:
    """The same hotkey submits an agent between the commitment and its finality."""
    await desk.checkpoints.open()
    await desk.signed()
    await desk.anchors.turn()
    await desk.chain.twin.commit(desk.signer, "ab" * 32)
    for _ in range(5):
        desk.time.pass_s(BLOCK_MS / 1_000)
        await desk.anchors.turn()
    assert (await desk.stored())[0].anchor_block == 0
    desk.time.pass_s(60)
    await anchor(desk)
    assert len(desk.chain.commits) == 2


async def test_an_anchor_stays_the_answer_for_its_block_whatever_was_committed_later(desk: LogDesk) -> None:
    await desk.checkpoints.open()
    await desk.signed()
    await anchor(desk)
    desk.time.pass_s(RULES.anchor_every_s)
    await desk.signed()
    await anchor(desk)
    first, second = await desk.stored()
    hotkey, points = desk.signer.hotkey, [first, second]
    assert anchored_by(points, hotkey, first.anchor_block - 1) is None
    assert anchored_by(points, hotkey, second.anchor_block - 1) == first
    assert anchored_by(points, hotkey, second.anchor_block) == second
    assert anchored_by(points, generate_signer().hotkey, second.anchor_block) is None


# -- both chains


@pytest.fixture(params=["local", "real"])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChainStand]:
    if request.param == "local":
        yield LocalStand(tmp_path / "other.sqlite")
    else:
        async with node_stand(make_node()) as made:
            yield made


async def test_an_anchor_is_made_and_proven_on_every_chain_behind_the_port(desk: LogDesk, stand: ChainStand) -> None:
    await stand.enrol(desk.signer)
    await stand.advance(3)
    desk.chain = stand.chain
    desk.start()
    await desk.checkpoints.open()
    point = await desk.signed()
    for _ in range(6):
        if await desk.anchors.turn():
            break
        await stand.advance()
    (stored,) = await desk.stored()
    assert stored.anchor_block > 0
    at = await stand.chain.commitment(desk.signer.hotkey, stored.anchor_block)
    assert require_anchor(stored, at, verify) == read_checkpoint(point.note, verify)
    assert (await stand.chain.commitment(desk.signer.hotkey, stored.anchor_block - 1)) is None

"""Signed checkpoints of a log on a schedule and their anchors, on real Postgres: what was signed is never contradicted,
and a chain that takes blocks back takes no anchor with it."""

from __future__ import annotations

import shutil

import asyncpg
import pytest

from arena.records.log import LogStart, LogWalk, note_sha256, sign_checkpoint
from arena.store.embedded import EmbeddedServer
from arena.store.location import StoreLocation, write_location
from foundation.errors import ArenaError
from neurons.cli.presenter import EXIT_INTEGRITY, exit_code
from neurons.health.status import ANCHOR_EVERY_S
from neurons.loops.checkpoints import PAUSES
from tests.arena.chain_faults import reorg, set_finality_lag
from tests.neurons.clock_stand import BLOCK_MS, LogDesk


async def test_a_lost_reply_leaves_one_note_of_that_size(log_desk: LogDesk) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append()
    log_desk.store.is_reply_lost = True
    with pytest.raises(ArenaError, match="V2021"):
        await log_desk.checkpoints.turn()
    (first,) = await log_desk.stored()
    log_desk.store.is_reply_lost = False
    assert await log_desk.checkpoints.turn() == first
    assert await log_desk.stored() == [first]


@pytest.mark.parametrize("known_by", ["the store", "the files outside", "another validator"])
async def test_a_log_cut_behind_its_last_checkpoint_ends_the_node(
    known_by: str, log_desk: LogDesk, server: EmbeddedServer
) -> None:
    await log_desk.checkpoints.open()
    await log_desk.append(5)
    point = await log_desk.checkpoints.turn()
    owner, hotkey = await asyncpg.connect(server.owner_dsn), log_desk.signer.hotkey
    cuts = [  # the tail after record 3, together with the head, as somebody who owns the database can
        "set session_replication_role = replica",
        "update arena.head set seq = 3, hash = (select prev from arena.record"
        f" where validator = '{hotkey}' and seq = 4) where validator = '{hotkey}'",
        f"delete from arena.record where validator = '{hotkey}' and seq > 3",
    ]
    cuts += [f"delete from arena.checkpoint where validator = '{hotkey}'"] * (known_by != "the store")
    for statement in cuts:
        await owner.execute(statement)
    await owner.close()
    log_desk.start()
    notes = [point.note] if known_by == "another validator" else []
    if notes:
        shutil.rmtree(log_desk.node.state_dir / "checkpoints")
    with pytest.raises(ArenaError, match=r"V2080.*records 4 to 5 were signed and are missing") as found:
        await log_desk.checkpoints.open(notes)
    assert exit_code(found.value) == EXIT_INTEGRITY and not found.value.entry.is_retryable


async def test_a_restored_log_of_which_nothing_shows_the_end_is_not_gone_on_with(log_desk: LogDesk) -> None:
    await log_desk.append()
    state_dir, hotkey = log_desk.node.state_dir, log_desk.signer.hotkey
    write_location(state_dir, StoreLocation(kind="external", validator=hotkey, dsn="", is_restored=True))
    with pytest.raises(ArenaError, match=r"V2080.*restored up to record 1, and nothing shows what was signed after it"):
        await log_desk.checkpoints.open()
    await log_desk.checkpoints.open([sign_checkpoint(LogWalk(LogStart(validator=hotkey)).checkpoint, log_desk.signer)])


# -- anchors


async def test_an_anchor_counts_once_its_block_is_final_and_is_made_once_also_where_the_reply_was_lost(
    log_desk: LogDesk,
) -> None:
    await log_desk.checkpoints.open()
    point = await log_desk.signed()
    log_desk.chain.is_reply_lost = True
    with pytest.raises(ArenaError, match="U3030"):
        await log_desk.anchors.turn()  # commits
    log_desk.chain.is_reply_lost = False
    held = await log_desk.chain.commitment(log_desk.signer.hotkey)
    while await log_desk.chain.finalized_block() < held.block:
        assert await log_desk.anchors.turn() is None
        assert (await log_desk.stored())[0].anchor_block == 0
        log_desk.time.pass_s(BLOCK_MS / 1_000)
    assert (await log_desk.anchors.turn()).size == point.size
    (stored,) = await log_desk.stored()
    assert stored.anchor_block == held.block
    assert log_desk.chain.commits == [note_sha256(point.note)]
    assert log_desk.metric("anchor_size") == point.size


@pytest.mark.parametrize("is_accepted_again", [False, True])
async def test_a_commitment_in_a_block_that_was_replaced_is_anchored_where_it_ends_up(
    log_desk: LogDesk, is_accepted_again: bool
) -> None:
    chain, hotkey = log_desk.chain, log_desk.signer.hotkey
    log_desk.time.pass_s(20)
    await log_desk.signed()
    log_desk.time.pass_s(ANCHOR_EVERY_S)
    await log_desk.checkpoints.open()
    await set_finality_lag(chain, 10_000)
    for _ in range(3):  # while finality stands still nothing is called anchored
        assert await log_desk.anchors.turn() is None
    await set_finality_lag(chain, 2)
    before = await chain.commitment(hotkey)
    assert before is not None and len(log_desk.chain.commits) == 1
    log_desk.time.pass_s(BLOCK_MS / 1_000)
    await reorg(chain, 1, is_accepted_again=is_accepted_again)
    for _ in range(40):
        if await log_desk.anchors.turn() is not None:
            break
        log_desk.time.pass_s(PAUSES.most_ms / 20_000)
    (stored,) = await log_desk.stored()
    final = await chain.commitment(hotkey, stored.anchor_block)
    assert final is not None and (final.sha256, final.block) == (note_sha256(stored.note), stored.anchor_block)
    assert before.block < stored.anchor_block <= await chain.finalized_block()
    assert len(log_desk.chain.commits) == (1 if is_accepted_again else 2)


async def test_a_commitment_that_another_process_made_for_this_hotkey_ends_the_node(log_desk: LogDesk) -> None:
    foreign, desk = "ab" * 32, log_desk
    await desk.chain.commit(desk.signer, foreign)  # what stood there before proves nothing
    await desk.signed()
    await desk.anchors.turn()
    desk.time.pass_s(3_600)
    await desk.anchors.turn()
    await desk.signed()
    await desk.chain.commit(desk.signer, foreign)
    desk.time.pass_s(60)
    with pytest.raises(ArenaError, match=f"V2024.*{foreign[:16]}"):
        await desk.anchors.turn()

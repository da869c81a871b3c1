"""What every chain behind the port does: the local twin, at home and from another machine, and the real adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from arena.chain.keys import keypair_signer
from foundation.errors import ArenaError
from tests.arena.chain_stands import ChainStand, LocalStand, make_node, node_stand, served_stand

ALICE, BOB, EVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve"))
STAKE_RAO = 5_000_000_000_000
VECTOR = ((0, 1), (65_535, 21_845))


@pytest.fixture(params=["local", "served", 343, 424])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChainStand]:
    if request.param == "local":
        yield LocalStand(tmp_path / "chain.sqlite")
    elif request.param == "served":
        async with served_stand(tmp_path / "chain.sqlite") as served:
            yield served
    else:
        async with node_stand(make_node(request.param)) as made:
            yield made


async def test_blocks_advance_and_finality_lags_behind(stand: ChainStand) -> None:
    await stand.advance(10)
    before = await stand.chain.block()
    await stand.advance(3)
    assert await stand.chain.block() == before + 3
    assert 0 < await stand.chain.finalized_block() < before + 3


async def test_an_unregistered_hotkey_can_neither_commit_nor_set_weights(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    assert (await stand.chain.commit(EVE, "ab" * 32)).status == "not_registered"
    assert (await stand.chain.set_weights(EVE, (0,), (65_535,))).status == "not_registered"
    assert await stand.chain.commitment(EVE.hotkey) is None


async def test_a_commitment_is_read_back_with_its_block(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    result = await stand.chain.commit(ALICE, "ab" * 32)
    read = await stand.chain.commitment(ALICE.hotkey)
    assert result.status == "ok"
    assert read is not None
    assert (read.hotkey, read.sha256, read.block) == (ALICE.hotkey, "ab" * 32, result.block)


async def test_commitments_keep_their_history_by_block(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    first = await stand.chain.commit(ALICE, "01" * 32)
    await stand.advance(2)
    second = await stand.chain.commit(ALICE, "02" * 32)
    await stand.advance(2)
    at = {block: await stand.chain.commitment(ALICE.hotkey, block) for block in (first.block - 1, first.block)}
    later = await stand.chain.commitment(ALICE.hotkey, second.block)
    assert at[first.block - 1] is None
    assert at[first.block] is not None and at[first.block].sha256 == "01" * 32
    assert later is not None and later.sha256 == "02" * 32


@pytest.mark.parametrize("sha256", ["", "ab", "AB" * 32, "zz" * 32, "ab" * 33])
async def test_only_a_sha256_can_be_committed(stand: ChainStand, sha256: str) -> None:
    await stand.enrol(ALICE)
    assert (await stand.chain.commit(ALICE, sha256)).status == "failed"
    assert await stand.chain.commitment(ALICE.hotkey) is None


async def test_the_metagraph_shows_uids_permits_and_stakes(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    await stand.make_validator(ALICE, STAKE_RAO)
    metagraph = await stand.chain.metagraph()
    alice, bob = metagraph.neurons
    assert (metagraph.netuid, metagraph.tempo) == (15, 360)
    assert (alice.uid, alice.hotkey, alice.has_validator_permit, alice.stake_rao) == (0, ALICE.hotkey, True, STAKE_RAO)
    assert (bob.uid, bob.hotkey, bob.has_validator_permit, bob.stake_rao) == (1, BOB.hotkey, False, 0)
    assert [metagraph.uid_of(signer.hotkey) for signer in (ALICE, BOB, EVE)] == [0, 1, None]


async def test_the_metagraph_at_a_past_block_does_not_change(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    block = await stand.chain.block()
    before = await stand.chain.metagraph(block)
    await stand.enrol(BOB)
    await stand.make_validator(ALICE, STAKE_RAO)
    await stand.advance()
    assert await stand.chain.metagraph(block) == before
    assert len((await stand.chain.metagraph(await stand.chain.block())).neurons) == 2


async def test_weights_are_read_back_by_uid_without_zeros(stand: ChainStand) -> None:
    for signer in (ALICE, BOB, EVE):
        await stand.enrol(signer)
    await stand.make_validator(ALICE, STAKE_RAO)
    assert await stand.chain.weights(ALICE.hotkey) == ()
    result = await stand.chain.set_weights(ALICE, (2, 0, 1), (21_845, 65_535, 0))
    assert result.status == "ok"
    assert await stand.chain.weights(ALICE.hotkey) == ((0, 65_535), (2, 21_845))


async def test_setting_weights_shows_in_the_metagraph(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    await stand.make_validator(ALICE, STAKE_RAO)
    result = await stand.chain.set_weights(ALICE, (0,), (65_535,))
    await stand.advance()
    assert (await stand.chain.metagraph(result.block)).neurons[0].last_update_block == result.block


async def test_weights_are_rate_limited_and_then_allowed_again(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    await stand.make_validator(ALICE, STAKE_RAO)
    assert (await stand.chain.set_weights(ALICE, *VECTOR)).status == "ok"
    await stand.advance(50)
    early = await stand.chain.set_weights(ALICE, (1,), (65_535,))
    assert early.status == "rate_limited"
    assert "blocks" in early.detail
    assert await stand.chain.weights(ALICE.hotkey) == ((0, 65_535), (1, 21_845))
    await stand.advance(60)
    assert (await stand.chain.set_weights(ALICE, (1,), (65_535,))).status == "ok"


async def test_a_miner_cannot_set_weights(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    result = await stand.chain.set_weights(BOB, *VECTOR)
    assert result.status == "failed"
    assert await stand.chain.weights(BOB.hotkey) == ()


@pytest.mark.parametrize(
    ("uids", "weights"),
    [
        ((0, 1), (65_535,)),
        ((0, 0), (65_535, 1)),
        ((), ()),
        ((0, 1), (65_534, 1)),
        ((0, 1), (65_536, 1)),
        ((0, 1), (65_535, -1)),
        ((-1, 1), (65_535, 1)),
        ((0, 9), (65_535, 1)),
    ],
    ids=["lengths", "duplicate", "empty", "maximum", "too large", "negative", "negative uid", "unknown uid"],
)
async def test_a_malformed_vector_is_refused_whole(
    stand: ChainStand, uids: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    await stand.make_validator(ALICE, STAKE_RAO)
    result = await stand.chain.set_weights(ALICE, uids, weights)
    assert result.status == "failed"
    assert result.detail
    assert await stand.chain.weights(ALICE.hotkey) == ()


# -- the past, by its timestamps


async def test_the_block_of_a_moment_is_the_last_one_that_is_not_later(stand: ChainStand) -> None:
    await stand.advance(30)
    final = await stand.chain.finalized_block()
    for block in (final - 1, final - 7, final - 12):
        at_ms = await stand.time_of(block)
        assert await stand.chain.block_at(at_ms) == block
        assert await stand.chain.block_at(at_ms - 1) == block - 1
        assert await stand.chain.block_at(await stand.time_of(block + 1) - 1) == block


async def test_a_moment_has_no_block_before_a_later_one_is_final(stand: ChainStand) -> None:
    await stand.advance(30)
    final = await stand.chain.finalized_block()
    at_ms = await stand.time_of(final)
    assert await stand.chain.block_at(at_ms) is None
    await stand.advance()
    assert await stand.chain.block_at(at_ms) == final


async def test_a_moment_before_the_chain_has_block_0(stand: ChainStand) -> None:
    await stand.advance(10)
    assert await stand.chain.block_at(1_000_000) == 0


# -- several hotkeys at one block


async def test_commitments_of_many_are_those_of_each_at_that_block(stand: ChainStand) -> None:
    for signer in (ALICE, BOB):
        await stand.enrol(signer)
    await stand.chain.commit(ALICE, "01" * 32)
    last = await stand.chain.commit(BOB, "02" * 32)
    await stand.advance(2)
    await stand.chain.commit(ALICE, "03" * 32)
    await stand.advance(2)
    hotkeys = [signer.hotkey for signer in (EVE, BOB, ALICE)]
    found = await stand.chain.commitments(hotkeys, last.block)
    assert set(found) == {ALICE.hotkey, BOB.hotkey}
    assert found == {hotkey: await stand.chain.commitment(hotkey, last.block) for hotkey in found}
    assert found[ALICE.hotkey].sha256 == "01" * 32
    assert await stand.chain.commitments([], last.block) == {}


# -- endpoints


@pytest.mark.parametrize("endpoint", ["http://203.0.113.7:8750", "http://[2001:db8::7]:8750", "http://127.0.0.1:1"])
async def test_a_published_endpoint_stands_in_the_metagraph(stand: ChainStand, endpoint: str) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    result = await stand.chain.publish(ALICE, endpoint)
    await stand.advance()
    before, after = await stand.chain.metagraph(result.block - 1), await stand.chain.metagraph(result.block)
    assert result.status == "ok"
    assert [neuron.endpoint for neuron in before.neurons] == ["", ""]
    assert [neuron.endpoint for neuron in after.neurons] == [endpoint, ""]


@pytest.mark.parametrize(
    "endpoint", ["", "203.0.113.7:8750", "http://example.org:8750", "http://0.0.0.0:8750", "https://203.0.113.7:8750"]
)
async def test_only_an_address_with_a_port_can_be_published(stand: ChainStand, endpoint: str) -> None:
    await stand.enrol(ALICE)
    result = await stand.chain.publish(ALICE, endpoint)
    assert result.status == "failed" and result.detail


async def test_an_unregistered_hotkey_can_publish_nothing(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    assert (await stand.chain.publish(EVE, "http://203.0.113.7:8750")).status == "not_registered"


# -- reorgs


async def test_a_reorg_takes_back_what_was_not_final_and_changes_those_hashes_alone(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    first = await stand.chain.commit(ALICE, "01" * 32)
    await stand.advance(6)
    second = await stand.chain.commit(ALICE, "02" * 32)
    await stand.advance(max(0, second.block - await stand.chain.block()))
    head, final = await stand.chain.block(), await stand.chain.finalized_block()
    before = {block: await stand.chain.block_hash(block) for block in range(final - 2, head + 1)}
    assert len(set(before.values())) == len(before)
    await stand.reorg(head - final)
    after = {block: await stand.chain.block_hash(block) for block in before}
    held = await stand.chain.commitment(ALICE.hotkey)
    assert [block for block in before if before[block] != after[block]] == list(range(final + 1, head + 1))
    assert held is not None and (held.sha256, held.block) == ("01" * 32, first.block)


async def test_a_block_that_is_not_there_yet_is_said_and_is_no_outage(stand: ChainStand) -> None:
    ahead = await stand.chain.block() + 50
    for asked in (
        stand.chain.block_hash(ahead),
        stand.chain.metagraph(ahead),
        stand.chain.commitment(ALICE.hotkey, ahead),
        stand.chain.commitments([ALICE.hotkey], ahead),
    ):
        with pytest.raises(ArenaError, match="U3049") as caught:
            await asked
        assert str(ahead) in caught.value.failure.detail and caught.value.entry.is_retryable


async def test_the_owner_is_who_the_chain_names_and_nobody_else(stand: ChainStand) -> None:
    await stand.enrol(EVE)  # uid 0 makes nobody the owner
    assert await stand.chain.owner_hotkey() is None
    await stand.name_owner(ALICE)
    await stand.enrol(BOB)
    assert await stand.chain.owner_hotkey() == ALICE.hotkey

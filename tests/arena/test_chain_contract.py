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


@pytest.fixture(params=["local", "served", "node"])
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ChainStand]:
    if request.param == "local":
        yield LocalStand(tmp_path / "chain.sqlite")
    elif request.param == "served":
        async with served_stand(tmp_path / "chain.sqlite") as served:
            yield served
    else:
        async with node_stand(make_node()) as made:
            yield made


async def test_blocks_advance_and_finality_lags_behind(stand: ChainStand) -> None:
    await stand.advance(10)
    before = await stand.chain.block()
    await stand.advance(3)
    assert await stand.chain.block() == before + 3
    assert 0 < await stand.chain.finalized_block() < before + 3


async def test_an_unregistered_hotkey_can_write_nothing(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    assert (await stand.chain.commit(EVE, "ab" * 32)).status == "not_registered"
    assert (await stand.chain.set_weights(EVE, (0,), (65_535,))).status == "not_registered"
    assert (await stand.chain.publish(EVE, "http://203.0.113.7:8750")).status == "not_registered"
    assert await stand.chain.commitment(EVE.hotkey) is None


async def test_commitments_keep_their_history_by_block_for_one_hotkey_and_for_many(stand: ChainStand) -> None:
    for signer in (ALICE, BOB):
        await stand.enrol(signer)
    first = await stand.chain.commit(ALICE, "01" * 32)
    last = await stand.chain.commit(BOB, "02" * 32)
    await stand.advance(2)
    later = await stand.chain.commit(ALICE, "03" * 32)
    await stand.advance(2)
    for sha256 in ("", "ab", "AB" * 32, "zz" * 32, "ab" * 33):
        assert (await stand.chain.commit(ALICE, sha256)).status == "failed"
    assert await stand.chain.commitment(ALICE.hotkey, first.block - 1) is None
    for asked, sha256, block in ((first, "01" * 32, first.block), (later, "03" * 32, later.block)):
        held = await stand.chain.commitment(ALICE.hotkey, asked.block)
        assert held is not None and (held.hotkey, held.sha256, held.block) == (ALICE.hotkey, sha256, block)
    assert await stand.chain.commitment(ALICE.hotkey) == held
    found = await stand.chain.commitments([signer.hotkey for signer in (EVE, BOB, ALICE)], last.block)
    assert {hotkey: one.sha256 for hotkey, one in found.items()} == {ALICE.hotkey: "01" * 32, BOB.hotkey: "02" * 32}
    assert await stand.chain.commitments([], last.block) == {}
    places = [
        await stand.chain.commitment_place(signer.hotkey, sha256, last.block)
        for signer, sha256 in ((BOB, "02" * 32), (ALICE, "02" * 32))
    ]
    assert places == ([1, 2] if first.block == last.block else [0, 1]), "another's hash is behind all"


async def test_the_metagraph_shows_uids_permits_and_stakes_and_keeps_its_past(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    block = await stand.chain.block()
    before = await stand.chain.metagraph(block)
    await stand.enrol(BOB)
    await stand.make_validator(ALICE, STAKE_RAO)
    metagraph = await stand.chain.metagraph()
    alice, bob = metagraph.neurons
    assert (metagraph.netuid, metagraph.tempo) == (15, 360)
    assert (alice.uid, alice.hotkey, alice.has_validator_permit, alice.stake_rao) == (0, ALICE.hotkey, True, STAKE_RAO)
    assert (bob.uid, bob.hotkey, bob.has_validator_permit, bob.stake_rao) == (1, BOB.hotkey, False, 0)
    assert [metagraph.uid_of(signer.hotkey) for signer in (ALICE, BOB, EVE)] == [0, 1, None]
    await stand.advance()
    assert await stand.chain.metagraph(block) == before and len(before.neurons) == 1


async def test_weights_are_read_back_by_uid_without_zeros_and_rate_limited(stand: ChainStand) -> None:
    for signer in (ALICE, BOB, EVE):
        await stand.enrol(signer)
    await stand.make_validator(ALICE, STAKE_RAO)
    assert await stand.chain.weights(ALICE.hotkey) == ()
    result = await stand.chain.set_weights(ALICE, (2, 0, 1), (21_845, 65_535, 0))
    await stand.advance(50)
    early = await stand.chain.set_weights(ALICE, (1,), (65_535,))
    assert (result.status, early.status) == ("ok", "rate_limited") and "blocks" in early.detail
    assert await stand.chain.weights(ALICE.hotkey) == ((0, 65_535), (2, 21_845))
    await stand.advance(60)
    assert (await stand.chain.set_weights(ALICE, (1,), (65_535,))).status == "ok"


async def test_a_malformed_vector_and_a_miners_is_refused_whole(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    await stand.make_validator(ALICE, STAKE_RAO)
    for uids, weights in (
        ((0, 1), (65_535,)),
        ((0, 0), (65_535, 1)),
        ((), ()),
        ((0, 1), (65_534, 1)),
        ((0, 1), (65_536, 1)),
        ((0, 1), (65_535, -1)),
        ((-1, 1), (65_535, 1)),
        ((0, 9), (65_535, 1)),
    ):
        result = await stand.chain.set_weights(ALICE, uids, weights)
        assert result.status == "failed" and result.detail, (uids, weights)
    assert (await stand.chain.set_weights(BOB, *VECTOR)).status == "failed"
    assert await stand.chain.weights(ALICE.hotkey) == await stand.chain.weights(BOB.hotkey) == ()


async def test_the_block_of_a_moment_is_the_last_one_that_is_not_later(stand: ChainStand) -> None:
    await stand.advance(30)
    final = await stand.chain.finalized_block()
    for block in (final - 1, final - 7, final - 12):
        at_ms = await stand.time_of(block)
        assert await stand.chain.block_at(at_ms) == block
        assert await stand.chain.block_at(at_ms - 1) == block - 1
    at_ms = await stand.time_of(final)
    assert await stand.chain.block_at(at_ms) is None, "a later one may still not be later"
    await stand.advance()
    assert await stand.chain.block_at(at_ms) == final
    assert await stand.chain.block_at(1_000_000) == 0


async def test_a_published_endpoint_stands_in_the_metagraph(stand: ChainStand) -> None:
    await stand.enrol(ALICE)
    await stand.enrol(BOB)
    hosts = ("", "http://example.org:8750", "http://0.0.0.0:8750", "https://203.0.113.7:8750", "http://u@1.2.3.4:80")
    for endpoint in (*hosts, "203.0.113.7:1", *(f"http://1.2.3.4{port}" for port in ("", ":0", ":70000", ":80/x"))):
        refused = await stand.chain.publish(ALICE, endpoint)
        assert refused.status == "failed" and refused.detail
    for endpoint in ("http://203.0.113.7:8750", "http://[2001:db8::7]:8750", "http://127.0.0.1:1"):
        result = await stand.chain.publish(ALICE, endpoint)
        await stand.advance(60)
        before, after = await stand.chain.metagraph(result.block - 1), await stand.chain.metagraph(result.block)
        assert result.status == "ok" and before.neurons[0].endpoint != endpoint
        assert [neuron.endpoint for neuron in after.neurons] == [endpoint, ""]


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

"""Sealed weights from the call to what is counted: committed, unreadable before their pulse, revealed by it.

The encryption is quicknet's own and is opened with a signature that drand published. Only the clock is stood in for:
a seal is made to quicknet's first round instead of one that lies ahead, since nobody has a signature of the future.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import bittensor_core
import pytest

from arena.chain.keys import keypair_signer, public_key
from arena.chain.real import WEIGHTS_VERSION_KEY, BittensorSubtensor
from tests.arena.chain_stands import NETUID, NodeStand, make_client, make_node, node_stand
from tests.arena.first_round import sdk_seal, seal_to_first_round
from tests.arena.test_chain_beacon import ROUND_1

ALICE, BOB = keypair_signer("//Alice"), keypair_signer("//Bob")
VECTOR = ((0, 1), (65_535, 21_845))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Seals are made to quicknet's first round; what the SDK was asked to seal, and the round it chose, fill this."""
    seen: dict[str, Any] = {}

    def seal(**given: Any) -> tuple[bytes, int]:
        seen.update(given, its_round=sdk_seal(**given)[1])
        return seal_to_first_round(**given)

    monkeypatch.setattr(bittensor_core, "get_encrypted_commit_v2", seal)
    return seen


@pytest.fixture
async def stand() -> AsyncIterator[NodeStand]:
    async with node_stand(make_node()) as made:
        await made.people(ALICE, BOB)
        made.node.write("SubtensorModule", "CommitRevealWeightsEnabled", [NETUID], True)
        made.node.advance()
        yield made


@pytest.mark.parametrize("mechanism", [0, 2])
async def test_sealed_weights_are_counted_when_their_pulse_is_published(
    stand: NodeStand, asked: dict[str, Any], mechanism: int
) -> None:
    chain = BittensorSubtensor(
        stand.url, netuid=NETUID, mechanism=mechanism, make_client=make_client, lock_folder=stand.lock_folder
    )
    result = await chain.set_weights(ALICE, *VECTOR)
    assert (result.status, result.detail) == ("ok", "sealed until round 1")
    assert (asked["hotkey"], asked["version_key"]) == (public_key(ALICE.hotkey), WEIGHTS_VERSION_KEY)
    assert await chain.weights(ALICE.hotkey) == ()
    stand.node.publish(ROUND_1.round + 1, "00" * 48)
    assert await chain.weights(ALICE.hotkey) == (), "another round opens nothing"
    stand.node.publish(ROUND_1.round, ROUND_1.signature)
    assert await chain.weights(ALICE.hotkey) == tuple(zip(*VECTOR, strict=True))
    own = next(neuron for neuron in (await chain.metagraph()).neurons if neuron.hotkey == ALICE.hotkey)
    assert own.last_update_block == stand.node.block
    await chain.close()


async def test_weights_sealed_by_another_hotkey_are_not_counted(
    stand: NodeStand, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = bittensor_core.get_encrypted_commit_v2
    foreign = public_key(BOB.hotkey)
    monkeypatch.setattr(bittensor_core, "get_encrypted_commit_v2", lambda **given: ours(**{**given, "hotkey": foreign}))
    assert (await stand.chain.set_weights(ALICE, *VECTOR)).status == "ok"
    stand.node.publish(ROUND_1.round, ROUND_1.signature)
    assert await stand.chain.weights(ALICE.hotkey) == ()


async def test_the_sdk_seals_to_a_round_that_lies_ahead_on_the_subnets_schedule(
    stand: NodeStand, asked: dict[str, Any]
) -> None:
    await stand.chain.set_weights(ALICE, *VECTOR)
    sooner = asked["its_round"]
    stand.node.write("SubtensorModule", "RevealPeriodEpochs", [NETUID], 3)
    stand.node.advance(100)
    await stand.chain.set_weights(ALICE, *VECTOR)
    assert asked["its_round"] - sooner > 360 * 12 // 3, "two epochs more are 2,880 rounds of 3 s, less 100 blocks"

"""What btcli of bittensor 11 reads of a subnet, by the SDK's own reads, from the node double."""

from __future__ import annotations

import bittensor
import pytest
from bittensor.cli.hyperparams_view import fetch_hyperparameters

from arena.chain.keys import keypair_signer
from tests.arena.chain_stands import NETUID, make_node

KEYS = tuple(keypair_signer(f"//Neuron{uid}").hotkey for uid in range(3))


async def test_metagraph_neurons_weights_and_hyperparameters_are_those_of_the_storage() -> None:
    node = make_node()
    for key in KEYS:
        node.enrol(key)
    node.stake(KEYS[0], 7 * 10**9, has_permit=True)
    node.write("SubtensorModule", "Weights", [NETUID, 0], [(1, 65_535), (2, 65_535)])
    node.write("SubtensorModule", "Tempo", [NETUID], 99)
    node.advance()
    async with node.start() as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with bittensor.Client(url) as client:
            graph = await client.read("metagraph", netuid=NETUID)
            neurons = await client.read("neurons", netuid=NETUID)
            weights = await client.read("weights", netuid=NETUID)
            read = await client.read("subnet_hyperparameters", netuid=NETUID)
            shown = await fetch_hyperparameters(client, NETUID)
            nowhere = await client.read("subnet_hyperparameters", netuid=NETUID + 1)
            with pytest.raises(bittensor.BittensorError):
                await client.read("delegates")
    assert [str(key) for key in graph["hotkeys"]] == list(KEYS)
    assert (graph["tempo"], graph["num_uids"], graph["block"]) == (99, 3, node.block)
    assert [each.hotkey for each in neurons] == list(KEYS)
    assert [each.validator_permit for each in neurons] == [True, False, False]
    assert [each.total_stake.rao for each in neurons] == [7 * 10**9, 0, 0]
    assert weights[0] == {1: 0.5, 2: 0.5}
    assert read["tempo"] == 99 and read["serving_rate_limit"] == 50 and nowhere is None
    assert shown["activity_cutoff_factor"] == 13_889 and set(read) < set(shown)

"""What btcli of bittensor 11 reads of a subnet, by the SDK's own reads, from the node double."""

from __future__ import annotations

import json
from typing import Any

import bittensor
import pytest
import websockets
from bittensor.cli.hyperparams_view import fetch_hyperparameters

from arena.chain.keys import keypair_signer
from tests.arena.chain_stands import NETUID, make_node
from tests.arena.runtime_apis import grow_metadata, make_codec
from tests.arena.runtimes import SPEC_VERSION, read_metadata

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


async def test_what_btcli_9_asks_beside_is_there() -> None:
    """Keys without pages, the root subnet with its symbol, and locks of stake."""
    node = make_node()
    node.write("SubtensorModule", "MechanismCountCurrent", [NETUID], 2)

    async def ask(connection: Any, method: str, *parameters: Any) -> Any:
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}))
        return json.loads(await connection.recv()).get("result")

    async with node.start() as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with websockets.connect(url) as connection:
            paged = await ask(connection, "state_getKeysPaged", "0x", 100_000, "")
            keys = await ask(connection, "state_getKeys", "0x")
            subnets = await ask(connection, "state_call", "SubnetInfoRuntimeApi_get_all_dynamic_info", "0x")
    assert keys == paged and len(keys) > 2
    codec = make_codec(grow_metadata(read_metadata()), SPEC_VERSION)
    kind = codec.runtime_api_map["SubnetInfoRuntimeApi"]["get_all_dynamic_info"]["output"]
    listed = codec.decode(kind, bytes.fromhex(subnets[2:]))
    assert [each["netuid"] for each in listed] == [0, NETUID] and all(each["token_symbol"] for each in listed)
    assert node.value(node.block, "SubtensorModule", "OwnerLock", [NETUID]) is None
    assert node.value(node.block, "SubtensorModule", "HotkeyLock", [NETUID, KEYS[0]]) is None
    assert node.value(node.block, "SubtensorModule", "MaturityRate", []) == 934_866

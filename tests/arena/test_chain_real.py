"""The real adapter on the wire: what it sends, what it refuses to send, and how it comes back after a drop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from arena.chain.keys import keypair_signer
from arena.chain.real import BittensorSubtensor
from problems.errors import ArenaError
from tests.arena.chain_stands import NETUID, NodeStand, make_client, make_node, node_stand

ALICE, BOB, EVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve"))
VECTOR = ((0, 1), (65_535, 21_845))


@pytest.fixture
async def stand() -> AsyncIterator[NodeStand]:
    async with node_stand(make_node()) as made:
        await made.enrol(ALICE)
        await made.enrol(BOB)
        await made.make_validator(ALICE, 10**12)
        yield made


def _last_call(stand: NodeStand) -> tuple[str, dict[str, object]]:
    call = stand.node.extrinsics[-1]["call"]
    return call["call_function"], {argument["name"]: argument["value"] for argument in call["call_args"]}


async def test_a_commitment_is_signed_by_the_hotkey(stand: NodeStand) -> None:
    await stand.chain.commit(ALICE, "ab" * 32)
    function, arguments = _last_call(stand)
    assert stand.node.extrinsics[-1]["address"] == ALICE.hotkey
    assert function == "set_commitment"
    assert arguments == {"netuid": NETUID, "info": {"fields": [{"Raw32": "0x" + "ab" * 32}]}}


async def test_a_vector_reaches_the_chain_bit_for_bit(stand: NodeStand) -> None:
    await stand.chain.set_weights(ALICE, (1, 0), (65_535, 3))
    function, arguments = _last_call(stand)
    assert function == "set_mechanism_weights"
    assert dict(zip(arguments["dests"], arguments["weights"], strict=True)) == {0: 3, 1: 65_535}


async def test_weights_are_sealed_where_the_subnet_demands_it(stand: NodeStand) -> None:
    stand.node.write("SubtensorModule", "CommitRevealWeightsEnabled", [NETUID], True)
    stand.node.advance()
    result = await stand.chain.set_weights(ALICE, *VECTOR)
    function, arguments = _last_call(stand)
    assert (result.status, function) == ("ok", "commit_timelocked_mechanism_weights")
    assert result.detail == f"sealed until round {arguments['reveal_round']}"


async def test_a_vector_the_subnets_limit_would_change_is_not_sent(stand: NodeStand) -> None:
    stand.node.write("SubtensorModule", "MaxWeightsLimit", [NETUID], 20_000)
    stand.node.advance()
    sent = len(stand.node.extrinsics)
    result = await stand.chain.set_weights(ALICE, *VECTOR)
    assert result.status == "failed"
    assert "limit" in result.detail
    assert len(stand.node.extrinsics) == sent


async def test_an_extrinsic_signed_by_another_key_is_refused_by_the_node(stand: NodeStand) -> None:
    class Impostor:
        hotkey = ALICE.hotkey

        def sign(self, message: bytes) -> bytes:
            return EVE.sign(message)

    result = await stand.chain.commit(Impostor(), "ab" * 32)
    assert result.status == "failed"
    assert await stand.chain.commitment(ALICE.hotkey) is None


async def test_registration_is_left_to_the_coldkeys_owner(stand: NodeStand) -> None:
    result = await stand.chain.register(EVE)
    assert result.status == "failed"
    assert "btcli" in result.detail
    assert stand.node.extrinsics == []


async def test_a_commitment_that_is_no_hash_reads_as_none(stand: NodeStand) -> None:
    record = {"deposit": 0, "block": 1, "info": {"fields": [[{"Raw5": "0x68656c6c6f"}]]}}
    stand.node.write("Commitments", "CommitmentOf", [NETUID, BOB.hotkey], record)
    assert await stand.chain.commitment(BOB.hotkey) is None


async def test_an_endpoint_nobody_serves_is_an_unreachable_chain() -> None:
    make_node()
    chain = BittensorSubtensor("ws://127.0.0.1:9", netuid=NETUID, make_client=make_client)
    with pytest.raises(ArenaError) as caught:
        await chain.block()
    assert caught.value.failure.code == "U3030"


async def test_after_a_drop_the_next_call_connects_anew() -> None:
    node = make_node()
    async with node.start() as server:
        port = server.sockets[0].getsockname()[1]
        chain = BittensorSubtensor(f"ws://127.0.0.1:{port}", netuid=NETUID, make_client=make_client)
        assert await chain.block() == node.block
    with pytest.raises(ArenaError) as caught:
        await chain.block()
    assert caught.value.failure.code == "U3030"
    node.advance(5)
    async with node.start(port):
        assert await chain.block() == node.block
        await chain.close()


async def test_a_node_that_never_answers_runs_into_the_time_limit() -> None:
    import asyncio

    make_node()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    async with server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        chain = BittensorSubtensor(url, netuid=NETUID, make_client=make_client, timeout_s=0.5)
        with pytest.raises(ArenaError) as caught:
            await chain.block()
    assert caught.value.failure.code == "U3030"

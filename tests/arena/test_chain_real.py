"""The real adapter on the wire: what it sends, what it refuses to send, and how it comes back after a drop."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from arena.chain.keys import keypair_signer
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError
from tests.arena.chain_stands import NETUID, NodeStand, make_client, make_node, node_stand

ALICE, BOB, EVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve"))
VECTOR = ((0, 1), (65_535, 21_845))


@pytest.fixture(params=[343, 424])
async def stand(request: pytest.FixtureRequest) -> AsyncIterator[NodeStand]:
    async with node_stand(make_node(request.param)) as made:
        await made.people(ALICE, BOB)
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
    assert (arguments["netuid"], arguments["mecid"], arguments["commit_reveal_version"]) == (NETUID, 0, 4)
    assert len(bytes.fromhex(str(arguments["commit"]).removeprefix("0x"))) > 100, "the vector, encrypted to that round"


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


# -- endpoints on the wire


@pytest.mark.parametrize(
    ("endpoint", "ip", "ip_type"),
    [("http://203.0.113.7:8750", 0xCB007107, 4), ("http://[2001:db8::7]:8750", (0x20010DB8 << 96) + 7, 6)],
)
async def test_an_endpoint_goes_out_as_number_port_and_version(
    stand: NodeStand, endpoint: str, ip: int, ip_type: int
) -> None:
    await stand.chain.publish(ALICE, endpoint)
    function, arguments = _last_call(stand)
    assert stand.node.extrinsics[-1]["address"] == ALICE.hotkey
    assert function == "serve_axon"
    assert {name: arguments[name] for name in ("netuid", "ip", "port", "ip_type")} == {
        "netuid": NETUID,
        "ip": ip,
        "port": 8750,
        "ip_type": ip_type,
    }


async def test_the_chains_serving_limit_is_a_rate_limit(stand: NodeStand) -> None:
    assert (await stand.chain.publish(ALICE, "http://203.0.113.7:8750")).status == "ok"
    assert (await stand.chain.publish(ALICE, "http://203.0.113.8:8750")).status == "rate_limited"
    stand.node.advance(60)
    assert (await stand.chain.publish(ALICE, "http://203.0.113.8:8750")).status == "ok"


async def test_too_many_commitments_are_a_rate_limit(stand: NodeStand) -> None:
    stand.node.pallets.refuses_commitments = True
    result = await stand.chain.commit(ALICE, "ab" * 32)
    assert result.status == "rate_limited" and result.detail
    assert await stand.chain.commitment(ALICE.hotkey) is None


@pytest.mark.parametrize(
    "axon",
    [{"ip": 0, "port": 80, "ip_type": 4}, {"ip": 5, "port": 0, "ip_type": 4}, {"ip": 2**100, "port": 80, "ip_type": 4}]
    + [{"ip": 5, "port": 80, "ip_type": kind} for kind in (0, 5, 255)],
)
async def test_what_is_no_address_reads_as_no_endpoint(stand: NodeStand, axon: dict[str, int]) -> None:
    rest = {"block": 1, "version": 1, "protocol": 4, "placeholder1": 0, "placeholder2": 0}
    stand.node.write("SubtensorModule", "Axons", [NETUID, ALICE.hotkey], {**axon, **rest})
    assert (await stand.chain.metagraph()).neurons[0].endpoint == ""


# -- the past


async def test_a_pruned_block_is_a_coded_error_that_names_the_way_out(stand: NodeStand) -> None:
    stand.node.advance(100)
    stand.node.pruned_before = stand.node.block - 20
    for read in (stand.chain.metagraph(stand.node.block - 50), stand.chain.commitment(ALICE.hotkey, 1_005)):
        with pytest.raises(ArenaError) as caught:
            await read
        assert caught.value.failure.code == "U3033"
        assert "archive" in caught.value.entry.remedy
    assert (await stand.chain.metagraph(stand.node.block - 5)).uid_of(ALICE.hotkey) == 0


async def test_the_block_of_a_recent_moment_is_found_on_a_node_that_prunes(stand: NodeStand) -> None:
    stand.node.advance(100)
    stand.node.advance(3, block_ms=36_000)
    stand.node.advance(100)
    wanted = stand.node.block - 102
    stand.node.pruned_before = wanted - 20
    assert await stand.chain.block_at(stand.node.time_of(wanted) + 1) == wanted
    with pytest.raises(ArenaError) as caught:
        await stand.chain.block_at(stand.node.time_of(wanted - 60))
    assert caught.value.failure.code == "U3033"


# -- outages


@pytest.mark.parametrize("method", ["state_getStorageAt", "state_queryStorageAt"])
async def test_a_node_that_hangs_up_in_the_middle_of_a_read_is_unreachable_and_then_answers_again(
    method: str,
) -> None:
    node = make_node()
    node.enrol(ALICE.hotkey)
    async with node_stand(node, timeout_s=2.0) as stand:
        assert await stand.chain.block() == node.block
        node.hangs_up_on = {method}
        with pytest.raises(ArenaError) as caught:
            await stand.chain.metagraph(node.block)
        assert caught.value.failure.code == "U3030"
        node.hangs_up_on = set()
        assert (await stand.chain.metagraph(node.block)).uid_of(ALICE.hotkey) == 0


async def test_a_node_that_hangs_up_on_an_extrinsic_costs_the_call_and_the_next_one_goes_through() -> None:
    node = make_node()
    node.enrol(ALICE.hotkey)
    async with node_stand(node, timeout_s=2.0) as stand:
        node.hangs_up_on = {"author_submitAndWatchExtrinsic"}
        try:
            result = await stand.chain.commit(ALICE, "ab" * 32)
        except ArenaError as error:
            assert error.failure.code == "U3030"
        else:
            assert result.status == "failed"
        assert node.extrinsics == []
        node.hangs_up_on = set()
        assert (await stand.chain.commit(ALICE, "ab" * 32)).status == "ok"
        assert len(node.extrinsics) == 1

"""The real adapter on the wire: what it sends, what it refuses to send, and how it comes back after a drop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import bittensor_core as core
import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer
from arena.chain.opening import open_subtensor
from arena.chain.port import Signer
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError
from neurons.node.doctor import examine_network
from neurons.settings.inputs import chain_of
from neurons.settings.settings import resolve
from tests.arena.chain_stands import NETUID, Clock, NodeStand, make_client, make_node, node_stand

ALICE, BOB, EVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve"))
VECTOR = ((0, 1), (65_535, 21_845))


@pytest.fixture
async def stand() -> AsyncIterator[NodeStand]:
    async with node_stand(make_node()) as made:
        await made.people(ALICE, BOB)
        yield made


def _last_call(stand: NodeStand) -> tuple[str, str, dict[str, object]]:
    sent = stand.node.extrinsics[-1]
    call = sent["call"]
    return sent["address"], call["call_function"], {each["name"]: each["value"] for each in call["call_args"]}


async def test_commitment_and_weights_reach_the_chain_bit_for_bit(stand: NodeStand) -> None:
    await stand.chain.commit(ALICE, "ab" * 32)
    wanted = {"netuid": NETUID, "info": {"fields": [{"Raw32": "0x" + "ab" * 32}]}}
    assert _last_call(stand) == (ALICE.hotkey, "set_commitment", wanted)
    await stand.chain.set_weights(ALICE, (1, 0), (65_535, 3))
    _, function, arguments = _last_call(stand)
    assert function == "set_mechanism_weights"
    assert dict(zip(arguments["dests"], arguments["weights"], strict=True)) == {0: 3, 1: 65_535}


async def test_weights_are_sealed_where_the_subnet_demands_it(stand: NodeStand) -> None:
    stand.node.write("SubtensorModule", "CommitRevealWeightsEnabled", [NETUID], True)
    stand.node.advance()
    result = await stand.chain.set_weights(ALICE, *VECTOR)
    _, function, arguments = _last_call(stand)
    assert (result.status, function) == ("ok", "commit_timelocked_mechanism_weights")
    assert result.detail == f"sealed until round {arguments['reveal_round']}"
    assert (arguments["netuid"], arguments["mecid"], arguments["commit_reveal_version"]) == (NETUID, 0, 4)
    assert len(bytes.fromhex(str(arguments["commit"]).removeprefix("0x"))) > 100, "the vector, encrypted to that round"


@pytest.mark.parametrize(
    ("endpoint", "ip", "ip_type"),
    [("http://203.0.113.7:8750", 0xCB007107, 4), ("http://[2001:db8::7]:8750", (0x20010DB8 << 96) + 7, 6)],
)
async def test_an_endpoint_goes_out_as_number_port_and_version(
    stand: NodeStand, endpoint: str, ip: int, ip_type: int
) -> None:
    await stand.chain.publish(ALICE, endpoint)
    address, function, arguments = _last_call(stand)
    assert (address, function) == (ALICE.hotkey, "serve_axon")
    wanted = {"netuid": NETUID, "ip": ip, "port": 8750, "ip_type": ip_type}
    assert {name: arguments[name] for name in wanted} == wanted


async def test_what_the_chain_would_change_or_a_coldkey_has_to_sign_is_not_sent(stand: NodeStand) -> None:
    stand.node.write("SubtensorModule", "MaxWeightsLimit", [NETUID], 20_000)
    stand.node.advance()
    limited, registered = await stand.chain.set_weights(ALICE, *VECTOR), await stand.chain.register(EVE)
    assert (limited.status, registered.status) == ("failed", "failed")
    assert "limit" in limited.detail and "btcli" in registered.detail
    assert stand.node.extrinsics == []


async def test_what_is_no_hash_and_no_address_reads_as_none(stand: NodeStand) -> None:
    record = {"deposit": 0, "block": 1, "info": {"fields": [[{"Raw5": "0x68656c6c6f"}]]}}
    stand.node.write("Commitments", "CommitmentOf", [NETUID, BOB.hotkey], record)
    assert await stand.chain.commitment(BOB.hotkey) is None
    rest = {"block": 1, "version": 1, "protocol": 4, "placeholder1": 0, "placeholder2": 0}
    for ip, port, kind in ((0, 80, 4), (5, 0, 4), (2**100, 80, 4), (5, 80, 0), (5, 80, 5), (5, 80, 255)):
        axon = {"ip": ip, "port": port, "ip_type": kind, **rest}
        stand.node.write("SubtensorModule", "Axons", [NETUID, ALICE.hotkey], axon)
        assert (await stand.chain.metagraph()).neurons[0].endpoint == ""
    for key in ("", "nobody", "5Grwva"):
        assert await stand.chain.commitment(key) is None and await stand.chain.weights(key) == ()
        assert await stand.chain.commitments([key], stand.node.block) == {}


# -- the past


async def test_a_pruned_block_is_a_coded_error_that_names_the_way_out(stand: NodeStand) -> None:
    stand.node.advance(100)
    stand.node.advance(3, block_ms=36_000)
    stand.node.advance(100)
    wanted = stand.node.block - 102
    stand.node.pruned_before = wanted - 20
    reads = (
        stand.chain.metagraph(wanted - 50),
        stand.chain.commitment(ALICE.hotkey, 1_005),
        stand.chain.block_at(stand.node.time_of(wanted - 60)),
    )
    for read in reads:
        with pytest.raises(ArenaError, match="U3033") as caught:
            await read
        assert "archive" in caught.value.entry.remedy
    assert (await stand.chain.metagraph(stand.node.block - 5)).uid_of(ALICE.hotkey) == 0
    assert await stand.chain.block_at(stand.node.time_of(wanted) + 1) == wanted, "found near the answer"


# -- outages


async def test_after_a_drop_the_next_call_connects_anew() -> None:
    node = make_node()
    async with node.start() as server:
        port = server.sockets[0].getsockname()[1]
        chain = BittensorSubtensor(f"ws://127.0.0.1:{port}", netuid=NETUID, make_client=make_client)
        assert await chain.block() == node.block
    for _ in range(2):  # the connection is gone, and nobody serves there
        with pytest.raises(ArenaError, match="U3030"):
            await chain.block()
    node.advance(5)
    async with node.start(port):
        assert await chain.block() == node.block
        await chain.close()


async def test_a_node_that_hangs_up_costs_the_call_and_then_answers_again() -> None:
    node = make_node()
    node.enrol(ALICE.hotkey)
    async with node_stand(node, timeout_s=2.0) as stand:
        assert await stand.chain.block() == node.block
        node.hangs_up_on = {"state_queryStorageAt"}
        with pytest.raises(ArenaError, match="U3030"):
            await stand.chain.metagraph(node.block)
        node.hangs_up_on = {"author_submitAndWatchExtrinsic"}
        try:
            result = await stand.chain.commit(ALICE, "ab" * 32)
        except ArenaError as error:
            assert error.failure.code == "U3030"
        else:
            assert result.status == "failed"
        assert node.extrinsics == []
        node.hangs_up_on = set()
        assert (await stand.chain.metagraph(node.block)).uid_of(ALICE.hotkey) == 0
        assert (await stand.chain.commit(ALICE, "ab" * 32)).status == "ok" and len(node.extrinsics) == 1


# -- a proxy as signer: another key signs and pays, the hotkey acts, and is refused as it would be by itself


@pytest.fixture
async def proxied() -> AsyncIterator[NodeStand]:
    """Eve is Alice's proxy, and no miner or validator of the subnet."""
    async with node_stand(make_node()) as made:
        await made.people(ALICE, BOB)
        made.node.add_proxy(EVE.hotkey, ALICE.hotkey)
        await made.chain.close()
        made.chain = BittensorSubtensor(
            made.url, netuid=NETUID, make_client=make_client, lock_folder=made.lock_folder, proxy=EVE
        )
        yield made
        await made.chain.close()


def nonces(proxied: NodeStand) -> list[tuple[str, int]]:
    return [(sent["address"], sent["nonce"]) for sent in proxied.node.extrinsics]


async def test_what_a_proxy_sends_is_the_hotkeys(proxied: NodeStand) -> None:
    await proxied.chain.check(ALICE.hotkey)
    done = [
        await proxied.chain.commit(ALICE, "ab" * 32),
        await proxied.chain.publish(ALICE, "http://203.0.113.7:8750"),
        await proxied.chain.set_weights(ALICE, *VECTOR),
    ]
    assert [result.status for result in done] == ["ok"] * 3, done
    assert nonces(proxied) == [(EVE.hotkey, 7), (EVE.hotkey, 8), (EVE.hotkey, 9)], "signed by the proxy, by its nonces"
    kept = await proxied.chain.commitment(ALICE.hotkey)
    assert kept is not None and kept.sha256 == "ab" * 32
    assert await proxied.chain.commitment(EVE.hotkey) is None
    assert await proxied.chain.weights(ALICE.hotkey) == tuple(zip(*VECTOR, strict=True))
    metagraph = await proxied.chain.metagraph()
    assert metagraph.neurons[0].endpoint == "http://203.0.113.7:8750"


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ([], "is not a proxy of"),
        ([(BOB, "Any", 0)], "is not a proxy of"),
        ([(EVE, "Staking", 0)], "of type Staking, which may not set weights; NonCritical may"),
        ([(EVE, "NonCritical", 10)], "with a delay of 10 blocks"),
        ([(EVE, "Registration", 0), (EVE, "Any", 0)], "of type Registration"),
        ([(BOB, "Staking", 5), (EVE, "NonCritical", 0)], ""),
        ([(EVE, "NonTransfer", 0)], ""),
    ],
)
async def test_a_proxy_that_the_chain_would_refuse_is_told_before_anything_is_sent(
    proxied: NodeStand, added: list[tuple[Signer, str, int]], words: str
) -> None:
    held = [{"delegate": key.hotkey, "proxy_type": kind, "delay": delay} for key, kind, delay in added]
    proxied.node.write("Proxy", "Proxies", [ALICE.hotkey], (held, 0))
    proxied.node.advance()
    if not words:
        await proxied.chain.check(ALICE.hotkey)
    for asked in (proxied.chain.check(ALICE.hotkey), examine_network(proxied.chain, ALICE.hotkey, 0)) if words else ():
        with pytest.raises(ArenaError, match="V2032") as caught:
            await asked
        assert words in caught.value.failure.detail and caught.value.entry.is_retryable
        assert EVE.hotkey in caught.value.failure.detail and ALICE.hotkey in caught.value.failure.detail
    assert proxied.node.extrinsics == []


def wallet_with(folder: Path, *names: str) -> None:
    for name in names:
        keyfile = folder / "cold" / "hotkeys" / name
        keyfile.parent.mkdir(parents=True, exist_ok=True)
        keypair = core.Keypair.create_from_uri(f"//{name}")
        keyfile.write_bytes(bytes(core.serialized_keypair_to_keyfile_data(keypair)))


async def test_the_setting_names_a_hotkey_of_the_wallet(proxied: NodeStand, tmp_path: Path) -> None:
    wallet_with(tmp_path, "Alice", "Eve")
    flags = {"wallet_path": tmp_path, "wallet_name": "cold", "wallet_hotkey": "Alice", "network": proxied.url}
    named = resolve({**flags, "netuid": NETUID, "state_dir": tmp_path / "state", "wallet_proxy": "Eve"}).settings
    chain = chain_of(named)
    assert isinstance(chain, BittensorSubtensor)
    chain._make_client, chain._lock_folder = make_client, proxied.lock_folder
    assert (await chain.commit(ALICE, "cd" * 32)).status == "ok"
    assert nonces(proxied) == [(EVE.hotkey, 7)]
    await chain.close()
    with pytest.raises(ArenaError, match="V2030"):
        chain_of(replace(named, wallet_proxy="Mallory"))


def test_a_local_chain_has_no_proxies(tmp_path: Path) -> None:
    for network in ("local", "http://127.0.0.1:1"):
        with pytest.raises(ArenaError, match="V2030"):
            open_subtensor(network, netuid=15, state_dir=tmp_path, now_ms=Clock(), proxy=EVE)

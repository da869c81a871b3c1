"""A proxy as signer: another key signs and pays, the hotkey acts, and is refused as it would be by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import bittensor_core as core
import pytest

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


def nonces(stand: NodeStand) -> list[tuple[str, int]]:
    return [(sent["address"], sent["nonce"]) for sent in stand.node.extrinsics]


async def test_what_a_proxy_sends_is_the_hotkeys(stand: NodeStand) -> None:
    await stand.chain.check(ALICE.hotkey)
    done = [
        await stand.chain.commit(ALICE, "ab" * 32),
        await stand.chain.publish(ALICE, "http://203.0.113.7:8750"),
        await stand.chain.set_weights(ALICE, *VECTOR),
    ]
    assert [result.status for result in done] == ["ok"] * 3, done
    assert nonces(stand) == [(EVE.hotkey, 7), (EVE.hotkey, 8), (EVE.hotkey, 9)], "signed by the proxy, by its nonces"
    kept = await stand.chain.commitment(ALICE.hotkey)
    assert kept is not None and kept.sha256 == "ab" * 32
    assert await stand.chain.commitment(EVE.hotkey) is None
    assert await stand.chain.weights(ALICE.hotkey) == tuple(zip(*VECTOR, strict=True))
    metagraph = await stand.chain.metagraph()
    assert metagraph.neurons[0].endpoint == "http://203.0.113.7:8750"


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ([], "is no proxy of"),
        ([(BOB, "Any", 0)], "is no proxy of"),
        ([(EVE, "Staking", 0)], "of type Staking, which may not set weights; NonCritical may"),
        ([(EVE, "NonCritical", 10)], "with a delay of 10 blocks"),
        ([(EVE, "Registration", 0), (EVE, "Any", 0)], "of type Registration"),
        ([(BOB, "Staking", 5), (EVE, "NonCritical", 0)], ""),
        ([(EVE, "NonTransfer", 0)], ""),
    ],
)
async def test_a_proxy_that_the_chain_would_refuse_is_told_before_anything_is_sent(
    stand: NodeStand, added: list[tuple[Signer, str, int]], words: str
) -> None:
    held = [{"delegate": key.hotkey, "proxy_type": kind, "delay": delay} for key, kind, delay in added]
    stand.node.write("Proxy", "Proxies", [ALICE.hotkey], (held, 0))
    stand.node.advance()
    if not words:
        await stand.chain.check(ALICE.hotkey)
    for asked in (stand.chain.check(ALICE.hotkey), examine_network(stand.chain, ALICE.hotkey, 0)) if words else ():
        with pytest.raises(ArenaError, match="V2032") as caught:
            await asked
        assert words in caught.value.failure.detail and caught.value.entry.is_retryable
        assert EVE.hotkey in caught.value.failure.detail and ALICE.hotkey in caught.value.failure.detail
    assert stand.node.extrinsics == []


def wallet_with(folder: Path, *names: str) -> None:
    for name in names:
        keyfile = folder / "cold" / "hotkeys" / name
        keyfile.parent.mkdir(parents=True, exist_ok=True)
        keypair = core.Keypair.create_from_uri(f"//{name}")
        keyfile.write_bytes(bytes(core.serialized_keypair_to_keyfile_data(keypair)))


async def test_the_setting_names_a_hotkey_of_the_wallet(stand: NodeStand, tmp_path: Path) -> None:
    wallet_with(tmp_path, "Alice", "Eve")
    flags = {"wallet_path": tmp_path, "wallet_name": "cold", "wallet_hotkey": "Alice", "network": stand.url}
    named = resolve({**flags, "netuid": NETUID, "state_dir": tmp_path / "state", "wallet_proxy": "Eve"}).settings
    chain = chain_of(named)
    assert isinstance(chain, BittensorSubtensor)
    chain._make_client, chain._lock_folder = make_client, stand.lock_folder
    assert (await chain.commit(ALICE, "cd" * 32)).status == "ok"
    assert nonces(stand) == [(EVE.hotkey, 7)]
    await chain.close()
    with pytest.raises(ArenaError, match="V2030"):
        chain_of(named.model_copy(update={"wallet_proxy": "Mallory"}))


def test_a_local_chain_has_no_proxies(tmp_path: Path) -> None:
    for network in ("local", "http://127.0.0.1:1"):
        with pytest.raises(ArenaError, match="V2030"):
            open_subtensor(network, netuid=15, state_dir=tmp_path, now_ms=Clock(), proxy=EVE)

"""A miner on another machine: another user with a wallet, the chain's address and nothing of the validator's."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from arena.chain.keys import generate_signer, keypair_signer
from arena.chain.local import LocalSubtensor
from arena.chain.local_http import ROUTE, RemoteSubtensor
from arena.web.server import ChainServer
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from tests.arena.conftest import running_server
from tests.arena.door_stand import WIDE_RULES, Stand, serving
from tests.neurons.arena_stand import short_folder
from tests.neurons.outsider_stand import Outsider, why_no_outsider

SOURCE = "def agent_main(problem):\n    return None\n"


@contextmanager
def served(chain: LocalSubtensor) -> Iterator[str]:
    """The address of a local chain, served in a thread."""
    with listen("127.0.0.1", 0) as listener:
        server, made = ChainServer(chain, listener), {}
        is_up = threading.Event()

        async def run() -> None:
            made["loop"], made["stop"] = asyncio.get_running_loop(), asyncio.Event()
            is_up.set()
            await server.run(made["stop"])

        thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
        thread.start()
        assert is_up.wait(30)
        try:
            yield server.address
        finally:
            made["loop"].call_soon_threadsafe(made["stop"].set)
            thread.join(30)


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """A validator's door in a folder that is closed to others; the chain names its address."""
    with short_folder() as base, running_server() as postgres:
        (base / "validator").mkdir(mode=0o700)
        made = Stand(base / "validator", "", f"//{generate_signer().hotkey}")
        made.dsn = postgres.dsn_for(made.validator)
        with serving(made, WIDE_RULES):
            asyncio.run(_enrol(made))
            yield made


async def _enrol(stand: Stand) -> None:
    signer = keypair_signer(stand.uri)
    await stand.chain.register(keypair_signer("//Owner"))
    await stand.chain.register(signer)
    await stand.chain.set_stake(signer.hotkey, 5_000_000_000_000)
    await stand.chain.publish(signer, stand.address)


def test_another_user_submits_with_a_wallet_and_the_chains_address(stand: Stand) -> None:
    if reason := why_no_outsider():
        pytest.skip(reason)
    with served(stand.chain) as network:
        miner = Outsider(stand.folder.parent / "miner", network)
        assert not miner.can_read(stand.folder)
        agent = miner.folder / "my_agent.py"
        agent.write_text(SOURCE)
        submitted = json.loads(miner.arena("submit", agent, "--register", "--json"))
        assert submitted["hotkey"] == miner.hotkey
        assert submitted["taken_by"] == [{"validator": stand.validator, "url": stand.address}]
        told = json.loads(miner.arena("status", "--json"))
        ((waiting,),) = (row["submissions"] for row in told["validators"])
        assert (waiting["agent_version_id"], waiting["state"]) == (submitted["agent_version_id"], "waiting")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"call":"block"}', b'{"call":"set_stake","netuid":15}', b'{"call":"block","netuid":15,"x":1}', b"["],
)
def test_a_served_chain_refuses_what_is_no_question(stand: Stand, body: bytes) -> None:
    with served(stand.chain) as network:
        status, failure = _post(network, body)
    assert (status, failure["code"]) == (400, "V2081")


async def test_a_served_chain_takes_no_word_of_another_hotkey(stand: Stand) -> None:
    miner, other = generate_signer(), generate_signer()
    with served(stand.chain) as network:
        chain = RemoteSubtensor(network, netuid=15)
        assert (await chain.register(miner)).status == "ok"
        assert (await chain.commit(_Forger(miner.hotkey, other), "ab" * 32)).status == "failed"
        assert await chain.commitment(miner.hotkey) is None
        with pytest.raises(ArenaError, match="V2030"):
            await RemoteSubtensor(network, netuid=16).block()
    with pytest.raises(ArenaError, match="U3030"):
        await chain.block()


class _Forger:
    def __init__(self, hotkey: str, signer) -> None:
        self.hotkey, self.sign = hotkey, signer.sign


def _post(network: str, body: bytes) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(network.removeprefix("http://"))
    connection.request("POST", ROUTE, body)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())["failure"]

"""The local network's chain over HTTP, for miners on other machines."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena.chain.keys import generate_signer
from arena.chain.local import LocalSubtensor
from arena.chain.local_http import ROUTE, RemoteSubtensor
from arena.web.server import ChainServer
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from neurons.settings.inputs import unix_ms


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


@pytest.fixture
def twin(tmp_path: Path) -> LocalSubtensor:
    return LocalSubtensor(tmp_path / "chain.sqlite", now_ms=unix_ms)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"call":"block"}', b'{"call":"set_stake","netuid":15}', b'{"call":"block","netuid":15,"x":1}', b"["],
)
def test_a_served_chain_refuses_what_is_no_question(twin: LocalSubtensor, body: bytes) -> None:
    with served(twin) as network:
        status, failure = _post(network, body)
    assert (status, failure["code"]) == (400, "V2081")


async def test_a_served_chain_takes_no_word_of_another_hotkey(twin: LocalSubtensor) -> None:
    miner, other = generate_signer(), generate_signer()
    with served(twin) as network:
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

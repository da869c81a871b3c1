"""The local network's chain over HTTP, for miners on other machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from arena.chain.keys import generate_signer
from arena.chain.local import LocalSubtensor
from arena.chain.local_http import ROUTE, RemoteSubtensor
from arena.web.server import ChainServer
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from neurons.settings.inputs import unix_ms
from tests.arena.tail_stand import in_thread


@contextmanager
def served(chain: LocalSubtensor) -> Iterator[str]:
    """The address of a local chain, served in a thread."""
    with listen("127.0.0.1", 0) as listener:
        server = ChainServer(chain, listener)

        async def serve(stop: asyncio.Event, is_up: Callable[[], None]) -> None:
            is_up()
            await server.run(stop)

        with in_thread(serve):
            yield server.address


@pytest.fixture
def twin(tmp_path: Path) -> LocalSubtensor:
    return LocalSubtensor(tmp_path / "chain.sqlite", now_ms=unix_ms)


def test_a_served_chain_refuses_a_malformed_question(twin: LocalSubtensor) -> None:
    bodies = ["", "{}", '{"call":"block"}', '{"call":"set_stake","netuid":15}', '{"call":"block","netuid":15,"x":1}']
    with served(twin) as network:
        answers = [httpx2.post(f"{network}{ROUTE}", content=body.encode()) for body in bodies]
    assert {(one.status_code, one.json()["failure"]["code"]) for one in answers} == {(400, "V2081")}


async def test_a_served_chain_takes_no_word_of_another_hotkey(twin: LocalSubtensor) -> None:
    miner, other = generate_signer(), generate_signer()
    with served(twin) as network:
        chain = RemoteSubtensor(network, netuid=15)
        assert (await chain.register(miner)).status == "ok"
        forger = SimpleNamespace(hotkey=miner.hotkey, sign=other.sign)
        assert (await chain.commit(forger, "ab" * 32)).status == "failed"
        assert await chain.commitment(miner.hotkey) is None
        with pytest.raises(ArenaError, match="V2030"):
            await RemoteSubtensor(network, netuid=16).block()
    with pytest.raises(ArenaError, match="U3030"):
        await chain.block()

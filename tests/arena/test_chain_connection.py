"""The adapter's one connection: who closes it and when, and that one which can't be opened leaves nothing open."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
import websockets

from arena.chain.keys import keypair_signer
from arena.chain.real import BittensorSubtensor
from foundation.errors import ArenaError
from tests.arena.chain_stands import NETUID, make_node, node_stand

ALICE = keypair_signer("//Alice")
HASH = "ab" * 32


# -- a failure closes its own client, when nobody uses it


async def test_a_read_that_runs_out_of_time_does_not_cut_off_an_extrinsic() -> None:
    node = make_node()
    node.enrol(ALICE.hotkey)
    serve, watch = node._serve, node._submit_and_watch
    connections: list[Any] = []
    held_back: list[dict[str, Any]] = []

    async def serve_and_keep(connection: Any) -> None:
        connections.append(connection)
        await serve(connection)

    def without_the_last_notice(raw: str, decoded: dict[str, Any]) -> Any:
        subscription, notices = watch(raw, decoded)
        held_back.append(notices.pop())  # the block is not final yet
        return subscription, notices

    node._serve, node._submit_and_watch = serve_and_keep, without_the_last_notice
    async with node_stand(node, timeout_s=20.0) as chain_stand:
        sending = asyncio.create_task(chain_stand.chain.commit(ALICE, HASH))
        while not held_back:
            await asyncio.sleep(0.01)
        with pytest.raises(ArenaError, match="U3030"):
            async with chain_stand.chain._connected(timeout_s=0.05):  # type: ignore[attr-defined]
                await asyncio.sleep(10)
        await connections[1].send(json.dumps(held_back[0]))  # of the extrinsic alone
        assert (await sending).status == "ok"
        assert await chain_stand.chain.block() == node.block and len(connections) == 3


@pytest.mark.parametrize("ends", ["its own time limit", "a cancelled caller"])
async def test_a_node_that_shakes_hands_and_then_says_nothing_leaves_nothing_open(ends: str) -> None:
    make_node()
    open_now: set[Any] = set()

    async def mute(connection: Any) -> None:
        open_now.add(connection)
        with suppress(websockets.ConnectionClosedError):  # a caller cancelled in the handshake says no goodbye
            async for _ in connection:
                pass
        open_now.discard(connection)

    async with websockets.serve(mute, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        chain = BittensorSubtensor(url, netuid=NETUID, timeout_s=0.3 if ends == "its own time limit" else 30.0)
        before = len(asyncio.all_tasks())
        asked = asyncio.create_task(chain.block())
        while not open_now and not asked.done():
            await asyncio.sleep(0.01)
        if ends == "a cancelled caller":
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        else:
            with pytest.raises(ArenaError, match="U3030"):
                await asked
        async with asyncio.timeout(20):
            while open_now or len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)

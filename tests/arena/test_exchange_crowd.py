"""A crowd at the exchange's door: silent, slow and unsigned connections keep no validator out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.exchange.port import ProgressQuestion
from tests.arena.exchange_stand import RACE, HttpNet, Node

HALF_A_HEAD = b"GET /v1/exchange/progress?race=r1 HTTP/1.1\r\nhost: x\r\n"


@contextlib.contextmanager
def crowd(endpoint: str, size: int, sends: bytes, addresses: int) -> Iterator[list[socket.socket]]:
    """`size` connections from `addresses` loopback addresses that never finish a request."""
    host, port = endpoint.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        opened = []
        for place in range(size):
            source = (f"127.0.0.{2 + place % addresses}", 0) if addresses > 1 else ("127.0.0.1", 0)
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=10, source_address=source))
            one.sendall(sends)
            opened.append(one)
        yield opened


@pytest.mark.parametrize("sends", [b"", HALF_A_HEAD], ids=["silent", "half a head"])
@pytest.mark.parametrize(("size", "addresses"), [(130, 1), (600, 30)])
async def test_a_signed_peer_is_answered_beside_any_crowd(tmp_path: Path, size: int, addresses: int, sends: bytes):
    net, permits = HttpNet(), set()
    near, far = Node(tmp_path, permits), Node(tmp_path, permits)
    try:
        place = await net.join(far)
        peers = net.peers(near)
        loop = asyncio.get_running_loop()
        held = contextlib.ExitStack()
        with held:
            await loop.run_in_executor(None, held.enter_context, crowd(place.endpoint, size, sends, addresses))
            for _ in range(20):
                said = await peers.ask(place, ProgressQuestion(race=RACE))
                assert said is not None
    finally:
        await net.close()

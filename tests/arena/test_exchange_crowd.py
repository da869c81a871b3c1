"""A crowd at the exchange's door: silent, slow and unsigned connections keep no validator out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from arena.exchange.port import ProgressQuestion
from tests.arena.exchange_stand import RACE, Case, HttpNet

HALF_A_HEAD = b"GET /v1/exchange/progress?race=r1 HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(("size", "addresses", "sends"), [(130, 1, b""), (600, 30, HALF_A_HEAD)])
async def test_a_signed_peer_is_answered_beside_any_crowd(tmp_path: Path, size: int, addresses: int, sends: bytes):
    """Connections from one or many addresses that never finish a request."""
    case = await Case(tmp_path, HttpNet()).join()
    host, port = case.peers[0].endpoint.removeprefix("http://").split(":")

    def crowd(stack: contextlib.ExitStack) -> None:
        for place in range(size):
            source = (f"127.0.0.{2 + place % addresses}" if addresses > 1 else "127.0.0.1", 0)
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=10, source_address=source))
            one.sendall(sends)

    try:
        with contextlib.ExitStack() as stack:
            await asyncio.to_thread(crowd, stack)
            for _ in range(20):
                assert await case.ask.ask(case.peers[0], ProgressQuestion(race=RACE)) is not None
    finally:
        await case.net.close()

"""A crowd at the exchange's door: silent, slow and unsigned connections keep no validator out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.catalogue.server import Connections, network_of
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
                said = await peers.progress(place, RACE)
                assert said is not None and said.race_id == RACE
    finally:
        await net.close()


class Visitor:
    """A connection as `Connections` sees it."""

    def __init__(self) -> None:
        self.has_asked = self.is_answering = self.was_closed = False

    def close(self) -> None:
        self.was_closed = True


def test_a_newcomer_stays_beside_idle_crowds_and_a_stream_of_silent_ones():
    room = Connections(total=100, per_address=20)
    for place in range(100):
        idle = Visitor()
        idle.has_asked = True
        assert room.enter(idle, f"10.0.0.{place % 10}")
    newcomer = Visitor()
    assert room.enter(newcomer, "10.9.9.9")
    for place in range(500):
        assert room.enter(Visitor(), f"10.0.1.{place % 2}")
    assert not newcomer.was_closed


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_whose_address_it_is(address: str, network: str):
    assert network_of(address) == network

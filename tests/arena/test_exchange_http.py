"""The exchange over real HTTP: what a stranger's requests get, and what a hostile peer's answers cost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from arena.exchange.port import (
    HttpPeers,
    NoteQuestion,
    Peer,
    ProgressQuestion,
    Question,
    ReleaseQuestion,
    RowsQuestion,
    SettlementQuestion,
    SubmissionQuestion,
)
from foundation.errors import ArenaError
from tests.arena.exchange_stand import RACE, Case, HttpNet, Node
from tests.hostile_http import DRIPS, HostileServer, bomb, endless, says

ROUTES = (
    "/v1/exchange/note?validator=5X&sha256=" + "ab" * 32,
    "/v1/exchange/rows?validator=5X&after=0&to=5&race=r1",
    "/v1/exchange/submission?hotkey=5X&sha256=" + "ab" * 32,
    "/v1/exchange/progress?race=r1",
    "/v1/exchange/settlement?race=r1",
    "/v1/exchange/release?known=" + "ab" * 32,
    "/v1/exchange/file?sha256=" + "ab" * 32 + "&start=0",
)


class Served:
    """One node behind its server, and a permit holder that signs raw requests to it."""

    def __init__(self, node: Node, client: Node, url: str) -> None:
        self.node, self.client, self.url = node, client, url
        self.http = httpx2.AsyncClient(base_url=url, timeout=10)

    def headers(self, target: str, by: Node | None = None) -> dict[str, str]:
        return (by or self.client).auth.sign("GET", target, self.node.hotkey)

    async def get(self, target: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        answer = await self.http.get(target, headers=self.headers(target) if headers is None else headers)
        assert answer.headers["content-type"] == "application/json"
        return answer.status_code, answer.json().get("code", "")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    net, permits = HttpNet(), set()
    node, client = Node(tmp_path, permits), Node(tmp_path, permits)
    made = Served(node, client, (await net.join(node)).endpoint)
    yield made
    await made.http.aclose()
    await net.close()


@pytest.mark.parametrize("target", ROUTES)
async def test_every_route_refuses_who_does_not_sign_or_has_no_permit(
    served: Served, target: str, tmp_path: Path
) -> None:
    stranger = Node(tmp_path / "stranger", set())
    assert await served.get(target, {}) == (401, "V2110")
    assert await served.get(target, served.headers(target, stranger)) == (403, "V2111")
    assert await served.get(target, served.headers(target + "&more=1")) == (401, "V2110")
    named = served.headers(target, stranger) | {"X-Bittensor-Hotkey": served.client.hotkey}
    assert await served.get(target, named) == (401, "V2110")


async def test_what_is_not_there_is_404_and_a_wrong_parameter_400(served: Served) -> None:
    for target in (*ROUTES[:3], *ROUTES[5:]):
        assert await served.get(target) == (404, "V2113")
    for target in (ROUTES[0] + "0", ROUTES[1] + "&limit=3", ROUTES[1].replace("to=5", "to=-5"), ROUTES[3] + "/../x",
                   ROUTES[5] + "/", ROUTES[6] + "&end=1", ROUTES[6].replace("ab", "..")):  # fmt: skip
        assert await served.get(target) == (400, "V2081")


VALUES = (
    NoteQuestion(validator="5X", sha256="ab" * 32),
    SubmissionQuestion(hotkey="5X", sha256="ab" * 32),
    ProgressQuestion(race=RACE),
    SettlementQuestion(race=RACE),
    ReleaseQuestion(),
)
SOCKET_BYTES = 16 << 20  # what the kernel may hold between the two
LIES = {
    "garbage": endless(),
    "nested JSON": says(b"[" * 200_000 + b"\n"),
    "a bomb": bomb("gzip"),
    "half a row": says(b'{"validator":"5X"'),
}
ABSENT = {"a redirect": says(b"", b"302 Found", b"location: http://127.0.0.1:1/"), "drips": DRIPS["header"]}


@pytest.mark.parametrize("name", [*LIES, *ABSENT])
async def test_a_hostile_answer_ends_soon_and_costs_little(name: str, tmp_path: Path) -> None:
    async def ask(question: Question | RowsQuestion) -> object:
        if isinstance(question, RowsQuestion):
            return [row async for row in peers.rows(peer, question)]
        return await peers.ask(peer, question)

    node = Node(tmp_path, set())
    with HostileServer((LIES | ABSENT)[name]) as server:
        peer = Peer(hotkey="5Hostile", endpoint=server.url)
        async with aclosing(HttpPeers(node.auth, silence_s=0.5, answer_s=1.0)) as peers:
            for question in (*VALUES, *((RowsQuestion(validator="5X", to=300, race=RACE),) if name in LIES else ())):
                server.sent = 0
                with pytest.raises(ArenaError) as caught:
                    await ask(question)
                assert caught.value.failure.code in (("U3042", "U3040") if name in LIES else ("U3040",))
                assert server.sent < ProgressQuestion.bytes_max + SOCKET_BYTES


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

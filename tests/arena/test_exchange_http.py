"""The exchange over real HTTP: what a stranger's requests get, and what a hostile peer's answers cost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing
from pathlib import Path

import httpx2
import msgspec
import pytest

from arena.api.client import TailClient
from arena.chain.keys import MAX_AGE_S, SKEW_S, HttpAuth, keypair_signer, verify
from arena.chain.port import Metagraph, Neuron
from arena.door.answers import DoorState, PauseState
from arena.door.client import DoorClient, find_doors
from arena.exchange import port as ports
from foundation.errors import ArenaError
from tests.arena.exchange_stand import RACE, Case, HttpNet, Node
from tests.hostile_http import DRIPS, GUARD_S, Behaviour, HostileServer, bomb, ended, endless, says
from tests.keys import generate_signer

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
    assert {route.partition("?")[0].rpartition("/")[2] for route in ROUTES} == ports.QUESTIONS.keys()
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
    ports.NoteQuestion(validator="5X", sha256="ab" * 32),
    ports.SubmissionQuestion(hotkey="5X", sha256="ab" * 32),
    ports.ProgressQuestion(race=RACE),
    ports.SettlementQuestion(race=RACE),
    ports.ReleaseQuestion(),
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
    async def ask(question: ports.Question | ports.RowsQuestion) -> object:
        if isinstance(question, ports.RowsQuestion):
            return [row async for row in peers.rows(peer, question)]
        return await peers.ask(peer, question)

    node = Node(tmp_path, set())
    with HostileServer((LIES | ABSENT)[name]) as server:
        peer = ports.Peer(hotkey="5Hostile", endpoint=server.url)
        async with aclosing(ports.HttpPeers(node.auth, silence_s=0.5, answer_s=1.0)) as peers:
            for question in (
                *VALUES,
                *((ports.RowsQuestion(validator="5X", to=300, race=RACE),) if name in LIES else ()),
            ):
                server.sent = 0
                with pytest.raises(ArenaError) as caught:
                    await ask(question)
                assert caught.value.failure.code in (("U3042", "U3040") if name in LIES else ("U3040",))
                assert server.sent < ports.ProgressQuestion.bytes_max + SOCKET_BYTES


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
                assert await case.ask.ask(case.peers[0], ports.ProgressQuestion(race=RACE)) is not None
    finally:
        await case.net.close()


# -- signed requests: who signed what, for whom, when; and each only once


ALICE, BOB, EVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve"))
TARGET = "/v1/exchange/note?validator=5X&sha256=ab"
SECOND_NS = 1_000_000_000
DAY_S = 86_400.0


class Wire:
    """Alice signs, Bob is asked, and one clock is both's."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.now_ns = 1_790_000_000 * SECOND_NS
        self.pass_s(ahead_s)
        self.server, self.client = (HttpAuth(signer, lambda: self.now_ns) for signer in (BOB, ALICE))

    def pass_s(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)

    def signed(self, client: HttpAuth | None = None, receiver: str = BOB.hotkey) -> dict[str, str]:
        headers = (client or self.client).sign("GET", TARGET, receiver)
        return {name.lower(): value for name, value in headers.items()}

    def is_refused(self, headers: dict[str, str], method: str = "GET", target: str = TARGET, body: bytes = b"") -> bool:
        try:
            self.server.caller(headers, method, target, body)
        except ArenaError as error:
            assert error.failure.code == "V2110"
            return True
        return False


def test_a_request_is_let_through_once_also_after_a_restart() -> None:
    wire = Wire()
    wire.pass_s(60)
    headers = wire.signed()
    assert not wire.is_refused(headers) and wire.is_refused(headers)
    assert not wire.is_refused(wire.signed())
    wire.pass_s(1)
    wire.server = HttpAuth(BOB, lambda: wire.now_ns)
    assert wire.is_refused(headers)


def test_a_request_for_another_receiver_target_method_or_body_or_of_another_time_is_refused() -> None:
    wire = Wire()
    wire.pass_s(60)
    assert wire.is_refused(wire.signed(receiver=EVE.hotkey))
    assert wire.is_refused(wire.signed(), target=TARGET + "0")
    assert wire.is_refused(wire.signed(), method="POST")
    assert wire.is_refused(wire.signed(), body=b"{}")
    headers, again = wire.signed(), wire.signed()
    wire.pass_s(MAX_AGE_S - 0.5)
    assert not wire.is_refused(headers)
    wire.pass_s(1)
    assert wire.is_refused(again)
    wire.pass_s(SKEW_S + 1)
    from_the_future = wire.signed()
    wire.pass_s(-SKEW_S - 1)
    assert wire.is_refused(from_the_future)


@pytest.mark.parametrize("ahead_s", [SKEW_S + 1, 60.0, DAY_S])
def test_a_clock_that_is_set_back_lets_nothing_through_twice(ahead_s: float) -> None:
    wire, taken = Wire(ahead_s), []
    for _ in range(60):  # most are forgotten by their age
        taken.append(wire.signed())
        assert not wire.is_refused(taken[-1])
        wire.pass_s(1)
    wire.pass_s(-ahead_s)
    others = HttpAuth(EVE, lambda: wire.now_ns)
    for second in range(int(ahead_s) + 200):
        if second < 200 or second > ahead_s - 200:
            assert all(wire.is_refused(headers) for headers in taken[:: 7 if ahead_s > 60 else 1])
            if second > MAX_AGE_S + SKEW_S:
                assert not wire.is_refused(wire.signed(others))  # who was not ahead is not kept waiting
        wire.pass_s(1)


# -- whoever a client of ours asks can cost it neither its memory nor its day: each ends with the code it promises


DEEP = b"[" * 200_000
ANY_LIES = {
    "zstd": bomb("zstd"),
    "gzip": bomb("gzip"),
    "compressed refusal": bomb("zstd", b"400 Bad"),
    "endless": endless(),
    "endless refusal": endless(b"400 Bad"),
    "deep": says(DEEP),
    "deep refusal": says(DEEP, b"400 Bad"),
}
HOSTILE = {**DRIPS, **ANY_LIES}


def failure_of(behave: Behaviour, work: Callable[[str], object]) -> ArenaError:
    with HostileServer(behave) as server:
        error = ended(lambda: work(server.url))
    assert isinstance(error, ArenaError), error
    return error


def tail(url: str) -> TailClient:
    return TailClient(url, verify_signature=verify, sleep=lambda _: None, silence_s=5.0, answer_s=0.3)


@pytest.mark.parametrize("which", HOSTILE)
def test_the_sizes_and_rows_of_logs(which: str) -> None:
    assert failure_of(HOSTILE[which], lambda url: tail(url).heads()).failure.code == "V2084"
    if which in ("refusal", *ANY_LIES):
        assert failure_of(HOSTILE[which], lambda url: list(tail(url).lines())).failure.code == "V2084"


async def test_one_hostile_door_keeps_nobody_from_the_others() -> None:
    """Every behaviour at once: each door has its reason, and the one that answers is found."""
    with ExitStack() as stack:
        servers = {which: stack.enter_context(HostileServer(behave)) for which, behave in HOSTILE.items()}
        hotkeys = {which: generate_signer().hotkey for which in (*HOSTILE, "honest")}
        state = DoorState(validator=hotkeys["honest"], netuid=1, policy="p", policy_sha256="", pause=PauseState())
        servers["honest"] = stack.enter_context(HostileServer(says(msgspec.json.encode(state))))
        neurons = tuple(
            Neuron(uid=uid, hotkey=hotkeys[which], has_validator_permit=True, stake_rao=10, endpoint=server.url)
            for uid, (which, server) in enumerate(servers.items())
        )
        async with asyncio.timeout(GUARD_S), DoorClient(answer_s=3.0) as client:
            found = await find_doors(client, Metagraph(netuid=1, block=1, tempo=1, neurons=neurons))
        by_url = {door.url: door for door in found}
        for which in HOSTILE:
            failure = by_url[servers[which].url].failure
            assert failure is not None and failure.code in ("U3040", "U3042"), which
        assert by_url[servers["honest"].url].validator == hotkeys["honest"]

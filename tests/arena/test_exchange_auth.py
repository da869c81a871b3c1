"""Signed requests: who signed what, for whom, when; and each only once."""

from __future__ import annotations

import pytest

from arena.chain.keys import MAX_AGE_S, SKEW_S, HttpAuth, keypair_signer
from arena.chain.port import Signer
from foundation.errors import ArenaError

ALICE, BOB, EVE = (keypair_signer(f"//{name}") for name in ("Alice", "Bob", "Eve"))
TARGET = "/v1/exchange/note?validator=5X&sha256=ab"
SECOND_NS = 1_000_000_000


class Clock:
    def __init__(self, now_ns: int = 1_790_000_000 * SECOND_NS) -> None:
        self.now_ns = now_ns
        self.passed_s = 0.0  # whatever the clock was set to

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        self.passed_s += seconds

    def set_s(self, seconds: float) -> None:
        """Set it forward or, below zero, back."""
        self.now_ns += int(seconds * SECOND_NS)

    def auth(self, signer: Signer) -> HttpAuth:
        return HttpAuth(signer, self)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> HttpAuth:
    return clock.auth(BOB)


@pytest.fixture
def client(server: HttpAuth, clock: Clock) -> HttpAuth:
    clock.pass_s(60)
    return clock.auth(ALICE)


def lowered(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def signed(client: HttpAuth, target: str = TARGET, receiver: str = BOB.hotkey) -> dict[str, str]:
    return lowered(client.sign("GET", target, receiver))


def is_refused(server: HttpAuth, headers: dict[str, str], method: str = "GET", target: str = TARGET, body=b"") -> bool:
    with pytest.raises(ArenaError) as caught:
        server.caller(headers, method, target, body)
    return caught.value.failure.code == "V2110"


def test_a_request_is_let_through_once(client: HttpAuth, server: HttpAuth) -> None:
    headers = signed(client)
    server.caller(headers, "GET", TARGET)
    assert is_refused(server, headers)
    server.caller(signed(client), "GET", TARGET)


def test_a_request_for_another_receiver_target_method_or_body_is_refused(client: HttpAuth, server: HttpAuth) -> None:
    assert is_refused(server, signed(client, receiver=EVE.hotkey))
    assert is_refused(server, signed(client), target=TARGET + "0")
    assert is_refused(server, signed(client), method="POST")
    assert is_refused(server, signed(client), body=b"{}")


def test_a_request_is_fresh_for_seconds(client: HttpAuth, server: HttpAuth, clock: Clock) -> None:
    headers, again = signed(client), signed(client)
    clock.pass_s(MAX_AGE_S - 0.5)
    server.caller(headers, "GET", TARGET)
    clock.pass_s(1)
    assert is_refused(server, again)
    clock.pass_s(SKEW_S + 1)
    from_the_future = signed(client)
    clock.pass_s(-SKEW_S - 1)
    assert is_refused(server, from_the_future)


DAY_S = 86_400.0


@pytest.mark.parametrize("ahead_s", [SKEW_S + 1, 60.0, DAY_S])
def test_a_clock_that_is_set_back_lets_nothing_through_twice(clock: Clock, ahead_s: float) -> None:
    clock.set_s(ahead_s)
    server, client = clock.auth(BOB), clock.auth(ALICE)
    taken = []
    for _ in range(60):  # most are forgotten by their age
        taken.append(signed(client))
        server.caller(taken[-1], "GET", TARGET)
        clock.pass_s(1)
    clock.set_s(-ahead_s)
    others = clock.auth(EVE)
    for second in range(int(ahead_s) + 200):
        if second < 200 or second > ahead_s - 200:
            for headers in taken[:: 7 if ahead_s > 60 else 1]:
                assert is_refused(server, headers)
            if second > MAX_AGE_S + SKEW_S:
                server.caller(signed(others), "GET", TARGET)  # who was not ahead is not kept waiting
        clock.pass_s(1)


def test_a_restart_lets_nothing_through_again(client: HttpAuth, server: HttpAuth, clock: Clock) -> None:
    headers = signed(client)
    server.caller(headers, "GET", TARGET)
    clock.pass_s(1)
    assert is_refused(clock.auth(BOB), headers)

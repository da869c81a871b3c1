"""Signed requests: who signed what, for whom, when; and each only once."""

from __future__ import annotations

import pytest

from arena.chain.keys import MAX_AGE_S, SKEW_S, HttpAuth, keypair_signer
from foundation.errors import ArenaError

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

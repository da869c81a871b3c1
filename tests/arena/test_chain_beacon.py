"""Beacons and timelocks: one contract each, kept by drand's quicknet and by the local twin."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.chain.beacon import (
    QUICKNET,
    QUICKNET_CHAIN,
    QUICKNET_GENESIS_MS,
    DrandBeacon,
    LocalTimelock,
    QuicknetTimelock,
    local_round,
    verify_quicknet_round,
)
from arena.chain.port import BeaconRound, Timelock, format_endpoint, split_endpoint
from arena.chain.real import BLOCK_MS, BlockTimes
from foundation.errors import ArenaError
from tests.hostile_http import DRIPS, GUARD_S, Behaviour, HostileServer, bomb, endless, says

# quicknet's first round, as drand publishes it: its randomness is the sha256 of its signature.
ROUND_1_SIGNATURE = "b55e7cb2d5c613ee0b2e28d6750aabbb78c39dcc96bd9d38c2c2e12198df95571de8e8e402a0cc48871c7089a2b3af4b"
ROUND_1_RANDOMNESS = "1466a6cd24e327188770752f6134001c64d6efcc590ccc26b721611ad96f165a"
ROUND_1 = BeaconRound(network=QUICKNET, round=1, signature=ROUND_1_SIGNATURE)
# A point of the curve that is no multiple of the generator, added to the signature: the pairing alone would accept it.
OUTSIDE_SUBGROUP = "863d12e79b9c72f4c20ced4de22378331d10d7017180642ce39ad99f2a9bd20a0907f939f8c26f7c1556116f4e0cc1ee"

AFTER_GENESIS_MS = QUICKNET_GENESIS_MS + 60_000


def test_the_published_first_round_of_quicknet_verifies() -> None:
    assert hashlib.sha256(bytes.fromhex(ROUND_1_SIGNATURE)).hexdigest() == ROUND_1_RANDOMNESS
    assert verify_quicknet_round(ROUND_1)


def test_no_other_round_or_spelling_verifies() -> None:
    changes: list[dict[str, object]] = [{"round": number} for number in (2, 0, 1 << 70)]
    changes += [{"network": "local-beacon"}]
    changes += [
        {"signature": text}
        for text in (
            "",
            ROUND_1_SIGNATURE.upper(),
            ROUND_1_SIGNATURE + "00",
            "c0" + "00" * 47,
            ROUND_1_SIGNATURE[:-1] + "a",
            OUTSIDE_SUBGROUP,
        )
    ]
    for change in changes:
        assert not verify_quicknet_round(msgspec.structs.replace(ROUND_1, **change)), change


def _relays(*answers: Callable[[httpx2.Request], httpx2.Response]) -> DrandBeacon:
    """A beacon over relays `https://0`, `https://1`, ... that answer as given."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        made = answers[int(request.url.host)](request)
        return httpx2.Response(made.status_code, stream=httpx2.ByteStream(made.content))  # as it would come over a wire

    endpoints = [f"https://{index}/" for index in range(len(answers))]
    return DrandBeacon(lambda: AFTER_GENESIS_MS, endpoints=endpoints, transport=httpx2.MockTransport(answer))


def _serves(request: httpx2.Request) -> httpx2.Response:
    assert request.url.path == f"/{QUICKNET_CHAIN}/public/1"
    return httpx2.Response(200, json={"round": 1, "randomness": ROUND_1_RANDOMNESS, "signature": ROUND_1_SIGNATURE})


def _answers(status: int, **content: Any) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda request: httpx2.Response(status, **content)


def _is_down(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused", request=request)


_has_not = _answers(404, content=b"{}")
_forges = _answers(200, json={"round": 1, "signature": OUTSIDE_SUBGROUP})
_babbles = _answers(200, content=b"<html>")


@pytest.mark.parametrize("bad", [_is_down, _forges, _babbles], ids=["is down", "forges", "babbles"])
async def test_one_good_relay_is_enough_and_a_round_that_relays_may_hide_is_not_known_to_be_missing(
    bad: Callable[[httpx2.Request], httpx2.Response],
) -> None:
    assert await _relays(bad, _has_not, _serves).fetch(1) == ROUND_1
    for relays in ((bad, bad), (_has_not, bad)):
        with pytest.raises(ArenaError, match="U3032"):
            await _relays(*relays).fetch(1)


async def test_a_round_that_no_relay_has_yet_and_one_of_the_future_is_none() -> None:
    assert await _relays(_has_not, _has_not).fetch(1) is None
    beacon = _relays(_is_down)
    assert await beacon.fetch(beacon.round_after(AFTER_GENESIS_MS)) is None, "nobody is asked"


@pytest.mark.parametrize("behave", [*DRIPS.values(), bomb("zstd"), endless(), says(b"[" * 10_000)])
async def test_a_hostile_relay_is_passed_over_in_bounded_time(behave: Behaviour) -> None:
    honest = says(b'{"round": 1, "signature": "%s"}' % ROUND_1_SIGNATURE.encode())
    with HostileServer(behave) as hostile, HostileServer(honest) as relay:
        async with asyncio.timeout(GUARD_S):
            beacon = DrandBeacon(lambda: AFTER_GENESIS_MS, endpoints=[hostile.url, relay.url], timeout_s=0.7)
            assert await beacon.fetch(1) == ROUND_1


GAPS = st.lists(st.sampled_from([1, 500, BLOCK_MS, BLOCK_MS, 3 * BLOCK_MS, 50 * BLOCK_MS]), min_size=1, max_size=80)


@given(GAPS, st.lists(st.integers(0, 10**8), min_size=1, max_size=8), st.data())
def test_whatever_was_asked_before_the_answer_is_that_of_reading_every_block(
    gaps: list[int], moments: list[int], data: st.DataObject
) -> None:
    chain = [0, *accumulate(gaps)]

    async def time_of(block: int) -> int:
        return chain[block]

    times = BlockTimes(time_of)
    for moment in moments:
        finalized = data.draw(st.integers(0, len(gaps)))
        final = chain[: finalized + 1]
        wanted = None if final[-1] <= moment else sum(time <= moment for time in final) - 1
        assert asyncio.run(times.last_block(moment, finalized)) == wanted


@given(st.integers(0, 2**128 - 1), st.integers(0, 65_535), st.integers(0, 255))
def test_whatever_stands_on_chain_reads_as_an_endpoint_or_as_none(ip: int, port: int, version: int) -> None:
    endpoint = format_endpoint(ip, port, version)
    assert endpoint == "" or int(split_endpoint(endpoint)[0]) == ip


CONTENT = "a wish, its answer and a salt ₱".encode()


@dataclass(frozen=True)
class Stand:
    """A timelock with a published round of its beacon, and signatures that are none of that round."""

    timelock: Timelock
    published: BeaconRound
    others: tuple[BeaconRound, ...]


STANDS = {
    "quicknet": Stand(
        QuicknetTimelock(),
        ROUND_1,
        (
            replace(ROUND_1, round=2),
            replace(ROUND_1, network="local-beacon"),
            replace(ROUND_1, signature=""),
            replace(ROUND_1, signature="00" * 48),
            replace(ROUND_1, signature=OUTSIDE_SUBGROUP[:-1] + "f"),
            replace(ROUND_1, signature="no hex at all"),
        ),
    ),
    "local": Stand(
        LocalTimelock(),
        local_round(1),
        (
            local_round(2),
            replace(local_round(2), round=1),
            replace(local_round(1), network=QUICKNET),
            replace(local_round(1), signature=""),
            replace(local_round(1), signature="00" * 64),
            replace(local_round(1), signature=local_round(1).signature.upper()),
        ),
    ),
}


@pytest.fixture(params=STANDS)
def stand(request: pytest.FixtureRequest) -> Stand:
    return STANDS[request.param]


def refused(action: Callable[[], object]) -> None:
    with pytest.raises(ArenaError, match="P4026"):
        action()


def test_a_rounds_signature_opens_what_was_sealed_to_it_and_nothing_else_does(stand):
    for content in (b"", b"x", CONTENT, bytes(range(256)) * 1_000):
        assert stand.timelock.decrypt(stand.timelock.encrypt(content, 1), stand.published) == content
    sealed = stand.timelock.encrypt(CONTENT, 1)
    assert CONTENT not in sealed
    for other in stand.others:
        refused(lambda other=other: stand.timelock.decrypt(sealed, other))
    refused(lambda: stand.timelock.decrypt(stand.timelock.encrypt(CONTENT, 2), stand.published))


def test_a_damaged_ciphertext_gives_no_content(stand):
    sealed = stand.timelock.encrypt(CONTENT, 1)
    mark_start = len(sealed) - 16 if stand.timelock.network == QUICKNET else 0
    for place in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[place] ^= 1
        refused(lambda damaged=damaged: stand.timelock.decrypt(bytes(damaged), stand.published))
    for cut in (b"", sealed[:-1], sealed[1:], sealed[:mark_start], sealed + b"\0"):
        refused(lambda cut=cut: stand.timelock.decrypt(cut, stand.published))

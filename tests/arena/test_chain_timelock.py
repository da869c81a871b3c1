"""Timelocks: one contract, kept by drand's quicknet and by the local twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from arena.chain.beacon import QUICKNET, LocalTimelock, QuicknetTimelock, local_round
from arena.chain.port import BeaconRound, Timelock
from foundation.errors import ArenaError
from tests.arena.test_chain_beacon import OUTSIDE_SUBGROUP, ROUND_1

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

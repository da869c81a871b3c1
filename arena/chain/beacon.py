"""Beacon arithmetic and the local twin of the public randomness beacon.

Every process computes the same round with the same signature, and `fetch` never hands out a round whose
signature it has not verified. The twin signs with a key anybody can derive, so its rounds are predictable: it is for
demo, tests and simulation, never for a race with money in it.
"""

from __future__ import annotations

from collections.abc import Callable

import bittensor_core as core
import msgspec

from arena.chain.port import BeaconRound
from foundation.errors import ArenaError

LOCAL_NETWORK = "local-beacon"
LOCAL_PERIOD_MS = 3_000
_LOCAL_URI = "//agent-arena//beacon"
_LOCAL_DOMAIN = b"agent-arena/local-beacon/1"


class RoundClock(msgspec.Struct, frozen=True, kw_only=True):
    """When rounds are published: round r at `genesis_ms + (r - 1) * period_ms`, counting from 1."""

    genesis_ms: int
    period_ms: int

    def published_ms(self, round_number: int) -> int:
        """Unix milliseconds at which a round becomes public."""
        return self.genesis_ms + (round_number - 1) * self.period_ms

    def round_after(self, unix_ms: int) -> int:
        """The first round published strictly after that moment."""
        if unix_ms < self.genesis_ms:
            return 1
        return (unix_ms - self.genesis_ms) // self.period_ms + 2


class LocalBeacon:
    """The twin: ed25519 (deterministic) over the round number, with the same port and clock as drand."""

    def __init__(self, now_ms: Callable[[], int], *, period_ms: int = LOCAL_PERIOD_MS) -> None:
        """`now_ms` is the injected clock in unix milliseconds. All validators must use one period."""
        self._now_ms = now_ms
        self._clock = RoundClock(genesis_ms=0, period_ms=period_ms)

    @property
    def network(self) -> str:
        """Name in records."""
        return LOCAL_NETWORK

    def round_after(self, unix_ms: int) -> int:
        """The first round published strictly after that moment."""
        return self._clock.round_after(unix_ms)

    async def fetch(self, round_number: int) -> BeaconRound | None:
        """The verified round, or None while it is not published. Raises ArenaError U3032 for a round below 1."""
        if round_number < 1:
            raise ArenaError("U3032", f"rounds count from 1, not {round_number}")
        if self._now_ms() < self._clock.published_ms(round_number):
            return None
        made = local_round(round_number)
        if not verify_local_round(made):
            raise ArenaError("U3032", f"round {round_number} of {LOCAL_NETWORK} has a bad signature")
        return made


def local_round(round_number: int) -> BeaconRound:
    """The twin's round, which anybody can make at any time. Raises OverflowError for a round that fits no 8 bytes."""
    keypair = core.Keypair.create_from_uri(_LOCAL_URI, core.CRYPTO_ED25519)
    signature = bytes(keypair.sign(_local_message(round_number)))
    return BeaconRound(network=LOCAL_NETWORK, round=round_number, signature=signature.hex())


def verify_local_round(beacon_round: BeaconRound) -> bool:
    """True when the round is the local twin's and its signature is good. Total: malformed input is a False."""
    if beacon_round.network != LOCAL_NETWORK or len(beacon_round.signature) != 128:
        return False
    try:
        signature = bytes.fromhex(beacon_round.signature)
        address = core.Keypair.create_from_uri(_LOCAL_URI, core.CRYPTO_ED25519).ss58_address
        message = _local_message(beacon_round.round)
        is_good = bool(core.verify(message, signature, address, core.CRYPTO_ED25519))
    except (ValueError, OverflowError):
        return False
    return is_good and beacon_round.signature == signature.hex()


def _local_message(round_number: int) -> bytes:
    return _LOCAL_DOMAIN + round_number.to_bytes(8, "big")

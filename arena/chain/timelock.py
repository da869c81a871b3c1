"""Timelock encryption: content that nobody can read before a beacon round is published, and anybody can after it.

`decrypt` works offline from a round's signature and gives the content or P4026, never other bytes. Quicknet's
is the SDK's compiled core (identity-based encryption under drand's public key). The local twin keeps the same contract
but no secret: whoever runs it can compute any round's signature, so it is for demo and tests.
"""

from __future__ import annotations

import hashlib
import hmac

import bittensor_core as core

from arena.chain.beacon import LOCAL_NETWORK, LOCAL_PERIOD_MS, RoundClock, local_round
from arena.chain.drand import QUICKNET, QUICKNET_CLOCK
from arena.chain.port import BeaconRound
from foundation.errors import ArenaError

_ROUND_BYTES = 8
_ROUNDS_END = 1 << 63
_QUICKNET_MARK = b"AES_GCM_"  # the SDK's ciphertext ends with it and the round, little endian
_LOCAL_MARK = b"agent-arena/local-timelock/1\n"
_TAG_BYTES = 32


class QuicknetTimelock:
    """A `Timelock` over drand quicknet. Nobody holds a key: reading needs the signature that the round publishes."""

    @property
    def network(self) -> str:
        """The beacon whose rounds open it."""
        return QUICKNET

    def opens_ms(self, round_number: int) -> int:
        """Unix milliseconds at which content of that round can be read."""
        return QUICKNET_CLOCK.published_ms(round_number)

    def encrypt(self, content: bytes, round_number: int) -> bytes:
        """Content sealed to a round. Randomised by the SDK. Raises ValueError for a round that can't be."""
        _refuse_impossible(round_number)
        sealed, _ = core.encrypt_at_round(content, round_number)
        return bytes(sealed)

    def decrypt(self, sealed: bytes, beacon_round: BeaconRound) -> bytes:
        """The content. Raises ArenaError P4026 when this round does not open it, or when it was damaged."""
        mark = sealed[-_ROUND_BYTES - len(_QUICKNET_MARK) : -_ROUND_BYTES]
        is_its = mark == _QUICKNET_MARK and int.from_bytes(sealed[-_ROUND_BYTES:], "little") == beacon_round.round
        if beacon_round.network != QUICKNET or not is_its:
            raise _does_not_open(beacon_round)
        try:
            return bytes(core.decrypt_with_signature(sealed, beacon_round.signature))
        except ValueError as error:
            raise _does_not_open(beacon_round) from error


class LocalTimelock:
    """A `Timelock` over the local beacon: authenticated, and readable early by whoever wants to."""

    def __init__(self, *, period_ms: int = LOCAL_PERIOD_MS) -> None:
        """The period is that of the `LocalBeacon` it belongs to."""
        self._clock = RoundClock(genesis_ms=0, period_ms=period_ms)

    @property
    def network(self) -> str:
        """The beacon whose rounds open it."""
        return LOCAL_NETWORK

    def opens_ms(self, round_number: int) -> int:
        """Unix milliseconds at which the round is published."""
        return self._clock.published_ms(round_number)

    def encrypt(self, content: bytes, round_number: int) -> bytes:
        """Content sealed to a round: one content and round make one ciphertext. Raises ValueError for a round that
        can't be."""
        _refuse_impossible(round_number)
        prefix = _LOCAL_MARK + round_number.to_bytes(_ROUND_BYTES, "little")
        signature = local_round(round_number).signature
        tag = _local_tag(signature, prefix, content)
        return prefix + tag + _masked(signature, tag, content)

    def decrypt(self, sealed: bytes, beacon_round: BeaconRound) -> bytes:
        """The content. Raises ArenaError P4026 when this round does not open it, or when it was damaged."""
        start = len(_LOCAL_MARK) + _ROUND_BYTES
        prefix, tag, body = sealed[:start], sealed[start : start + _TAG_BYTES], sealed[start + _TAG_BYTES :]
        is_its = prefix[: len(_LOCAL_MARK)] == _LOCAL_MARK and len(tag) == _TAG_BYTES
        is_its &= int.from_bytes(prefix[len(_LOCAL_MARK) :], "little") == beacon_round.round
        if beacon_round.network != LOCAL_NETWORK or not is_its:
            raise _does_not_open(beacon_round)
        content = _masked(beacon_round.signature, tag, body)
        if not hmac.compare_digest(_local_tag(beacon_round.signature, prefix, content), tag):
            raise _does_not_open(beacon_round)
        return content


def _refuse_impossible(round_number: int) -> None:
    if not 1 <= round_number < _ROUNDS_END:
        raise ValueError(f"rounds count from 1, not {round_number}")


def _does_not_open(beacon_round: BeaconRound) -> ArenaError:
    return ArenaError("P4026", f"round {beacon_round.round} of {beacon_round.network}")


def _local_key(signature: str, purpose: str) -> bytes:
    return hashlib.sha256(f"agent-arena/local-timelock/{purpose}\n{signature}".encode()).digest()


def _local_tag(signature: str, prefix: bytes, content: bytes) -> bytes:
    return hmac.digest(_local_key(signature, "tag"), prefix + content, "sha256")


def _masked(signature: str, tag: bytes, content: bytes) -> bytes:
    """The content under a keystream of its own, and back."""
    stream = hashlib.shake_256(_local_key(signature, "stream") + tag).digest(len(content))
    return bytes(a ^ b for a, b in zip(content, stream, strict=True))

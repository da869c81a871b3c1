"""Beacon arithmetic and the local twin of the public randomness beacon.

Every process computes the same round with the same signature, and `fetch` never hands out a round whose
signature it has not verified. The twin signs with a key anybody can derive, so its rounds are predictable: it is for
demo, tests and simulation, never for a race with money in it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import bittensor_core as core
import msgspec

from arena.chain.port import BeaconRound
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError

if TYPE_CHECKING:
    import httpx2


LOCAL_NETWORK = "local-beacon"
LOCAL_PERIOD_MS = 3_000
_ROUND_BYTES, _ROUNDS_END = 8, 1 << 63
_LOCAL_URI = "//agent-arena//beacon"
_LOCAL_DOMAIN = b"agent-arena/local-beacon/1"


class _Rounds:
    """The rounds of one beacon, whether they are fetched or sealed to: round r, counted from 1, at `genesis_ms +
    (r - 1) * period_ms`. `network` is its name in records."""

    def __init__(self, network: str, genesis_ms: int, period_ms: int) -> None:
        self.network, self._genesis_ms, self._period_ms = network, genesis_ms, period_ms

    def round_after(self, unix_ms: int) -> int:
        """The first round published strictly after that moment."""
        return max(1, (unix_ms - self._genesis_ms) // self._period_ms + 2)

    def opens_ms(self, round_number: int) -> int:
        """Unix milliseconds at which the round is published, and content of it can be read."""
        return self._genesis_ms + (round_number - 1) * self._period_ms


class LocalBeacon(_Rounds):
    """The twin: ed25519 (deterministic) over the round number, with the same port and clock as drand."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the injected clock in unix milliseconds."""
        super().__init__(LOCAL_NETWORK, 0, LOCAL_PERIOD_MS)
        self._now_ms = now_ms

    async def fetch(self, round_number: int) -> BeaconRound | None:
        """The round, or None while it is not published."""
        return local_round(round_number) if self._now_ms() >= self.opens_ms(round_number) else None


def local_round(round_number: int) -> BeaconRound:
    """The twin's round, which anybody can make at any time. Raises OverflowError for a round that fits no 8 bytes."""
    keypair = core.Keypair.create_from_uri(_LOCAL_URI, core.CRYPTO_ED25519)
    signature = bytes(keypair.sign(_LOCAL_DOMAIN + round_number.to_bytes(_ROUND_BYTES, "big")))
    return BeaconRound(network=LOCAL_NETWORK, round=round_number, signature=signature.hex())


QUICKNET = "drand-quicknet"
QUICKNET_CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
QUICKNET_GENESIS_MS, QUICKNET_PERIOD_MS = 1_692_803_367_000, 3_000
ENDPOINTS = ("https://api.drand.sh", "https://api2.drand.sh", "https://api3.drand.sh", "https://drand.cloudflare.com")
REQUEST_TIMEOUT_S, _ANSWER_BYTES_MAX = 10.0, 16 << 10
_SIGNATURE_HEX = 96
_PROBE = b"agent-arena/quicknet/1"
_NOT_YET = frozenset({404, 425})


class _BeaconAnswer(msgspec.Struct):
    round: int
    signature: str


class DrandBeacon(_Rounds):
    """quicknet over any of several relays; a relay can delay a round but can't forge one."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        endpoints: Sequence[str] = ENDPOINTS,
        transport: httpx2.AsyncBaseTransport | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`now_ms` gives unix milliseconds; `endpoints` are base URLs, asked in order; `transport` is httpx2's;
        `timeout_s` is what one relay has for its whole answer."""
        super().__init__(QUICKNET, QUICKNET_GENESIS_MS, QUICKNET_PERIOD_MS)
        self._now_ms, self._timeout_s = now_ms, timeout_s
        self._endpoints = tuple(endpoint.rstrip("/") for endpoint in endpoints)
        self._transport = transport

    async def fetch(self, round_number: int) -> BeaconRound | None:
        """The verified round, or None while it is not published: where every relay says that it has none yet.

        Raises ArenaError U3032 when no relay answers, or when those that answer give no good signature.
        """
        if self._now_ms() < self.opens_ms(round_number):
            return None
        import httpx2  # here: it brings rich and pygments along, and most commands ask no relay

        from foundation.bounded_http import UnfitAnswerError, ask

        complaints: list[str] = []
        lacking: list[str] = []
        async with httpx2.AsyncClient(timeout=self._timeout_s, transport=self._transport) as client:
            for endpoint in self._endpoints:
                url = f"{endpoint}/{QUICKNET_CHAIN}/public/{round_number}"
                try:
                    response = await ask(client, "GET", url, bytes_max=_ANSWER_BYTES_MAX, within_s=self._timeout_s)
                except (httpx2.HTTPError, UnfitAnswerError) as error:
                    complaints.append(f"{endpoint}: {type(error).__name__}")
                    continue
                if response.status_code in _NOT_YET:
                    lacking.append(f"{endpoint}: not there yet")
                    continue
                with suppress(*UNREADABLE_JSON):
                    answer = msgspec.json.decode(response.content, type=_BeaconAnswer)
                    made = BeaconRound(network=QUICKNET, round=answer.round, signature=answer.signature)
                    is_ours = response.status_code == httpx2.codes.OK and answer.round == round_number
                    if is_ours and verify_quicknet_round(made):
                        return made
                complaints.append(f"{endpoint}: status {response.status_code}, no good signature")
        if lacking and not complaints:
            return None
        raise ArenaError("U3032", f"round {round_number}: {'; '.join(complaints + lacking)}")


def verify_quicknet_round(beacon_round: BeaconRound) -> bool:
    """True when the signature is quicknet's for that round. Total: malformed input is a False. About 6 ms."""
    signature = beacon_round.signature
    if beacon_round.network != QUICKNET or not 1 <= beacon_round.round < _ROUNDS_END:
        return False
    if len(signature) != _SIGNATURE_HEX or not set(signature) <= set("0123456789abcdef"):
        return False
    try:
        sealed, _ = core.encrypt_at_round(_PROBE, beacon_round.round)
        return bytes(core.decrypt_with_signature(sealed, signature)) == _PROBE
    except ValueError:
        return False


_QUICKNET_MARK = b"AES_GCM_"  # the SDK's ciphertext ends with it and the round, little endian
_LOCAL_MARK = b"agent-arena/local-timelock/1\n"
_TAG_BYTES = 32


class QuicknetTimelock(_Rounds):
    """A `Timelock` over drand quicknet. Nobody holds a key: reading needs the signature that the round publishes."""

    def __init__(self) -> None:
        super().__init__(QUICKNET, QUICKNET_GENESIS_MS, QUICKNET_PERIOD_MS)

    def encrypt(self, content: bytes, round_number: int) -> bytes:
        """Content sealed to a round. Randomised by the SDK."""
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


class LocalTimelock(_Rounds):
    """A `Timelock` over the local beacon: authenticated, and readable early by anyone."""

    def __init__(self) -> None:
        super().__init__(LOCAL_NETWORK, 0, LOCAL_PERIOD_MS)

    def encrypt(self, content: bytes, round_number: int) -> bytes:
        """Content sealed to a round: one content and round make one ciphertext."""
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

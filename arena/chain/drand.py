"""The drand quicknet beacon: round arithmetic, fetching over HTTP, and verification that trusts no endpoint.

A round is handed out only after its BLS signature has been verified offline against quicknet's public key,
which is compiled into the SDK: a fresh timelock ciphertext for the round opens with the signature, and with no other.
A signature has exactly one accepted spelling (48 bytes, lower-case hex), so nobody can grind a seed by re-encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import bittensor_core as core
import msgspec

from arena.chain.beacon import RoundClock
from arena.chain.port import BeaconRound
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError

if TYPE_CHECKING:
    import httpx

QUICKNET = "drand-quicknet"
QUICKNET_CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971"
QUICKNET_CLOCK = RoundClock(genesis_ms=1_692_803_367_000, period_ms=3_000)
ENDPOINTS = ("https://api.drand.sh", "https://api2.drand.sh", "https://api3.drand.sh", "https://drand.cloudflare.com")
REQUEST_TIMEOUT_S, _ANSWER_BYTES_MAX = 10.0, 16 << 10
_SIGNATURE_HEX = 96
_PROBE = b"agent-arena/quicknet/1"
_NOT_YET = frozenset({404, 425})


class _BeaconAnswer(msgspec.Struct):
    round: int
    signature: str


class DrandBeacon:
    """quicknet over any of several relays; a relay can delay a round but can't forge one."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        endpoints: Sequence[str] = ENDPOINTS,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`now_ms` gives unix milliseconds; `endpoints` are base URLs, asked in order; `transport` is httpx's;
        `timeout_s` is what one relay has for its whole answer."""
        self._now_ms, self._timeout_s = now_ms, timeout_s
        self._endpoints = tuple(endpoint.rstrip("/") for endpoint in endpoints)
        self._transport = transport

    @property
    def network(self) -> str:
        """Name in records."""
        return QUICKNET

    def round_after(self, unix_ms: int) -> int:
        """The first round published strictly after that moment."""
        return QUICKNET_CLOCK.round_after(unix_ms)

    async def fetch(self, round_number: int) -> BeaconRound | None:
        """The verified round, or None while it is not published: where every relay says that it has none yet.

        Raises ArenaError U3032 when no relay answers, or when those that answer give no good signature.
        """
        if round_number < 1:
            raise ArenaError("U3032", f"rounds count from 1, not {round_number}")
        if self._now_ms() < QUICKNET_CLOCK.published_ms(round_number):
            return None
        import httpx  # here: it brings rich and pygments along, and most commands ask no relay

        from foundation.bounded_http import UnfitAnswerError, ask

        complaints: list[str] = []
        lacking: list[str] = []
        async with httpx.AsyncClient(timeout=self._timeout_s, transport=self._transport) as client:
            for endpoint in self._endpoints:
                url = f"{endpoint}/{QUICKNET_CHAIN}/public/{round_number}"
                try:
                    response = await ask(client, "GET", url, bytes_max=_ANSWER_BYTES_MAX, within_s=self._timeout_s)
                except (httpx.HTTPError, UnfitAnswerError) as error:
                    complaints.append(f"{endpoint}: {type(error).__name__}")
                    continue
                if response.status_code in _NOT_YET:
                    lacking.append(f"{endpoint}: not there yet")
                    continue
                with suppress(*UNREADABLE_JSON):
                    answer = msgspec.json.decode(response.content, type=_BeaconAnswer)
                    made = BeaconRound(network=QUICKNET, round=answer.round, signature=answer.signature)
                    is_ours = response.status_code == httpx.codes.OK and answer.round == round_number
                    if is_ours and verify_quicknet_round(made):
                        return made
                complaints.append(f"{endpoint}: status {response.status_code}, no good signature")
        if lacking and not complaints:
            return None
        raise ArenaError("U3032", f"round {round_number}: {'; '.join(complaints + lacking)}")


def verify_quicknet_round(beacon_round: BeaconRound) -> bool:
    """True when the signature is quicknet's for that round. Total: malformed input is a False. About 6 ms."""
    signature = beacon_round.signature
    if beacon_round.network != QUICKNET or not 1 <= beacon_round.round < 1 << 63:
        return False
    if len(signature) != _SIGNATURE_HEX or not set(signature) <= set("0123456789abcdef"):
        return False
    try:
        sealed, _ = core.encrypt_at_round(_PROBE, beacon_round.round)
        return bytes(core.decrypt_with_signature(sealed, signature)) == _PROBE
    except ValueError:
        return False

"""The signing headers of the published SN15 API: `X-Hotkey`, `X-Timestamp`, `X-Nonce`, `X-Signature`.

They sign `{hotkey}:{timestamp}:{nonce}` and nothing else: no receiver, method, path or body. So what passes here proves
that a hotkey asked for something within the last minute, once; what a body says has to be proved otherwise, and the
commitment on chain does that for a source. The published server keeps a nonce for 60 s while it takes timestamps 60 s
ahead, so a request dated ahead passes twice there; the door keeps nonces for longer than any of its timestamps lasts.
Source: `bittensor-auth` 0.1.1, what `oro-sdk` signs with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from arena.chain.keys import canonical_hotkey
from arena.chain.port import Verifier
from foundation.errors import ArenaError

SKEW_S = 60  # of a timestamp, both ways
NONCE_CHARS_MAX = 256
HOTKEY, TIMESTAMP, NONCE, SIGNATURE = "x-hotkey", "x-timestamp", "x-nonce", "x-signature"
_DIGITS_MAX = 15


class HeaderError(ArenaError):
    """V2110: what the headers say does not prove who asks. `reason` and `status` are that API's."""

    def __init__(self, reason: str, status: int, detail: str) -> None:
        super().__init__("V2110", detail)
        self.reason, self.status = reason, status


class Sn15Auth:
    """A `RequestCheck` by these headers."""

    def __init__(self, verify: Verifier, now_ms: Callable[[], int]) -> None:
        """`now_ms` is unix milliseconds."""
        self._verify, self._now_ms = verify, now_ms

    def claimed(self, headers: Mapping[str, str]) -> str:
        """Who a request (headers in lower case) says it is from, unchecked. Raises HeaderError."""
        if missing := [name for name in (HOTKEY, TIMESTAMP, NONCE, SIGNATURE) if not headers.get(name)]:
            raise HeaderError("MISSING_HEADERS", 401, f"missing headers: {', '.join(missing)}")
        hotkey = canonical_hotkey(headers[HOTKEY])
        if hotkey is None:
            raise HeaderError("INVALID_HOTKEY_FORMAT", 400, "X-Hotkey is no ss58 address")
        return hotkey

    def signed(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> tuple[str, int]:
        """The hotkey that signed, and its nonce as a number below zero, where no nonce of `btauth/1` lies.

        Method, target and body are not signed. Raises HeaderError.
        """
        hotkey = self.claimed(headers)
        timestamp, nonce = headers[TIMESTAMP], headers[NONCE]
        if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= _DIGITS_MAX):
            raise HeaderError("INVALID_TIMESTAMP", 400, "X-Timestamp is not unix seconds")
        if len(nonce) > NONCE_CHARS_MAX:
            raise HeaderError("NONCE_TOO_LONG", 400, f"X-Nonce has more than {NONCE_CHARS_MAX} characters")
        if abs(self._now_ms() - int(timestamp) * 1_000) > SKEW_S * 1_000:
            raise HeaderError("TIMESTAMP_SKEW", 401, f"X-Timestamp is more than {SKEW_S} s off this host's clock")
        try:
            signature = bytes.fromhex(headers[SIGNATURE].lower().removeprefix("0x"))
        except ValueError as error:
            raise HeaderError("INVALID_SIGNATURE_FORMAT", 400, "X-Signature is not hex") from error
        message = f"{headers[HOTKEY]}:{timestamp}:{nonce}"
        if not self._verify(hotkey, message.encode(), signature):
            raise HeaderError("INVALID_SIGNATURE", 401, "X-Signature is not the hotkey's over hotkey:timestamp:nonce")
        digest = hashlib.sha256(nonce.encode()).digest()
        return hotkey, -1 - (int.from_bytes(digest[:8]) >> 1)

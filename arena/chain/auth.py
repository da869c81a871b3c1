"""Signed requests between validators: the SDK's `btauth/1` (`bittensor.http_auth`).

A request that passes was signed by the hotkey it names, for this receiver, with this method, target and body,
within the last seconds, and is let through once: what was signed before this object was made is refused, so that a
restart forgets no repeated request. A clock that is set back counts as a restart: what it showed before stands in
nobody's way, and lets nothing through twice. It does not ask for registration or permits. This module of the SDK is
imported with the first request, without the rest of the SDK.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from arena.chain.keys import SR25519, SdkSigner, canonical_hotkey, public_key
from arena.chain.port import Signer
from foundation.errors import ArenaError

MAX_AGE_S, SKEW_S = 10.0, 2.0  # a request's age, and how far ahead its sender's clock may be
NONCES_MAX = 4_096  # remembered of one hotkey; one that sends more within the window is refused
_SECOND_NS = 1_000_000_000


@functools.cache
def _http_auth() -> Any:
    """The SDK's module of signed requests.

    The package's own `__init__` imports a chain client, Ethereum's libraries and QR codes, which takes 0.6 s of a
    processor where this module takes 0.1 s: it runs when somebody asks the package itself for something.
    """
    spec = importlib.util.find_spec("bittensor") if "bittensor" not in sys.modules else None
    if spec is not None:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _UnopenedPackage
        sys.modules["bittensor"] = package
    return importlib.import_module("bittensor.http_auth")


class _UnopenedPackage(ModuleType):
    """A package whose submodules can be imported and whose own code has not run. One thread opens it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]  # a module may be given another class
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


class HttpCheck:
    """Checks requests to one hotkey, which takes no key: a server that strangers reach need not hold one."""

    def __init__(
        self, hotkey: str, now_ns: Callable[[], int], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`now_ns` is unix nanoseconds; `monotonic` counts seconds, whatever that clock is set to."""
        self.hotkey = canonical_hotkey(hotkey) or hotkey
        self._now_ns = now_ns
        self._seen = _Seen(now_ns(), monotonic)

    def claimed(self, headers: Mapping[str, str]) -> str | None:
        """Who a request says it is from, unchecked; None when it names no hotkey."""
        http_auth = _http_auth()
        return canonical_hotkey(headers.get(http_auth.HEADER_HOTKEY.lower(), ""))

    def caller(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> str:
        """The hotkey that signed a request (prefix 42). Raises ArenaError V2110 with the reason."""
        self._seen.heed_clock(self._now_ns())
        return self._checked(headers, method, target, body, self._seen)[0]

    def signed(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> tuple[str, int]:
        """As `caller`, with the request's nonce (nanoseconds), which is *not* asked whether it was seen before: for
        servers that keep nonces where several processes and restarts find them. Raises ArenaError V2110."""
        return self._checked(headers, method, target, body, _KeptElsewhere())

    def _checked(
        self, headers: Mapping[str, str], method: str, target: str, body: bytes, nonces: _Seen | _KeptElsewhere
    ) -> tuple[str, int]:
        http_auth = _http_auth()
        try:
            found = http_auth.verify(
                headers,
                body,
                method=method,
                path=target,
                self_hotkey_ss58=self.hotkey,
                max_age=MAX_AGE_S,
                allowed_skew=SKEW_S,
                nonce_store=nonces,
                now_ns=self._now_ns(),
            )
        except http_auth.AuthError as error:
            raise ArenaError("V2110", str(error)) from error
        caller = canonical_hotkey(found.hotkey_ss58)
        if caller is None or found.crypto_type != SR25519:
            raise ArenaError("V2110", "only sr25519 hotkeys are known here")
        return caller, found.nonce_ns


class HttpAuth(HttpCheck):
    """A `RequestAuth` of one hotkey. Both the server and the client side of a validator use the same one."""

    def __init__(
        self, signer: Signer, now_ns: Callable[[], int], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """As of `HttpCheck`."""
        super().__init__(signer.hotkey, now_ns, monotonic=monotonic)
        self._sdk_signer = SdkSigner(signer)
        self._last_ns = 0

    def sign(self, method: str, target: str, receiver: str, body: bytes = b"") -> dict[str, str]:
        """The headers of a request. `target` is path and query as they are sent. Each call is a new request."""
        http_auth = _http_auth()
        now_ns = self._now_ns()
        is_set_back = now_ns < self._last_ns - SKEW_S * _SECOND_NS  # a nonce after the last would lie in the future
        self._last_ns = now_ns if is_set_back else max(now_ns, self._last_ns + 1)
        signed = http_auth.sign(
            self._sdk_signer, method=method, path=target, body=body, receiver_ss58=receiver, nonce_ns=self._last_ns
        )
        return dict(signed)


class _KeptElsewhere:
    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        return True


class _Accepted:
    """What was let through of one hotkey: nonces by value and in order, and from when to when before the clock was set
    back, as most of those are forgotten."""

    def __init__(self) -> None:
        self.nonces, self.order = set[int](), deque[int]()
        self.lowest, self.highest = sys.maxsize, 0
        self.earlier: list[range] = []

    def begin_anew(self, now_ns: int) -> None:
        """Remember in short what was let through: what is past as one, and apart from what is to come."""
        spans = [*self.earlier, range(self.lowest, self.highest + 1)] if self.nonces else self.earlier
        past = [span for span in spans if span.stop <= now_ns]
        self.earlier = [span for span in spans if span.stop > now_ns]
        if past:
            self.earlier.append(range(min(span.start for span in past), max(span.stop for span in past)))
        self.nonces, self.order = set(), deque()
        self.lowest, self.highest = sys.maxsize, 0


class _Seen:
    """Nonces let through, by hotkey, for as long as their age passes. Nonces are times: older ones go first."""

    def __init__(self, since_ns: int, monotonic: Callable[[], float]) -> None:
        self.retention = 2 * (MAX_AGE_S + SKEW_S)
        self._since_ns = since_ns
        self._latest_ns = since_ns  # that the clock showed
        self._monotonic = monotonic
        self._rests_until_s = monotonic()
        self._accepted: dict[bytes, _Accepted] = {}

    def heed_clock(self, now_ns: int) -> None:
        """Begin anew when the clock was set back. Raises ArenaError V2110 for as long as a request may be fresh that
        was let through before."""
        if now_ns < self._latest_ns - SKEW_S * _SECOND_NS:
            self._since_ns = self._latest_ns = now_ns
            self._rests_until_s = self._monotonic() + MAX_AGE_S + SKEW_S
            for accepted in self._accepted.values():
                accepted.begin_anew(now_ns)
        self._latest_ns = max(self._latest_ns, now_ns)
        left_s = self._rests_until_s - self._monotonic()
        if left_s > 0:
            raise ArenaError("V2110", f"this server's clock was set back; it takes requests again in {left_s:.0f} s")

    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        """True, once, for a nonce not from before the start. The key counts, not the spelling of its address.

        Raises ArenaError V2110 with the reason for any other."""
        accepted = self._accepted.setdefault(public_key(hotkey_ss58) or b"", _Accepted())
        nonces, order = accepted.nonces, accepted.order
        while order and order[0] < self._latest_ns - self.retention * _SECOND_NS:
            nonces.discard(order.popleft())
        if nonce_ns < self._since_ns:
            raise ArenaError("V2110", "it was signed before this server began or its clock was set back")
        if nonce_ns in nonces:
            raise ArenaError("V2110", "this request was already accepted")
        if any(nonce_ns in span for span in accepted.earlier):
            raise ArenaError("V2110", "it may have been accepted while this server's clock was ahead")
        if len(nonces) >= NONCES_MAX:
            raise ArenaError("V2110", f"more than {NONCES_MAX} requests within {self.retention:g} s")
        nonces.add(nonce_ns)
        order.append(nonce_ns)
        accepted.lowest, accepted.highest = min(accepted.lowest, nonce_ns), max(accepted.highest, nonce_ns)
        return True

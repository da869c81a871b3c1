"""Signed requests between validators: the SDK's `btauth/1` (`bittensor.http_auth`).

A request that passes was signed by the hotkey it names, for this receiver, with this method, target and body,
within the last seconds, and is let through once: what was signed before this object was made is refused, so that a
restart forgets no repeated request. It does not ask for registration or permits. This module of the SDK is imported
with the first request, without the rest of the SDK.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
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

    def __init__(self, hotkey: str, now_ns: Callable[[], int]) -> None:
        """`now_ns` is unix nanoseconds."""
        self.hotkey = canonical_hotkey(hotkey) or hotkey
        self._now_ns = now_ns
        self._seen = _Seen(now_ns())

    def claimed(self, headers: Mapping[str, str]) -> str | None:
        """Who a request says it is from, unchecked; None when it names no hotkey."""
        http_auth = _http_auth()
        return canonical_hotkey(headers.get(http_auth.HEADER_HOTKEY.lower(), ""))

    def caller(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> str:
        """The hotkey that signed a request (prefix 42). Raises ArenaError V2110 with the reason."""
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

    def __init__(self, signer: Signer, now_ns: Callable[[], int]) -> None:
        """`now_ns` is unix nanoseconds."""
        super().__init__(signer.hotkey, now_ns)
        self._sdk_signer = SdkSigner(signer)
        self._last_ns = 0

    def sign(self, method: str, target: str, receiver: str, body: bytes = b"") -> dict[str, str]:
        """The headers of a request. `target` is path and query as they are sent. Each call is a new request."""
        http_auth = _http_auth()
        self._last_ns = max(self._now_ns(), self._last_ns + 1)
        signed = http_auth.sign(
            self._sdk_signer, method=method, path=target, body=body, receiver_ss58=receiver, nonce_ns=self._last_ns
        )
        return dict(signed)


class _KeptElsewhere:
    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        return True


class _Seen:
    """Nonces let through, by hotkey, for as long as their age passes. Nonces are times: older ones go first."""

    def __init__(self, since_ns: int) -> None:
        self.retention = 2 * (MAX_AGE_S + SKEW_S)
        self._since_ns = since_ns
        self._newest_ns = since_ns
        self._nonces: dict[bytes, tuple[set[int], deque[int]]] = {}

    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        """True, once, for a nonce not from before the start. The key counts, not the spelling of its address."""
        nonces, order = self._nonces.setdefault(public_key(hotkey_ss58) or b"", (set(), deque()))
        self._newest_ns = max(self._newest_ns, nonce_ns)
        while order and order[0] < self._newest_ns - self.retention * _SECOND_NS:
            nonces.discard(order.popleft())
        if nonce_ns < self._since_ns or nonce_ns in nonces or len(nonces) >= NONCES_MAX:
            return False
        nonces.add(nonce_ns)
        order.append(nonce_ns)
        return True

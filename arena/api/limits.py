"""How often one address may ask, and HEAD for whatever answers GET.

A client that asks more often than its share gets 429 and a time to come back, before anything is read for it;
an IPv6 client counts by its /64. What is remembered of addresses is bounded. How many connections an address may hold
open, and for how long without reading, bounds the server (`harness.catalogue.server.guard`).
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.api.refusals import refusal
from foundation.errors import ArenaError
from harness.catalogue.server.guard import network_of

ADDRESSES_MAX = 65_536
STREAMS = ("/v1/tail", "/v1/records")  # HEAD would have to read what it does not send


class RequestLimits:
    """A token bucket for each address, around an application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        requests_per_s: float,
        burst: int,
        addresses_max: int = ADDRESSES_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`burst` requests at once, then `requests_per_s`. Of more than `addresses_max` the one that asked least lately
        is forgotten."""
        self._addresses_max = addresses_max
        self._app, self._monotonic = app, monotonic
        self._per_s, self._burst = requests_per_s, float(burst)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by network: requests left, as of when

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it with V2090."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wait_s = self._take(network_of(scope["client"][0]) if scope.get("client") else "")
        if wait_s:
            answer = refusal(ArenaError("V2090", f"{self._per_s:g} a second after the first {self._burst:g}"))
            answer.headers["retry-after"] = str(math.ceil(wait_s))
            await answer(scope, receive, send)
        elif scope["method"] == "HEAD" and scope["path"] not in STREAMS:
            await self._app({**scope, "method": "GET"}, receive, _without_body(send))
        else:
            await self._app(scope, receive, send)

    def _take(self, network: str) -> float:
        """Count one request; returns the seconds to wait where there is none left."""
        now = self._monotonic()
        left, at = self._left.pop(network, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        self._left[network] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > self._addresses_max:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_s


def _without_body(send: Send) -> Send:
    async def stripped(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return stripped

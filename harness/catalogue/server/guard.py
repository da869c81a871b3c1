"""A limit around uvicorn's HTTP protocol: no client holds memory or a connection for long without making a request.

uvicorn's fast protocol sets no bound on a request's head and no time for it. This one closes a connection whose head
grows over 64 KiB (431), is not finished within ten seconds (408), or whose client stops reading answers for thirty. It
reads no HTTP itself: a request has begun when the protocol inside has made a cycle for it, and while that waits for a
body, what comes in is the application's to bound.

`Connections` bounds how many are open. When all places are taken, one connection that is not being answered is closed,
of the network that holds most. So neither silent nor idle clients keep others out.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from foundation.errors import ArenaError

BACKLOG = 1_024
HEAD_MAX = 65_536  # bytes received that did not complete a request head
HEAD_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 30.0  # without the client reading while the write buffer is full
_NETWORKS_KEPT = 4_096

_REFUSAL = "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ArenaError V2014 when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ArenaError("V2014", f"{host} port {port}: {error.strerror or error}") from error
    # accepted sockets inherit it; asyncio sets it only on sockets that name their protocol, and without it an answer
    # written in two parts waits 40 ms for the client's acknowledgement
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class Connections:
    """The open connections of one server: at most `total`, and at most `per_address` from one IPv4 address or IPv6 /64.

    A new one is let in by closing one that is not being answered: of the network that has most, one that waits for its
    next request before one that has made none, the oldest first. It is turned away only where all are being answered.
    """

    def __init__(self, total: int = 512, per_address: int = 64) -> None:
        self._total, self._per_address = total, per_address
        self._open: dict[GuardedProtocol, str] = {}

    def enter(self, connection: GuardedProtocol, address: str) -> bool:
        """Take a connection in; False when it has to be closed."""
        network = network_of(address)
        near = [one for one, other in self._open.items() if other == network]
        if len(near) >= self._per_address and not self._make_room(near):
            return False
        if len(self._open) >= self._total and not self._make_room(list(self._open)):
            return False
        self._open[connection] = network
        return True

    def leave(self, connection: GuardedProtocol) -> None:
        """Forget a connection; one that never entered is no failure."""
        self._open.pop(connection, None)

    def _make_room(self, among: list[GuardedProtocol]) -> bool:
        crowd = Counter(self._open.values())
        waiting = [one for one in among if not one.is_answering]
        if not waiting:
            return False
        chosen = min(waiting, key=lambda one: (-crowd[self._open[one]], not one.has_asked))
        self.leave(chosen)
        chosen.close()
        return True


@functools.lru_cache(_NETWORKS_KEPT)
def network_of(address: str) -> str:
    """Whose address it is: an IPv4 address itself, of IPv6 the /64 that one party has; other text as it is."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


class GuardedProtocol(asyncio.Protocol):
    """One connection. Takes the arguments that uvicorn gives its own protocol class, and the server's `Connections`."""

    def __init__(
        self,
        config: Any,
        server_state: Any,
        app_state: Any,
        _loop: Any = None,
        *,
        connections: Connections | None = None,
        explain: Callable[[str], bytes] | None = None,
    ) -> None:
        """`explain`: the JSON that goes with a status; None: its words."""
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        make: Any = AutoHTTPProtocol  # its two implementations share a signature that asyncio.Protocol does not have
        self._inner = make(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
        self._loop = _loop or asyncio.get_running_loop()
        self._connections = connections
        self._explain = explain or (lambda status: b'{"error":"%s"}\n' % status.partition(" ")[2].lower().encode())
        self._transport: Any = None
        self._unfinished = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether it has made a request."""
        return self._inner.cycle is not None

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        return self._inner.cycle is not None and not self._inner.cycle.response_complete

    @property
    def _takes_body(self) -> bool:
        return self.is_answering and bool(self._inner.cycle.more_body)

    def close(self) -> None:
        """Drop it without a word."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A silent connection has as long as a slow head."""
        self._transport = transport
        self._inner.connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self._connections is not None and not self._connections.enter(self, address):
            self.close()
            return
        self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._refuse, "408 Request Timeout")

    def data_received(self, data: bytes) -> None:
        """Hand the bytes on, then see whether they made a request."""
        before, is_body = self._inner.cycle, self._takes_body
        self._inner.data_received(data)
        if self._transport.is_closing():
            return
        if self._inner.cycle is not before or is_body:
            self._unfinished = 0
            self._disarm_head()
            return
        self._unfinished += len(data)
        if self._unfinished > HEAD_MAX:
            self._refuse("431 Request Header Fields Too Large")
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._refuse, "408 Request Timeout")

    def eof_received(self) -> bool | None:
        """Nothing of our own."""
        return bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        """The client does not read: give it a while, then drop what is buffered for it."""
        self._inner.pause_writing()
        self._stall_timer = self._loop.call_later(STALL_TIMEOUT_S, self._transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._disarm_stall()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and the place."""
        if self._connections is not None:
            self._connections.leave(self)
        self._disarm_head()
        self._disarm_stall()
        self._inner.connection_lost(exc)

    def _refuse(self, status: str) -> None:
        self._disarm_head()
        if self._transport.is_closing():
            return
        body = self._explain(status)
        self._transport.write(_REFUSAL.format(status=status, size=len(body)).encode() + body)
        self._transport.close()

    def _disarm_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _disarm_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

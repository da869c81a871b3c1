"""The search server: the reference's endpoints over one catalogue, from as many processes as there are cores.

Loopback by default; workers share one listening socket and the index's mapped files; a worker that
dies is replaced; SIGTERM finishes what is being answered. An answer is computed in the event loop of its worker: a
search takes less time than handing it to a thread, and one thread is what a JVM engine may have. It knows no users,
keeps no state, writes no file.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

import msgspec

from foundation.durable_files import coded
from foundation.errors import ArenaError
from foundation.executors import end_with_parent
from harness.catalogue.lucene import open_engine, read_lucene_manifest, require_packages
from harness.catalogue.port import Catalogue, SearchRequest

if TYPE_CHECKING:
    import uvicorn


QUERY_STRING_MAX = 32_768  # bytes, as sent; longer is 414
METHODS = ("GET", "HEAD", "OPTIONS")
PATHS = ("/", "/health", "/find_product", "/view_product_information", "/get_product_raw")
_FILTERS = ("shop_id", "price", "sort", "service")
_HIT_FIELDS = ("product_id", "shop_id", "title", "price", "service", "sold_count")
_VIEW_FIELDS = ("product_id", "short_description", "description", "sku_options", "attributes")
_UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` leaves them

Parameters = Mapping[str, str]


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Status and JSON body of one response."""

    status: int
    body: bytes


def answer(served: Catalogue, method: str, path: str, query_string: bytes) -> HttpAnswer:
    """The response to one request. Never raises for what a client sent.

    400, 404, 405 and 414 are the client's; 500 is an index that cannot be read (the body carries the failure's code).
    """
    if path not in PATHS:
        return _refusal(404, f"there is no {path[:100]!r}; GET / names the endpoints")
    if method not in METHODS:
        return _refusal(405, "only GET is answered here")
    if method == "OPTIONS":
        return HttpAnswer(status=200, body=b"")
    if len(query_string) > QUERY_STRING_MAX:
        return _refusal(414, f"the query string is longer than {QUERY_STRING_MAX} bytes")
    try:
        return HttpAnswer(status=200, body=to_json(_found(served, path, _parameters(query_string.decode()))))
    except UnicodeDecodeError:
        return _refusal(400, "the query string is not UTF-8; percent-encode it")
    except ArenaError as error:
        return _refusal(500, str(error), code=error.failure.code)


def _refusal(status: int, sentence: str, **more: str) -> HttpAnswer:
    return HttpAnswer(status=status, body=to_json({"error": sentence, **more}))


def _parameters(text: str) -> dict[str, str]:
    """Parameters by name, the first of each, as the reference's framework reads them.

    Percent signs and plus signs are decoded once; bytes that are not UTF-8 stay percent-encoded.
    """
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
        parameters.setdefault(_requote(name), _requote(value))
    return parameters


def to_json(value: object) -> bytes:
    """The bytes that Flask's `jsonify` makes of a value."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode("ascii")


def _requote(text: str) -> str:
    return _UNDECODED.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def _found(served: Catalogue, path: str, given: Parameters) -> object:
    """What stands at one of PATHS. Ids are split at commas and not stripped, as the reference does."""
    ids = given.get("product_ids", "").split(",")
    match path:
        case "/":
            return {"/find_product": "q,page,shop_id,price,sort,service", "/view_product_information": "product_ids"}
        case "/health":
            return {"status": "healthy", "service": "search-server"}
        case "/find_product":
            request = SearchRequest(q=given.get("q"), page=given.get("page"), **{k: given.get(k) for k in _FILTERS})
            return [{name: getattr(product, name) for name in _HIT_FIELDS} for product in served.search(request)]
        case "/view_product_information":
            found = filter(None, map(served.product, ids))
            return [{name: getattr(product, name) for name in _VIEW_FIELDS} for product in found]
        case _:
            return [msgspec.to_builtins(product) for product in filter(None, map(served.product, ids))]


HOST, PORT = "127.0.0.1", 5631
_CONNECTIONS_MAX = 512  # of one worker; more are answered 503
_KEEP_ALIVE_S = 60  # the reference's
_STOP_TIMEOUT_S = 10
_HEALTH_TIMEOUT_S = 10  # a worker that has not answered its supervisor for so long is replaced
_ALLOW = ", ".join(METHODS).encode()


class SearchApplication:
    """The ASGI application. It opens the catalogue at its start, so that it can be sent to a worker process before."""

    def __init__(self, open_it: Callable[[], Catalogue]) -> None:
        self._open = open_it
        self._served: Catalogue | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "lifespan":
            end_with_parent()  # a supervisor that was killed ends no worker, and they would keep its port
            await self._live(receive, send)
        elif scope["type"] == "http" and self._served is not None:
            method = scope["method"]
            reply = answer(self._served, method, scope["path"], scope["query_string"])
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply.body)).encode())]
            if reply.status == 405 or method == "OPTIONS":
                headers.append((b"allow", _ALLOW))
            if scope["path"] == "/health":
                headers.append((b"x-catalogue-sha256", self._served.content_sha256.encode()))
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            self._served = self._open()
            self._served.search(SearchRequest(q="a warm start"))  # compiles and maps before the first client
        except ArenaError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


# Of uvicorn, everywhere. Errors alone are logged: a malformed request is the client's.
PLAIN: Any = dict(log_config=None, log_level="error", access_log=False, proxy_headers=False, server_header=False)


def make_config(application: SearchApplication, workers: int = 1) -> uvicorn.Config:
    """uvicorn's settings for serving `application`, limits included."""
    import uvicorn

    return uvicorn.Config(
        application,
        workers=workers,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        **PLAIN,
        backlog=BACKLOG,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        timeout_worker_healthcheck=_HEALTH_TIMEOUT_S,
    )


def serve(
    path: Path,
    *,
    engine: str = "auto",
    host: str = HOST,
    port: int = PORT,
    workers: int = 0,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the catalogue at `path` until SIGTERM or SIGINT. Must run in the main thread.

    `workers` 0 means one for each core this process may use. `announce` gets the base URL when connections are
    accepted. Raises ArenaError V2014 when the address cannot be had or workers cannot start, and as `open_engine` does
    when the index cannot be opened.
    """
    from uvicorn.config import STARTUP_FAILURE
    from uvicorn.supervisors import Multiprocess

    # what is wrong with the index is reported here, with its code, and not by a worker's exit; this starts no JVM
    if engine == "lucene":
        require_packages()
        read_lucene_manifest(path)
    else:
        open_engine(engine, path)
    open_it = functools.partial(open_engine, engine, path)
    with listen(host, port) as listener:
        config = make_config(SearchApplication(open_it), workers or len(os.sched_getaffinity(0)))
        supervisor = Multiprocess(config, sockets=[listener])
        bound = listener.getsockname()[1]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise ArenaError("V2014", "a worker process could not start; its reason stands above")


BACKLOG = 1_024
HEAD_MAX = 65_536  # bytes received that did not complete a request head
HEAD_TIMEOUT_S = 10.0
STALL_TIMEOUT_S = 30.0  # without the client reading while the write buffer is full
_NETWORKS_KEPT = 4_096

_REFUSAL = "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ArenaError V2014 when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with coded(f"{host} port {port}", "V2014"):
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # accepted sockets inherit it; asyncio sets it only on sockets that name their protocol, and without it an answer
    # written in two parts waits 40 ms for the client's acknowledgement
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address_of(listener: socket.socket) -> str:
    """The base URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


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
        self._inner.send_400_response = lambda _: self._refuse("400 Bad Request")
        self._loop = _loop or asyncio.get_running_loop()
        self._connections = connections
        self._explain = explain or (lambda status: b'{"error":"%s"}\n' % status.partition(" ")[2].lower().encode())
        self._transport: Any = None
        self._unfinished = 0
        self._timers: dict[Literal["head", "stall"], asyncio.TimerHandle] = {}

    @property
    def has_asked(self) -> bool:
        """Whether it has made a request."""
        return self._inner.cycle is not None

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        return self._inner.cycle is not None and not self._inner.cycle.response_complete

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
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Hand the bytes on, then see whether they made a request."""
        before, is_body = self._inner.cycle, self.is_answering and self._inner.cycle.more_body
        self._inner.data_received(data)
        if self._transport.is_closing():
            return
        if self._inner.cycle is not before or is_body:
            self._unfinished = 0
            self._disarm("head")
            return
        self._unfinished += len(data)
        if self._unfinished > HEAD_MAX:
            self._refuse("431 Request Header Fields Too Large")
        elif "head" not in self._timers:
            self._await_head()

    def eof_received(self) -> bool | None:
        """Nothing of our own."""
        return bool(self._inner.eof_received())

    def pause_writing(self) -> None:
        """The client does not read: give it a while, then drop what is buffered for it."""
        self._inner.pause_writing()
        self._timers["stall"] = self._loop.call_later(STALL_TIMEOUT_S, self._transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._disarm("stall")
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and the place."""
        if self._connections is not None:
            self._connections.leave(self)
        self._disarm("head")
        self._disarm("stall")
        self._inner.connection_lost(exc)

    def _refuse(self, status: str) -> None:
        self._disarm("head")
        if self._transport.is_closing():
            return
        body = self._explain(status)
        self._transport.write(_REFUSAL.format(status=status, size=len(body)).encode() + body)
        self._transport.close()

    def _await_head(self) -> None:
        self._timers["head"] = self._loop.call_later(HEAD_TIMEOUT_S, self._refuse, "408 Request Timeout")

    def _disarm(self, name: Literal["head", "stall"]) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

"""What all servers of a node share: the one shape of a refusal, shares of requests by address, ETags, the OpenAPI
document made from the values that are sent, bodies read within a size and a time, and uvicorn on one socket.

A client that asks more often than its share gets 429 and a time to come back, before anything is read for it; an IPv6
client counts by its /64, and what is remembered of addresses is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from arena.api.rows import ErrorAnswer
from arena.exchange.peer_service import Shares
from foundation.codes import HOST_FAILED, TAIL_BAD_REQUEST, TAIL_LACKS
from foundation.errors import ArenaError
from harness.catalogue.server import PLAIN, Connections, GuardedProtocol, address_of, network_of

RETRY_S = 5
_CODES: dict[int, tuple[str, ...]] = {  # by the status that goes with them
    400: ("V2081",),
    401: ("V2110",),
    403: ("A1008", "V2089", "V2111"),
    404: ("V2082", "V2113"),
    408: ("V2203",),
    409: ("A1012",),
    413: ("V2202",),
    422: ("A1001", "A1002", "A1004", "A1005", "A1007", "A1010"),
    429: ("A1006", "V2112"),
    503: ("V2021",),
}
_STATUS = {code: status for status, codes in _CODES.items() for code in codes}


class PlaceError(ArenaError):
    """A failure at some place: `head` is where the log ends, of a cursor behind that; `line` the line of an agent file
    that breaks a rule, 0 for the file as a whole."""

    def __init__(self, code: str, detail: str, *, head: int | msgspec.UnsetType = msgspec.UNSET, line: int = 0) -> None:
        super().__init__(code, detail)
        self.head, self.line = head, line


def status_of(error: ArenaError) -> int:
    """The status that goes with a failure: of what a client sent 4xx; 503 where it passes by itself."""
    if isinstance(error, PlaceError) and error.head is not msgspec.UNSET:
        return 416
    return _STATUS.get(error.failure.code, 503 if error.entry.is_retryable else 500)


def refused(error: ArenaError, status: int) -> ErrorAnswer:
    """What the answer of a failed request says."""
    return ErrorAnswer(
        code=error.failure.code,
        message=error.failure.detail or error.entry.title,
        whose_fault="client" if status < 500 else error.owner.value,
        what_it_costs="this request alone" if error.failure.code == HOST_FAILED else error.entry.cost,
        what_to_do=error.entry.remedy,
        head=error.head if isinstance(error, PlaceError) else msgspec.UNSET,
        line=error.line or msgspec.UNSET if isinstance(error, PlaceError) else msgspec.UNSET,
    )


def refusal(error: ArenaError, status: int = 0) -> Response:
    """The answer to a failed request; `status` 0: the one that goes with its code."""
    status = status or status_of(error)
    retry = {"retry-after": str(RETRY_S)} if status in (429, 503) else {}
    return json_response(refused(error, status), status, retry)


def add_refusals(
    app: FastAPI,
    answer: Callable[[ArenaError, int], Response] = refusal,
    *,
    unknown_route: str = TAIL_LACKS,
    page: Callable[[Request, ArenaError, int], Response] | None = None,
) -> None:
    """Answer every failure of an application in its one shape.

    `answer` gets the failure and a status, 0 for the one that goes with the code; `unknown_route` is the code of a path
    that is not there; `page` answers a browser outside of `/v1/`.
    """

    async def on_failure(request: Request, error: Exception) -> Response:
        status, headers = 0, dict[str, str]()
        if isinstance(error, RequestValidationError):
            fault = error.errors()[0]
            error = ArenaError(TAIL_BAD_REQUEST, f"{fault['loc'][-1]}: {fault['msg']}")
        elif isinstance(error, HTTPException):
            status, headers = error.status_code, dict(error.headers or {})
            asked = f"{request.method} {request.url.path[:128]!a}"
            detail = error.detail
            error = ArenaError(TAIL_BAD_REQUEST, f"{asked}: {detail}")
            if status == 404:
                error = ArenaError(unknown_route, f"there is no {asked}")
        elif not isinstance(error, ArenaError):  # a bug of ours: Starlette raises it once more, for the server's log
            status, error = 500, ArenaError(HOST_FAILED, f"{request.method} {request.url.path[:128]!a}")
        answered = answer(error, status)
        is_browser = not request.url.path.startswith("/v1/") and "text/html" in request.headers.get("accept", "")
        if page is not None and is_browser:
            shown = page(request, error, answered.status_code)
            if wait := answered.headers.get("retry-after"):
                headers["retry-after"] = wait
            answered, headers["vary"] = shown, "accept"
        answered.headers.update(headers)
        return answered

    for kind in (ArenaError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, on_failure)


async def require_known(request: Request) -> None:
    """Raises ArenaError V2081 for a query parameter that the route does not know."""
    route = request.scope["route"]
    needed = (route.dependant, *route.dependant.dependencies) if isinstance(route, APIRoute) else ()
    names = [str(one.alias) for each in needed for one in each.query_params]
    for name in request.query_params:
        if name not in names:
            raise ArenaError("V2081", f"{name[:64]} is not a parameter; there are {', '.join(names) or 'none'}")


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON that nobody keeps."""
    kept = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(value), status, kept, media_type="application/json")


def limited(app: ASGIApp, shares: Shares, answer: Callable[[ArenaError], Response] = refusal) -> ASGIApp:
    """An application that each address has a share of; `answer` refuses with V2112."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                shares.spend_request(network_of(scope["client"][0]) if scope.get("client") else "")
        except ArenaError as error:
            await answer(error)(scope, receive, send)
            return
        await app(scope, receive, send)

    return serve


def deliver(request: Request, content: bytes, media_type: str, *, name: str = "") -> Response:
    """The answer with these bytes, unless the client has them already. `name`: what a browser saves it as."""
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if name:
        headers["content-disposition"] = f'attachment; filename="{name}"'
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, media_type)


def deliver_json(request: Request, value: object) -> Response:
    """A value as JSON, with its ETag."""
    return deliver(request, msgspec.json.encode(value), "application/json")


def routed(
    make: Callable[..., Any], answer: Callable[[Request, Any], Response], of: Callable[[], object] | None = None
) -> Callable[..., Awaitable[Response]]:
    """A route that answers with what `make` gives, takes its parameters and says its docstring. `of`: what `make` is a
    method of, made anew for each request; None: it is bound."""
    parameters = list(inspect.signature(make, eval_str=True).parameters.values())[of is not None :]

    async def show(request: Request, **asked: object) -> Response:
        made = make(**asked) if of is None else make(of(), **asked)
        return answer(request, await made if inspect.isawaitable(made) else made)

    own = inspect.Parameter("request", inspect.Parameter.POSITIONAL_ONLY, annotation=Request)
    vars(show).update(__signature__=inspect.Signature([own, *parameters]))
    show.__doc__, show.__name__ = make.__doc__, make.__name__
    return show


def described_text(media_type: str, description: str) -> dict[str, Any]:
    """The arguments of a route that answers with a file."""
    answer = {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}
    return {"response_class": Response, "responses": {200: answer}}


def make_app(title: str, **options: Any) -> FastAPI:
    """An application whose document says that requests may be refused, and what the client has need not be sent."""
    answers: dict[int | str, dict[str, Any]] = {
        304: {"description": "What the client has is the present state (`if-none-match`)."},
        "4XX": {"description": "A refusal that says what to do."},
        "5XX": {"description": "The same, by this node's own fault."},
    }
    return FastAPI(
        **{"title": title, "version": "1", "docs_url": None, "redoc_url": None, "responses": answers} | options
    )


_STREAMS_STOP_S = 5
DISCARD_BYTES, DISCARD_S = 4 << 20, 2.0


class _Unsignalled(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # its caller decides when it stops
        yield


class Server:
    """One application on one listening socket. `address`: its base URL."""

    closing: asyncio.Event | None = None  # set when it stops, for streams that would go on for ever

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        connections: Connections,
    ) -> None:
        self.address, self._listener = address_of(listener), listener
        self._config = uvicorn.Config(
            app,
            http=functools.partial(GuardedProtocol, connections=connections, explain=_explain_dropped),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            **PLAIN,
            timeout_graceful_shutdown=_STREAMS_STOP_S,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        server = _Unsignalled(self._config)
        serving, stopping = asyncio.ensure_future(server.serve([self._listener])), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if self.closing is not None:
                self.closing.set()
            server.should_exit = True
            await serving


def _explain_dropped(status: str) -> bytes:
    """What a client reads whose connection is dropped with this status before it has made a request."""
    number, _, words = status.partition(" ")
    code = {"408": "V2203", "431": "V2202"}.get(number, TAIL_BAD_REQUEST)
    return msgspec.json.encode(refused(ArenaError(code, words.lower()), int(number)))


async def read_body(request: Request, most_bytes: int, within_s: float) -> bytes:
    """The whole body. Raises ArenaError V2202 beyond `most_bytes`, V2203 beyond `within_s`, V2081 if encoded."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ArenaError("V2081", "the body is compressed")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > most_bytes:
        await discard_body(request)
        raise ArenaError("V2202", f"more than {most_bytes} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for piece in request.stream():
                body += piece
                if len(body) > most_bytes:
                    raise ArenaError("V2202", f"more than {most_bytes} bytes")
    except TimeoutError as error:
        raise ArenaError("V2203", f"not whole after {within_s:g} s") from error
    except ClientDisconnect as error:
        raise ArenaError("V2203", "the client left") from error
    return bytes(body)


async def discard_body(request: Request) -> None:
    """Let a body of a stated length go by, within a size and a time, before it is refused: a connection that is closed
    while its client sends loses the answer."""
    if request.headers.get("content-length", "0") == "0":
        return
    left = DISCARD_BYTES
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DISCARD_S):
            async for piece in request.stream():
                left -= len(piece)
                if left < 0:
                    return

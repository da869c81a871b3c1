"""What all servers of a node share: the one shape of a refusal, shares of requests by address, ETags and ranges, and
the OpenAPI document made from the values that are sent.

A client that asks more often than its share gets 429 and a time to come back, before anything is read for it; an IPv6
client counts by its /64, and what is remembered of addresses is bounded.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foundation.codes.names import TAIL_BAD_REQUEST, TAIL_LACKS
from foundation.errors import ArenaError
from harness.catalogue.server import network_of

_STATUS = {"V2021": 503, "V2081": 400, "V2082": 404, "V2083": 503}
_STATUS |= {"V2089": 403, "V2090": 429}
_STATUS |= {"V2110": 401, "V2111": 403, "V2112": 429, "V2113": 404, "V2114": 503}
_FAILED = 500


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer that is an error. `message` says what happened here; `head` is where the log ends, of a cursor
    behind its end, `line` the line of an agent file that is to blame."""

    code: str
    message: str
    whose_fault: Literal["agent", "client", "validator", "upstream", "problem"]
    what_it_costs: str
    what_to_do: str
    head: int | msgspec.UnsetType = msgspec.UNSET
    line: int | msgspec.UnsetType = msgspec.UNSET


class CursorError(ArenaError):
    """V2082: the cursor lies behind the log's end."""

    def __init__(self, after: int, head: int) -> None:
        super().__init__("V2082", f"the log ends at record {head}, before {after}")
        self.head = head


def refusal(error: ArenaError, status: int = 0) -> Response:
    """The answer to a failed request; `status` 0: the one that goes with its code."""
    head = error.head if isinstance(error, CursorError) else msgspec.UNSET
    status = status or (status_of(error) if head is msgspec.UNSET else 416)
    value = msgspec.structs.replace(refused(error, status), head=head)
    return json_response(value, status, {"retry-after": "5"} if status in (429, 503) else {})


def status_of(error: ArenaError) -> int:
    """The status that goes with a code."""
    return _STATUS.get(error.failure.code, _FAILED)


def refused(error: ArenaError, status: int) -> ErrorAnswer:
    """What the answer of a failed request says."""
    return ErrorAnswer(
        code=error.failure.code,
        message=error.failure.detail or error.entry.title,
        whose_fault="client" if status < _FAILED else error.owner.value,
        what_it_costs=error.entry.cost,
        what_to_do=error.entry.remedy,
    )


def add_refusals(
    app: FastAPI, answer: Callable[[ArenaError, int], Response] = refusal, *, unknown_route: str = TAIL_LACKS
) -> None:
    """Answer every failure of an application in its one shape.

    `answer` gets the failure and a status, 0 for the one that goes with the code; `unknown_route` is the code of a path
    that is not there.
    """

    async def on_failure(_: Request, error: Exception) -> Response:
        assert isinstance(error, ArenaError)
        return answer(error, 0)

    async def on_wrong_parameter(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        fault = error.errors()[0]
        return answer(ArenaError(TAIL_BAD_REQUEST, f"{fault['loc'][-1]}: {fault['msg']}"), 0)

    async def on_wrong_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = unknown_route if error.status_code == 404 else TAIL_BAD_REQUEST
        detail = f"{request.method} {request.url.path[:128]!a}: {error.detail}"
        answered = answer(ArenaError(code, detail), error.status_code)
        answered.headers.update(error.headers or {})
        return answered

    app.add_exception_handler(ArenaError, on_failure)
    app.add_exception_handler(RequestValidationError, on_wrong_parameter)
    app.add_exception_handler(HTTPException, on_wrong_route)


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


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


_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def deliver(request: Request, content: bytes, media_type: str, *, name: str = "") -> Response:
    """The answer with these bytes, or the part of them that was asked for. `name`: what a browser saves it as."""
    etag = f'"{hashlib.sha256(content).hexdigest()}"'
    headers = {"etag": etag, "accept-ranges": "bytes", "cache-control": "no-cache"}
    if name:
        headers["content-disposition"] = f'attachment; filename="{name}"'
    asked = request.headers
    if is_known(etag, asked.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    wanted = _RANGE.fullmatch(asked.get("range", "").strip())
    if wanted is None or wanted.groups() == ("", "") or asked.get("if-range", etag) != etag:
        return Response(content, 200, headers, media_type)
    first, last = wanted.groups()
    start = int(first) if first else max(0, len(content) - int(last))
    end = min(int(last), len(content) - 1) if first and last else len(content) - 1
    if start >= len(content) or (first and last and int(last) < start):
        answer = refusal(ArenaError("V2081", f"range: there are {len(content)} bytes"))
        answer.status_code = 416
        answer.headers["content-range"] = f"bytes */{len(content)}"
        return answer
    headers["content-range"] = f"bytes {start}-{end}/{len(content)}"
    return Response(content[start : end + 1], 206, headers, media_type)


def is_known(etag: str, if_none_match: str) -> bool:
    """Whether a client that sent this `If-None-Match` has the bytes already."""
    known = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return etag in known or known == ["*"]


def deliver_json(request: Request, value: object) -> Response:
    """A value as JSON, with its ETag."""
    return deliver(request, msgspec.json.encode(value), "application/json")


_REF = "#/components/schemas/{name}"
_RANGES = {
    206: {"description": "The range that was asked for."},
    304: {"description": "What the client has is the present state (`if-none-match`)."},
}
_described: dict[str, Any] = {}


def described(answer: type) -> dict[str, Any]:
    """The arguments of a route that answers with JSON of a type."""
    (schema,), components = msgspec.json.schema_components([answer], ref_template=_REF)
    _described.update(components)
    content: dict[str, Any] = {"schema": schema}
    return _route({"description": (answer.__doc__ or "").strip(), "content": {"application/json": content}})


def described_text(media_type: str, description: str) -> dict[str, Any]:
    """The arguments of a route that answers with a file."""
    content = {media_type: {"schema": {"type": "string"}}}
    return _route({"description": description, "content": content})


def complete_document(app: FastAPI) -> None:
    """Put the schemas that routes refer to into the application's document."""
    make = app.openapi

    def with_components() -> dict[str, Any]:
        document = make()
        document.setdefault("components", {}).setdefault("schemas", {}).update(_described)
        return document

    app.openapi = with_components  # type: ignore[method-assign]


def _route(answer: dict[str, Any]) -> dict[str, Any]:
    return {"response_class": Response, "responses": {200: answer, **_RANGES}}

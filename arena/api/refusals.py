"""The one shape of every answer that is an error, and how failures become it.

Promise: a failed request is answered with a code of the registry, what happened here, whose fault it is, what it costs
and what to do next; never with a trace of ours, and never with what was asked about.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from foundation.errors import ArenaError

_STATUS = {"V2021": 503, "V2081": 400, "V2082": 404, "V2083": 503}
_STATUS |= {"V2089": 403, "V2090": 429}
_STATUS |= {"V2110": 401, "V2111": 403, "V2112": 429, "V2113": 404, "V2114": 503}
_FAILED = 500


class HttpRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer that is an error. `message` says what happened here; `head` is where the log ends, of a cursor
    behind its end, else -1."""

    code: str
    message: str
    whose_fault: Literal["agent", "client", "validator", "upstream", "problem"]
    what_it_costs: str
    what_to_do: str
    head: int = -1


class CursorError(ArenaError):
    """V2082: the cursor lies behind the log's end."""

    def __init__(self, after: int, head: int) -> None:
        super().__init__("V2082", f"the log ends at record {head}, before {after}")
        self.head = head


def add_refusals(app: FastAPI) -> None:
    """Answer every failure of an application in the one shape."""
    app.add_exception_handler(ArenaError, _on_failure)
    app.add_exception_handler(RequestValidationError, _on_wrong_parameter)
    app.add_exception_handler(HTTPException, _on_wrong_route)


def refusal(error: ArenaError) -> Response:
    """The answer to a failed request."""
    failure, head = error.failure, error.head if isinstance(error, CursorError) else -1
    status = 416 if head >= 0 else _STATUS.get(failure.code, _FAILED)
    value = HttpRefusal(
        code=failure.code,
        message=failure.detail or error.entry.title,
        whose_fault="client" if status < _FAILED else error.owner.value,
        what_it_costs=error.entry.cost,
        what_to_do=error.entry.remedy,
        head=head,
    )
    return json_response(value, status, {"retry-after": "5"} if status in (429, 503) else {})


async def _on_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, ArenaError)
    return refusal(error)


async def _on_wrong_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    return refusal(ArenaError("V2081", f"{fault['loc'][-1]}: {fault['msg']}"))


async def _on_wrong_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "V2082" if error.status_code == 404 else "V2081"
    answer = refusal(ArenaError(code, f"{request.method} {request.url.path[:128]}: {error.detail}"))
    answer.status_code = error.status_code
    answer.headers.update(error.headers or {})
    return answer


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")

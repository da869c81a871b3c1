"""The one shape of every answer that is an error, and how failures become it.

A failed request is answered with a code of the registry, what happened here, whose fault it is, what it costs
and what to do next; never with a trace of ours, and never with what was asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from foundation.codes.names import TAIL_BAD_REQUEST, TAIL_LACKS
from foundation.errors import ArenaError

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

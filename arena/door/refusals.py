"""The door's refusals: their shape is that of every server's (`arena.api.refusals`), their status goes with the code.

What a client sent is answered with 4xx; 503 alone says that this node cannot take anything at present. `line`
is there where a line of the agent file is to blame.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from arena.api.refusals import json_response, refused
from foundation.errors import ArenaError

RETRY_S = 5
_STATUS = {
    "A1001": 422,
    "A1002": 422,
    "A1003": 422,
    "A1004": 422,
    "A1005": 422,
    "A1006": 429,
    "A1007": 422,
    "A1008": 403,
    "A1010": 422,
    "A1012": 409,
    "A1013": 409,
    "V2081": 400,
    "V2110": 401,
    "V2112": 429,
    "V2113": 404,
    "V2202": 413,
    "V2203": 408,
    "V2204": 400,
    "V2205": 421,
}
_UNAVAILABLE = 503


class AgentFileError(ArenaError):
    """The agent file breaks a rule; `line` is where, 0 for the file as a whole."""

    def __init__(self, code: str, detail: str, line: int) -> None:
        super().__init__(code, detail)
        self.line = line


class CooldownError(ArenaError):
    """A1006: too early; `blocks_left` until a new commitment counts."""

    def __init__(self, detail: str, blocks_left: int) -> None:
        super().__init__("A1006", detail)
        self.blocks_left = blocks_left


def status_of(error: ArenaError) -> int:
    """The status that goes with a failure's code."""
    return _STATUS.get(error.failure.code, _UNAVAILABLE)


def refusal(error: ArenaError, status: int = 0) -> Response:
    """The answer to a failed request; `status` 0: the one that goes with its code."""
    status = status or status_of(error)
    headers = {"cache-control": "no-store"}
    if status in (429, _UNAVAILABLE):
        headers["retry-after"] = str(RETRY_S)
    line = error.line if isinstance(error, AgentFileError) else 0
    value = msgspec.structs.replace(refused(error, status), line=line or msgspec.UNSET)
    return json_response(value, status, headers)


def explain(status: str) -> bytes:
    """The same shape for a connection that was dropped before it made a request: "408 ..." or "431 ..."."""
    number, _, words = status.partition(" ")
    code = "V2203" if number == "408" else "V2202"
    return msgspec.json.encode(refused(ArenaError(code, words.lower()), int(number)))

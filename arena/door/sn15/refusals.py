"""The door's refusals in the shape, statuses and words of the published SN15 API.

Every refusal of the door has one answer here, made of the same failure; none is softened. A status that the
generated client of that API decodes into a model of one code is answered with that code or with none, since it refuses
to decode any other. What that API knows no code for has a status that it leaves open: a commitment that is missing and
another submission that waits are 409.
"""

from __future__ import annotations

from starlette.responses import Response

from arena.api.refusals import json_response
from arena.api.sn15.answers import AuthDetail, Refused, Violation
from arena.chain.block_times import BLOCK_MS
from arena.door.refusals import RETRY_S, AgentFileError, CooldownError, status_of
from arena.door.sn15.headers import HeaderError
from foundation.codes.names import NOT_COMMITTED
from foundation.errors import ArenaError

_ANSWERS: dict[str, tuple[int, str]] = {
    "A1001": (400, "INVALID_FILE"),
    "A1002": (422, "CODE_ANALYSIS_ERROR"),
    "A1003": (422, "CODE_ANALYSIS_ERROR"),
    "A1004": (413, "FILE_TOO_LARGE"),
    "A1005": (422, "CODE_ANALYSIS_ERROR"),
    "A1006": (429, "COOLDOWN_ACTIVE"),
    NOT_COMMITTED: (409, "COMMITMENT_MISSING"),
    "A1010": (400, "INVALID_AGENT_NAME"),
    "A1012": (409, "SUBMISSION_WAITING"),
    "V2112": (429, "RATE_LIMIT_EXCEEDED"),
    "V2200": (503, "SUBMISSIONS_PAUSED"),
    "V2202": (413, "FILE_TOO_LARGE"),
    "V2204": (400, "INVALID_FILE"),
}
_AUTH = {"A1008": "NOT_REGISTERED", "V2110": "NONCE_REUSED"}
_UNCOMMITTED = (
    "no commitment of this hotkey to this file stands on chain, and these headers sign no file: run `arena commit"
    " AGENT.py` with the same wallet, then submit the same bytes again"
)


def sn15_refusal(error: ArenaError, status: int = 0) -> Response:
    """The answer to a failed request; `status` 0: the one that goes with its code."""
    code, detail = error.failure.code, f"{error.failure.code} {error.entry.title}"
    if error.failure.detail:
        detail = f"{detail}: {error.failure.detail}"
    answered, name = _ANSWERS.get(code, (status_of(error), ""))
    value = Refused(detail=f"{detail}. {error.entry.remedy}", error_code="" if status else name)
    if isinstance(error, HeaderError):
        answered, value = error.status, Refused(detail=AuthDetail(code=error.reason, message=error.failure.detail))
    elif code in _AUTH:
        value = Refused(detail=AuthDetail(code=_AUTH[code], message=detail))
    elif code == NOT_COMMITTED:
        value = Refused(detail=f"{_UNCOMMITTED} ({error.failure.detail})", error_code=name)
    elif isinstance(error, CooldownError):
        left_s = -(-error.blocks_left * BLOCK_MS // 1_000)
        value = Refused(detail=detail, error_code=name, remaining_seconds=left_s)
    elif name == "CODE_ANALYSIS_ERROR":
        line = error.line if isinstance(error, AgentFileError) else 0
        found = Violation(rule=code, severity="form", message=error.failure.detail or error.entry.title, line=line)
        value = Refused(detail=detail, error_code=name, violations=(found,))
    answered = status or answered
    headers = {"cache-control": "no-store"}
    if answered in (429, 503):
        headers["retry-after"] = str(RETRY_S)
    return json_response(value, answered, headers)

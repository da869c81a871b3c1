"""The published SN15 API at the door: its signing headers, submission and own versions, refusals in its shape and
words.

A submission goes to the same service as any other, with the same shares, limits, refusals, pause and queue, under a
policy that says `admission.is_commitment_enough` alone; what the others have is `make_closed_app`. No credential of a
provider is ever read: validators pay for calls of models.

`X-Hotkey`, `X-Timestamp`, `X-Nonce` and `X-Signature` sign `{hotkey}:{timestamp}:{nonce}` and nothing else: no
receiver, method, path or body. So what passes here proves that a hotkey asked for something within the last minute,
once; what counts for a file is the commitment on chain, which no setting waives. The published server keeps a nonce
for 60 s while it takes timestamps 60 s ahead, so a request dated ahead passes twice there; the door keeps nonces for
longer than any of its timestamps lasts. Source: `bittensor-auth` 0.1.1, what `oro-sdk` signs with.

Every refusal of the door has one answer here, made of the same failure; none is softened. A status that the generated
client decodes into a model of one code is answered with that code or with none, since it refuses to decode any other.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Request
from starlette.responses import Response

from arena.api.board import Board
from arena.api.http import (
    RETRY_S,
    AgentFileError,
    add_refusals,
    described,
    discard_body,
    json_response,
    make_app,
    status_of,
)
from arena.chain.keys import canonical_hotkey, verify
from arena.chain.port import Verifier
from arena.chain.real import BLOCK_MS
from arena.door.app import Door, form_document
from arena.door.form import UNSIGNED_PARTS, read_form
from arena.door.service import CooldownError
from arena.sn15.picture import OwnVersions, Picture, block_time_ms
from arena.sn15.routes import add_sn15_reads
from arena.sn15.values import (
    PROVIDER,
    AuthDetail,
    OwnAgents,
    OwnVersion,
    OwnVersionStatus,
    ProviderList,
    ProviderStatus,
    Refused,
    SubmitAnswer,
    Violation,
    agent_uuid,
    utc_text,
    version_uuid,
)
from arena.store.port import StoredSubmission
from foundation.codes.names import NOT_COMMITTED, PEER_LACKS
from foundation.errors import ArenaError

SKEW_S = 60  # of a timestamp, both ways
NONCE_CHARS_MAX = 256
HOTKEY, TIMESTAMP, NONCE, SIGNATURE = "x-hotkey", "x-timestamp", "x-nonce", "x-signature"
_DIGITS_MAX = 15


class HeaderError(ArenaError):
    """V2110: what the headers say does not prove who asks. `reason` and `status` are that API's."""

    def __init__(self, reason: str, status: int, detail: str) -> None:
        super().__init__("V2110", detail)
        self.reason, self.status = reason, status


class Sn15Auth:
    """A `RequestCheck` by these headers."""

    def __init__(self, verify: Verifier, now_ms: Callable[[], int]) -> None:
        """`now_ms` is unix milliseconds."""
        self._verify, self._now_ms = verify, now_ms

    def claimed(self, headers: Mapping[str, str]) -> str:
        """Who a request (headers in lower case) says it is from, unchecked. Raises HeaderError."""
        if missing := [name for name in (HOTKEY, TIMESTAMP, NONCE, SIGNATURE) if not headers.get(name)]:
            raise HeaderError("MISSING_HEADERS", 401, f"missing headers: {', '.join(missing)}")
        hotkey = canonical_hotkey(headers[HOTKEY])
        if hotkey is None:
            raise HeaderError("INVALID_HOTKEY_FORMAT", 400, "X-Hotkey is no ss58 address")
        return hotkey

    def signed(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> tuple[str, int]:
        """The hotkey that signed, and its nonce as a number below zero, where no nonce of `btauth/1` lies.

        Method, target and body are not signed. Raises HeaderError.
        """
        hotkey = self.claimed(headers)
        timestamp, nonce = headers[TIMESTAMP], headers[NONCE]
        if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= _DIGITS_MAX):
            raise HeaderError("INVALID_TIMESTAMP", 400, "X-Timestamp is not unix seconds")
        if len(nonce) > NONCE_CHARS_MAX:
            raise HeaderError("NONCE_TOO_LONG", 400, f"X-Nonce has more than {NONCE_CHARS_MAX} characters")
        if abs(self._now_ms() - int(timestamp) * 1_000) > SKEW_S * 1_000:
            raise HeaderError("TIMESTAMP_SKEW", 401, f"X-Timestamp is more than {SKEW_S} s off this host's clock")
        try:
            signature = bytes.fromhex(headers[SIGNATURE].lower().removeprefix("0x"))
        except ValueError as error:
            raise HeaderError("INVALID_SIGNATURE_FORMAT", 400, "X-Signature is not hex") from error
        message = f"{headers[HOTKEY]}:{timestamp}:{nonce}"
        if not self._verify(hotkey, message.encode(), signature):
            raise HeaderError("INVALID_SIGNATURE", 401, "X-Signature is not the hotkey's over hotkey:timestamp:nonce")
        digest = hashlib.sha256(nonce.encode()).digest()
        return hotkey, -1 - (int.from_bytes(digest[:8]) >> 1)


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
    return json_response(value, answered, {"retry-after": str(RETRY_S)} if answered in (429, 503) else {})


CLOSED_PATHS = ("/v1/miner/",)
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_WHY = (
    "policy `{policy}` wants an agent's commitment on chain and its hotkey's signature over the file, and this API"
    " makes neither: run `arena submit AGENT.py --url {url}` with the same wallet, which makes both."
    " `arena commit AGENT.py` alone is enough where a policy says admission.is_commitment_enough"
)


def make_closed_app(door: Door) -> FastAPI:
    """The application of `CLOSED_PATHS`, over one door."""
    app = FastAPI(title="agent-arena door", docs_url=None, redoc_url=None, openapi_url=None)
    add_refusals(app, sn15_refusal, unknown_route=PEER_LACKS)

    @app.api_route("/v1/miner/{path:path}", methods=_METHODS)
    async def refuse(request: Request, path: str) -> Response:
        door.admit_address(request)
        await discard_body(request)
        url = str(request.base_url).rstrip("/")
        refused = Refused(detail=_WHY.format(policy=door.policy.name, url=url), error_code="SIGNATURE_MISSING")
        return json_response(refused, 409, {"connection": "close"})

    return app


_PAYER = "validators pay for calls of models here: no credential is needed, taken or held"
_NO_PIN = "nothing is pinned here: of a hotkey's versions the one that qualified best races"
PATHS = ("/v1/miner/", "/v1/public/", "/health")
Uuid = Annotated[str, Path(pattern="^[0-9a-f-]{36}$")]
Provider = Annotated[str, Path(pattern="^[a-z]{1,32}$")]


def make_sn15_app(door: Door, board: Board) -> FastAPI:
    """The application of these routes, over one door and the board of the same store."""
    app = make_app(
        "agent-arena door: the published SN15 API", Refused, version="7.0.2", openapi_url="/v1/public/openapi.json"
    )
    add_refusals(app, sn15_refusal, unknown_route=PEER_LACKS)

    async def admit(request: Request) -> None:
        door.admit_address(request)

    auth = Sn15Auth(verify, _now_ms)
    _add_submission(app, door, auth)
    _add_own(app, door, auth, board)
    _add_not_offered(app, door)

    async def waiting() -> list[StoredSubmission]:
        return await door.store.submissions(("waiting",))

    add_sn15_reads(app, board, [Depends(admit)], waiting=waiting)

    @app.get("/health", dependencies=[Depends(admit)])
    async def read_health() -> dict[str, str]:
        """200 while the store answers."""
        await door.store.validators()
        return {"status": "ok"}

    return app


def _add_submission(app: FastAPI, door: Door, auth: Sn15Auth) -> None:
    @app.post("/v1/miner/submit", openapi_extra=form_document(UNSIGNED_PARTS), **described(SubmitAnswer))
    async def submit_agent(request: Request) -> Response:
        """Hand in an agent file whose commitment stands on chain (`arena commit`)."""
        hotkey, body, known = await door.caller(request, check=auth)
        form = read_form(request.headers.get("content-type", ""), body, _now_ms())
        taken = await door.submissions.take(hotkey, form, known)
        left = taken.next_allowed_block - (await door.registration.metagraph()).block
        answer = SubmitAnswer(
            agent_id=agent_uuid(hotkey, taken.name),
            agent_version_id=version_uuid(taken.agent_version_id),
            hotkey=hotkey,
            next_allowed_at=utc_text(block_time_ms(left, _now_ms())),
            message=f"In the queue for the gate of {taken.validator}: agent version {taken.agent_version_id}",
        )
        return json_response(answer)


def _add_own(app: FastAPI, door: Door, auth: Sn15Auth, board: Board) -> None:
    async def look(request: Request) -> OwnVersions:
        hotkey, *_ = await door.caller(request, check=auth)
        await board.refresh()
        return OwnVersions(Picture(board), await door.status.of(hotkey), _now_ms())

    @app.get("/v1/miner/agent-versions/{agent_version_id}", **described(OwnVersionStatus))
    async def get_owned_agent_version_status(request: Request, agent_version_id: Uuid) -> Response:
        """Where one of the caller's versions stands."""
        found = (await look(request)).one(agent_version_id)
        if found is None:
            return _unknown("AGENT_VERSION_NOT_FOUND", "no version of this hotkey")
        return json_response(found)

    @app.get("/v1/miner/agents", **described(OwnAgents))
    async def list_miner_agents(request: Request) -> Response:
        """The caller's agents, and when it may submit again."""
        return json_response((await look(request)).agents())

    @app.get("/v1/miner/agents/{agent_id}/versions", **described(tuple[OwnVersion, ...]))
    async def list_agent_versions(request: Request, agent_id: Uuid) -> Response:
        """The versions of one of the caller's agents, the newest first."""
        found = (await look(request)).history(agent_id)
        return json_response(found) if found else _unknown("AGENT_NOT_FOUND", "no agent of this hotkey")

    @app.get("/v1/miner/inference-auth", **described(ProviderList))
    async def list_inference_auth(request: Request) -> Response:
        """Who pays for calls of models: the validator, with every miner."""
        await door.caller(request, check=auth)
        return json_response(ProviderList())

    @app.get("/v1/miner/inference-auth/{provider}", **described(ProviderStatus))
    async def get_inference_auth_status(request: Request, provider: Provider) -> Response:
        """Whether calls are paid for through this provider."""
        await door.caller(request, check=auth)
        return json_response(ProviderStatus(connected=provider == PROVIDER, provider=provider))


_NOT_OFFERED = (
    ("POST", "/v1/miner/inference-auth/{provider}", 400, _PAYER, ""),
    ("DELETE", "/v1/miner/inference-auth/{provider}", 400, _PAYER, ""),
    ("PATCH", "/v1/miner/inference-auth/default", 400, _PAYER, ""),
    ("PUT", "/v1/miner/race-selection", 400, _NO_PIN, ""),
    ("DELETE", "/v1/miner/race-selection", 404, _NO_PIN, "NO_SELECTION"),
)


def _add_not_offered(app: FastAPI, door: Door) -> None:
    """What that API has and this arena does without: said in words, and no body is read."""

    def refusing(status: int, detail: str, code: str) -> Callable[[Request], Awaitable[Response]]:
        async def refuse(request: Request) -> Response:
            door.admit_address(request)
            return json_response(Refused(detail=detail, error_code=code), status)

        return refuse

    for method, path, status, detail, code in _NOT_OFFERED:
        answer, kind = refusing(status, detail, code), described(ProviderStatus)
        app.api_route(path, methods=[method], name=f"{method} {path}", description=detail, **kind)(answer)


def _unknown(code: str, detail: str) -> Response:
    return json_response(Refused(detail=detail, error_code=code), 404)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

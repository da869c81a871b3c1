"""The routes of the published SN15 API, for clients that exist already: change their base URL.

Paths, field names, words and status codes are that API's (`oro-sdk` 7.0.0 and 7.0.2 alike); what is shown is what
`arena.api.reads` shows.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path, Request
from starlette.responses import Response

from arena.api import http
from arena.api.board import Board
from arena.api.reads import deliver_source
from arena.api.rows import ListedAgent
from arena.chain.keys import HttpCheck, canonical_hotkey, verify
from arena.chain.real import BLOCK_MS
from arena.door.answers import SubmissionStatus
from arena.door.form import UNSIGNED_PARTS, read_form
from arena.door.service import Door, form_document
from arena.records.port import StoredSubmission
from arena.sn15.picture import Answer, Picture, block_time_ms, utc_text, uuid_of, version_uuid, violation
from arena.submissions.submission import CooldownError
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import NOT_COMMITTED, PEER_LACKS
from foundation.errors import ArenaError

URL_MS = 3_600_000  # a link says it lasts so long; the file stays public
REQUEST_BYTES_MAX, REQUEST_S = 4_096, 10.0
_KINDS = ("AGENT_CODE", "EVAL_LOGS_BUNDLE", "EVAL_PROBLEM_LOGS", "REASONING_DETAILS")
PROVIDER = "validator"  # who pays for model calls, with every miner


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error of these routes; `detail` is an object with code and message where a signed request was not let through.
    `error_code` is left out where that API names none for the status: its generated client refuses to decode any
    other. `violations`: what the gate, or the door before it, has against a file."""

    detail: str | dict[str, str]
    error_code: str = ""
    violations: tuple[dict[str, Any], ...] = ()
    remaining_seconds: int | None = None


class ArtifactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which file is asked for."""

    artifact_type: str
    agent_version_id: str


_SHOWN: tuple[tuple[str, Callable[..., object], str], ...] = (
    ("/races/current", Picture.current_race, ""),
    ("/races/history", Picture.history, ""),
    ("/races/{race_id}", Picture.one_race, "RACE_NOT_FOUND"),
    ("/leaderboard", Picture.leaderboard, ""),
    ("/top", Picture.top, ""),
    ("/top/history", Picture.top_history, ""),
    ("/suites", Picture.suites, ""),
    ("/suites/current", Picture.suite, ""),
    ("/suites/{suite_id}/problems", Picture.suite_problems, "SUITE_NOT_FOUND"),
    ("/agent-versions/{agent_version_id}/runs", Picture.runs, "AGENT_VERSION_NOT_FOUND"),
    ("/evaluation-runs/{eval_run_id}", Picture.run, "EVAL_RUN_NOT_FOUND"),
    ("/evaluations/running", Picture.under_way, ""),
    ("/evaluations/pending", Picture.waiting, ""),
    ("/validators", Picture.validators, ""),
)


def add_sn15_reads(app: FastAPI, board: Board) -> None:
    """Add the routes."""
    router = APIRouter(prefix="/v1/public", dependencies=[Depends(board.refresh)])

    for path, make, code in _SHOWN:
        router.get(path)(http.routed(make, functools.partial(_found, code=code), lambda: Picture(board)))

    @router.get("/agent-versions/{agent_version_id}/status")
    async def get_agent_version_status(request: Request, agent_version_id: str) -> Response:
        """Where an agent version stands."""
        picture = Picture(board)
        row = picture.version(agent_version_id)
        arrival = None if row else await _arrival(board, agent_version_id)
        shown = picture.status(row) if row else picture.received(arrival) if arrival else None
        return _found(request, shown, "AGENT_VERSION_NOT_FOUND")

    @router.get("/agent-versions/{agent_version_id}")
    async def get_agent_version(request: Request, agent_version_id: str) -> Response:
        """An agent version whose code is released."""
        picture = Picture(board)
        row = picture.version(agent_version_id)
        shown = picture.public_version(row) if row and row.source.is_public else None
        return _found(request, shown, "ARTIFACT_NOT_RELEASED" if row else "AGENT_VERSION_NOT_FOUND")

    _add_source(router, board)
    app.include_router(router)


def _add_source(router: APIRouter, board: Board) -> None:
    file = http.described_text("text/x-python", "The agent's file, byte for byte; its sha256 is the ETag.")

    @router.get("/agent-versions/{agent_version_id}/code", **file)
    async def get_agent_code(request: Request, agent_version_id: str) -> Response:
        """The file of a released agent version: where `artifacts/download-url` points to."""
        row = Picture(board).version(agent_version_id)
        return _closed(row) or await deliver_source(request, board, row.agent_version_id if row else "")

    @router.post("/artifacts/download-url")
    async def get_artifact_download_url(request: Request) -> Response:
        """Where the code of a released agent version is."""
        try:
            asked = msgspec.json.decode(
                await http.read_body(request, REQUEST_BYTES_MAX, REQUEST_S), type=ArtifactRequest
            )
        except (ArenaError, *UNREADABLE_JSON):
            return _refused(400, "MISSING_PARAMETER", "artifact_type and agent_version_id")
        if asked.artifact_type not in _KINDS:
            return _refused(400, "INVALID_ARTIFACT_TYPE")
        row = Picture(board).version(asked.agent_version_id)
        if row is not None and asked.artifact_type != "AGENT_CODE":
            return _refused(404, "ARTIFACT_NOT_FOUND", "traces: GET /v1/races/{race_id}/trajectories")
        if row is None and await _arrival(board, asked.agent_version_id):
            return _refused(404, "ARTIFACT_NOT_RELEASED")
        if refusal := _closed(row):
            return refusal
        version = version_uuid(row.agent_version_id if row else "")
        url = f"{str(request.base_url).rstrip('/')}/v1/public/agent-versions/{version}/code"
        return http.json_response({"download_url": url, "expires_at": utc_text(board.now_ms() + URL_MS)})


def _found(request: Request, answer: object, code: str) -> Response:
    """An answer; None: 404 with that code."""
    return _refused(404, code) if answer is None else http.deliver_json(request, answer)


async def _arrival(board: Board, agent_version_id: str) -> StoredSubmission | None:
    """The version that waits for the gate under this UUID."""
    waiting = await board.store.submissions(("waiting",))
    return next((each for each in waiting if version_uuid(each.subject.agent_version_id) == agent_version_id), None)


def _closed(row: ListedAgent | None) -> Response | None:
    """Why the file of a version is not to be had; None where it is."""
    if row is None:
        return _refused(404, "AGENT_VERSION_NOT_FOUND")
    if row.source.is_public:
        return None
    is_promoted = row.source.opens == "published"
    return _refused(403, "RACE_IN_FLIGHT") if is_promoted else _refused(404, "ARTIFACT_NOT_RELEASED")


def _refused(status: int, code: str, detail: str = "") -> Response:
    return http.json_response(ErrorReply(detail=detail or code.replace("_", " ").lower(), error_code=code), status)


SKEW_S = 60  # of a timestamp, both ways
NONCE_CHARS_MAX = 256
HOTKEY, TIMESTAMP, NONCE, SIGNATURE = "x-hotkey", "x-timestamp", "x-nonce", "x-signature"
_DIGITS_MAX = 15


class HeaderError(ArenaError):
    """V2110: what the headers say does not prove who asks. `reason` and `status` are that API's."""

    def __init__(self, reason: str, status: int, detail: str) -> None:
        super().__init__("V2110", detail)
        self.reason, self.status = reason, status


_WHY = (
    "policy `{policy}` wants an agent's commitment on chain and its hotkey's signature over the file, and this API"
    " makes neither: run `arena submit AGENT.py --url {url}` with the same wallet, which makes both."
    " `arena commit AGENT.py` alone is enough where a policy says admission.is_commitment_enough"
)


class UnspokenError(ArenaError):
    """A1007: the policy wants what this API does not make."""


class Sn15Auth(HttpCheck):
    """Checks requests by these headers."""

    def claimed(self, headers: Mapping[str, str]) -> str:
        """Who a request (headers in lower case) says it is from, unchecked. Raises HeaderError."""
        if missing := [name for name in (HOTKEY, TIMESTAMP, NONCE, SIGNATURE) if not headers.get(name)]:
            raise HeaderError("MISSING_HEADERS", 401, f"missing headers: {', '.join(missing)}")
        hotkey = canonical_hotkey(headers[HOTKEY])
        if hotkey is None:
            raise HeaderError("INVALID_HOTKEY_FORMAT", 400, "X-Hotkey is not an ss58 address")
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
        if abs(self._now_ns() - int(timestamp) * 1_000_000_000) > SKEW_S * 1_000_000_000:
            raise HeaderError("TIMESTAMP_SKEW", 401, f"X-Timestamp is more than {SKEW_S} s off this host's clock")
        try:
            signature = bytes.fromhex(headers[SIGNATURE].lower().removeprefix("0x"))
        except ValueError as error:
            raise HeaderError("INVALID_SIGNATURE_FORMAT", 400, "X-Signature is not hex") from error
        if not verify(hotkey, f"{headers[HOTKEY]}:{timestamp}:{nonce}".encode(), signature):
            raise HeaderError("INVALID_SIGNATURE", 401, "X-Signature is not the hotkey's over hotkey:timestamp:nonce")
        digest = hashlib.sha256(nonce.encode()).digest()
        return hotkey, -1 - (int.from_bytes(digest[:8]) >> 1)


_ANSWERS: dict[str, tuple[int, str]] = {
    "A1001": (400, "INVALID_FILE"),
    "A1002": (422, "CODE_ANALYSIS_ERROR"),
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
    answered, name = _ANSWERS.get(code, (http.status_of(error), ""))
    value = ErrorReply(detail=f"{detail}. {error.entry.remedy}", error_code="" if status else name)
    if isinstance(error, HeaderError):
        answered, value = error.status, ErrorReply(detail={"code": error.reason, "message": error.failure.detail})
    elif isinstance(error, UnspokenError):
        value = ErrorReply(detail=error.failure.detail, error_code="SIGNATURE_MISSING")
    elif code in _AUTH:
        value = ErrorReply(detail={"code": _AUTH[code], "message": detail})
    elif code == NOT_COMMITTED:
        value = ErrorReply(detail=f"{_UNCOMMITTED} ({error.failure.detail})", error_code=name)
    elif isinstance(error, CooldownError):
        left_s = -(-error.blocks_left * BLOCK_MS // 1_000)
        value = ErrorReply(detail=detail, error_code=name, remaining_seconds=left_s)
    elif name == "CODE_ANALYSIS_ERROR":
        line = error.line if isinstance(error, http.PlaceError) else 0
        found = violation(code, "form", error.failure.detail or error.entry.title, line)
        value = ErrorReply(detail=detail, error_code=name, violations=(found,))
    answered = status or answered
    return http.json_response(value, answered, {"retry-after": str(http.RETRY_S)} if answered in (429, 503) else {})


PATHS = ("/v1/miner/", "/v1/public/", "/health")
CLOSED_PATHS = ("/v1/miner/",)  # where the policy has a door not speak this API: each is refused with the way out
Uuid = Annotated[str, Path(pattern="^[0-9a-f-]{36}$")]
Provider = Annotated[str, Path(pattern="^[a-z]{1,32}$")]


def make_sn15_app(door: Door, board: Board) -> FastAPI:
    """The application of these routes, over one door and the board of the same store. Under a policy that wants a
    signature over the file it refuses each with what is missing."""
    policy, store = door.desk.policy, door.desk.store

    async def require_spoken(request: Request) -> None:
        if not policy.admission.is_commitment_enough:
            await http.discard_body(request)
            url = str(request.base_url).rstrip("/")
            raise UnspokenError(NOT_COMMITTED, _WHY.format(policy=policy.name, url=url))

    app = http.make_app(
        "agent-arena door: the published SN15 API",
        version="7.0.2",
        openapi_url="/v1/public/openapi.json",
        dependencies=[Depends(require_spoken)],
    )
    http.add_refusals(app, sn15_refusal, unknown_route=PEER_LACKS)
    _add_own(app, door, board)
    add_sn15_reads(app, board)

    @app.get("/health")
    async def read_health() -> dict[str, str]:
        """200 while the store answers."""
        await store.validators()
        return {"status": "ok"}

    @app.api_route("/v1/miner/{path:path}", methods=_OTHERS, include_in_schema=False)
    async def refuse(path: str) -> Response:
        """What that API has and this arena does without."""
        status, detail, code = _NOT_OFFERED.get(path.partition("/")[0], (404, "there is no such route", ""))
        return http.json_response(ErrorReply(detail=detail, error_code=code), status)

    return app


_OTHERS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_NOT_OFFERED = {
    "inference-auth": (400, "validators pay for calls of models here: no credential is needed, taken or held", ""),
    "race-selection": (
        404,
        "nothing is pinned here: of a hotkey's versions the one that qualified best races",
        "NO_SELECTION",
    ),
}


def _add_own(app: FastAPI, door: Door, board: Board) -> None:
    auth = Sn15Auth(door.auth.hotkey, lambda: board.now_ms() * 1_000_000)

    async def look(request: Request) -> tuple[Picture, list[SubmissionStatus]]:
        hotkey, *_ = await door.caller(request, check=auth)
        statuses = await door.desk.statuses(hotkey)
        await board.refresh()
        return Picture(board), statuses

    @app.post("/v1/miner/submit", openapi_extra=form_document(UNSIGNED_PARTS))
    async def submit_agent(request: Request) -> Response:
        """Hand in an agent file whose commitment stands on chain (`arena commit`)."""
        hotkey, body, known = await door.caller(request, check=auth)
        form = read_form(request.headers.get("content-type", ""), body, board.now_ms())
        taken = await door.desk.take(hotkey, form, known)
        validator = door.desk.store.validator
        answer = {
            "agent_id": uuid_of("agent", hotkey, taken.name),
            "agent_version_id": version_uuid(taken.agent_version_id),
            "hotkey": hotkey,
            "next_allowed_at": utc_text(block_time_ms(taken.next_allowed_block - taken.block, board.now_ms())),
            "message": f"In the queue for the gate of {validator}: agent version {taken.agent_version_id}",
            "admission_status": "ACCEPTED",
            "admission_reason": None,
        }
        return http.json_response(answer)

    @app.get("/v1/miner/agent-versions/{agent_version_id}")
    async def get_owned_agent_version_status(request: Request, agent_version_id: Uuid) -> Response:
        """Where one of the caller's versions stands."""
        picture, statuses = await look(request)
        for one in statuses:
            if version_uuid(one.agent_version_id) == agent_version_id:
                return http.json_response(picture.own(one))
        return _refused(404, "AGENT_VERSION_NOT_FOUND", "no version of this hotkey")

    @app.get("/v1/miner/agents")
    async def list_miner_agents(request: Request) -> Response:
        """The caller's agents, and when it may submit again."""
        picture, statuses = await look(request)
        return http.json_response(picture.own_agents(statuses, board.now_ms()))

    @app.get("/v1/miner/agents/{agent_id}/versions")
    async def list_agent_versions(request: Request, agent_id: Uuid) -> Response:
        """The versions of one of the caller's agents, the newest first."""
        picture, statuses = await look(request)
        found = picture.own_history(statuses, agent_id)
        return http.json_response(found) if found else _refused(404, "AGENT_NOT_FOUND", "no agent of this hotkey")

    @app.get("/v1/miner/inference-auth")
    async def list_inference_auth(request: Request) -> Response:
        """Who pays for calls of models: the validator, with every miner."""
        await door.caller(request, check=auth)
        return http.json_response({"providers": [_provider(PROVIDER)], "default_provider": PROVIDER})

    @app.get("/v1/miner/inference-auth/{provider}")
    async def get_inference_auth_status(request: Request, provider: Provider) -> Response:
        """Whether calls are paid for through this provider."""
        await door.caller(request, check=auth)
        return http.json_response(_provider(provider))


def _provider(name: str) -> Answer:
    return {"connected": name == PROVIDER, "provider": name}

"""The published SN15 API at the door: submission and status by its signing headers, beside its public reads, so that
one base URL is all that its clients need. Only under a policy that says `admission.is_commitment_enough`; `closed` is
what the others have.

A submission goes to the same service as any other, with the same shares, limits, refusals, pause and queue. These
headers sign no body, so what counts is the commitment on chain, which no setting waives. No credential of a provider is
ever read: validators pay for calls of models.
"""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from fastapi import Depends, FastAPI, Path, Request
from starlette.responses import Response

from arena.api.reads.board import Board
from arena.api.reads.document import complete_document, described
from arena.api.refusals import add_refusals, json_response
from arena.api.sn15.answers import Refused
from arena.api.sn15.names import agent_uuid, utc_text, version_uuid
from arena.api.sn15.picture import Picture
from arena.api.sn15.routes import add_sn15_reads
from arena.chain.keys import verify
from arena.door.app import Door
from arena.door.form import read_unsigned_form
from arena.door.sn15.answers import (
    PROVIDER,
    OwnAgents,
    OwnVersion,
    OwnVersionStatus,
    ProviderList,
    ProviderStatus,
    SubmitAnswer,
)
from arena.door.sn15.headers import Sn15Auth
from arena.door.sn15.refusals import sn15_refusal
from arena.door.sn15.status import OwnVersions, block_time_ms
from arena.store.port import StoredSubmission
from foundation.codes.names import PEER_LACKS

_FRESH = {"cache-control": "no-store"}
_PAYER = "validators pay for calls of models here: no credential is needed, taken or held"
_NO_PIN = "nothing is pinned here: of a hotkey's versions the one that qualified best races"
_PARTS = {"agent_name": {"type": "string"}, "file": {"type": "string", "format": "binary"}}
_FORM_SCHEMA = {"type": "object", "required": list(_PARTS), "properties": _PARTS, "additionalProperties": False}
_FORM = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM_SCHEMA}}}}
PATHS = ("/v1/miner/", "/v1/public/", "/health")
Uuid = Annotated[str, Path(pattern="^[0-9a-f-]{36}$")]
Provider = Annotated[str, Path(pattern="^[a-z]{1,32}$")]


def make_sn15_app(door: Door, board: Board) -> FastAPI:
    """The application of these routes, over one door and the board of the same store."""
    (schema,), _ = msgspec.json.schema_components([Refused], ref_template="#/components/schemas/{name}")
    refused = {"description": Refused.__doc__, "content": {"application/json": {"schema": schema}}}
    app = FastAPI(
        title="agent-arena door: the published SN15 API",
        version="7.0.2",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/public/openapi.json",
        responses={"4XX": refused, "5XX": refused},
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

    complete_document(app)
    return app


def _add_submission(app: FastAPI, door: Door, auth: Sn15Auth) -> None:
    @app.post("/v1/miner/submit", openapi_extra=_FORM, **described(SubmitAnswer, None))
    async def submit_agent(request: Request) -> Response:
        """Hand in an agent file whose commitment stands on chain (`arena commit`)."""
        hotkey, body, known = await door.submitter(request, check=auth)
        form = read_unsigned_form(request.headers.get("content-type", ""), body, _now_ms())
        taken = await door.submissions.take(hotkey, form, known)
        left = taken.next_allowed_block - (await door.registration.metagraph()).block
        answer = SubmitAnswer(
            agent_id=agent_uuid(hotkey, taken.name),
            agent_version_id=version_uuid(taken.agent_version_id),
            hotkey=hotkey,
            next_allowed_at=utc_text(block_time_ms(left, _now_ms())),
            message=f"In the queue for the gate of {taken.validator}: agent version {taken.agent_version_id}",
        )
        return json_response(answer, headers=_FRESH)


def _add_own(app: FastAPI, door: Door, auth: Sn15Auth, board: Board) -> None:
    async def look(request: Request) -> OwnVersions:
        hotkey, _ = await door.caller(request, check=auth)
        await board.refresh()
        return OwnVersions(Picture(board), await door.status.of(hotkey), _now_ms())

    @app.get("/v1/miner/agent-versions/{agent_version_id}", **described(OwnVersionStatus, None))
    async def get_owned_agent_version_status(request: Request, agent_version_id: Uuid) -> Response:
        """Where one of the caller's versions stands."""
        found = (await look(request)).one(agent_version_id)
        if found is None:
            return _unknown("AGENT_VERSION_NOT_FOUND", "no version of this hotkey")
        return json_response(found, headers=_FRESH)

    @app.get("/v1/miner/agents", **described(OwnAgents, None))
    async def list_miner_agents(request: Request) -> Response:
        """The caller's agents, and when it may submit again."""
        return json_response((await look(request)).agents(), headers=_FRESH)

    @app.get("/v1/miner/agents/{agent_id}/versions", **described(tuple[OwnVersion, ...], None))
    async def list_agent_versions(request: Request, agent_id: Uuid) -> Response:
        """The versions of one of the caller's agents, the newest first."""
        found = (await look(request)).history(agent_id)
        return json_response(found, headers=_FRESH) if found else _unknown("AGENT_NOT_FOUND", "no agent of this hotkey")

    @app.get("/v1/miner/inference-auth", **described(ProviderList, None))
    async def list_inference_auth(request: Request) -> Response:
        """Who pays for calls of models: the validator, with every miner."""
        await door.caller(request, check=auth)
        return json_response(ProviderList(), headers=_FRESH)

    @app.get("/v1/miner/inference-auth/{provider}", **described(ProviderStatus, None))
    async def get_inference_auth_status(request: Request, provider: Provider) -> Response:
        """Whether calls are paid for through this provider."""
        await door.caller(request, check=auth)
        return json_response(ProviderStatus(connected=provider == PROVIDER, provider=provider), headers=_FRESH)


def _add_not_offered(app: FastAPI, door: Door) -> None:
    """What that API has and this arena does without: said in words, and no body is read."""

    def refused(request: Request, status: int, detail: str, code: str = "") -> Response:
        door.admit_address(request)
        return json_response(Refused(detail=detail, error_code=code), status, _FRESH)

    @app.post("/v1/miner/inference-auth/{provider}", **described(ProviderStatus, None))
    async def store_inference_credential(request: Request, provider: Provider) -> Response:
        """No credential is taken."""
        return refused(request, 400, _PAYER)

    @app.delete("/v1/miner/inference-auth/{provider}", **described(ProviderStatus, None))
    async def delete_inference_credential(request: Request, provider: Provider) -> Response:
        """No credential is held."""
        return refused(request, 400, _PAYER)

    @app.patch("/v1/miner/inference-auth/default", **described(ProviderStatus, None))
    async def set_default_inference_provider(request: Request) -> Response:
        """There is one payer."""
        return refused(request, 400, _PAYER)

    @app.put("/v1/miner/race-selection", **described(ProviderStatus, None))
    async def set_race_selection(request: Request) -> Response:
        """Nothing is pinned."""
        return refused(request, 400, _NO_PIN)

    @app.delete("/v1/miner/race-selection", **described(ProviderStatus, None))
    async def clear_race_selection(request: Request) -> Response:
        """Nothing is pinned."""
        return refused(request, 404, _NO_PIN, "NO_SELECTION")


def _unknown(code: str, detail: str) -> Response:
    return json_response(Refused(detail=detail, error_code=code), 404, _FRESH)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

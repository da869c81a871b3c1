"""The door over HTTP: routes, who may ask, and how much. What happens to a submission is said by `arena.door.service`.

A request is looked at in this order: has its address a share left, is the hotkey it names registered by a
fresh view of the chain, is there a place for its body; then the body is read within a size and a time, the signature
checked, the nonce spent in the database, and the key's share. Every refusal has the shape of every server's
(`arena.api.http`), and its status goes with the code: what a client sent is answered with 4xx; 503 alone says that this
node cannot take anything at present.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

import msgspec
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from arena.api.http import ErrorAnswer, add_refusals, json_response, refused
from arena.chain.keys import HttpCheck
from arena.door.form import PARTS, discard_body, read_body, read_form
from arena.door.service import (
    STREAM,
    AgentFileError,
    PauseState,
    Registration,
    SubmissionService,
    TakenSubmission,
    read_pause,
)
from arena.door.status import StatusService, SubmissionStatus
from arena.exchange.peer_service import ShareRules, Shares
from arena.policy import Policy
from arena.store.port import HotkeyState, Store
from foundation.codes.names import PEER_LACKS
from foundation.errors import ArenaError
from harness.catalogue.server import network_of

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


_FORM_BYTES = 65_536  # of a body beside the file: heads, name, signature
_PARTS = {name: {"type": "string"} for name in PARTS} | {"file": {"type": "string", "format": "binary"}}
_FORM_SCHEMA = {"type": "object", "required": list(PARTS), "properties": _PARTS, "additionalProperties": False}
_FORM = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM_SCHEMA}}}}
_Version = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="Agent version id.")]


_Netuid = Annotated[
    int | None, Query(ge=0, le=65_535, description="The subnet that the request is for; another door's is refused.")
]


class DoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the door one client may take. Bodies at once times the policy's size bounds its memory."""

    body_s: float = 20.0
    bodies: int = 32
    bodies_per_network: int = 4
    address: ShareRules = ShareRules(requests_per_s=20.0, requests_burst=200)
    hotkey: ShareRules = ShareRules(requests_per_s=1.0, requests_burst=30)
    nonce_keep_ms: int = 300_000
    nonces_per_hotkey: int = 1_024


class DoorState(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody may know: for whom to sign requests, under which rules, whether submissions are taken, and at which
    port of the same host races and agents can be read (`arena/api`); 0: nowhere."""

    validator: str
    netuid: int
    policy: str
    policy_sha256: str
    source_bytes_max: int
    pause: PauseState
    reads_port: int = 0


class RequestCheck(Protocol):
    """Whose a signed request is, by one way of signing."""

    def claimed(self, headers: Mapping[str, str]) -> str | None:
        """Who it says it is from, unchecked."""
        ...

    def signed(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> tuple[str, int]:
        """The hotkey that signed it, and a number that no other request of it has. Raises ArenaError V2110."""
        ...


class Door:
    """One validator's door: its ports and the shares of its callers."""

    def __init__(
        self,
        store: Store,
        auth: HttpCheck,
        registration: Registration,
        submissions: SubmissionService,
        status: StatusService,
        policy: Policy,
        *,
        netuid: int,
        reads_port: int = 0,
        rules: DoorRules | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.auth, self.registration = store, auth, registration
        self.submissions, self.status = submissions, status
        self.policy, self.netuid, self.rules = policy, netuid, rules or DoorRules()
        self._reads_port = reads_port
        self._addresses = Shares(self.rules.address, monotonic)
        self._hotkeys = Shares(self.rules.hotkey, monotonic)
        self._bodies: Counter[str] = Counter()  # being read, by network

    async def state(self) -> DoorState:
        """What anybody may know."""
        return DoorState(
            validator=self.auth.hotkey,
            netuid=self.netuid,
            policy=self.policy.name,
            policy_sha256=self.policy.policy_sha256,
            source_bytes_max=self.policy.gate.source_bytes,
            pause=await read_pause(self.store),
            reads_port=self._reads_port,
        )

    def admit_address(self, request: Request) -> None:
        """Take one request of the address's share. Raises ArenaError V2112."""
        self._addresses.spend_request(_network(request))

    async def caller(
        self, request: Request, *, netuid: int | None = None, check: RequestCheck | None = None
    ) -> tuple[str, bytes, HotkeyState]:
        """The hotkey that signed a request, the body, and what is known of the hotkey, in one round trip with the
        nonce. `netuid`: for which subnet, where the request says so. `check`: by which way of signing; None:
        `btauth/1`.

        Raises ArenaError A1008, V2110, V2112, V2201 to V2205.
        """
        hotkey, nonce, body = await self._signed(request, netuid, check)
        keep_ms, most = self.rules.nonce_keep_ms, self.rules.nonces_per_hotkey
        known = await self.store.spend_and_look(hotkey, nonce, keep_ms=keep_ms, most=most, stream=STREAM)
        if known is None:
            raise ArenaError("V2110", "this request was made before, or too many were made at once")
        self._hotkeys.spend_request(hotkey)
        return hotkey, body, known

    async def _signed(self, request: Request, netuid: int | None, check: RequestCheck | None) -> tuple[str, int, bytes]:
        self.admit_address(request)
        if netuid not in (None, self.netuid):
            raise ArenaError("V2205", f"it is for netuid {netuid}, and this door is of netuid {self.netuid}")
        check = check or self.auth
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            claimed = check.claimed(headers)
            if claimed is None:
                raise ArenaError("V2110", "no hotkey is named")
            await self.registration.require(claimed)
        except ArenaError:
            await discard_body(request)
            raise
        with self._place(_network(request)):
            most = self.policy.gate.source_bytes + _FORM_BYTES if request.method == "POST" else 0
            body = await read_body(request, most, self.rules.body_s)
        query = request.scope["query_string"].decode("latin-1")
        target = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        hotkey, nonce = check.signed(headers, request.method, target, body)
        return hotkey, nonce, body

    @contextmanager
    def _place(self, network: str) -> Iterator[None]:
        if self._bodies.total() >= self.rules.bodies or self._bodies[network] >= self.rules.bodies_per_network:
            raise ArenaError("V2112", "too many bodies are being sent at once")
        self._bodies[network] += 1
        try:
            yield
        finally:
            self._bodies[network] -= 1
            self._bodies += Counter()  # forgets who sends nothing


def make_door_app(door: Door) -> FastAPI:
    """The application of one door."""
    _, shapes = msgspec.json.schema_components([ErrorAnswer])
    refused = {"description": ErrorAnswer.__doc__, "content": {"application/json": {"schema": shapes["ErrorAnswer"]}}}
    responses: dict[int | str, dict[str, Any]] = {"4XX": refused, "5XX": refused}
    app = FastAPI(title="agent-arena door", version="1", docs_url=None, redoc_url=None, responses=responses)
    add_refusals(app, refusal, unknown_route=PEER_LACKS)
    one, several = _answer(SubmissionStatus), _answer(SubmissionStatus, is_list=True)

    @app.get("/v1/door", response_class=Response, responses=_answer(DoorState))
    async def read_door(request: Request) -> Response:
        """Whose door this is and whether it is open. Not signed."""
        door.admit_address(request)
        return _json(await door.state())

    @app.post(
        "/v1/submissions",
        status_code=202,
        response_class=Response,
        responses=_answer(TakenSubmission, 202),
        openapi_extra=_FORM,
    )
    async def submit(request: Request, netuid: _Netuid = None) -> Response:
        """Hand in an agent file whose commitment stands on chain.

        202: it is in the queue for the gate, and `status_url` tells what becomes of it. The same file again gets the
        same answer. Signed with `btauth/1` over the whole body.
        """
        hotkey, body, known = await door.caller(request, netuid=netuid)
        taken = await door.submissions.take(hotkey, read_form(request.headers.get("content-type", ""), body), known)
        return _json(taken, 202, {"location": taken.status_url})

    @app.get("/v1/submissions", response_class=Response, responses=several)
    async def read_submissions(request: Request, netuid: _Netuid = None) -> Response:
        """Every version of the hotkey that signed, the newest first, and where it stands."""
        hotkey, *_ = await door.caller(request, netuid=netuid)
        return _json(await door.status.of(hotkey))

    @app.get("/v1/submissions/{version}", response_class=Response, responses=one)
    async def read_submission(request: Request, version: _Version, netuid: _Netuid = None) -> Response:
        """Where one of the caller's versions stands."""
        hotkey, *_ = await door.caller(request, netuid=netuid)
        return await _status_of(door, hotkey, version)

    @app.delete("/v1/submissions/{version}", response_class=Response, responses=one)
    async def withdraw(request: Request, version: _Version, netuid: _Netuid = None) -> Response:
        """Take a version back that waits for the gate."""
        hotkey, *_ = await door.caller(request, netuid=netuid)
        await door.submissions.withdraw(hotkey, version)
        return await _status_of(door, hotkey, version)

    return app


async def _status_of(door: Door, hotkey: str, version: str) -> Response:
    for each in await door.status.of(hotkey):
        if each.agent_version_id == version:
            return _json(each)
    raise ArenaError("V2113", "no version of this hotkey")


def _network(request: Request) -> str:
    return network_of(request.client.host) if request.client else ""


def _answer(kind: type, status: int = 200, *, is_list: bool = False) -> dict[int | str, dict[str, Any]]:
    """The answer's shape in the OpenAPI document, its parts written out in place."""
    shape = _inlined(kind)
    schema = {"type": "array", "items": shape} if is_list else shape
    return {status: {"description": kind.__doc__ or "", "content": {"application/json": {"schema": schema}}}}


def _inlined(kind: type) -> dict[str, Any]:
    (shape,), parts = msgspec.json.schema_components([kind])

    def put_in(node: Any) -> Any:
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).rpartition("/")[2]
            return put_in(parts[name]) if name else {key: put_in(value) for key, value in node.items()}
        return [put_in(each) for each in node] if isinstance(node, list) else node

    found: dict[str, Any] = put_in(shape)
    return found


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    kept = {"cache-control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(value), status, kept, media_type="application/json")

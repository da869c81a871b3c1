"""The door over HTTP: routes, who may ask, and how much. What happens to a submission is said by `arena.door.service`.

A request is looked at in this order: has its address a share left (`arena.web.server` asks), is the hotkey it names
registered by a fresh view of the chain, is there a place for its body; then the body is read within a size and a time,
the signature checked, the nonce spent in the database, and the key's share. Every refusal has the shape of every server
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

from arena.api.http import add_refusals, discard_body, json_response, make_app, read_body, refused
from arena.chain.keys import HttpCheck
from arena.door.form import PARTS, read_form
from arena.door.service import STREAM, Desk, PauseState, read_pause
from arena.exchange.peer_service import ShareRules, Shares
from arena.records.port import HotkeyState
from foundation.codes.names import PEER_LACKS
from foundation.errors import ArenaError
from harness.catalogue.server import network_of

_FORM_BYTES = 65_536  # of a body beside the file: heads, name, signature
_Version = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="Agent version id.")]
_Netuid = Annotated[
    int | None, Query(ge=0, le=65_535, description="The subnet that the request is for; another door's is refused.")
]


def form_document(names: tuple[str, ...]) -> dict[str, Any]:
    """How a document describes a multipart form with these parts."""
    parts = {name: {"type": "string"} for name in names} | {"file": {"type": "string", "format": "binary"}}
    schema = {"type": "object", "required": list(names), "properties": parts, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def explain_dropped(status: str) -> bytes:
    """What a client reads whose connection was dropped before it made a request: "408 ..." or "431 ..."."""
    number, _, words = status.partition(" ")
    code = "V2203" if number == "408" else "V2202"
    return msgspec.json.encode(refused(ArenaError(code, words.lower()), int(number)))


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
        desk: Desk,
        auth: HttpCheck,
        *,
        reads_port: int = 0,
        rules: DoorRules | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.desk, self.auth, self.netuid, self.rules = desk, auth, desk.chain.netuid, rules or DoorRules()
        self._reads_port = reads_port
        self.addresses = Shares(self.rules.address, monotonic)  # the servers' to ask, before a request gets here
        self._hotkeys = Shares(self.rules.hotkey, monotonic)
        self._bodies: Counter[str] = Counter()  # being read, by network

    async def state(self) -> DoorState:
        """What anybody may know."""
        return DoorState(
            validator=self.auth.hotkey,
            netuid=self.netuid,
            policy=self.desk.policy.name,
            policy_sha256=self.desk.policy.policy_sha256,
            source_bytes_max=self.desk.policy.gate.source_bytes,
            pause=await read_pause(self.desk.store),
            reads_port=self._reads_port,
        )

    async def caller(
        self, request: Request, *, netuid: int | None = None, check: RequestCheck | None = None
    ) -> tuple[str, bytes, HotkeyState]:
        """The hotkey that signed a request, the body, and what is known of the hotkey, in one round trip with the
        nonce. `netuid`: for which subnet, where the request says so. `check`: by which way of signing; None:
        `btauth/1`.

        Raises ArenaError A1008, V2081, V2110, V2112, V2200 to V2203.
        """
        if netuid not in (None, self.netuid):
            raise ArenaError("V2110", f"it is for netuid {netuid}, and this door is of netuid {self.netuid}")
        check = check or self.auth
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            claimed = check.claimed(headers)
            if claimed is None:
                raise ArenaError("V2110", "no hotkey is named")
            await self.desk.registration.require(claimed)
        except ArenaError:
            await discard_body(request)
            raise
        with self._place(_network(request)):
            most = self.desk.policy.gate.source_bytes + _FORM_BYTES if request.method == "POST" else 0
            body = await read_body(request, most, self.rules.body_s)
        query = request.scope["query_string"].decode("latin-1")
        target = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        hotkey, nonce = check.signed(headers, request.method, target, body)
        keep_ms, most = self.rules.nonce_keep_ms, self.rules.nonces_per_hotkey
        known = await self.desk.store.spend_and_look(hotkey, nonce, keep_ms=keep_ms, most=most, stream=STREAM)
        if known is None:
            raise ArenaError("V2110", "this request was made before, or too many were made at once")
        self._hotkeys.spend_request(hotkey)
        return hotkey, body, known

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
    app = make_app("agent-arena door")
    add_refusals(app, unknown_route=PEER_LACKS)

    @app.get("/v1/door")
    async def read_door(request: Request) -> Response:
        """Whose door this is and whether it is open. Not signed."""
        return json_response(await door.state())

    @app.post("/v1/submissions", status_code=202, openapi_extra=form_document(PARTS))
    async def submit(request: Request, netuid: _Netuid = None) -> Response:
        """Hand in an agent file whose commitment stands on chain.

        202: it is in the queue for the gate, and `status_url` tells what becomes of it. The same file again gets the
        same answer. Signed with `btauth/1` over the whole body.
        """
        hotkey, body, known = await door.caller(request, netuid=netuid)
        taken = await door.desk.take(hotkey, read_form(request.headers.get("content-type", ""), body), known)
        return json_response(taken, 202, {"location": taken.status_url})

    @app.get("/v1/submissions")
    async def read_submissions(request: Request, netuid: _Netuid = None) -> Response:
        """Every version of the hotkey that signed, the newest first, and where it stands."""
        hotkey, *_ = await door.caller(request, netuid=netuid)
        return json_response(await door.desk.statuses(hotkey))

    @app.get("/v1/submissions/{version}")
    async def read_submission(request: Request, version: _Version, netuid: _Netuid = None) -> Response:
        """Where one of the caller's versions stands."""
        hotkey, *_ = await door.caller(request, netuid=netuid)
        return json_response(await door.desk.status(hotkey, version))

    @app.delete("/v1/submissions/{version}")
    async def withdraw(request: Request, version: _Version, netuid: _Netuid = None) -> Response:
        """Take a version back that waits for the gate."""
        hotkey, *_ = await door.caller(request, netuid=netuid)
        await door.desk.withdraw(hotkey, version)
        return json_response(await door.desk.status(hotkey, version))

    return app


def _network(request: Request) -> str:
    return network_of(request.client.host) if request.client else ""

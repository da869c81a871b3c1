"""The servers of a node: one socket and one application each, in the event loop they are run in; and the addresses of
the pages.

Public reads, door and exchange have a listener each, so a crowd at one does not slow the others; silent and slow
clients are dropped (`harness.catalogue.server`). The published SN15 API (`arena.sn15`) is put beside them here alone.
A browser's refusals are pages; what lies under `/v1/` is for programs and stays JSON.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import time
from collections.abc import Callable, Mapping
from importlib.resources import files

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.api import http
from arena.api.board import Board
from arena.api.reads import HEARTBEAT_S, POLL_S, Number, Tail, ValidatorName, add_reads, add_tail
from arena.api.rows import called
from arena.bank.batch import NOTHING, Explain
from arena.chain.local import QUESTION_BYTES_MAX, ROUTE, ChainAnswer, ChainQuestion, LocalSubtensor
from arena.door.service import Door, make_door_app
from arena.exchange.peer_service import ShareRules, Shares
from arena.exchange.routes import Exchange, Places, add_exchange
from arena.race.weights import evidence_text
from arena.records.proof import encode_proof
from arena.sn15.routes import CLOSED_PATHS, PATHS, add_sn15_reads, make_sn15_app, sn15_refusal
from arena.store.postgres import PostgresStore
from arena.view.page import page_templates
from arena.web.pages import Pages
from arena.web.reading import harmless, moment, sentence
from foundation.canonical import UNREADABLE_JSON
from foundation.codes import TAIL_BAD_REQUEST
from foundation.errors import ArenaError
from harness.catalogue.server import Connections
from judge.render import neutral_name
from problems.model import Problem

# By name: its type, and the files that it is made of. The stylesheet begins with that of traces.
STATIC = {
    "site.css": ("text/css; charset=utf-8", (("arena.view", "looks.css"), ("arena.web", "static/site.css"))),
    "site.js": ("text/javascript; charset=utf-8", (("arena.web", "static/site.js"),)),
    "verify_proof.py": ("text/x-python; charset=utf-8", (("arena.records", "verify_proof.py"),)),
}


@functools.cache
def _templates() -> Environment:
    """The templates of the pages, and the parts that show traces (`arena.view`)."""
    made = page_templates().overlay(loader=ChoiceLoader([PackageLoader("arena.web"), PackageLoader("arena.view", "")]))
    made.filters |= dict(
        moment=moment,
        harmless=harmless,
        sentence=sentence,
        breakable=lambda text: Markup(str(escape(text)).replace("_", "_<wbr>")),
        pair=lambda text: (text, text),
        name=lambda text: neutral_name(text).strip(),
        share=lambda value_e4: f"{value_e4 / 10_000:.4f}",
        percent=lambda value_e4: f"{value_e4 / 100:.1f}\u00a0%",
        short=lambda text: f"{text[:6]}…{text[-4:]}" if len(text) > 14 else text,
        evidence=evidence_text,
        usd=lambda micro: "$? (no price)" if micro is None else f"${micro / 1e6:,.4f}",
    )
    return made


def render_page(name: str, **values: object) -> bytes:
    """The page of a template with these values."""
    return _templates().get_template(f"{name}.html.j2").render(**values).lstrip().encode("utf-8", "replace")


@functools.cache
def static_file(name: str) -> bytes:
    """A file of `STATIC`."""
    return b"".join((files(package) / path).read_bytes() for package, path in STATIC[name][1])


SECURITY = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self';"
    " connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


# what people do, where a code's own fix speaks to programs
TO_DO = {
    "V2082": "Everything that is here can be reached from the pages above.",
    "V2089": "It opens by itself; until then its counts alone are public.",
}


def refusal_page(request: Request, error: ArenaError, status: int) -> Response:
    """The page of a refusal."""
    said = http.refused(error, status)
    to_do = sentence(TO_DO.get(said.code, said.what_to_do))
    shown = dict(status=status, code=said.code, message=sentence(said.message), what_to_do=to_do)
    answer = Response(render_page("error", page=shown, path=request.url.path), status, media_type="text/html")
    answer.headers.update(SECURITY)
    return answer


_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")


def add_pages(app: FastAPI, board: Board, tail: Tail, explain: Explain) -> None:
    """Add the pages to the application of the reads. `explain` says what released problems asked."""
    pages = Pages(board, tail, explain)
    router = APIRouter(dependencies=[Depends(http.require_known), Depends(board.refresh)], include_in_schema=False)
    for path, name, make in (
        ("/", "front", pages.front),
        ("/rule", "rule", pages.rule),
        ("/races", "races", pages.races),
        ("/races/{race_id}", "race", pages.race),
        ("/races/{race_id}/problems/{problem_id}", "problem", pages.problem),
        ("/traces/{validator}/{seq}", "trace_page", pages.trace),
        ("/agents", "agents", pages.agents),
        ("/agents/{agent_version_id}", "agent", pages.agent),
        ("/firehose", "firehose", pages.firehose),
        ("/validators", "validators", pages.validators),
        ("/verify", "verify", pages.verify),
        ("/api", "api", app.openapi),
    ):
        router.get(path)(http.routed(make, functools.partial(_show, pages, name)))
    _add_files(router, pages)
    app.include_router(router)


def _show(pages: Pages, name: str, request: Request, page: object) -> Response:
    template = "compare" if isinstance(page, list) else name  # two traces side by side
    # This server's address as the client named it. People copy it into commands, so no shell may read more.
    named = request if _HOST.fullmatch(request.base_url.netloc) else Request({**request.scope, "headers": []})
    shown = dict(
        page=page, path=request.url.path, base_url=str(named.base_url), called=functools.partial(called, pages.board)
    )
    answer = http.deliver(request, render_page(template, **shown), "text/html")
    answer.headers.update(SECURITY)
    return answer


def _add_files(router: APIRouter, pages: Pages) -> None:
    @router.get("/proofs/{validator}/{seq}")
    async def show_proof(request: Request, validator: ValidatorName, seq: Number) -> Response:
        """The proof file of a record (`arena.records.proof`), for the page `/verify` and the program there."""
        content = encode_proof(await pages.proof(validator, seq))
        return http.deliver(request, content, "application/json", name=f"proof-{seq}.json")

    @router.get("/static/{name}")
    async def show_static(request: Request, name: str) -> Response:
        if name not in STATIC:
            return http.refusal(ArenaError("V2082", f"there is no file {name[:64]!a}"))
        answer = http.deliver(request, static_file(name), STATIC[name][0])
        answer.headers["cache-control"] = "max-age=300"
        return answer


_SHORT_REQUESTS = 32  # connections beside the streams
_EXCHANGE_CONNECTIONS = 512
DOOR_CONNECTIONS, DOOR_CONNECTIONS_PER_ADDRESS = 256, 32
REQUESTS_PER_S = 250.0
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


class TailServer(http.Server):
    """Serves the public reads, pages and live tail of one store."""

    def __init__(
        self,
        store: PostgresStore,
        listener: socket.socket,
        *,
        now_ms: Callable[[], int],
        clients: int = 32,
        poll_s: float = POLL_S,
        heartbeat_s: float = HEARTBEAT_S,
        suites: Mapping[str, tuple[Problem, ...]] | None = None,
        requests_per_s: float = REQUESTS_PER_S,
        explain: Explain = lambda record, catalogue_sha256: NOTHING,
        is_sn15_served: bool = False,
    ) -> None:
        """`clients` streams run at once; `suites` are the public problems by suite, `now_ms` unix milliseconds;
        `requests_per_s` of one address, twice as many at once; `explain` says of released problems what they asked;
        `is_sn15_served`: also the read routes of the published SN15 API."""
        self.tail = Tail(store, poll_s=poll_s, heartbeat_s=heartbeat_s, now_ms=now_ms)
        self.board = Board(store, now_ms=now_ms, suites=suites or {}, refresh_s=poll_s)
        self.closing = self.tail.closing
        rules = ShareRules(requests_per_s=requests_per_s, requests_burst=int(2 * requests_per_s))
        app = http.make_app("agent-arena public reads and live tail")
        http.add_refusals(app, page=refusal_page)
        add_tail(app, self.tail, Places(clients, max(1, clients // 2)))  # nobody shuts out all others
        add_reads(app, self.board, self.tail)
        add_pages(app, self.board, self.tail, explain)
        if is_sn15_served:
            add_sn15_reads(app, self.board)
        room = clients + _SHORT_REQUESTS
        connections = Connections(total=room, per_address=room - room // 4)  # some are left for others
        super().__init__(http.limited(app, Shares(rules, time.monotonic)), listener, connections)


class ExchangeServer(http.Server):
    """Serves one exchange, signed requests alone, on a socket of its own."""

    def __init__(self, exchange: Exchange, listener: socket.socket) -> None:
        app = http.make_app("agent-arena exchange")
        http.add_refusals(app)
        add_exchange(app, exchange)
        super().__init__(app, listener, Connections(total=_EXCHANGE_CONNECTIONS))


class DoorServer(http.Server):
    """Serves one door, the published SN15 API (`arena.sn15`) under its own paths."""

    def __init__(
        self, door: Door, listener: socket.socket, board: Board, *, per_address: int = DOOR_CONNECTIONS_PER_ADDRESS
    ) -> None:
        """`board` answers the public reads of that API, where the policy has the door speak it. At most `per_address`
        connections of one address at once."""
        own = http.limited(make_door_app(door), door.addresses)
        guests = http.limited(make_sn15_app(door, board), door.addresses, sn15_refusal)
        paths = PATHS if door.desk.policy.admission.is_commitment_enough else CLOSED_PATHS

        async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
            app = guests if scope.get("path", "").startswith(paths) else own
            await app(scope, receive, send)

        connections = Connections(total=max(DOOR_CONNECTIONS, per_address), per_address=per_address)
        super().__init__(_closing_unread(by_path), listener, connections)


def _closing_unread(app: ASGIApp) -> ASGIApp:
    """An application whose answer ends the connection where it comes before the whole body: what is still on its way
    would be read for nothing. Every other connection is kept, since a new one costs both sides more than a refusal."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_read = not any(name in _BODY_HEADERS for name, _ in scope["headers"])

        async def heard() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def said(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_read:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await app(scope, heard, said)

    return serve


_CONNECTIONS, _BODY_S = 64, 10.0


class ChainServer(http.Server):
    """Serves one local chain. Its address is `--subtensor.network` of the machines that use it."""

    def __init__(self, chain: LocalSubtensor, listener: socket.socket) -> None:
        self._chain = chain
        app = Starlette(routes=[Route(ROUTE, self._answer, methods=["POST"])])
        super().__init__(app, listener, Connections(total=_CONNECTIONS))

    async def _answer(self, request: Request) -> Response:
        try:
            body = await http.read_body(request, QUESTION_BYTES_MAX, _BODY_S)
            asked = msgspec.json.decode(body, type=ChainQuestion)
            answer, status = ChainAnswer(value=await asyncio.to_thread(self._chain.answer, asked)), 200
        except UNREADABLE_JSON as error:
            answer, status = ChainAnswer(failure=ArenaError(TAIL_BAD_REQUEST, str(error)[:300]).failure), 400
        except ArenaError as error:
            answer, status = ChainAnswer(failure=error.failure), 503 if error.entry.is_retryable else 400
        return Response(msgspec.json.encode(answer), status, media_type="application/json")

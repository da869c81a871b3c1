"""Addresses of the pages, headers, server-sent news; refusals that people read, with the code and what to do.

Who asks with a browser gets a page, every other client the one JSON shape; what lies under `/v1/` is for
programs and stays JSON.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import Response

from arena.api.board import Board
from arena.api.http import ErrorAnswer, deliver, refusal, refused, require_known, status_of
from arena.api.reads import AgentFilter, AgentId, Number, RaceId, ValidatorName
from arena.api.tail import DEFAULT_POOLS, Pools, Tail
from arena.bank.batch import Explain
from arena.exchange.streams import Places, RowStream
from arena.records.proof import encode_proof
from arena.web.pages import Pages, Shown, Stage, State, Wrote
from arena.web.reading import moment, sentence
from foundation.errors import ArenaError
from judge.neutral import neutral_name

STATIC = {
    "site.css": "text/css; charset=utf-8",
    "site.js": "text/javascript; charset=utf-8",
    "verify_proof.py": "text/x-python; charset=utf-8",
}


@functools.cache
def _templates() -> Environment:
    """The templates of the pages, and the parts that they share with static traces (`arena.view`)."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader("arena.web"), PackageLoader("arena.view", "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = moment
    made.filters["pair"] = lambda text: (text, text)
    made.filters["sentence"] = sentence
    made.filters["name"] = lambda text: neutral_name(text).strip()
    made.filters["percent_between"] = lambda value, low, high: f"{100 * (value - low) / max(1, high - low):.2f}"
    made.filters["share"] = lambda value_e4: f"{value_e4 / 10_000:.4f}"
    made.filters["percent"] = lambda value_e4: f"{value_e4 / 100:.1f}\u00a0%"
    made.filters["short"] = lambda text: f"{text[:6]}…{text[-4:]}" if len(text) > 14 else text
    made.filters["usd"] = lambda micro: f"${micro / 1e6:.4f}"
    return made


def render_page(name: str, **values: object) -> bytes:
    """The page of a template with these values."""
    return _templates().get_template(f"{name}.html.j2").render(**values).lstrip().encode("utf-8", "replace")


@functools.cache
def static_file(name: str) -> bytes:
    """A file of `STATIC`: the stylesheet is also that of static traces; the program is what checks proofs elsewhere."""
    if name == "site.css":
        return (files("arena.view") / "looks.css").read_bytes() + (files("arena.web") / "static" / name).read_bytes()
    if name == "verify_proof.py":
        return (files("arena.records") / name).read_bytes()
    return (files("arena.web") / "static" / name).read_bytes()


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


def refusal_page(request: Request, said: ErrorAnswer, status: int) -> Response:
    """The page of a refusal."""
    to_do = sentence(TO_DO.get(said.code, said.what_to_do))
    shown = dict(status=status, code=said.code, message=sentence(said.message), what_to_do=to_do)
    answer = Response(render_page("error", page=shown, path=request.url.path), status, media_type="text/html")
    answer.headers.update(SECURITY)
    return answer


def answer_people(app: FastAPI) -> None:
    """Show the application's refusals as pages to whoever asks for pages."""
    for kind in (ArenaError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _for_people(app.exception_handlers[kind]))


def _for_people(plain: Any) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        plainly: Response = await plain(request, error)
        if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
            return plainly
        said = msgspec.json.decode(bytes(plainly.body), type=ErrorAnswer)
        is_no_page = isinstance(error, HTTPException) and error.status_code == 404
        if is_no_page:
            said = msgspec.structs.replace(said, message=f"there is no page {neutral_name(request.url.path)[:64]}")
        page = refusal_page(request, said, plainly.status_code)
        for name in ("retry-after", "allow"):
            if name in plainly.headers:
                page.headers[name] = plainly.headers[name]
        page.headers["vary"] = "accept"
        return page

    return answer


LIVE_S = 2.0
QUIET_TURNS = 8  # without news before a line says that the server is there
Cursor = Annotated[str, Query(max_length=512)]
ProblemId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_.-]{1,128}$", description="A problem.")]
Other = Annotated[str, Query(alias="with", pattern=r"^([A-Za-z0-9]{1,128}/[0-9]{1,15})?$")]
AgentName = Annotated[str, Query(max_length=64)]
RaceName = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{0,128}$")]
RecordText = Annotated[str, Query(max_length=128)]
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")


def add_pages(app: FastAPI, board: Board, tail: Tail, places: Places, explain: Explain) -> None:
    """Add the pages to the application of the reads. `places` bounds streams of news together with the tail's;
    `explain` says what released problems asked."""
    pages = Pages(board, tail, explain)
    router = APIRouter(dependencies=[Depends(require_known)], include_in_schema=False)
    _add_races(router, pages)
    _add_others(router, pages)
    _add_files(router, pages, places)
    app.include_router(router)
    answer_people(app)


async def _answer(request: Request, pages: Pages, name: str, make: Callable[[], Awaitable[object]]) -> Response:
    """The page `name` of what `make` gives, or why there is none."""
    try:
        await pages.board.refresh()
        page = render_page(name, page=await make(), path=request.url.path, called=pages.called)
    except ArenaError as error:
        return refusal_page(request, refused(error, status_of(error)), status_of(error))
    answer = deliver(request, page, "text/html")
    answer.headers.update(SECURITY)
    return answer


def _add_races(router: APIRouter, pages: Pages) -> None:
    @router.get("/")
    async def show_front(request: Request) -> Response:
        return await _answer(request, pages, "front", pages.front)

    @router.get("/races")
    async def show_races(request: Request, stage: Stage = "", promotion: bool = False, cursor: Cursor = "") -> Response:
        return await _answer(request, pages, "races", lambda: pages.races(stage, promotion, cursor))

    @router.get("/races/{race_id}")
    async def show_race(
        request: Request, race_id: RaceId, pool: Pools = DEFAULT_POOLS, show: Shown = "", cursor: Cursor = ""
    ) -> Response:
        return await _answer(request, pages, "race", lambda: pages.race(race_id, pool, show, cursor))

    @router.get("/races/{race_id}/problems/{problem_id}")
    async def show_problem(
        request: Request, race_id: RaceId, problem_id: ProblemId, pool: Pools = DEFAULT_POOLS
    ) -> Response:
        return await _answer(request, pages, "problem", lambda: pages.problem(race_id, problem_id, pool))

    @router.get("/traces/{validator}/{seq}")
    async def show_trace(
        request: Request, validator: ValidatorName, seq: Number, pool: Pools = DEFAULT_POOLS, other: Other = ""
    ) -> Response:
        if other:
            second, number = other.split("/")
            beside = second, int(number)
            return await _answer(request, pages, "compare", lambda: pages.compare((validator, seq), beside, pool))
        return await _answer(request, pages, "trace_page", lambda: pages.trace(validator, seq, pool))


def _add_others(router: APIRouter, pages: Pages) -> None:
    @router.get("/agents")
    async def show_agents(request: Request, name: AgentName = "", state: State = "", cursor: Cursor = "") -> Response:
        return await _answer(request, pages, "agents", lambda: pages.agents(name, state, cursor))

    @router.get("/agents/{agent_version_id}")
    async def show_agent(request: Request, agent_version_id: AgentId) -> Response:
        return await _answer(request, pages, "agent", lambda: pages.agent(agent_version_id))

    @router.get("/firehose")
    async def show_firehose(
        request: Request, race: RaceName = "", agent: AgentFilter = "", wrote: Wrote = ""
    ) -> Response:
        is_plain = _HOST.fullmatch(request.base_url.netloc)  # people copy it into commands, so no shell may read more
        named = request if is_plain else Request({**request.scope, "headers": []})
        return await _answer(
            request, pages, "firehose", lambda: pages.firehose(race, agent, wrote, str(named.base_url))
        )

    @router.get("/validators")
    async def show_validators(request: Request) -> Response:
        return await _answer(request, pages, "validators", pages.validators)

    @router.get("/verify")
    async def show_verify(
        request: Request, validator: AgentFilter = "", record: RecordText = "", proof: RecordText = ""
    ) -> Response:
        """The record that is asked for is the script's to check; without a script, the page says with what."""
        return await _answer(request, pages, "verify", pages.verify)

    @router.get("/api")
    async def show_api(request: Request) -> Response:
        async def make() -> object:
            return request.app.openapi()

        return await _answer(request, pages, "api", make)


def _add_files(router: APIRouter, pages: Pages, places: Places) -> None:
    @router.get("/proofs/{validator}/{seq}")
    async def show_proof(request: Request, validator: ValidatorName, seq: Number) -> Response:
        """The proof file of a record (`arena.records.proof`), for the page `/verify` and the program there."""
        await pages.board.refresh()
        content = encode_proof(await pages.proof(validator, seq))
        return deliver(request, content, "application/json", name=f"proof-{seq}.json")

    @router.get("/static/{name}")
    async def show_static(request: Request, name: str) -> Response:
        if name not in STATIC:
            return refusal(ArenaError("V2082", f"there is no file {name[:64]!a}"))
        answer = deliver(request, static_file(name), STATIC[name])
        answer.headers["cache-control"] = "max-age=300"
        return answer

    @router.get("/news")
    async def stream_news(request: Request) -> Response:
        """A server-sent event whenever the public picture changes: pages that watch it load themselves again."""
        return RowStream(_news(pages.board), places, refusal, "text/event-stream")


async def _news(board: Board) -> AsyncGenerator[bytes]:
    last, quiet = "", 0
    while True:
        await board.refresh()
        now = board.fingerprint()
        if now != last:
            last, quiet = now, 0
            yield f"event: picture\ndata: {now}\n\n".encode()
        elif (quiet := quiet + 1) % QUIET_TURNS == 0:
            yield b": still here\n\n"
        await asyncio.sleep(LIVE_S)

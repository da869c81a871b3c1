"""The pages of a node, at the same address as the reads that they stand on.

A page is HTML of our own with every foreign text escaped; it asks this server for one stylesheet and one
script and nothing else from anywhere, and works without the script. What is not public is said to be sealed, until when
and why. A failure is a page with its code and what to do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from arena.api.reads.agents import AgentId
from arena.api.reads.board import Board as Picture
from arena.api.reads.delivery import deliver
from arena.api.reads.races import RaceId
from arena.api.reads.results import DEFAULT_POOLS, Number, Pools, ValidatorName
from arena.api.reads.routes import require_known
from arena.api.refusals import refusal, status_of
from arena.api.stream import Places, RowStream
from arena.api.tail import Tail
from arena.bank.batches.explanation import Explain
from arena.records.verify.proof import encode_proof
from arena.web.filters import AgentFilter, EpisodeFilter, RaceFilter, Shown, Stage, State, Wrote
from arena.web.pages import Pages
from arena.web.refusing import SECURITY, answer_people, refusal_page
from arena.web.render import STATIC, render_page, static_file
from foundation.errors import ArenaError

LIVE_S = 2.0
QUIET_TURNS = 8  # without news before a line says that the server is there
Cursor = Annotated[str, Query(max_length=512)]
ProblemId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_.-]{1,128}$", description="A problem.")]
Other = Annotated[str, Query(alias="with", pattern=r"^([A-Za-z0-9]{1,128}/[0-9]{1,15})?$")]
AgentName = Annotated[str, Query(max_length=64)]
RaceName = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{0,128}$")]
RecordText = Annotated[str, Query(max_length=128)]
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")
AgentVersion = Annotated[str, Query(pattern=r"^[0-9A-Za-z]{0,128}$")]


def add_pages(app: FastAPI, picture: Picture, tail: Tail, places: Places, explain: Explain) -> None:
    """Add the pages to the application of the reads. `places` bounds streams of news together with the tail's;
    `explain` says what released problems asked."""
    pages = Pages(picture, tail, explain)
    router = APIRouter(dependencies=[Depends(require_known)], include_in_schema=False)
    _add_races(router, pages)
    _add_others(router, pages)
    _add_files(router, pages, places)
    app.include_router(router)
    answer_people(app)


async def _answer(request: Request, pages: Pages, name: str, make: Callable[[], Awaitable[object]]) -> Response:
    """The page `name` of what `make` gives, or why there is none."""
    try:
        await pages.picture.refresh()
        answer = deliver(request, render_page(name, page=await make(), path=request.url.path), "text/html")
    except ArenaError as error:
        message = error.failure.detail or error.entry.title
        return refusal_page(request, error.failure.code, message, error.entry.remedy, status_of(error))
    answer.headers.update(SECURITY)
    return answer


def _add_races(router: APIRouter, pages: Pages) -> None:
    @router.get("/")
    async def show_front(request: Request) -> Response:
        return await _answer(request, pages, "front", pages.front)

    @router.get("/races")
    async def show_races(request: Request, stage: Stage = "", promotion: bool = False, cursor: Cursor = "") -> Response:
        async def make() -> object:
            return pages.races(RaceFilter(stage=stage, is_promotion=promotion), cursor)

        return await _answer(request, pages, "races", make)

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
        async def both() -> object:
            second, number = other.split("/")
            return await pages.trace(validator, seq, pool), await pages.trace(second, int(number), pool)

        if other:
            return await _answer(request, pages, "compare", both)
        return await _answer(request, pages, "trace_page", lambda: pages.trace(validator, seq, pool))


def _add_others(router: APIRouter, pages: Pages) -> None:
    @router.get("/agents")
    async def show_agents(request: Request, name: AgentName = "", state: State = "", cursor: Cursor = "") -> Response:
        async def make() -> object:
            return pages.agents(AgentFilter(name=name, state=state), cursor)

        return await _answer(request, pages, "agents", make)

    @router.get("/agents/{agent_version_id}")
    async def show_agent(request: Request, agent_version_id: AgentId) -> Response:
        return await _answer(request, pages, "agent", lambda: pages.agent(agent_version_id))

    @router.get("/firehose")
    async def show_firehose(
        request: Request, race: RaceName = "", agent: AgentVersion = "", wrote: Wrote = ""
    ) -> Response:
        asked = EpisodeFilter(race=race, agent=agent, wrote=wrote)
        is_plain = _HOST.fullmatch(request.base_url.netloc)  # people copy it into commands, so no shell may read more
        named = request if is_plain else Request({**request.scope, "headers": []})
        return await _answer(request, pages, "firehose", lambda: pages.firehose(asked, str(named.base_url)))

    @router.get("/validators")
    async def show_validators(request: Request) -> Response:
        return await _answer(request, pages, "validators", pages.validators)

    @router.get("/verify")
    async def show_verify(
        request: Request, validator: AgentVersion = "", record: RecordText = "", proof: RecordText = ""
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
        """The proof file of a record (`arena.records.verify.proof`), for the page `/verify` and the program there."""
        await pages.picture.refresh()
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
        return RowStream(_news(pages.picture), places, refusal, "text/event-stream")


async def _news(picture: Picture) -> AsyncGenerator[bytes]:
    last, quiet = "", 0
    while True:
        await picture.refresh()
        now = picture.fingerprint()
        if now != last:
            last, quiet = now, 0
            yield f"event: picture\ndata: {now}\n\n".encode()
        elif (quiet := quiet + 1) % QUIET_TURNS == 0:
            yield b": still here\n\n"
        await asyncio.sleep(LIVE_S)

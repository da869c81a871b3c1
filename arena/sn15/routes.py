"""The read routes of the published SN15 API, for clients that exist already: change their base URL.

Paths, field names, words and status codes are that API's (`oro-sdk` 7.0.0 and 7.0.2 alike); what is shown is what
`arena.api.reads` shows. Submission and everything signed: `arena.sn15.door`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Query, Request
from starlette.responses import Response

from arena.api.board import Board
from arena.api.http import deliver_json, described, described_text, json_response
from arena.api.reads import deliver_source
from arena.api.rows import ListedAgent
from arena.sn15.picture import Picture, Runs
from arena.sn15.values import (
    AgentVersionPublic,
    AgentVersionStatus,
    ArtifactRequest,
    ArtifactUrl,
    Leaderboard,
    ProblemPublic,
    RaceHistory,
    RaceWithField,
    Refused,
    RunDetail,
    RunPublic,
    RunUnderWay,
    SuitePublic,
    SuiteWithProblems,
    TopAgent,
    TopHistory,
    ValidatorPublic,
    WaitingVersions,
    problem_uuid,
    utc_text,
    version_uuid,
)
from arena.store.port import StoredSubmission
from foundation.canonical import UNREADABLE_JSON

URL_MS = 3_600_000  # a link says it lasts so long; the file stays public
REQUEST_BYTES_MAX = 4_096
Limit = Annotated[int, Query(ge=1, le=500)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]
Suite = Annotated[str, Query(alias="suite_id", max_length=16, description="There is one active suite: ignored.")]
_KINDS = ("AGENT_CODE", "EVAL_LOGS_BUNDLE", "EVAL_PROBLEM_LOGS", "REASONING_DETAILS")


Waiting = Callable[[], Awaitable[Sequence[StoredSubmission]]]


async def _nobody() -> Sequence[StoredSubmission]:
    return ()


def add_sn15_reads(app: FastAPI, board: Board, dependencies: Sequence[Any] = (), *, waiting: Waiting = _nobody) -> None:
    """Add the routes. `dependencies`: what each request has to pass first, as FastAPI takes it. `waiting`: the
    submissions that the gate has not looked at, where they are known."""
    router = APIRouter(prefix="/v1/public", dependencies=list(dependencies))
    _add_versions(router, board, waiting)
    _add_source(router, board, waiting)
    _add_races(router, board)
    _add_shown(router, board)
    _add_standings(router, board)
    _add_runs(router, board)
    app.include_router(router)


async def _look(board: Board) -> Picture:
    await board.refresh()
    return Picture(board)


def _add_versions(router: APIRouter, board: Board, waiting: Waiting) -> None:
    @router.get("/agent-versions/{agent_version_id}/status", **described(AgentVersionStatus))
    async def get_agent_version_status(request: Request, agent_version_id: str) -> Response:
        """Where an agent version stands."""
        picture = await _look(board)
        row = picture.version(agent_version_id)
        if row is not None:
            return deliver_json(request, picture.status(row))
        arrival = await _arrival(waiting, agent_version_id)
        if arrival is None:
            return _refused(404, "AGENT_VERSION_NOT_FOUND")
        return deliver_json(request, picture.received(arrival))

    @router.get("/agent-versions/{agent_version_id}", **described(AgentVersionPublic))
    async def get_agent_version(request: Request, agent_version_id: str) -> Response:
        """An agent version whose code is released."""
        picture = await _look(board)
        row = picture.version(agent_version_id)
        if row is None or not row.source.is_public:
            return _refused(404, "ARTIFACT_NOT_RELEASED" if row else "AGENT_VERSION_NOT_FOUND")
        return deliver_json(request, picture.public_version(row))


def _add_source(router: APIRouter, board: Board, waiting: Waiting) -> None:
    file = described_text("text/x-python", "The agent's file, byte for byte; its sha256 is the ETag.")

    @router.get("/agent-versions/{agent_version_id}/code", **file)
    async def get_agent_code(request: Request, agent_version_id: str) -> Response:
        """The file of a released agent version: where `artifacts/download-url` points to."""
        row = (await _look(board)).version(agent_version_id)
        return _closed(row) or await deliver_source(request, board, row.agent_version_id if row else "")

    @router.post("/artifacts/download-url", **described(ArtifactUrl))
    async def get_artifact_download_url(request: Request) -> Response:
        """Where the code of a released agent version is."""
        content = b""
        async for piece in request.stream():
            content += piece
            if len(content) > REQUEST_BYTES_MAX:
                return _refused(400, "MISSING_PARAMETER", "the request is larger than any of this route")
        try:
            asked = msgspec.json.decode(content, type=ArtifactRequest)
        except UNREADABLE_JSON:
            return _refused(400, "MISSING_PARAMETER", "artifact_type and agent_version_id")
        if asked.artifact_type not in _KINDS:
            return _refused(400, "INVALID_ARTIFACT_TYPE")
        row = (await _look(board)).version(asked.agent_version_id)
        if row is not None and asked.artifact_type != "AGENT_CODE":
            return _refused(404, "ARTIFACT_NOT_FOUND", "traces: GET /v1/races/{race_id}/trajectories")
        if row is None and await _arrival(waiting, asked.agent_version_id):
            return _refused(404, "ARTIFACT_NOT_RELEASED")
        if refusal := _closed(row):
            return refusal
        version = version_uuid(row.agent_version_id if row else "")
        url = f"{str(request.base_url).rstrip('/')}/v1/public/agent-versions/{version}/code"
        return json_response(ArtifactUrl(download_url=url, expires_at=utc_text(board.now_ms() + URL_MS)))


def _add_races(router: APIRouter, board: Board) -> None:
    @router.get("/races/current", **described(RaceWithField))
    async def get_current_race(request: Request) -> Response:
        """The race that is not over yet, else the latest, with its field."""
        picture = await _look(board)
        race = picture.current()
        shown = picture.race_public(race) if race else None
        return deliver_json(request, RaceWithField(race=shown, qualifiers=picture.qualifiers(race) if race else ()))

    @router.get("/races/history", **described(RaceHistory))
    async def get_race_history(
        request: Request, suite_id: Suite = "", limit: Limit = 20, offset: Offset = 0
    ) -> Response:
        """Races that are over, newest first."""
        picture = await _look(board)
        over = picture.finished()
        races = tuple(picture.race_public(race) for race in over[offset : offset + limit])
        return deliver_json(request, RaceHistory(total=len(over), limit=limit, offset=offset, races=races))

    @router.get("/races/{race_id}", **described(RaceWithField))
    async def get_race_detail(request: Request, race_id: str) -> Response:
        """A race with its field."""
        picture = await _look(board)
        race = picture.race(race_id)
        if race is None:
            return _refused(404, "RACE_NOT_FOUND")
        return deliver_json(request, RaceWithField(race=picture.race_public(race), qualifiers=picture.qualifiers(race)))


def _add_standings(router: APIRouter, board: Board) -> None:
    @router.get("/leaderboard", **described(Leaderboard))
    async def get_leaderboard(
        request: Request,
        suite_id: Suite = "",
        score_type: Annotated[str, Query(max_length=32)] = "qualifying",
        limit: Limit = 100,
        offset: Offset = 0,
        q: Annotated[str, Query(max_length=128)] = "",
    ) -> Response:
        """Agents by race score, then by qualifying score."""
        return deliver_json(request, (await _look(board)).leaderboard(limit, offset, q))

    @router.get("/top/history", **described(TopHistory))
    async def get_top_history(request: Request, suite_id: Suite = "") -> Response:
        """Who came to the top, newest first."""
        return deliver_json(request, (await _look(board)).top_history())

    @router.get("/suites/{suite_id}/problems", **described(SuiteWithProblems))
    async def get_suite_problems(
        request: Request, suite_id: str, include_embeddings: Annotated[str, Query(max_length=8)] = ""
    ) -> Response:
        """A suite with its problems, as an agent is asked them."""
        picture = await _look(board)
        number = int(suite_id) if suite_id.isascii() and suite_id.isdecimal() and len(suite_id) < 8 else -1
        problems = board.suites.get(picture.suite_names.get(number, ""))
        if problems is None:
            return _refused(404, "SUITE_NOT_FOUND")
        shown = tuple(
            ProblemPublic(
                problem_id=problem_uuid(one.problem_id),
                suite_id=number,
                metadata={"problem_id": one.problem_id, "category": one.category, "query": one.query},
            )
            for one in (problem.view() for problem in problems)
        )
        return deliver_json(request, SuiteWithProblems(suite=picture.suite(number), problems=shown))


def _add_runs(router: APIRouter, board: Board) -> None:
    @router.get("/agent-versions/{agent_version_id}/runs", **described(tuple[RunPublic, ...]))
    async def get_agent_version_runs(request: Request, agent_version_id: str) -> Response:
        """What validators ran of an agent version: the suite, and each race."""
        picture = await _look(board)
        row = picture.version(agent_version_id)
        if row is None:
            return _refused(404, "AGENT_VERSION_NOT_FOUND")
        return deliver_json(request, Runs(board, picture).of(row.agent_version_id))

    @router.get("/evaluation-runs/{eval_run_id}", **described(RunDetail))
    async def get_evaluation_run(request: Request, eval_run_id: str) -> Response:
        """One run."""
        found = Runs(board, await _look(board)).detail(eval_run_id)
        return deliver_json(request, found) if found else _refused(404, "EVAL_RUN_NOT_FOUND")

    @router.get("/evaluations/pending", **described(WaitingVersions))
    async def get_pending_evaluations(
        request: Request, suite_id: Suite = "", limit: Limit = 100, offset: Offset = 0
    ) -> Response:
        """Accepted versions of which no run has begun, first in, first out."""
        return deliver_json(request, Runs(board, await _look(board)).waiting(limit, offset))


_SHOWN: tuple[tuple[str, Any, str, Callable[[Picture, Runs], object]], ...] = (
    ("/top", TopAgent, "Who is at the top, and the score that beats it.", lambda picture, _: picture.top()),
    ("/suites", tuple[SuitePublic, ...], "The suites.", lambda picture, _: picture.suites()),
    ("/suites/current", SuitePublic, "The active suite.", lambda picture, _: picture.suite(picture.active_suite)),
    ("/evaluations/running", tuple[RunUnderWay, ...], "The runs under way.", lambda _, runs: runs.under_way()),
    ("/validators", tuple[ValidatorPublic, ...], "Whose logs are served here.", lambda _, runs: runs.validators()),
)


def _add_shown(router: APIRouter, board: Board) -> None:
    """The routes without parameters."""

    def answering(make: Callable[[Picture, Runs], object]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            picture = await _look(board)
            return deliver_json(request, make(picture, Runs(board, picture)))

        return answer

    for path, kind, says, make in _SHOWN:
        router.get(path, name=path, description=says, **described(kind))(answering(make))


async def _arrival(waiting: Waiting, agent_version_id: str) -> StoredSubmission | None:
    """The version that waits for the gate under this UUID."""
    arrivals = (each for each in await waiting() if version_uuid(each.subject.agent_version_id) == agent_version_id)
    return next(arrivals, None)


def _closed(row: ListedAgent | None) -> Response | None:
    """Why the file of a version is not to be had; None where it is."""
    if row is None:
        return _refused(404, "AGENT_VERSION_NOT_FOUND")
    if row.source.is_public:
        return None
    return (
        _refused(403, "RACE_IN_FLIGHT") if row.source.opens == "published" else _refused(404, "ARTIFACT_NOT_RELEASED")
    )


def _refused(status: int, code: str, detail: str = "") -> Response:
    return json_response(Refused(detail=detail or code.replace("_", " ").lower(), error_code=code), status)

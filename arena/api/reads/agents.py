"""Agents and their versions: where each stands, and the file and gate findings of those that were promoted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from arena.api.reads.answers import AgentDetail, AgentRace, ListedAgent, ShownFinding, SourceAccess
from arena.api.reads.board import Board, RaceView
from arena.api.reads.delivery import deliver, deliver_json
from arena.api.reads.document import described, described_text
from arena.api.reads.examples import AGENT, AGENTS
from arena.api.reads.pages import CursorOption, ListPage, RowsOption, page_of
from arena.gate.report import GateReport
from arena.records.model import Standing, Subject
from arena.visibility.moments import opening_text
from arena.visibility.rule import MOMENTS, Moment, may_see
from foundation.errors import ArenaError

AgentId = Annotated[str, Path(pattern=r"^[0-9A-Za-z]{1,128}$", description="An agent version.")]
Miner = Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,128}$", description="Only the versions of this hotkey.")]


def add_agents(router: APIRouter, board: Board) -> None:
    """The routes of this file."""

    @router.get("/v1/agents", **described(ListPage[ListedAgent], AGENTS))
    async def list_agents(
        request: Request, miner: Miner = "", cursor: CursorOption = "", limit: RowsOption = 100
    ) -> Response:
        """Agent versions by their commitment on chain, the first first."""
        await board.refresh()
        rows = [row for row in agent_rows(board).values() if not miner or row.miner_hotkey == miner]
        page = page_of(rows, _place, scope=f"agents {miner}", cursor=cursor, limit=limit)
        return deliver_json(request, page)

    @router.get("/v1/agents/{agent_version_id}", **described(AgentDetail, AGENT))
    async def read_agent(request: Request, agent_version_id: AgentId) -> Response:
        """One agent version: its standings in settled races, and what the gate found once its source is public."""
        await board.refresh()
        return deliver_json(request, read_detail(board, agent_version_id))

    file = described_text("text/x-python", "The agent's file, byte for byte; its sha256 is the ETag.")

    @router.get("/v1/agents/{agent_version_id}/source", **file)
    async def read_source(request: Request, agent_version_id: AgentId) -> Response:
        """The file of a promoted agent, once the embargo is over. The files of all others stay closed."""
        await board.refresh()
        return await deliver_source(request, board, agent_version_id)


def read_detail(board: Board, agent_version_id: str) -> AgentDetail:
    """One agent version as everybody may know it. Raises ArenaError V2082."""
    rows = agent_rows(board)
    row = _require(rows, agent_version_id)
    same = sorted((each for each in rows.values() if each.miner_hotkey == row.miner_hotkey), key=_place)
    moment, is_winner = winner_moment(board.promotions().get(agent_version_id, ()))
    stored = board.submissions.get(agent_version_id)
    findings = None
    if may_see("public", "gate_finding", moment, is_winner=is_winner).is_seen and stored and stored.report:
        report = msgspec.json.decode(stored.report, type=GateReport)
        findings = tuple(msgspec.convert(msgspec.to_builtins(each), ShownFinding) for each in report.findings)
    return AgentDetail(
        agent=row,
        versions=tuple(each.agent_version_id for each in same),
        races=tuple(
            AgentRace(race_id=race, standing=one) for race, one in standings_of(board).get(agent_version_id, ())
        ),
        findings=findings,
    )


async def deliver_source(request: Request, board: Board, agent_version_id: str) -> Response:
    """The file of a promoted agent. Raises ArenaError V2089 while it is closed, V2082 where there is none."""
    source = await readable_source(board, agent_version_id)
    name = f"{agent_rows(board)[agent_version_id].agent_sha256[:16]}.py"
    return deliver(request, source.encode(), "text/x-python", name=name)


async def readable_source(board: Board, agent_version_id: str) -> str:
    """The file of a promoted agent. Raises ArenaError V2089 while it is closed, V2082 where there is none."""
    _require(agent_rows(board), agent_version_id)
    promoted = board.promotions().get(agent_version_id, ())
    moment, is_winner = winner_moment(promoted)
    access = may_see("public", "source", moment, is_winner=is_winner)
    if not access.is_seen:
        until = min((opening_text(race.release) for race in promoted if race.release is not None), default="")
        raise ArenaError("V2089", f"{access.reason}{f', until {until}' if until else ''}")
    source = await board.store.source(agent_version_id)
    if source is None:
        raise ArenaError("V2082", f"this validator does not hold the file of {agent_version_id}")
    return source


def agent_rows(board: Board) -> dict[str, ListedAgent]:
    """What everybody may know of every agent version."""
    return board.once("agent rows", lambda: _agent_rows(board))


def _agent_rows(board: Board) -> dict[str, ListedAgent]:
    subjects: dict[str, Subject] = dict(board.subjects)
    subjects |= {agent: stored.subject for agent, stored in board.submissions.items()}
    standings, promotions = standings_of(board), board.promotions()
    rows = {}
    for agent, subject in subjects.items():
        stored, promoted = board.submissions.get(agent), promotions.get(agent, ())
        moment, is_winner = winner_moment(promoted)
        access = may_see("public", "source", moment, is_winner=is_winner)
        opens = min((race.opens_ms for race in promoted if race.opens_ms is not None), default=None)
        href = f"/v1/agents/{agent}/source" if access.is_seen else ""
        rows[agent] = ListedAgent(
            agent_version_id=agent,
            miner_hotkey=subject.miner_hotkey,
            name=stored.name if stored else "",
            state=stored.state if stored else "unknown",
            agent_sha256=subject.agent_sha256,
            commitment_block=subject.commitment_block,
            suite_episodes=board.episodes_of[agent, False],
            race_episodes=board.episodes_of[agent, True],
            best_rank=min((one.rank for _, one in standings.get(agent, ())), default=None),
            promoted_in=tuple(race.race_id for race in promoted),
            source=SourceAccess(is_public=access.is_seen, opens=access.opens, opens_ms=opens, href=href),
        )
    return rows


def winner_moment(promoted: Sequence[RaceView]) -> tuple[Moment, bool]:
    """How far the races are that promoted an agent, the furthest of them, and whether any did."""
    moments = [race.moment for race in promoted]
    return max(moments, key=MOMENTS.index, default="open"), bool(moments)


def standings_of(board: Board) -> dict[str, list[tuple[str, Standing]]]:
    """By agent version: race and standing, in settled races that may be told."""
    return board.once("standings", lambda: _standings_of(board))


def _standings_of(board: Board) -> dict[str, list[tuple[str, Standing]]]:
    found: dict[str, list[tuple[str, Standing]]] = defaultdict(list)
    told: list[RaceView] = [race for race in board.races() if may_see("public", "score", race.moment).is_seen]
    for race in told:
        for standing in race.settlement.standings if race.settlement else ():
            found[standing.agent_version_id].append((race.race_id, standing))
    return found


def _require(rows: dict[str, ListedAgent], agent_version_id: str) -> ListedAgent:
    if agent_version_id not in rows:
        raise ArenaError("V2082", f"there is no agent version {agent_version_id}")
    return rows[agent_version_id]


def _place(row: ListedAgent) -> tuple[int, str]:
    return row.commitment_block, row.agent_version_id

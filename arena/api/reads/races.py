"""Races, what became of them, and the leaderboard with what decided it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from arena.api.reads.answers import PromotionBasis, RaceDetail, RaceRow
from arena.api.reads.board import Board, RaceView
from arena.api.reads.delivery import deliver, deliver_json
from arena.api.reads.document import described
from arena.api.reads.examples import DETAIL, LEADERBOARD, RACES
from arena.api.reads.pages import CursorOption, ListPage, RowsOption, page_of
from arena.policy import Policy
from arena.records.model import SettlementRecord, Standing
from arena.visibility.moments import opening_text
from arena.visibility.rule import Thing, may_see
from foundation.canonical import UNREADABLE_JSON, canonical_bytes
from foundation.errors import ArenaError
from problems.model import Pool

RaceId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="A race.")]


def add_races(router: APIRouter, board: Board) -> None:
    """The routes of this file."""

    @router.get("/v1/races", **described(ListPage[RaceRow], RACES))
    async def list_races(request: Request, cursor: CursorOption = "", limit: RowsOption = 50) -> Response:
        """Races, newest first: when each closes, how many agents and episodes it has, and what of it is public."""
        await board.refresh()
        rows = [race_row(board, race) for race in board.races()]
        page = page_of(rows, lambda row: (row.number,), scope="races", cursor=cursor, limit=limit, is_newest_first=True)
        return deliver_json(request, page)

    @router.get("/v1/races/{race_id}", **described(RaceDetail, DETAIL))
    async def read_race(request: Request, race_id: RaceId) -> Response:
        """One race: its draw and what decided it, once it is settled."""
        await board.refresh()
        return deliver_json(request, race_detail(board, board.race(race_id)))

    @router.get("/v1/races/{race_id}/leaderboard", **described(ListPage[Standing], LEADERBOARD))
    async def read_leaderboard(
        request: Request, race_id: RaceId, cursor: CursorOption = "", limit: RowsOption = 100
    ) -> Response:
        """The standings of a settled race by rank, each score with its 95 % bootstrap interval."""
        await board.refresh()
        standings = settled(board.race(race_id)).standings
        scope = f"leaderboard {race_id}"
        return deliver_json(
            request, page_of(standings, lambda row: (row.rank,), scope=scope, cursor=cursor, limit=limit)
        )

    @router.get("/v1/races/{race_id}/settlement", **described(SettlementRecord, None))
    async def read_settlement(request: Request, race_id: RaceId) -> Response:
        """The settlement in force, in its canonical bytes: everything `arena race replay` needs beside the records."""
        await board.refresh()
        content = canonical_bytes(settled(board.race(race_id)))
        return deliver(request, content, "application/json", name=f"{race_id}.settlement.json")

    @router.get("/v1/leaderboard", **described(RaceDetail, DETAIL))
    async def read_latest(request: Request) -> Response:
        """The latest settled race; its standings are at `/v1/races/{race_id}/leaderboard`."""
        await board.refresh()
        races = (race for race in reversed(board.races()) if may_see("public", "score", race.moment).is_seen)
        found = next((race for race in races if race.settlement and race.settlement.state == "settled"), None)
        if found is None:
            raise ArenaError("V2082", "no race is settled yet")
        return deliver_json(request, race_detail(board, found))


def settled(race: RaceView) -> SettlementRecord:
    """The settlement of a race that may be told. Raises ArenaError V2089."""
    require_seen(race, "score")
    if race.settlement is None:
        raise ArenaError("V2082", f"{race.race_id} has no settlement in force here")
    return race.settlement


def require_seen(race: RaceView, thing: Thing) -> None:
    """Raises ArenaError V2089 unless everybody may see this of a race, whatever the pool."""
    pool: Pool = "train"
    access = may_see("public", thing, race.moment, pool=pool, pools=(pool,))
    if not access.is_seen:
        until = opening_text(race.release) if race.release is not None and access.opens == "published" else ""
        raise ArenaError("V2089", f"{race.race_id}: {access.reason}{f', until {until}' if until else ''}")


def race_row(board: Board, race: RaceView) -> RaceRow:
    """What everybody may know of a race."""
    shown = race.settlement if may_see("public", "score", race.moment).is_seen else None
    field = race.state.field.field if race.state is not None and race.state.field is not None else ()
    stage = race.state.stage if race.state is not None else shown.state if shown else "unknown"
    return RaceRow(
        number=race.number,
        race_id=race.race_id,
        stage="unknown" if stage == "new" else stage,
        moment=race.moment,
        closes_ms=race.closes_ms,
        opens_ms=race.opens_ms,
        agents=len(shown.standings) if shown and shown.standings else len(field),
        episodes=board.race_episodes[race.race_id],
        top_agent_version_id=shown.top_agent_version_id if shown else "",
        is_promotion=shown.is_promotion if shown else False,
    )


def race_detail(board: Board, race: RaceView) -> RaceDetail:
    """The same, with the draw and what decided a settled race."""
    row = race_row(board, race)
    if race.settlement is None or not may_see("public", "score", race.moment).is_seen:
        return RaceDetail(race=row)
    record = race.settlement
    return RaceDetail(
        race=row,
        reason=record.reason,
        policy_sha256=record.policy_sha256,
        seed=record.seed,
        beacon_round=record.beacon_round,
        closing_block=record.closing_block,
        settling_block=record.settling_block,
        problems=len(record.drawn),
        void=len(record.void),
        decision=_decision(record),
    )


def _decision(record: SettlementRecord) -> PromotionBasis | None:
    """Why the top is who it is, from what the settlement states."""
    if record.state != "settled" or record.inputs is None:
        return None
    try:
        rules = msgspec.json.decode(record.inputs.policy, type=Policy).promotion
    except UNREADABLE_JSON:
        return None
    before, scores = record.inputs.incumbent, {row.agent_version_id: row for row in record.standings}
    top, old = scores.get(record.top_agent_version_id), scores.get(before.agent_version_id if before else "")
    if not record.is_promotion:
        text = "nobody was promoted: no agent beat the top agent by the rule"
    elif top is None or old is None:
        text = "the best agent of the race took an empty top"
    else:
        text = (
            f"{top.crown_score_e4} against {old.crown_score_e4} of the agent before (ten-thousandths);"
            f" {top.wins} problems better, {top.losses} worse"
        )
    return PromotionBasis(
        rule=rules.kind,
        margin_e4=rules.margin_e4,
        decay_ms=rules.decay_ms,
        incumbent_agent_version_id=before.agent_version_id if before else "",
        incumbent_since_ms=before.promoted_ms if before else 0,
        text=text,
    )

"""Races, agents and their versions, suites, validators and counts by day: the rows of the public reads, and their
routes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from arena.api.board import HOUR_MS, Board, DayCounts, RaceView
from arena.api.http import deliver, deliver_json, described, described_text
from arena.api.rows import (
    AgentDetail,
    AgentRace,
    CursorOption,
    DayRow,
    ListedAgent,
    ListPage,
    PromotionBasis,
    RaceDetail,
    RaceRow,
    RowsOption,
    ShownFinding,
    SourceAccess,
    SuiteProblem,
    SuiteRow,
    ValidatorRow,
    page_of,
)
from arena.gate.report import GateReport
from arena.policy import Policy
from arena.records.model import SettlementRecord, Standing, Subject
from arena.visibility.rule import MOMENTS, Moment, Thing, may_see, opening_text
from foundation.canonical import UNREADABLE_JSON, canonical_bytes
from foundation.errors import ArenaError
from problems.model import Pool

AgentId = Annotated[str, Path(pattern=r"^[0-9A-Za-z]{1,128}$", description="An agent version.")]
Miner = Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,128}$", description="Only the versions of this hotkey.")]


def add_agents(router: APIRouter, board: Board) -> None:
    """The routes of this file."""

    @router.get("/v1/agents", **described(ListPage[ListedAgent]))
    async def list_agents(
        request: Request, miner: Miner = "", cursor: CursorOption = "", limit: RowsOption = 100
    ) -> Response:
        """Agent versions by their commitment on chain, the first first."""
        await board.refresh()
        rows = [row for row in agent_rows(board).values() if not miner or row.miner_hotkey == miner]
        page = page_of(rows, _place, scope=f"agents {miner}", cursor=cursor, limit=limit)
        return deliver_json(request, page)

    @router.get("/v1/agents/{agent_version_id}", **described(AgentDetail))
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


RaceId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="A race.")]


def add_races(router: APIRouter, board: Board) -> None:
    """The routes of this file."""

    @router.get("/v1/races", **described(ListPage[RaceRow]))
    async def list_races(request: Request, cursor: CursorOption = "", limit: RowsOption = 50) -> Response:
        """Races, newest first: when each closes, how many agents and episodes it has, and what of it is public."""
        await board.refresh()
        rows = [race_row(board, race) for race in board.races()]
        page = page_of(rows, lambda row: (row.number,), scope="races", cursor=cursor, limit=limit, is_newest_first=True)
        return deliver_json(request, page)

    @router.get("/v1/races/{race_id}", **described(RaceDetail))
    async def read_race(request: Request, race_id: RaceId) -> Response:
        """One race: its draw and what decided it, once it is settled."""
        await board.refresh()
        return deliver_json(request, race_detail(board, board.race(race_id)))

    @router.get("/v1/races/{race_id}/leaderboard", **described(ListPage[Standing]))
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

    @router.get("/v1/races/{race_id}/settlement", **described(SettlementRecord))
    async def read_settlement(request: Request, race_id: RaceId) -> Response:
        """The settlement in force, in its canonical bytes: everything `arena race replay` needs beside the records."""
        await board.refresh()
        content = canonical_bytes(settled(board.race(race_id)))
        return deliver(request, content, "application/json", name=f"{race_id}.settlement.json")

    @router.get("/v1/leaderboard", **described(RaceDetail))
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


SuiteName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="A suite.")]

HOURS_SHOWN = 7 * 24


def add_network(router: APIRouter, board: Board) -> None:
    """The routes of this file."""

    @router.get("/v1/suites", **described(ListPage[SuiteRow]))
    async def list_suites(request: Request, cursor: CursorOption = "", limit: RowsOption = 50) -> Response:
        """The public suites that agents qualify on."""
        await board.refresh()
        return deliver_json(
            request, page_of(suite_rows(board), lambda row: (row.suite,), scope="suites", cursor=cursor, limit=limit)
        )

    @router.get("/v1/suites/{suite}/problems", **described(ListPage[SuiteProblem]))
    async def list_suite(
        request: Request, suite: SuiteName, cursor: CursorOption = "", limit: RowsOption = 100
    ) -> Response:
        """The problems of a suite, as an agent is asked them."""
        if suite not in board.suites:
            raise ArenaError("V2082", f"this server does not hold the problems of suite {suite}")
        views = [problem.view() for problem in board.suites[suite]]
        rows = [SuiteProblem(problem_id=one.problem_id, category=one.category, query=one.query) for one in views]
        page = page_of(rows, lambda row: (row.problem_id,), scope=f"suite {suite}", cursor=cursor, limit=limit)
        return deliver_json(request, page)

    @router.get("/v1/validators", **described(ListPage[ValidatorRow]))
    async def list_validators(request: Request, cursor: CursorOption = "", limit: RowsOption = 100) -> Response:
        """The validators whose logs are served here, with where each log ends."""
        await board.refresh()
        rows = validator_rows(board)
        page = page_of(rows, lambda row: (row.validator,), scope="validators", cursor=cursor, limit=limit)
        return deliver_json(request, page)

    @router.get("/v1/stats/days", **described(ListPage[DayRow]))
    async def list_days(request: Request, cursor: CursorOption = "", limit: RowsOption = 100) -> Response:
        """Episodes by UTC day, the latest first. What was solved in a race is counted once the race is settled."""
        await board.refresh()
        page = page_of(
            day_rows(board), lambda row: (row.day,), scope="days", cursor=cursor, limit=limit, is_newest_first=True
        )
        return deliver_json(request, page)


def suite_rows(board: Board) -> tuple[SuiteRow, ...]:
    """The public suites, by name."""
    return tuple(
        SuiteRow(suite=name, problems=len(board.suites.get(name, ())), episodes=board.suite_episodes[name])
        for name in sorted({*board.suites, *board.suite_episodes} - {""})
    )


def validator_rows(board: Board) -> tuple[ValidatorRow, ...]:
    """The validators whose logs are served here."""
    told = {race.race_id: race for race in board.races() if may_see("public", "score", race.moment).is_seen}
    this_hour, rows = board.now_ms() // HOUR_MS, []
    for name, log in board.logs.items():
        under = [conditions for race_id, conditions in log.ran_under.items() if not race_id or race_id in told]
        first = (log.first_recorded_ms or board.now_ms()) // HOUR_MS
        hours = range(max(first, this_hour - HOURS_SHOWN + 1), this_hour + 1)
        permitted = [
            race_id
            for race_id, race in told.items()
            if race.settlement and race.settlement.drawn and race.settlement.inputs
            if name in race.settlement.inputs.validators
        ]
        row = ValidatorRow(
            validator=name,
            records=log.last_seq,
            head=log.head,
            episodes=log.episodes,
            last_recorded_ms=log.last_recorded_ms,
            code=under[-1].code_commit if under else "",
            scoring=under[-1].scoring_pipeline if under else "",
            signed_hours=sum(hour in log.hours for hour in hours),
            hours=len(hours),
            races_run=sum(race_id in log.ran_under for race_id in permitted),
            races=len(permitted),
        )
        rows.append(row)
    return tuple(rows)


def day_rows(board: Board) -> list[DayRow]:
    """Counts by UTC day; what was solved in a race is counted once the race is settled."""
    told = {race.race_id for race in board.races() if may_see("public", "score", race.moment).is_seen}
    by_day: dict[str, dict[str, DayCounts]] = defaultdict(dict)
    for (day, race_id), counts in board.days().items():
        by_day[day][race_id] = counts
    return [
        DayRow(
            day=day,
            episodes=sum(counts.episodes for counts in races.values()),
            suite_episodes=races[""].episodes if "" in races else 0,
            race_episodes=sum(counts.episodes for race_id, counts in races.items() if race_id),
            scored=sum(counts.scored for race_id, counts in races.items() if not race_id or race_id in told),
            solved=sum(counts.solved for race_id, counts in races.items() if not race_id or race_id in told),
            agents=len(frozenset[str]().union(*(counts.agents for counts in races.values()))),
        )
        for day, races in by_day.items()
    ]

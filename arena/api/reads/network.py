"""Suites, validators and counts by day."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from arena.api.reads.answers import DayRow, SuiteProblem, SuiteRow, ValidatorRow
from arena.api.reads.board import HOUR_MS, Board, DayCounts
from arena.api.reads.delivery import deliver_json
from arena.api.reads.document import described
from arena.api.reads.examples import DAYS, SUITE_PROBLEMS, SUITES, VALIDATORS
from arena.api.reads.pages import CursorOption, ListPage, RowsOption, page_of
from arena.visibility.rule import may_see
from foundation.errors import ArenaError

SuiteName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="A suite.")]

HOURS_SHOWN = 7 * 24


def add_network(router: APIRouter, board: Board) -> None:
    """The routes of this file."""

    @router.get("/v1/suites", **described(ListPage[SuiteRow], SUITES))
    async def list_suites(request: Request, cursor: CursorOption = "", limit: RowsOption = 50) -> Response:
        """The public suites that agents qualify on."""
        await board.refresh()
        return deliver_json(
            request, page_of(suite_rows(board), lambda row: (row.suite,), scope="suites", cursor=cursor, limit=limit)
        )

    @router.get("/v1/suites/{suite}/problems", **described(ListPage[SuiteProblem], SUITE_PROBLEMS))
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

    @router.get("/v1/validators", **described(ListPage[ValidatorRow], VALIDATORS))
    async def list_validators(request: Request, cursor: CursorOption = "", limit: RowsOption = 100) -> Response:
        """The validators whose logs are served here, with where each log ends."""
        await board.refresh()
        rows = validator_rows(board)
        page = page_of(rows, lambda row: (row.validator,), scope="validators", cursor=cursor, limit=limit)
        return deliver_json(request, page)

    @router.get("/v1/stats/days", **described(ListPage[DayRow], DAYS))
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

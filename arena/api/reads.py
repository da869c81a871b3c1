"""The public reads: a route for each kind of row, results problem by problem, and the trajectories behind them.

What is not public yet is refused alike, whatever stands there, so that a refusal tells nothing of a race that
is under way. A trajectory leaves as the tail's own rows (`arena.api.tail`), under the same rule and hygiene.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from arena.api.board import Board
from arena.api.http import deliver, deliver_json, described, described_text, require_known
from arena.api.rows import (
    AgentDetail,
    DayRow,
    ListedAgent,
    ListPage,
    PageStart,
    PairResult,
    ProblemRow,
    RaceDetail,
    RaceRow,
    SuiteRow,
    TrajectoryRow,
    ValidatorRow,
    agent_rows,
    by_commitment,
    day_rows,
    is_seen,
    is_told,
    page_of,
    pools_of,
    problem_row,
    race_detail,
    race_row,
    read_agent,
    read_source,
    require_seen,
    settled,
    suite_rows,
    validator_rows,
)
from arena.api.tail import DEFAULT_POOLS, Pools, Tail, TailRequest
from arena.export.assembly import signed_content
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord, SettlementRecord, Standing, VerdictRecord
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from judge.verdict import Verdict
from problems.model import Pool, ProblemView
from problems.outcome import OutcomeScore

RACES_KEPT, RESULTS_KEPT = 12, 300_000  # some 350 bytes a result
AXES = ("title", "price", "service", "sku", "attribute")
Place = Annotated[PageStart, Depends()]
RaceId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="A race.")]
AgentId = Annotated[str, Path(pattern=r"^[0-9A-Za-z]{1,128}$", description="An agent version.")]
SuiteName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="A suite.")]
ValidatorName = Annotated[str, Path(pattern=r"^[A-Za-z0-9]{1,128}$", description="Whose log.")]
Number = Annotated[int, Path(ge=1, le=2**53 - 1, description="Number of the evaluation's record in that log.")]
Miner = Annotated[str, Query(pattern=r"^[A-Za-z0-9]{0,128}$", description="Only the versions of this hotkey.")]
AgentFilter = Annotated[str, Query(pattern=r"^[0-9A-Za-z]{0,128}$", description="Only this agent version.")]
ProblemFilter = Annotated[str, Query(pattern=r"^[0-9A-Za-z_.-]{0,128}$", description="Only this problem.")]


def add_reads(app: FastAPI, board: Board, tail: Tail) -> None:
    """Add the routes of every subject."""
    router = APIRouter(dependencies=[Depends(require_known), Depends(board.refresh)])
    _add_races(router, board)
    _add_agents(router, board)
    _add_results(router, board)
    _add_network(router, board)
    app.include_router(router)
    _add_trajectory(app, tail)


def _add_races(router: APIRouter, board: Board) -> None:
    @router.get("/v1/races", **described(ListPage[RaceRow]))
    async def list_races(request: Request, place: Place) -> Response:
        """Races, newest first: when each closes, how many agents and episodes it has, and what of it is public."""
        rows = [race_row(board, race) for race in board.races()]
        return deliver_json(request, page_of(rows, lambda row: (row.number,), "races", place, is_newest_first=True))

    @router.get("/v1/races/{race_id}", **described(RaceDetail))
    async def read_race(request: Request, race_id: RaceId) -> Response:
        """One race: its draw and what decided it, once it is settled."""
        return deliver_json(request, race_detail(board, board.race(race_id)))

    @router.get("/v1/races/{race_id}/leaderboard", **described(ListPage[Standing]))
    async def read_leaderboard(request: Request, race_id: RaceId, place: Place) -> Response:
        """The standings of a settled race by rank, each score with its 95 % bootstrap interval."""
        rows = settled(board.race(race_id)).standings
        return deliver_json(request, page_of(rows, lambda row: (row.rank,), f"leaderboard {race_id}", place))

    @router.get("/v1/races/{race_id}/settlement", **described(SettlementRecord))
    async def read_settlement(request: Request, race_id: RaceId) -> Response:
        """The settlement in force, in its canonical bytes: everything `arena race replay` needs beside the records."""
        content = canonical_bytes(settled(board.race(race_id)))
        return deliver(request, content, "application/json", name=f"{race_id}.settlement.json")

    @router.get("/v1/leaderboard", **described(RaceDetail))
    async def read_latest(request: Request) -> Response:
        """The latest settled race; its standings are at `/v1/races/{race_id}/leaderboard`."""
        for race in reversed(board.races()):
            if is_told(race) and race.settlement and race.settlement.state == "settled":
                return deliver_json(request, race_detail(board, race))
        raise ArenaError("V2082", "no race is settled yet")


def _add_agents(router: APIRouter, board: Board) -> None:
    @router.get("/v1/agents", **described(ListPage[ListedAgent]))
    async def list_agents(request: Request, place: Place, miner: Miner = "") -> Response:
        """Agent versions by their commitment on chain, the first first."""
        rows = [row for row in agent_rows(board).values() if miner in ("", row.miner_hotkey)]
        return deliver_json(request, page_of(rows, by_commitment, f"agents {miner}", place))

    @router.get("/v1/agents/{agent_version_id}", **described(AgentDetail))
    async def show_agent(request: Request, agent_version_id: AgentId) -> Response:
        """One agent version: its standings in settled races, and what the gate found once its source is public."""
        return deliver_json(request, read_agent(board, agent_version_id))

    file = described_text("text/x-python", "The agent's file, byte for byte; its sha256 is the ETag.")

    @router.get("/v1/agents/{agent_version_id}/source", **file)
    async def show_source(request: Request, agent_version_id: AgentId) -> Response:
        """The file of a promoted agent, once the embargo is over. The files of all others stay closed."""
        return await deliver_source(request, board, agent_version_id)


async def deliver_source(request: Request, board: Board, agent_version_id: str) -> Response:
    """The file of a promoted agent. Raises ArenaError V2089 while it is closed, V2082 where there is none."""
    source = await read_source(board, agent_version_id)
    name = f"{agent_rows(board)[agent_version_id].agent_sha256[:16]}.py"
    return deliver(request, source.encode(), "text/x-python", name=name)


class Results:
    """The results of races, read from the log when asked for; those of a few races are kept."""

    def __init__(self, board: Board) -> None:
        self._board, self._reading = board, asyncio.Lock()
        # by race, the last asked for last: how much of it was recorded when it was read, and what was read
        self._kept: OrderedDict[str, tuple[int, dict[str, list[PairResult]]]] = OrderedDict()

    async def of(self, race_id: str) -> dict[str, list[PairResult]]:
        """By problem id, in log order; without the control agent. Raises ArenaError V2021."""
        async with self._reading:
            recorded, (read, found) = self._board.recorded[race_id], self._kept.get(race_id, (-1, {}))
            if read != recorded:
                found = await self._read(race_id)
                self._kept[race_id] = recorded, found
            self._kept.move_to_end(race_id)
            size = sum(len(given) for _, race in self._kept.values() for given in race.values())
            while len(self._kept) > RACES_KEPT or (len(self._kept) > 1 and size > RESULTS_KEPT):
                _, (_, race) = self._kept.popitem(last=False)
                size -= sum(map(len, race.values()))
            return found

    async def _read(self, race_id: str) -> dict[str, list[PairResult]]:
        found: dict[str, list[PairResult]] = defaultdict(list)
        for validator in self._board.logs:
            evaluated: list[tuple[int, EvaluationRecord]] = []
            coefficients: dict[str, int] = {}
            async for record in self._board.store.records(validator, race_id=race_id):
                content = signed_content(record.content, record.content_sha256)
                payload = content.payload if content else None
                if isinstance(payload, VerdictRecord) and isinstance(payload.verdict, Verdict):
                    coefficients.setdefault(payload.verdict.body_sha256, payload.verdict.coefficient_e4)
                elif isinstance(payload, EvaluationRecord) and not payload.subject.is_control:
                    evaluated.append((record.seq, payload))
            for seq, one in evaluated:
                found[one.context.problem_id].append(pair_result(validator, seq, one, coefficients))
        return dict(found)


def pair_result(validator: str, seq: int, record: EvaluationRecord, coefficients: dict[str, int]) -> PairResult:
    """The result that an evaluation of a log states; `coefficients` are those of verdicts, by body."""
    scored = record.outcome if isinstance(record.outcome, OutcomeScore) else None
    return PairResult(
        agent_version_id=record.subject.agent_version_id,
        validator=validator,
        seq=seq,
        is_success=scored.is_success if scored else None,
        is_agentic=record.is_agentic,
        coefficient_e4=coefficients.get(record.body_sha256),
        body_sha256=record.body_sha256,
        bucket=scored.bucket if scored else "",
        rule_e4=scored.rule_e4 if scored else None,
        missed=tuple(_missed(scored)) if scored else (),
        failure=record.failure.code if record.failure else "",
        tool_calls=record.totals.tool_calls,
        tokens=record.totals.prompt_tokens + record.totals.completion_tokens,
        cost_micro_usd=record.totals.cost_micro_usd,
    )


def _missed(outcome: OutcomeScore) -> Iterator[str]:
    for axis in AXES:
        if any(getattr(slot, axis).hits < getattr(slot, axis).total for slot in outcome.slots):
            yield axis
    if outcome.is_one_shop is False:
        yield "one shop"
    if outcome.is_within_budget is False:
        yield "budget"


def _add_results(router: APIRouter, board: Board) -> None:
    results = Results(board)

    @router.get("/v1/races/{race_id}/problems", **described(ListPage[ProblemRow]))
    async def list_problems(
        request: Request,
        race_id: RaceId,
        place: Place,
        pool: Pools = DEFAULT_POOLS,
        agent: AgentFilter = "",
    ) -> Response:
        """A released race problem by problem: who solved it, at which validator, with which coefficient."""
        race = board.race(race_id)
        require_seen(race, "outcome")
        shown, scope = await results.of(race_id), f"problems {race_id} {sorted(pool)} {agent}"
        rows = [
            problem_row(race, name, (one for one in shown.get(name, ()) if agent in ("", one.agent_version_id)))
            for name, of in pools_of(race).items()
            if is_seen(race, "outcome", of, pool)
        ]
        return deliver_json(request, page_of(rows, lambda row: (row.problem_id,), scope, place))

    @router.get("/v1/races/{race_id}/trajectories", **described(ListPage[TrajectoryRow]))
    async def list_trajectories(
        request: Request,
        race_id: RaceId,
        place: Place,
        pool: Pools = DEFAULT_POOLS,
        agent: AgentFilter = "",
        problem: ProblemFilter = "",
    ) -> Response:
        """The trajectories of a race whose embargo is over, by problem, validator and number."""
        race = board.race(race_id)
        require_seen(race, "trace")
        pools, scope = pools_of(race), f"trajectories {race_id} {sorted(pool)} {agent} {problem}"
        named = "".join(f"{'&' if number else '?'}pool={one}" for number, one in enumerate(sorted(set(pool))))
        rows = [
            TrajectoryRow(
                problem_id=name,
                pool=pools[name],
                result=one,
                href=f"/v1/trajectories/{one.validator}/{one.seq}{named}",
            )
            for name, found in (await results.of(race_id)).items()
            if is_seen(race, "trace", pools.get(name), pool)
            for one in found
            if problem in ("", name) and agent in ("", one.agent_version_id)
        ]
        key = lambda row: (row.problem_id, row.result.validator, row.result.seq)  # noqa: E731
        return deliver_json(request, page_of(rows, key, scope, place))


class ShownTrajectory(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory as it stands in the log: the evaluation's row with its body, and the rows of the verdicts on it."""

    evaluation: LogRow
    verdicts: tuple[LogRow, ...]


def _add_trajectory(app: FastAPI, tail: Tail) -> None:
    whole = described_text("application/json", (ShownTrajectory.__doc__ or "").strip())

    @app.get("/v1/trajectories/{validator}/{seq}", dependencies=[Depends(require_known)], **whole)
    async def read_trajectory(
        request: Request, validator: ValidatorName, seq: Number, pool: Pools = DEFAULT_POOLS
    ) -> Response:
        """One published trajectory, whole, with the verdicts on it: signed rows, checkable against the log."""
        await tail.require_log(validator)
        shown, payload = await published_trajectory(tail, validator, seq, tuple(pool))
        name = f"{payload.context.problem_id}-{payload.subject.agent_version_id[:16]}.json"
        return deliver(request, msgspec.json.encode(shown), "application/json", name=name)


async def published_trajectory(
    tail: Tail, validator: str, seq: int, pools: tuple[Pool, ...]
) -> tuple[ShownTrajectory, EvaluationRecord]:
    """One published trajectory, whole, and its record. Raises ArenaError V2082 for a record that is none."""
    row = await _whole_row(tail, validator, seq, pools)
    payload = decode_content(bytes(row.content)).payload if row and row.content is not None else None
    if row is None or not isinstance(payload, EvaluationRecord):
        raise ArenaError("V2082", f"record {seq} of {validator} is no public trajectory")
    verdicts = [
        await _whole_row(tail, validator, one.seq, pools)
        for one in await tail.store.verdicts_on([payload.body_sha256], validator)
    ]
    shown = ShownTrajectory(evaluation=row, verdicts=tuple(one for one in verdicts if one and one.content))
    return shown, payload


async def _whole_row(tail: Tail, validator: str, seq: int, pools: tuple[Pool, ...]) -> LogRow | None:
    """A record as the tail shows it to everybody; None where the log has none."""
    asked = TailRequest(validator=validator, after=seq - 1, limit=1, pools=pools)
    lines = [piece async for piece in tail.rows(asked)]
    row = read_row(lines[0].rstrip(b"\n")) if lines else None
    return row if row is not None and row.seq == seq else None


def _add_network(router: APIRouter, board: Board) -> None:
    @router.get("/v1/suites", **described(ListPage[SuiteRow]))
    async def list_suites(request: Request, place: Place) -> Response:
        """The public suites that agents qualify on."""
        return deliver_json(request, page_of(suite_rows(board), lambda row: (row.suite,), "suites", place))

    @router.get("/v1/suites/{suite}/problems", **described(ListPage[ProblemView]))
    async def list_suite(request: Request, suite: SuiteName, place: Place) -> Response:
        """The problems of a suite, as an agent is asked them."""
        if suite not in board.suites:
            raise ArenaError("V2082", f"this server does not hold the problems of suite {suite}")
        rows = [problem.view() for problem in board.suites[suite]]
        return deliver_json(request, page_of(rows, lambda row: (row.problem_id,), f"suite {suite}", place))

    @router.get("/v1/validators", **described(ListPage[ValidatorRow]))
    async def list_validators(request: Request, place: Place) -> Response:
        """The validators whose logs are served here, with where each log ends."""
        return deliver_json(request, page_of(validator_rows(board), lambda row: (row.validator,), "validators", place))

    @router.get("/v1/stats/days", **described(ListPage[DayRow]))
    async def list_days(request: Request, place: Place) -> Response:
        """Episodes by UTC day, the latest first. What was solved in a race is counted once the race is settled."""
        rows = day_rows(board)
        return deliver_json(request, page_of(rows, lambda row: (row.day,), "days", place, is_newest_first=True))

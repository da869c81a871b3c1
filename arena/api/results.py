"""Results problem by problem, and the trajectories behind them, of released races and by pool; all reads put together.

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
from fastapi.routing import APIRoute
from starlette.responses import Response

from arena.api.board import Board, RaceView
from arena.api.http import complete_document, deliver, deliver_json, described, described_text
from arena.api.reads import RaceId, add_agents, add_network, add_races, require_seen
from arena.api.rows import CursorOption, ListPage, PairResult, ProblemRow, RowsOption, TrajectoryRow, page_of
from arena.api.tail import Tail, TailRequest
from arena.export.assembly import signed_content
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.body import decode_content
from arena.records.model import EvaluationRecord, VerdictRecord
from arena.visibility.rule import may_see
from foundation.errors import ArenaError
from judge.verdict import Verdict
from problems.model import Pool
from problems.outcome import OutcomeScore

RACES_KEPT, RESULTS_KEPT = 12, 300_000  # some 350 bytes a result
AXES = ("title", "price", "service", "sku", "attribute")
DEFAULT_POOLS: list[Pool] = ["train"]
Pools = Annotated[
    list[Pool], Query(alias="pool", description="Pools that are asked for, by name; repeatable. Default: train.")
]
AgentFilter = Annotated[str, Query(pattern=r"^[0-9A-Za-z]{0,128}$", description="Only this agent version.")]
ProblemFilter = Annotated[str, Query(pattern=r"^[0-9A-Za-z_.-]{0,128}$", description="Only this problem.")]
ValidatorName = Annotated[str, Path(pattern=r"^[A-Za-z0-9]{1,128}$", description="Whose log.")]
Number = Annotated[int, Path(ge=1, le=2**53 - 1, description="Number of the evaluation's record in that log.")]


class ShownTrajectory(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory as it stands in the log: the evaluation's row with its body, and the rows of the verdicts on it."""

    evaluation: LogRow
    verdicts: tuple[LogRow, ...]


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
            evaluated: list[tuple[str, PairResult]] = []
            coefficients: dict[str, int] = {}
            async for record in self._board.store.records(validator, race_id=race_id):
                content = signed_content(record.content, record.content_sha256)
                payload = content.payload if content else None
                if isinstance(payload, VerdictRecord) and isinstance(payload.verdict, Verdict):
                    coefficients.setdefault(payload.verdict.body_sha256, payload.verdict.coefficient_e4)
                elif isinstance(payload, EvaluationRecord) and not payload.subject.is_control:
                    outcome = payload.outcome
                    result = PairResult(
                        agent_version_id=payload.subject.agent_version_id,
                        validator=validator,
                        seq=record.seq,
                        is_success=outcome.is_success if isinstance(outcome, OutcomeScore) else None,
                        is_agentic=payload.is_agentic,
                        coefficient_e4=None,
                        body_sha256=payload.body_sha256,
                        bucket=outcome.bucket if isinstance(outcome, OutcomeScore) else "",
                        rule_e4=outcome.rule_e4 if isinstance(outcome, OutcomeScore) else None,
                        missed=tuple(_missed(outcome)) if isinstance(outcome, OutcomeScore) else (),
                        failure=payload.failure.code if payload.failure else "",
                        tool_calls=payload.totals.tool_calls,
                        tokens=payload.totals.prompt_tokens + payload.totals.completion_tokens,
                        cost_micro_usd=payload.totals.cost_micro_usd,
                    )
                    evaluated.append((payload.context.problem_id, result))
            for problem_id, result in evaluated:
                coefficient = coefficients.get(result.body_sha256)
                found[problem_id].append(msgspec.structs.replace(result, coefficient_e4=coefficient))
        return dict(found)


def add_results(router: APIRouter, board: Board) -> None:
    """The lists of this file."""
    results = Results(board)

    @router.get("/v1/races/{race_id}/problems", **described(ListPage[ProblemRow]))
    async def list_problems(
        request: Request,
        race_id: RaceId,
        pool: Pools = DEFAULT_POOLS,
        agent: AgentFilter = "",
        cursor: CursorOption = "",
        limit: RowsOption = 50,
    ) -> Response:
        """A released race problem by problem: who solved it, at which validator, with which coefficient."""
        await board.refresh()
        race = board.race(race_id)
        require_seen(race, "outcome")
        shown, scope = await results.of(race_id), f"problems {race_id} {sorted(pool)} {agent}"
        drawn = frozenset(race.settlement.drawn) if race.settlement else frozenset()
        void = frozenset(race.settlement.void) if race.settlement else frozenset()
        rows = [
            ProblemRow(
                problem_id=problem_id,
                pool=of,
                is_drawn=problem_id in drawn,
                is_void=problem_id in void,
                results=tuple(one for one in shown.get(problem_id, ()) if agent in ("", one.agent_version_id)),
            )
            for problem_id, of in pools_of(race).items()
            if may_see("public", "outcome", race.moment, pool=of, pools=pool).is_seen
        ]
        return deliver_json(
            request, page_of(rows, lambda row: (row.problem_id,), scope=scope, cursor=cursor, limit=limit)
        )

    @router.get("/v1/races/{race_id}/trajectories", **described(ListPage[TrajectoryRow]))
    async def list_trajectories(
        request: Request,
        race_id: RaceId,
        pool: Pools = DEFAULT_POOLS,
        agent: AgentFilter = "",
        problem: ProblemFilter = "",
        cursor: CursorOption = "",
        limit: RowsOption = 100,
    ) -> Response:
        """The trajectories of a race whose embargo is over, by problem, validator and number."""
        await board.refresh()
        race = board.race(race_id)
        require_seen(race, "trace")
        pools, scope = pools_of(race), f"trajectories {race_id} {sorted(pool)} {agent} {problem}"
        named = "".join(f"{'&' if number else '?'}pool={one}" for number, one in enumerate(sorted(set(pool))))
        rows = [
            TrajectoryRow(
                problem_id=problem_id,
                pool=pools[problem_id],
                result=one,
                href=f"/v1/trajectories/{one.validator}/{one.seq}{named}",
            )
            for problem_id, found in (await results.of(race_id)).items()
            if may_see("public", "trace", race.moment, pool=pools.get(problem_id), pools=pool).is_seen
            for one in found
            if problem in ("", problem_id) and agent in ("", one.agent_version_id)
        ]
        return deliver_json(request, page_of(rows, _place, scope=scope, cursor=cursor, limit=limit))


def add_trajectory(router: APIRouter, tail: Tail) -> None:
    """The route of one trajectory."""
    whole = described_text("application/json", (ShownTrajectory.__doc__ or "").strip())

    @router.get("/v1/trajectories/{validator}/{seq}", **whole)
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


def _missed(outcome: OutcomeScore) -> Iterator[str]:
    for axis in AXES:
        if any(getattr(slot, axis).hits < getattr(slot, axis).total for slot in outcome.slots):
            yield axis
    if outcome.is_one_shop is False:
        yield "one shop"
    if outcome.is_within_budget is False:
        yield "budget"


def pools_of(race: RaceView) -> dict[str, Pool]:
    """The problems of a released race, and the pool of each."""
    return {one.problem_id: one.pool for one in race.release.problems} if race.release else {}


def _place(row: TrajectoryRow) -> tuple[str, str, int]:
    return row.problem_id, row.result.validator, row.result.seq


def add_reads(app: FastAPI, board: Board, tail: Tail) -> None:
    """Add the routes of every subject, and their schemas to the document."""
    router = APIRouter(dependencies=[Depends(require_known)])
    add_races(router, board)
    add_agents(router, board)
    add_results(router, board)
    add_trajectory(router, tail)
    add_network(router, board)
    app.include_router(router)
    complete_document(app)


async def require_known(request: Request) -> None:
    """Raises ArenaError V2081 for a query parameter that the route does not know."""
    route = request.scope["route"]
    names = [str(one.alias) for one in route.dependant.query_params] if isinstance(route, APIRoute) else []
    for name in request.query_params:
        if name not in names:
            raise ArenaError("V2081", f"{name[:64]} is not a parameter; there are {', '.join(names) or 'none'}")

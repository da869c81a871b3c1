"""The public reads: a route for each kind of row, results problem by problem, trajectories, and the tail.

What is not public yet is refused alike, whatever stands there, so that a refusal tells nothing of a race that is under
way. Of the tail `arena.visibility.rule` alone decides what goes out whole (through `arena.export.assembly`, as in an
export); all else is a stub, so that chain, tree and signatures can be checked over every row. Between two pages a
reader holds a cursor, no rows and no connection. A stub never changes in the stream: the race's `release` row, which
comes later in it, says that the race's own rows can be had whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from arena.api.board import Board, judged_evaluations
from arena.api.http import PlaceError, deliver, deliver_json, described_text, json_response, require_known
from arena.api.rows import (
    PageStart,
    PairResult,
    agent_rows,
    by_commitment,
    day_rows,
    is_seen,
    latest_settled,
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
    trajectory_rows,
    validator_rows,
)
from arena.exchange.routes import Places, RowStream
from arena.export.assembly import ExportRow, Selection, assemble, load_page, releases_in
from arena.export.files import read_row
from arena.export.model import Cursor, LogRow
from arena.export.model import Request as ExportRequest
from arena.records.body import decode_content
from arena.records.log import note_sha256
from arena.records.model import EvaluationRecord, ReleaseRecord, SignedRecord
from arena.records.verification import batches_of
from arena.store.postgres import PostgresStore
from arena.visibility.rule import embargoed_races, opening_text, released_moment
from foundation.canonical import canonical_bytes
from foundation.errors import ArenaError
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import AXES, OutcomeScore, Pool

PAGE_ROWS = 16  # records of one page: with their bodies some hundred kilobytes
POLL_S = 1.0
HEARTBEAT_S = 15.0


@dataclasses.dataclass(eq=False)
class Tail:
    """The logs of one store, for any number of readers. `now_ms`: unix time, by which embargoes end."""

    store: PostgresStore
    now_ms: Callable[[], int]
    poll_s: float = POLL_S
    heartbeat_s: float = HEARTBEAT_S

    def __post_init__(self) -> None:
        self.closing = asyncio.Event()  # set: every stream ends after the page it is at
        self._releases = defaultdict[str, dict[str, ReleaseRecord]](dict)  # by log and race
        self._read_to = Counter[str]()  # by log: the record up to which its releases were read
        self._reading = asyncio.Lock()
        self._assembling = asyncio.Semaphore(1)  # a validator in the same process keeps the other core

    async def require_log(self, validator: str) -> str:
        """The hotkey of a log: the one named, or the only one. Raises ArenaError V2081, V2082, V2021."""
        names = await self.names()
        if validator in names:
            return validator
        if validator:
            raise ArenaError("V2082", f"there is no log of {validator}")
        if len(names) != 1:
            raise ArenaError("V2081", f"validator: name one of the {len(names)} logs")
        return names[0]

    async def rows(
        self,
        validator: str,
        pools: tuple[Pool, ...],
        *,
        after: int = 0,
        limit: int = 0,
        is_following: bool = False,
        race_id: str | None = None,
    ) -> AsyncGenerator[bytes]:
        """Lines of `LogRow`, a page in each piece; an empty line whenever a follower waited for long.

        `after`: the number of the last record the client has; `limit` 0: no end of its own; `race_id`: the rows of that
        race alone. Ends at the log's end (unless following), at the limit, or when `closing` is set. Raises ArenaError
        V2021.
        """
        left = limit
        spoke_at = time.monotonic()
        while not self.closing.is_set():
            wanted = min(PAGE_ROWS, left) if limit else PAGE_ROWS
            if rows := await self._assemble(validator, pools, race_id, after, wanted):
                after = rows[-1].seq
                yield b"".join(row.line + b"\n" for row in rows)
                left -= len(rows)
                spoke_at = time.monotonic()
                if limit and left <= 0:
                    return
            elif not is_following:
                return
            else:
                if time.monotonic() - spoke_at >= self.heartbeat_s:
                    yield b"\n"
                    spoke_at = time.monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.closing.wait(), self.poll_s)

    async def names(self) -> list[str]:
        """The logs that this store's login may read. Raises ArenaError V2021."""
        names = await self.store.validators()
        return names or [name for name in [self.store.validator] if name]  # a log without a record yet

    async def _assemble(
        self, validator: str, pools: tuple[Pool, ...], race_id: str | None, after: int, count: int
    ) -> list[ExportRow]:
        """The next rows, made beside the event loop."""
        found = self.store.records(validator, after_seq=after, race_id=race_id, page=count)
        records: list[SignedRecord] = await anext(batches_of(found, count), [])
        if not records:
            return []
        asked = ExportRequest(validator=validator, pools=tuple(dict.fromkeys(pools)))  # once each, however often named
        released = await self.releases(validator)
        embargoed = embargoed_races(released, self.now_ms())
        start = Cursor(validator=validator, after_seq=records[0].seq - 1)
        selection = Selection(asked, released, start, embargoed)
        async with self._assembling:
            page = await load_page(self.store, validator, records, selection)
            return await asyncio.to_thread(assemble, page, selection, records[-1].seq, {})

    async def releases(self, validator: str) -> Mapping[str, ReleaseRecord]:
        """By race: what the log has released. Of two releases of one race the first counts."""
        known, end = self._releases[validator], await self.store.head(validator)
        async with self._reading:
            if self._read_to[validator] < end.seq:
                async for _, release in releases_in(self.store, validator, after_seq=self._read_to[validator]):
                    known.setdefault(release.race_id, release)
                self._read_to[validator] = end.seq
            return known


DEFAULT_POOLS: list[Pool] = ["train"]
CHECKPOINTS_MAX = 1_000
SEQ_MAX = 2**53 - 1

Validator = Annotated[
    str, Query(pattern=r"^[A-Za-z0-9]{0,128}$", description="Whose log; may be left out where there is one.")
]
Race = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="A released race.")]
After = Annotated[int, Query(ge=0, le=SEQ_MAX, description="Number of the last record the client has.")]
Limit = Annotated[int, Query(ge=0, le=SEQ_MAX, description="Most rows; 0: no limit.")]
Follow = Annotated[bool, Query(description="Stay, and stream what is appended.")]
Pools = Annotated[
    list[Pool], Query(alias="pool", description="Pools that are asked for, by name; repeatable. Default: train.")
]


def add_tail(app: FastAPI, tail: Tail, places: Places) -> None:
    """Add the routes of logs. `places` bounds how many streams run at once."""
    router = APIRouter(dependencies=[Depends(require_known)])
    responses: dict[int | str, dict[str, Any]] = {
        200: {"content": {"application/x-ndjson": {}}, "description": "one LogRow a line"}
    }

    @router.get("/v1/tail", response_class=Response, responses=responses)
    async def read_tail(
        request: Request,
        pool: Pools = DEFAULT_POOLS,
        validator: Validator = "",
        after: After = 0,
        follow: Follow = False,
        limit: Limit = 0,
    ) -> Response:
        """Rows of a log after a cursor, in order; with `follow`, and then what is appended, for ever.

        A record whose race is not released is a stub (`withheld`), as is one of a pool that was not named. An empty
        line every 15 s says that the server is there. The cursor is the number (`seq`) of the last row received.
        """
        name = await tail.require_log(validator)
        head = await tail.store.head(name)
        if after > head.seq:
            raise PlaceError("V2082", f"the log ends at record {head.seq}, before {after}", head=head.seq)
        rows = tail.rows(name, tuple(pool), after=after, limit=limit, is_following=follow)
        return RowStream(rows, places, request.client.host if request.client else "")

    @router.get("/v1/records", response_class=Response, responses=responses)
    async def read_race(
        request: Request,
        race: Race,
        pool: Pools = DEFAULT_POOLS,
        validator: Validator = "",
        after: After = 0,
        limit: Limit = 0,
    ) -> Response:
        """The rows of one released race, in log order: how a follower gets whole what it got as stubs."""
        name = await tail.require_log(validator)
        if (release := (await tail.releases(name)).get(race)) is None:
            raise ArenaError("V2082", f"race {race} has no release in the log of {name}")
        if released_moment(release, tail.now_ms()) != "published":
            raise ArenaError("V2082", f"race {race} is under embargo until {opening_text(release.opens_ms)}")
        rows = tail.rows(name, tuple(pool), after=after, limit=limit, race_id=race)
        return RowStream(rows, places, request.client.host if request.client else "")

    @router.get("/v1/head", response_class=Response)
    async def read_heads() -> Response:
        """Where each log ends: validator, seq, and the chain's hash there."""
        ends = [(name, await tail.store.head(name)) for name in await tail.names()]
        return json_response([{"validator": name, "seq": head.seq, "hash": head.hash} for name, head in ends])

    @router.get("/v1/checkpoints", response_class=Response)
    async def read_checkpoints(validator: Validator = "", after_size: After = 0) -> Response:
        """Signed checkpoints of a log by size, at most a thousand: the note, its sha256 and the block that holds it."""
        name = await tail.require_log(validator)
        found = (await tail.store.checkpoints(name, after_size=after_size))[:CHECKPOINTS_MAX]
        return json_response(
            [msgspec.structs.asdict(point) | {"note_sha256": note_sha256(point.note)} for point in found]
        )

    @router.get("/v1/health", response_class=Response)
    async def read_health() -> Response:
        """200 while the store answers."""
        await tail.store.validators()
        return json_response({"status": "ok"})

    app.include_router(router)


RACES_KEPT = 12  # of which results are kept: some 350 bytes each
Position = Annotated[str, Query(max_length=512, description="`next` of the page before; empty: from the beginning.")]
RowLimit = Annotated[int, Query(ge=1, le=500, description="Most rows of a page.")]


def _place(cursor: Position = "", limit: RowLimit = 100) -> PageStart:
    return PageStart(cursor, limit)


Place = Annotated[PageStart, Depends(_place)]
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
    @router.get("/v1/races")
    async def list_races(request: Request, place: Place) -> Response:
        """Races, newest first: when each closes, how many agents and episodes it has, and what of it is public."""
        rows = [race_row(board, race) for race in board.races()]
        return deliver_json(request, page_of(rows, lambda row: (row.number,), "races", place, is_newest_first=True))

    @router.get("/v1/races/{race_id}")
    async def read_race(request: Request, race_id: RaceId) -> Response:
        """One race: its draw and what decided it, once it is settled."""
        return deliver_json(request, race_detail(board, board.race(race_id)))

    @router.get("/v1/races/{race_id}/leaderboard")
    async def read_leaderboard(request: Request, race_id: RaceId, place: Place) -> Response:
        """The standings of a settled race by rank, each score with its 95 % bootstrap interval."""
        rows = settled(board.race(race_id)).standings
        return deliver_json(request, page_of(rows, lambda row: (row.rank,), f"leaderboard {race_id}", place))

    @router.get("/v1/races/{race_id}/settlement")
    async def read_settlement(request: Request, race_id: RaceId) -> Response:
        """The settlement in force, in its canonical bytes: everything `arena race replay` needs beside the records."""
        content = canonical_bytes(settled(board.race(race_id)))
        return deliver(request, content, "application/json", name=f"{race_id}.settlement.json")

    @router.get("/v1/leaderboard")
    async def read_latest(request: Request) -> Response:
        """The latest settled race; its standings are at `/v1/races/{race_id}/leaderboard`."""
        if (race := latest_settled(board)) is not None:
            return deliver_json(request, race_detail(board, race))
        raise ArenaError("V2082", "no race is settled yet")


def _add_agents(router: APIRouter, board: Board) -> None:
    @router.get("/v1/agents")
    async def list_agents(request: Request, place: Place, miner: Miner = "") -> Response:
        """Agent versions by their commitment on chain, the first first."""
        rows = [row for row in agent_rows(board).values() if miner in ("", row.miner_hotkey)]
        return deliver_json(request, page_of(rows, by_commitment, f"agents {miner}", place))

    @router.get("/v1/agents/{agent_version_id}")
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
            if len(self._kept) > RACES_KEPT:
                self._kept.popitem(last=False)
            return found

    async def _read(self, race_id: str) -> dict[str, list[PairResult]]:
        found: dict[str, list[PairResult]] = defaultdict(list)
        rubric = self._board.race(race_id).rubric
        for validator in self._board.logs:
            for seq, one, verdict in await judged_evaluations(self._board.store, validator, race_id, rubric):
                found[one.context.problem_id].append(pair_result(validator, seq, one, verdict))
        return dict(found)


def pair_result(
    validator: str, seq: int, record: EvaluationRecord, verdict: Verdict | UnscoredVerdict | None
) -> PairResult:
    """The result that an evaluation of a log states, with the verdict on it that counts."""
    scored = record.outcome if isinstance(record.outcome, OutcomeScore) else None
    return PairResult(
        agent_version_id=record.subject.agent_version_id,
        validator=validator,
        seq=seq,
        is_success=scored.is_success if scored else None,
        is_agentic=record.is_agentic,
        coefficient_e4=verdict.coefficient_e4 if isinstance(verdict, Verdict) else None,
        body_sha256=record.body_sha256,
        bucket=scored.bucket if scored else "",
        rule_e4=scored.rule_e4 if scored else None,
        missed=tuple(_missed(scored)) if scored else (),
        failure=record.failure.code if record.failure else "",
        tool_calls=record.totals.tool_calls,
        model_calls=record.totals.llm_calls,
        echoed_calls=record.totals.echoed_calls,
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

    @router.get("/v1/races/{race_id}/problems")
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

    @router.get("/v1/races/{race_id}/trajectories")
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
        scope = f"trajectories {race_id} {sorted(pool)} {agent} {problem}"
        rows = trajectory_rows(race, await results.of(race_id), pool, agent=agent, problem=problem)
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
    """One published trajectory, whole, and its record. Raises ArenaError V2082 for an invalid record."""
    row = await _whole_row(tail, validator, seq, pools)
    payload = decode_content(bytes(row.content)).payload if row and row.content is not None else None
    if row is None or not isinstance(payload, EvaluationRecord):
        raise ArenaError("V2082", f"record {seq} of {validator} is not a public trajectory")
    verdicts = [
        await _whole_row(tail, validator, one.seq, pools)
        for one in await tail.store.verdicts_on([payload.body_sha256], validator)
    ]
    shown = ShownTrajectory(evaluation=row, verdicts=tuple(one for one in verdicts if one and one.content))
    return shown, payload


async def _whole_row(tail: Tail, validator: str, seq: int, pools: tuple[Pool, ...]) -> LogRow | None:
    """A record as the tail shows it to everybody; None where the log has none."""
    lines = [piece async for piece in tail.rows(validator, pools, after=seq - 1, limit=1)]
    row = read_row(lines[0].rstrip(b"\n")) if lines else None
    return row if row is not None and row.seq == seq else None


def _add_network(router: APIRouter, board: Board) -> None:
    @router.get("/v1/suites")
    async def list_suites(request: Request, place: Place) -> Response:
        """The public suites that agents qualify on."""
        return deliver_json(request, page_of(suite_rows(board), lambda row: (row.suite,), "suites", place))

    @router.get("/v1/suites/{suite}/problems")
    async def list_suite(request: Request, suite: SuiteName, place: Place) -> Response:
        """The problems of a suite, as an agent is asked them."""
        if suite not in board.suites:
            raise ArenaError("V2082", f"this server does not hold the problems of suite {suite}")
        rows = [problem.view() for problem in board.suites[suite]]
        return deliver_json(request, page_of(rows, lambda row: (row.problem_id,), f"suite {suite}", place))

    @router.get("/v1/validators")
    async def list_validators(request: Request, place: Place) -> Response:
        """The validators whose logs are served here, with where each log ends."""
        return deliver_json(request, page_of(validator_rows(board), lambda row: (row.validator,), "validators", place))

    @router.get("/v1/stats/days")
    async def list_days(request: Request, place: Place) -> Response:
        """Episodes by UTC day, the latest first. What was solved in a race is counted once the race is settled."""
        rows = day_rows(board)
        return deliver_json(request, page_of(rows, lambda row: (row.day,), "days", place, is_newest_first=True))

"""What each page is made of: the reads of one store, put side by side.

Everything goes through the reads and their rule of who may see what; a page of a race that is sealed holds its
counts and the reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from arena.api.board import Board as Picture
from arena.api.board import RaceView
from arena.api.reads import (
    agent_rows,
    day_rows,
    race_detail,
    race_row,
    read_detail,
    readable_source,
    require_seen,
    standings_of,
    suite_rows,
    validator_rows,
)
from arena.api.results import DEFAULT_POOLS, Results, ShownTrajectory, pools_of, published_trajectory
from arena.api.rows import PairResult, ProblemRow, TrajectoryRow, ValidatorRow, page_of
from arena.api.tail import Tail
from arena.bank.batch import Explain
from arena.records.body import decode_body, decode_content, restore_bodies
from arena.records.model import EvaluationRecord, Payload, StoredCheckpoint, VerdictRecord
from arena.records.proof import Proof, TiledLogs
from arena.view.reading import TraceView, chain_fact, view_trace
from arena.visibility.rule import may_see
from arena.web.figures import bars, bins, paired_gap, shape_of, shape_panel
from arena.web.reading import (
    COLUMNS,
    Comparison,
    add_up,
    buckets_of,
    disagreements,
    latest_settled,
    missed_of,
    name_of,
    read_appearances,
    read_board,
    read_front,
    read_matrix,
    read_problem,
    read_qualified,
    read_source,
    read_steps,
    shorten_trace,
    trace_href,
    void_reason,
)
from arena.web.values import (
    SHOWN,
    STAGES,
    STATES,
    WROTE,
    AgentFilter,
    AgentName,
    EpisodeFilter,
    MatrixRow,
    PairedGap,
    RaceFilter,
    Shown,
    Solver,
    matching,
)
from foundation.errors import ArenaError
from harness.trace import EvaluationBody
from problems.explanation import Constraint
from problems.model import Pool

RACES_COMPARED = 8
AGENTS_SHOWN, AGENTS_LISTED = 8, 200
DAYS_SHOWN = 30
SAMPLE, SAMPLE_BYTES, CALLED_KEPT = 60, 1 << 20, 20_000  # of the bodies that are looked into


class Firehose:
    """Makes the page of one store."""

    def __init__(
        self, picture: Picture, results_of: Callable[[RaceView], Awaitable[Mapping[str, Sequence[PairResult]]]]
    ) -> None:
        """`results_of`: the results of a race as far as they are public."""
        self._picture, self._results_of = picture, results_of
        self._called: dict[str, tuple[str, ...]] = {}  # by body: the tools called, in order

    async def page(self, asked: EpisodeFilter, base_url: str) -> dict[str, Any]:
        """What there is to train on. Raises ArenaError V2082 for a race that is not published."""
        made: dict[EpisodeFilter, dict[str, Any]] = self._picture.once("firehose", lambda: {})
        if asked not in made:
            made[asked] = await self._make(asked)
        return made[asked] | {"base_url": base_url}

    async def _make(self, asked: EpisodeFilter) -> dict[str, Any]:
        told = [race for race in self._picture.races() if race.moment == "published" and race.release][-RACES_COMPARED:]
        if asked.race and asked.race not in {race.race_id for race in told}:
            raise ArenaError("V2082", f"{asked.race} is none of the last {RACES_COMPARED} published races")
        everything = [
            one
            for race in told
            if asked.race in ("", race.race_id)
            for pairs in (await self._results_of(race)).values()
            for one in pairs
        ]
        given = [one for one in everything if asked.holds(one)]
        days = tuple(sorted(day_rows(self._picture), key=lambda row: row.day))[-DAYS_SHOWN:]
        good = [one for one in given if one.is_agentic and one.is_success and (one.coefficient_e4 or 0) >= 9_000]
        funnel = {
            "recorded in published races": len(given),
            "calls by the model": sum(one.is_agentic for one in given),
            "and solved": sum(one.is_agentic and one.is_success is True for one in given),
            "and coefficient .9 or more": len(good),
        }
        rows = agent_rows(self._picture)
        by_agent = Counter(one.agent_version_id for one in given).most_common(AGENTS_SHOWN)
        listed = Counter(one.agent_version_id for one in everything).most_common(AGENTS_LISTED)
        agents = tuple(sorted((name_of(rows, one) for one, _ in listed), key=lambda each: each.name))
        return dict(
            days=days,
            most=max((row.episodes for row in days), default=0),
            episodes=len(given),
            races=tuple(race.race_id for race in reversed(told)),
            agents=agents,
            race=asked.race,
            agent=asked.agent,
            wrote=asked.wrote,
            choices={str(one): said for one, said in WROTE.items()},
            funnel=bars(funnel, list(funnel)),
            calls=bins((one.tool_calls for one in given), (2, 4, 8, 16, 32)),
            lengths=bins((one.tokens for one in given), (1_000, 4_000, 16_000, 64_000)),
            whose=bars({f"{name_of(rows, one).name} ({one[:6]})": count for one, count in by_agent}),
            called=shape_panel(await self._shapes(given)),
            suites=suite_rows(self._picture),
            base_url="",
        )

    async def _shapes(self, given: list[PairResult]) -> list[tuple[str, ...]]:
        """What a sample of episodes called, evenly taken; bodies that are large, or elsewhere, are left out."""
        sample = given[:: max(1, -(-len(given) // SAMPLE))]
        missing = defaultdict[str, list[str]](list)
        for one in sample:
            if one.body_sha256 not in self._called:
                missing[one.validator].append(one.body_sha256)
        if missing and len(self._called) > CALLED_KEPT:
            self._called.clear()
            return await self._shapes(given)
        for validator, names in missing.items():
            for frame in await self._picture.store.frames(names, validator):
                if frame.size <= SAMPLE_BYTES:
                    (stored,) = await restore_bodies([frame])
                    self._called[frame.body_sha256] = shape_of(decode_body(stored.content))
        return [self._called[one.body_sha256] for one in sample if one.body_sha256 in self._called]


ROWS = 40
LATEST = 10
RESULTS_EXPLAINED = 8  # of those that solved a problem, for what the rule accepts


class Pages:
    """Makes the pages of one store."""

    def __init__(self, picture: Picture, tail: Tail, explain: Explain) -> None:
        self.picture, self.tail, self._explain = picture, tail, explain
        self._results = Results(picture)
        self._tiles = TiledLogs(picture.store)
        self._firehose = Firehose(picture, self.results_of)
        self._anchored: dict[str, int] = {}  # by validator: records before the newest checkpoint known to be anchored
        self._compared: dict[tuple[str, str, int], Comparison] = {}  # by race, its moment, how much of it was recorded

    async def results_of(self, race: RaceView | None) -> dict[str, list[PairResult]]:
        """The results of a race as far as everybody may see them without asking for a pool by name."""
        if race is None or not may_see("public", "outcome", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen:
            return {}
        pools = pools_of(race)
        return {
            name: given for name, given in (await self._results.of(race.race_id)).items() if pools.get(name) == "train"
        }

    async def _gap(self, race: RaceView) -> PairedGap | None:
        """The first of a settled race against the second: of the whole race, as its standings are."""
        if race.settlement is None or not may_see("public", "score", race.moment).is_seen:
            return None
        settlement, results = race.settlement, await self._results.of(race.race_id)
        return self.picture.once(f"gap of {race.race_id}", lambda: paired_gap(settlement, results))

    async def front(self) -> dict[str, Any]:
        """Who leads."""
        race = latest_settled(self.picture)
        gap = None if race is None else await self._gap(race)
        front = read_front(self.picture, await self.results_of(race), gap)
        rows = validator_rows(self.picture)
        longest = max(rows, key=lambda row: row.records, default=None)
        points = await self._points(longest.validator) if longest else []
        newest = points[-1].size if points else 0
        anchored = max((one.anchor_block for one in points), default=0)
        return front | {"validators": rows, "checkpoint": (newest, anchored)}

    def races(self, asked: RaceFilter, cursor: str) -> dict[str, Any]:
        """All races that were asked for."""
        rows = [row for race in self.picture.races() if asked.holds(row := race_row(self.picture, race))]
        scope = f"races {asked.stage} {asked.is_promotion}"
        page = page_of(rows, lambda row: (row.number,), scope=scope, cursor=cursor, limit=ROWS, is_newest_first=True)
        listed = agent_rows(self.picture)
        tops = {row.top_agent_version_id: name_of(listed, row.top_agent_version_id) for row in page.items}
        return dict(
            races=page.items,
            names=tops,
            next=page.next,
            stage=asked.stage,
            is_promotion=asked.is_promotion,
            stages=STAGES[1:],
        )

    async def race(self, race_id: str, pools: list[Pool], shown: Shown, cursor: str) -> dict[str, Any]:
        """What happened in one race."""
        race = self.picture.race(race_id)
        detail = race_detail(self.picture, race)
        access = may_see("public", "score", race.moment)
        board, following = None, ""
        agents: list[AgentName] = []
        matrix: tuple[MatrixRow, ...] = ()
        voids: tuple[str, ...] = ()
        counts = dict.fromkeys(pools_of(race).values(), 0)
        if access.is_seen and race.settlement is not None and race.settlement.standings:
            board = read_board(self.picture, race, await self.results_of(race), await self._gap(race))
            agents = [leader.agent for leader in board.leaders[:COLUMNS]]
            if may_see("public", "outcome", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen:
                whole = matching(read_matrix(race, await self._results.of(race_id), agents, pools), shown)
                voids = tuple(name for name in race.settlement.void if pools_of(race).get(name) in pools)
                page = page_of(
                    whole,
                    lambda row: (row.problem_id,),
                    scope=f"matrix {race_id} {sorted(pools)} {shown}",
                    cursor=cursor,
                    limit=ROWS,
                )
                matrix, following = page.items, page.next
        for pool in pools_of(race).values():
            counts[pool] += 1
        pairs, settlement = add_up([await self._comparison(race)]), race.settlement
        return dict(
            detail=detail,
            steps=read_steps(race, detail.race, self.picture.now_ms()),
            sealed="" if access.is_seen else access.reason,
            board=board,
            agents=tuple(agents),
            matrix=matrix,
            voids=voids,
            void_why=void_reason(settlement) if voids and settlement else "",
            qualified=read_qualified(settlement, agent_rows(self.picture)) if board and settlement else (),
            validators=settlement.inputs.validators if board and settlement and settlement.inputs else (),
            compared=(sum(both for *_, both, _ in pairs), sum(other for *_, other in pairs)),
            shown=shown,
            choices={str(one): said for one, said in SHOWN.items()},
            pools=tuple((pool, count, pool in pools) for pool, count in sorted(counts.items())),
            next=following,
        )

    def agents(self, asked: AgentFilter, cursor: str) -> dict[str, Any]:
        """All agent versions that were asked for, those with the best rank first."""
        rows = [row for row in agent_rows(self.picture).values() if asked.holds(row)]
        page = page_of(
            rows,
            lambda row: (row.best_rank or 1 << 30, row.commitment_block, row.agent_version_id),
            scope=f"agents by rank {asked.name!r} {asked.state}",
            cursor=cursor,
            limit=ROWS,
        )
        return dict(agents=page.items, next=page.next, name=asked.name, state=asked.state, states=STATES[1:])

    async def agent(self, agent_version_id: str) -> dict[str, Any]:
        """One agent version."""
        detail, rows = read_detail(self.picture, agent_version_id), agent_rows(self.picture)
        found = [(one.line, f"{one.rule}: {one.detail}") for one in detail.findings or ()]
        try:
            (source, more), sealed = read_source(await readable_source(self.picture, agent_version_id), found), ""
        except ArenaError as error:
            source, more, sealed = (), 0, error.failure.detail or error.entry.title
        told, traces = await self._latest(agent_version_id)
        return dict(
            detail=detail,
            agent=name_of(rows, agent_version_id),
            versions=tuple(rows[one] for one in detail.versions if one in rows),
            appearances=read_appearances(self.picture, agent_version_id),
            source=source,
            more_lines=more,
            sealed=sealed,
            told=told,
            buckets=buckets_of(row.result for row in traces),
            missed=missed_of(row.result for row in traces),
            latest=tuple(traces[:LATEST]),
        )

    async def _latest(self, agent_version_id: str) -> tuple[str, list[TrajectoryRow]]:
        """The newest race in which an agent has published traces, and those."""
        for race_id, _ in reversed(standings_of(self.picture).get(agent_version_id, ())):
            race = self.picture.race(race_id)
            if not may_see("public", "trace", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen:
                continue
            found = [
                TrajectoryRow(problem_id=name, pool="train", result=one, href=trace_href(one, "train"))
                for name, given in (await self.results_of(race)).items()
                for one in given
                if one.agent_version_id == agent_version_id
            ]
            if found:
                return race_id, found
        return "", []

    async def problem(self, race_id: str, problem_id: str, pools: list[Pool]) -> dict[str, Any]:
        """One released problem."""
        race = self.picture.race(race_id)
        require_seen(race, "outcome")
        pool = pools_of(race).get(problem_id)
        if pool is None or not may_see("public", "outcome", race.moment, pool=pool, pools=pools).is_seen:
            raise ArenaError("V2082", f"{race_id} has no problem {problem_id} in pool {', '.join(pools)}")
        results = (await self._results.of(race_id)).get(problem_id, ())
        settlement = race.settlement
        row = ProblemRow(
            problem_id=problem_id,
            pool=pool,
            is_drawn=bool(settlement and problem_id in settlement.drawn),
            is_void=bool(settlement and problem_id in settlement.void),
            results=tuple(results),
        )
        query, explained = "", []
        if results and may_see("public", "trace", race.moment, pool=pool, pools=pools).is_seen:
            shown, record = await published_trajectory(self.tail, results[0].validator, results[0].seq, tuple(pools))
            if shown.evaluation.body:
                body = decode_body(bytes(shown.evaluation.body))
                query = body.query
                records: list[Payload] = [record]
                chosen = [one for one in results[1:] if one.is_success][:RESULTS_EXPLAINED]
                for one in chosen:
                    found = await anext(aiter(self.picture.store.records(one.validator, after_seq=one.seq - 1, page=1)))
                    records.append(decode_content(found.content).payload)
                for payload in records:
                    assert isinstance(payload, EvaluationRecord)  # results are made of evaluations alone
                    explained.append(await asyncio.to_thread(self._explain, payload, body.catalogue_sha256))
        return read_problem(self.picture, race, row, query, explained, pools)

    async def trace(self, validator: str, seq: int, pools: list[Pool]) -> dict[str, Any]:
        """One published trajectory, and who else was asked the same."""
        shown, record = await published_trajectory(self.tail, validator, seq, tuple(pools))
        if shown.evaluation.body is None:
            raise ArenaError("V2082", f"the body of record {seq} is not here")
        rows, about, body = agent_rows(self.picture), record.context, decode_body(bytes(shown.evaluation.body))
        constraints: Sequence[Constraint] = ()
        pool: Pool = "never_touch"  # of the public suite
        others: list[Solver] = []
        if about.stage == "race":
            race = self.picture.race(about.race_id)
            pool = pools_of(race)[about.problem_id]
            if may_see("public", "problem", race.moment, pool=pool, pools=pools).is_seen:
                found = await asyncio.to_thread(self._explain, record, body.catalogue_sha256)
                constraints = found.constraints
            given = (await self._results.of(about.race_id)).get(about.problem_id, ())
            others = [
                Solver(agent=name_of(rows, one.agent_version_id), result=one, href=trace_href(one, pool))
                for one in given
                if (one.validator, one.seq) != (validator, seq)
            ]
        return dict(
            view=trace_view(shown, record, body, constraints, await self._points(validator)),
            race_id=about.race_id if about.stage == "race" else "",
            problem_id=about.problem_id,
            pool=pool,
            agent=name_of(rows, record.subject.agent_version_id),
            validator=validator,
            seq=seq,
            others=tuple(others[:AGENTS_LISTED]),
        )

    async def firehose(self, asked: EpisodeFilter, base_url: str) -> dict[str, Any]:
        """What there is to train on. Raises ArenaError V2082 for a race that is not published."""
        return await self._firehose.page(asked, base_url)

    async def _points(self, validator: str) -> list[StoredCheckpoint]:
        """A log's signed checkpoints, by size, from the newest on that was known to be anchored: not all of a long
        log's."""
        found = await self.picture.store.checkpoints(validator, after_size=self._anchored.get(validator, 0))
        anchored = max((one.size for one in found if one.anchor_block), default=0)
        if anchored:
            self._anchored[validator] = anchored - 1
        return found

    async def proof(self, validator: str, seq: int) -> Proof:
        """A record under the newest signed checkpoint: hashes alone, so that one may be had before a release.

        Raises ArenaError V2082 where no signed checkpoint covers the record.
        """
        store = self.picture.store
        points = await self._points(validator) if validator in self.picture.logs else []
        if not points or not 0 < seq <= points[-1].size:
            raise ArenaError("V2082", f"no signed checkpoint of {validator} covers record {seq} yet")
        record = await anext(aiter(store.records(validator, after_seq=seq - 1, page=1)))
        path = await self._tiles.inclusion(validator, seq, points[-1].size)
        return Proof(
            validator=validator,
            seq=seq,
            prev=record.prev,
            content_sha256=record.content_sha256,
            signature=record.signature,
            checkpoint=points[-1].note,
            inclusion=tuple(one.hex() for one in path),
        )

    async def validators(self) -> dict[str, Any]:
        """Whose logs are served here, and whether they agree."""
        points = {}
        for name in self.picture.logs:
            if found := await self._points(name):
                anchored = max((one.anchor_block for one in found), default=0)
                points[name] = (found[-1].size, found[-1].signed_ms, anchored)
        told = [race for race in self.picture.races() if race.moment in ("settled", "published")]
        told = told[-RACES_COMPARED:]
        compared = [await self._comparison(race) for race in told]
        return dict(validators=validator_rows(self.picture), checkpoints=points, pairs=add_up(compared))

    async def _comparison(self, race: RaceView) -> Comparison:
        """How far the validators' public results of a race agree, kept until more of it is recorded."""
        key = race.race_id, race.moment, self.picture.recorded[race.race_id]
        if key not in self._compared:
            kept = {other: found for other, found in self._compared.items() if other[0] != race.race_id}
            self._compared = {**kept, key: disagreements(await self.results_of(race))}
        return self._compared[key]

    async def verify(self) -> tuple[ValidatorRow, ...]:
        """Whose records can be checked here."""
        return validator_rows(self.picture)


def trace_view(
    shown: ShownTrajectory,
    record: EvaluationRecord,
    body: EvaluationBody,
    constraints: Sequence[Constraint],
    points: Sequence[StoredCheckpoint],
) -> TraceView:
    """The view of a published trajectory with the verdicts on it, and what was asked where that is known."""
    row, verdicts = shown.evaluation, []
    for one in shown.verdicts:
        said = decode_content(bytes(one.content or b"")).payload
        if isinstance(said, VerdictRecord):
            verdicts.append(said.verdict)
    return shorten_trace(
        view_trace(
            body,
            outcome=record.outcome,
            constraints=constraints,
            verdicts=verdicts,
            proof=(
                ("validator", row.validator),
                ("record", str(row.seq)),
                ("content", row.content_sha256),
                ("signature", row.signature),
                chain_fact(row.seq, points),
            ),
        )
    )

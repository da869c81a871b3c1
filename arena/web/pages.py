"""What each page is made of: the reads of one store, put side by side.

Promise: everything goes through the reads and their rule of who may see what; a page of a race that is sealed holds its
counts and the reason.
"""

from __future__ import annotations

import msgspec

from arena.api.reads.agents import agent_rows, read_detail, readable_source
from arena.api.reads.answers import PairResult, ProblemRow, TrajectoryRow
from arena.api.reads.board import Board as Picture
from arena.api.reads.board import RaceView
from arena.api.reads.network import day_rows, suite_rows, validator_rows
from arena.api.reads.pages import page_of
from arena.api.reads.races import race_detail, race_row, require_seen
from arena.api.reads.results import DEFAULT_POOLS, Results, ShownTrajectory, pools_of, published_trajectory
from arena.api.tail import Tail
from arena.records.body import decode_body, decode_content
from arena.records.model import EvaluationRecord, VerdictRecord
from arena.view.model import TraceView
from arena.view.reading import view_trace
from arena.visibility.rule import may_see
from arena.web.model import (
    AgentName,
    AgentPage,
    AgentsPage,
    FirehosePage,
    FrontPage,
    MatrixRow,
    ProblemPage,
    RacePage,
    RacesPage,
    ValidatorsPage,
)
from arena.web.reading import (
    COLUMNS,
    bars,
    bins,
    disagreements,
    latest_settled,
    name_of,
    read_appearances,
    read_board,
    read_front,
    read_matrix,
    read_problem,
    read_source,
    read_steps,
    shorten_trace,
    trace_href,
)
from foundation.errors import ArenaError
from problems.model import Pool

ROWS = 40
LATEST = 10
RACES_COMPARED = 8  # of the firehose's figures and the validators' agreement


class Pages:
    """Makes the pages of one store."""

    def __init__(self, picture: Picture, tail: Tail) -> None:
        self.picture, self.tail = picture, tail
        self._results = Results(picture)

    async def results_of(self, race: RaceView | None) -> dict[str, list[PairResult]]:
        """The results of a race as far as everybody may see them without asking for a pool by name."""
        if race is None or not may_see("public", "outcome", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen:
            return {}
        pools = pools_of(race)
        return {
            name: given for name, given in (await self._results.of(race.race_id)).items() if pools.get(name) == "train"
        }

    async def front(self) -> FrontPage:
        """Who leads."""
        race = latest_settled(self.picture)
        front = read_front(self.picture, await self.results_of(race))
        return msgspec.structs.replace(front, validators=validator_rows(self.picture))

    def races(self, cursor: str) -> RacesPage:
        """All races."""
        rows = [race_row(self.picture, race) for race in self.picture.races()]
        page = page_of(rows, lambda row: (row.number,), scope="races", cursor=cursor, limit=ROWS, is_newest_first=True)
        listed = agent_rows(self.picture)
        tops = {row.top_agent_version_id: name_of(listed, row.top_agent_version_id) for row in page.items}
        return RacesPage(races=page.items, names=tops, next=page.next)

    async def race(self, race_id: str, pools: list[Pool], cursor: str) -> RacePage:
        """What happened in one race."""
        race = self.picture.race(race_id)
        detail = race_detail(self.picture, race)
        access = may_see("public", "score", race.moment)
        board, following = None, ""
        agents: list[AgentName] = []
        matrix: tuple[MatrixRow, ...] = ()
        counts = dict.fromkeys(pools_of(race).values(), 0)
        if access.is_seen and race.settlement is not None and race.settlement.standings:
            board = read_board(self.picture, race, await self.results_of(race))
            agents = [leader.agent for leader in board.leaders[:COLUMNS]]
            if may_see("public", "outcome", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen:
                whole = read_matrix(race, await self._results.of(race_id), agents, pools)
                page = page_of(
                    whole,
                    lambda row: (row.problem_id,),
                    scope=f"matrix {race_id} {sorted(pools)}",
                    cursor=cursor,
                    limit=ROWS,
                )
                matrix, following = page.items, page.next
        for pool in pools_of(race).values():
            counts[pool] += 1
        return RacePage(
            detail=detail,
            steps=read_steps(race, detail.race),
            sealed="" if access.is_seen else access.reason,
            board=board,
            agents=tuple(agents),
            matrix=matrix,
            pools=tuple((pool, count, pool in pools) for pool, count in sorted(counts.items())),
            next=following,
        )

    def agents(self, cursor: str) -> AgentsPage:
        """All agent versions, those with the best rank first."""
        rows = agent_rows(self.picture).values()
        page = page_of(
            rows,
            lambda row: (row.best_rank or 1 << 30, row.commitment_block, row.agent_version_id),
            scope="agents by rank",
            cursor=cursor,
            limit=ROWS,
        )
        return AgentsPage(agents=page.items, next=page.next)

    async def agent(self, agent_version_id: str) -> AgentPage:
        """One agent version."""
        detail, rows = read_detail(self.picture, agent_version_id), agent_rows(self.picture)
        found = [(one.line, f"{one.rule}: {one.detail}") for one in detail.findings or ()]
        try:
            (source, more), sealed = read_source(await readable_source(self.picture, agent_version_id), found), ""
        except ArenaError as error:
            source, more, sealed = (), 0, error.failure.detail or error.entry.title
        return AgentPage(
            detail=detail,
            agent=name_of(rows, agent_version_id),
            versions=tuple(rows[one] for one in detail.versions if one in rows),
            appearances=read_appearances(self.picture, agent_version_id),
            source=source,
            more_lines=more,
            sealed=sealed,
            latest=tuple(await self._latest(agent_version_id)),
        )

    async def _latest(self, agent_version_id: str) -> list[TrajectoryRow]:
        """An agent's published traces of the newest race that has any."""
        for race in reversed(self.picture.races()):
            if not may_see("public", "trace", race.moment, pool="train", pools=DEFAULT_POOLS).is_seen:
                continue
            found = [
                TrajectoryRow(problem_id=name, pool="train", result=one, href=trace_href(one, "train"))
                for name, given in (await self.results_of(race)).items()
                for one in given
                if one.agent_version_id == agent_version_id
            ]
            if found:
                return found[:LATEST]
        return []

    async def problem(self, race_id: str, problem_id: str, pools: list[Pool]) -> ProblemPage:
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
        query = ""
        if results and may_see("public", "trace", race.moment, pool=pool, pools=pools).is_seen:
            shown, _ = await published_trajectory(self.tail, results[0].validator, results[0].seq, tuple(pools))
            query = decode_body(bytes(shown.evaluation.body)).query if shown.evaluation.body else ""
        return read_problem(self.picture, race, row, query, pools)

    async def trace(self, validator: str, seq: int, pools: list[Pool]) -> TraceView:
        """One published trajectory."""
        shown, record = await published_trajectory(self.tail, validator, seq, tuple(pools))
        return trace_view(shown, record, name_of(agent_rows(self.picture), record.subject.agent_version_id).name)

    async def firehose(self, base_url: str) -> FirehosePage:
        """What there is to train on."""
        told = [race for race in self.picture.races() if race.moment == "published"]
        given = [
            one for race in told[-RACES_COMPARED:] for pairs in (await self.results_of(race)).values() for one in pairs
        ]
        days = tuple(sorted(day_rows(self.picture), key=lambda row: row.day))[-30:]
        good = [one for one in given if one.is_agentic and one.is_success and (one.coefficient_e4 or 0) >= 9_000]
        funnel = {
            "recorded in the last races": len(given),
            "calls by the model": sum(one.is_agentic for one in given),
            "and solved": sum(one.is_agentic and one.is_success is True for one in given),
            "and coefficient .9 or more": len(good),
        }
        return FirehosePage(
            days=days,
            most=max((row.episodes for row in days), default=0),
            funnel=bars(funnel, list(funnel)),
            calls=bins((one.tool_calls for one in given), (2, 4, 8, 16, 32)),
            lengths=bins((one.tokens for one in given), (1_000, 4_000, 16_000, 64_000)),
            suites=suite_rows(self.picture),
            base_url=base_url,
        )

    async def validators(self) -> ValidatorsPage:
        """Whose logs are served here, and whether they agree."""
        points = {}
        for name in self.picture.logs:
            if found := await self.picture.store.checkpoints(name):
                anchored = max((one.anchor_block for one in found), default=0)
                points[name] = (found[-1].size, found[-1].signed_ms, anchored)
        told = [race for race in self.picture.races() if race.moment in ("settled", "published")]
        told = told[-RACES_COMPARED:]
        results = [await self.results_of(race) for race in told]
        return ValidatorsPage(validators=validator_rows(self.picture), checkpoints=points, pairs=disagreements(results))


def trace_view(shown: ShownTrajectory, record: EvaluationRecord, agent: str) -> TraceView:
    """The view of a published trajectory with the verdicts on it. Raises ArenaError V2082 where its body is gone."""
    row, verdicts = shown.evaluation, []
    if row.body is None:
        raise ArenaError("V2082", f"the body of record {row.seq} is not here")
    for one in shown.verdicts:
        said = decode_content(bytes(one.content or b"")).payload
        if isinstance(said, VerdictRecord):
            verdicts.append(said.verdict)
    return shorten_trace(
        view_trace(
            decode_body(bytes(row.body)),
            outcome=record.outcome,
            verdicts=verdicts,
            facts=(("agent", agent), ("race", record.context.race_id)),
            proof=(
                ("validator", row.validator),
                ("record", str(row.seq)),
                ("content", row.content_sha256),
                ("signature", row.signature),
            ),
        )
    )

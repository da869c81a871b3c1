"""What each page is made of: the reads of one store, put side by side.

Everything goes through the reads and their rule of who may see what; a page of a race that is sealed holds its
counts and the reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from fastapi import Path, Query

from arena.api.board import Board, RaceView
from arena.api.reads import (
    DEFAULT_POOLS,
    AgentFilter,
    AgentId,
    Number,
    Pools,
    RaceId,
    Results,
    Tail,
    ValidatorName,
    published_trajectory,
)
from arena.api.rows import (
    PageStart,
    TrajectoryRow,
    ValidatorRow,
    agent_rows,
    called,
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
    standings_of,
    suite_rows,
    trajectory_rows,
    validator_rows,
)
from arena.api.rows import PairResult as Result
from arena.bank.batch import NOTHING, Explain
from arena.policy import Policy
from arena.race.forecast import Cost, forecast, spent
from arena.race.settle import readable_policy
from arena.records.body import decode_body, decode_content
from arena.records.model import EvaluationRecord, Payload, StoredCheckpoint, VerdictRecord, envelope_of
from arena.records.port import UsageTotal
from arena.records.proof import Proof, TiledLogs
from arena.view.reading import chain_fact, view_trace
from arena.visibility.rule import may_see
from arena.web import reading
from foundation.errors import ArenaError
from problems.model import Pool

ROWS, COLUMNS, LATEST, APPEARANCES, WINNERS = 40, 20, 10, 60, 24  # what is shown of long lists
RACES_COMPARED = 8
_LEDGER_MS = 10_000  # between two looks into it
AGENTS_SHOWN, AGENTS_LISTED = 8, 200
DAYS_SHOWN = 30
RESULTS_EXPLAINED = 8  # of those that solved a problem, for what the rule accepts
GOOD_E4 = 9_000  # of a coefficient: reasoning worth learning
StageFilter = Literal["", "open", "closed", "running", "settling", "settled", "cancelled"]
State = Literal["", "review", "accepted", "qualified", "unqualified", "rejected"]
Wrote = Literal["", "model", "code"]
Cursor = Annotated[str, Query(max_length=512)]
ProblemId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_.-]{1,128}$", description="A problem.")]
Other = Annotated[str, Query(alias="with", pattern=r"^([A-Za-z0-9]{1,128}/[0-9]{1,15})?$")]
AgentName = Annotated[str, Query(max_length=64)]
RaceName = Annotated[str, Query(pattern=r"^[A-Za-z0-9_.-]{0,128}$")]
RecordText = Annotated[str, Query(max_length=128)]
WROTE: dict[Wrote, str] = {"": "all calls", "model": "calls by the model", "code": "calls by code"}


class Pages:
    """Makes the pages of one store."""

    def __init__(self, board: Board, tail: Tail, explain: Explain) -> None:
        self.board, self.tail, self._explain = board, tail, explain
        self._results = Results(board)
        self._tiles = TiledLogs(board.store)
        self._ledger: Sequence[UsageTotal] = ()  # as of `_read_ms`
        self._read_ms = 0
        self._anchored: dict[str, int] = {}  # by validator: records before the newest checkpoint known to be anchored

    async def _told(self, race: RaceView | None) -> dict[str, list[Result]]:
        """The results of a race as far as everybody may see them without asking for a pool by name."""
        if race is None or not is_seen(race, "outcome"):
            return {}
        pools, results = pools_of(race), await self._results.of(race.race_id)
        return {name: given for name, given in results.items() if pools.get(name) == "train"}

    async def front(self) -> dict[str, Any]:
        """Who leads and what that pays, the races before it and the one to come, and on how much it stands."""
        race, rows = latest_settled(self.board), validator_rows(self.board)
        settlements = [each.told for each in self.board.races() if each.told and each.told.standings][-WINNERS:]
        unsettled = [one for one in self.board.races() if one.settlement is None and one.state is not None]
        longest = max(rows, key=lambda row: row.records, default=None)
        points = await self._points(longest.validator) if longest else []
        newest, anchored = points[-1].size if points else 0, max((one.anchor_block for one in points), default=0)
        return dict(
            board=race and reading.read_standings(self.board, race, await self._told(race)),
            coming=race_row(self.board, unsettled[-1]) if unsettled else None,
            asked=reading.items_of(unsettled[-1]) if unsettled else 0,
            settles_ms=reading.settles_ms(unsettled[-1]) if unsettled else None,
            now_ms=self.board.now_ms(),
            policy=await self.rule(),
            winners=[
                (record.race_id, min(record.standings, key=lambda one: one.rank), record.is_promotion)
                for record in settlements
            ],
            validators=rows,
            checkpoint=(newest, anchored),
        )

    async def _cost(self, race: RaceView) -> dict[str, Any]:
        """What a race cost this server's validator, by agent; before its settlement what it is likely to cost."""
        if self._read_ms + _LEDGER_MS < self.board.now_ms():
            self._ledger, self._read_ms = await self.board.store.usage_totals(), self.board.now_ms()
        own, state = [row for row in self._ledger if row.race_id == race.race_id], race.state
        if may_see("public", "score", race.moment).is_seen and own:
            raced = {one.subject.agent_version_id for one in race.field}
            costs = [(name, *spent(row for row in own if row.agent_version_id == name)) for name in sorted(raced)]
            costs.append(("", *spent(row for row in own if row.agent_version_id not in raced)))  # control and witnesses
            return dict(costs=costs, total=spent(own), forecast=None)
        if state is None or state.settlement is not None or state.opened is None:
            return dict(total=None, forecast=None)
        rules = state.opened.policy.race
        coming = {row.miner_hotkey for row in agent_rows(self.board).values() if row.state in ("accepted", "qualified")}
        agents = len(state.field.field if state.field else coming)
        validators = len(state.field.validators) if state.field else 1
        found = forecast(race.race_id, rules, agents, validators, self._ledger, (Cost(), Cost()))
        return dict(total=None, forecast=found if found.races else None)

    async def rule(self) -> Policy | None:
        """The rules of the newest race, or None before the first."""
        for race in reversed(self.board.races()):
            if race.state is not None and race.state.opened is not None:
                return race.state.opened.policy
            if (policy := readable_policy(race.told)) is not None:
                return policy
        return None

    async def races(self, stage: StageFilter = "", promotion: bool = False, cursor: Cursor = "") -> dict[str, Any]:
        """Races of this stage; `promotion`: those alone that brought somebody to the top."""
        rows = [
            row
            for race in self.board.races()
            if stage in ("", (row := race_row(self.board, race)).stage) and (row.is_promotion or not promotion)
        ]
        scope = f"races {stage} {promotion}"
        page = page_of(rows, lambda row: (row.number,), scope, PageStart(cursor, ROWS), is_newest_first=True)
        stages = get_args(StageFilter)[1:]
        return dict(races=page.items, next=page.next, stage=stage, is_promotion=promotion, stages=stages)

    async def race(self, race_id: RaceId, pool: Pools = DEFAULT_POOLS, cursor: Cursor = "") -> dict[str, Any]:
        """What happened in one race."""
        race = self.board.race(race_id)
        detail, access = race_detail(self.board, race), may_see("public", "score", race.moment)
        made: dict[str, Any] = dict(board=None, agents=(), matrix=(), next="", voids=(), void_why="")
        settlement = race.settlement if access.is_seen and race.settlement and race.settlement.standings else None
        inputs = settlement.inputs if settlement else None
        if settlement is not None:
            board = reading.read_standings(self.board, race, await self._told(race))
            agents = [leader["standing"].agent_version_id for leader in board["leaders"][:COLUMNS]]
            made |= dict(board=board, agents=agents)
            if is_seen(race, "outcome"):
                rows = reading.read_matrix(race, await self._results.of(race_id), agents, pool)
                scope = f"matrix {race_id} {sorted(pool)}"
                page = page_of(rows, lambda row: (row.problem_id,), scope, PageStart(cursor, ROWS))
                voids = [name for name in settlement.void if pools_of(race).get(name) in pool]
                easiest = sorted(page.items, key=lambda row: -sum(cell.kind == "solved" for cell in row.cells))
                made |= dict(matrix=easiest, next=page.next, voids=voids, void_why=reading.void_reason(settlement))
        counts = Counter(pools_of(race).values())
        pairs = await self._pairs([race])
        field = sorted(inputs.field, key=lambda one: -(one.qualifying_score_e4 or 0)) if inputs else []
        return made | dict(
            **await self._cost(race),
            detail=detail,
            steps=reading.read_steps(race, detail.race, self.board.now_ms()),
            sealed="" if access.is_seen else access.reason,
            qualified=field[:ROWS],
            validators=inputs.validators if inputs else (),
            compared=(sum(both for *_, both, _ in pairs), sum(other for *_, other in pairs)),
            pools=[(one, count, one in pool) for one, count in sorted(counts.items())],
        )

    async def agents(self, name: AgentName = "", state: State = "", cursor: Cursor = "") -> dict[str, Any]:
        """Agent versions whose name, id or miner holds `name`, in this state, those with the best rank first."""
        wanted = name.strip().casefold()
        rows = [
            row
            for row in agent_rows(self.board).values()
            if state in ("", row.state)
            and any(wanted in text.casefold() for text in (row.name, row.agent_version_id, row.miner_hotkey))
        ]
        page = page_of(
            rows,
            lambda row: (row.best_rank or 1 << 30, row.commitment_block, row.agent_version_id),
            f"agents by rank {name!r} {state}",
            PageStart(cursor, ROWS),
        )
        return dict(agents=page.items, next=page.next, name=name, state=state, states=get_args(State)[1:])

    async def agent(self, agent_version_id: AgentId) -> dict[str, Any]:
        """One agent version."""
        detail, rows = read_agent(self.board, agent_version_id), agent_rows(self.board)
        found = [(one.line, f"{one.rule}: {one.detail}") for one in detail.findings or ()]
        sealed = ""
        try:
            source, more = reading.read_source_lines(await read_source(self.board, agent_version_id), found)
        except ArenaError as error:
            source, more, sealed = (), 0, error.failure.detail or error.entry.title
        race_id, traces = await self._latest(agent_version_id)
        results = [row.result for row in traces]
        fields = [race.field for race in reversed(self.board.races()) if race.told]
        raced = (one for field in fields for one in field if one.subject.agent_version_id == agent_version_id)
        return dict(
            detail=detail,
            versions=[rows[one] for one in detail.versions],
            appearances=detail.races[-APPEARANCES:],
            curve=reading.evidence_curve(detail.races[-APPEARANCES:]),
            source=source,
            more_lines=more,
            sealed=sealed,
            told=race_id,
            candidate=next(raced, None),
            buckets=[
                (name, solved, asked, reading.missed_of(one for one in results if one.bucket == name))
                for name, solved, asked in reading.buckets_of(results)
            ],
            latest=[(row, reading.trace_href(row.result, row.pool)) for row in traces[:LATEST]],
        )

    async def _latest(self, agent_version_id: str) -> tuple[str, list[TrajectoryRow]]:
        """The newest race in which an agent has published traces, and those."""
        for stood in reversed(standings_of(self.board).get(agent_version_id, ())):
            race = self.board.race(stood.race_id)
            told = await self._results.of(race.race_id) if is_seen(race, "trace") else {}
            if found := trajectory_rows(race, told, DEFAULT_POOLS, agent=agent_version_id):
                return stood.race_id, found
        return "", []

    async def problem(self, race_id: RaceId, problem_id: ProblemId, pool: Pools = DEFAULT_POOLS) -> dict[str, Any]:
        """One released problem."""
        race = self.board.race(race_id)
        require_seen(race, "outcome")
        own = pools_of(race).get(problem_id)
        if own is None or not is_seen(race, "outcome", own, pool):
            raise ArenaError("V2082", f"{race_id} has no problem {problem_id} in pool {', '.join(pool)}")
        results = (await self._results.of(race_id)).get(problem_id, [])
        query, explained = "", []
        if results and is_seen(race, "trace", own, pool):
            shown, record = await published_trajectory(self.tail, results[0].validator, results[0].seq, tuple(pool))
            if shown.evaluation.body:
                body = decode_body(bytes(shown.evaluation.body))
                query = body.query
                records: list[Payload] = [record]
                for one in [one for one in results[1:] if one.is_success][:RESULTS_EXPLAINED]:
                    found = await anext(aiter(self.board.store.records(one.validator, after_seq=one.seq - 1, page=1)))
                    records.append(decode_content(found.content).payload)
                for payload in records:
                    assert isinstance(payload, EvaluationRecord)  # results are made of evaluations alone
                    explained.append(await asyncio.to_thread(self._explain, payload, body.catalogue_sha256))
        return reading.read_problem(race, problem_row(race, problem_id, results), query, explained, pool)

    async def trace(
        self, validator: ValidatorName, seq: Number, pool: Pools = DEFAULT_POOLS, other: Other = ""
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """One published trajectory, or two side by side: `other` is VALIDATOR/SEQ."""
        if not other:
            return await self._trace(validator, seq, pool)
        second, _, number = other.partition("/")
        return [await self._trace(validator, seq, pool), await self._trace(second, int(number), pool)]

    async def _trace(self, validator: str, seq: int, pools: list[Pool]) -> dict[str, Any]:
        shown, record = await published_trajectory(self.tail, validator, seq, tuple(pools))
        if shown.evaluation.body is None:
            raise ArenaError("V2082", f"the body of record {seq} is not here")
        about, body = record.context, decode_body(bytes(shown.evaluation.body))
        race = self.board.race(about.race_id) if about.stage == "race" else None
        pool: Pool = pools_of(race)[about.problem_id] if race else "never_touch"  # of the public suite
        constraints, others = NOTHING.constraints, list[Result]()
        if race is not None:
            if is_seen(race, "problem", pool, pools):
                constraints = (await asyncio.to_thread(self._explain, record, body.catalogue_sha256)).constraints
            given = (await self._results.of(about.race_id)).get(about.problem_id, ())
            others = [one for one in given if (one.validator, one.seq) != (validator, seq)]
        row, said = shown.evaluation, [decode_content(bytes(one.content or b"")).payload for one in shown.verdicts]
        proof = (
            ("validator", validator),
            ("record", str(seq)),
            ("content", row.content_sha256),
            ("signature", row.signature),
            chain_fact(seq, await self._points(validator)),
        )
        verdicts = [one.verdict for one in said if isinstance(one, VerdictRecord)]
        rubric = race.rubric if race else None
        view = view_trace(
            body, outcome=record.outcome, constraints=constraints, verdicts=verdicts, rubric=rubric, proof=proof
        )
        return dict(
            view=reading.shorten_trace(view),
            race_id=race.race_id if race else "",
            problem_id=about.problem_id,
            pool=pool,
            agent=record.subject.agent_version_id,
            validator=validator,
            seq=seq,
            others=others[:AGENTS_LISTED],
        )

    async def firehose(self, race: RaceName = "", agent: AgentFilter = "", wrote: Wrote = "") -> dict[str, Any]:
        """What there is to train on: episodes of this race and agent, by who wrote their calls. Raises ArenaError V2082
        for a race that is not published."""
        told = [one for one in self.board.races() if one.moment == "published" and one.release][-RACES_COMPARED:]
        if race and race not in {one.race_id for one in told}:
            raise ArenaError("V2082", f"{race} is not one of the last {RACES_COMPARED} published races")
        everything = [
            one
            for each in told
            if race in ("", each.race_id)
            for pairs in (await self._told(each)).values()
            for one in pairs
        ]
        given = [
            one
            for one in everything
            if agent in ("", one.agent_version_id) and wrote in ("", "model" if one.is_agentic else "code")
        ]
        solved = [one for one in given if one.is_agentic and one.is_success]
        good = [one for one in solved if (one.coefficient_e4 or 0) >= GOOD_E4]
        funnel = [
            ("public in pool train", len(given)),
            ("called tools by the model", sum(one.is_agentic for one in given)),
            ("and solved it", len(solved)),
            ("and coefficient .9 or more", len(good)),
        ]
        calls = [sum(one.model_calls for one in given), sum(one.echoed_calls for one in given)]
        calls.append(sum(one.tool_calls for one in given) - sum(calls))
        by_agent = Counter(one.agent_version_id for one in given).most_common(AGENTS_SHOWN)
        days = sorted(day_rows(self.board), key=lambda row: row.day)
        week = datetime.fromtimestamp(self.board.now_ms() / 1000 - 7 * 86_400, UTC).date().isoformat()
        listed = [name for name, _ in Counter(one.agent_version_id for one in everything).most_common(AGENTS_LISTED)]
        return dict(
            days=days[-DAYS_SHOWN:],
            recorded=sum(row.episodes for row in days),
            week=sum(row.episodes for row in days if row.day > week),
            records=sum(log.last_seq for log in self.board.logs.values()),
            calls=calls,
            tokens=sum(one.tokens for one in given),
            sample=next((reading.trace_href(one, "train") for one in (*good, *given)), ""),
            episodes=len(given),
            races=[one.race_id for one in reversed(told)],
            agents=sorted(listed, key=lambda name: called(self.board, name)),
            race=race,
            agent=agent,
            wrote=wrote,
            choices=WROTE,
            funnel=funnel,
            whose=by_agent,
            suites=suite_rows(self.board),
        )

    async def _points(self, validator: str) -> list[StoredCheckpoint]:
        """A log's signed checkpoints, by size, from the newest on that was known to be anchored: not all of a long
        log's."""
        found = await self.board.store.checkpoints(validator, after_size=self._anchored.get(validator, 0))
        anchored = max((one.size for one in found if one.anchor_block), default=0)
        if anchored:
            self._anchored[validator] = anchored - 1
        return found

    async def proof(self, validator: str, seq: int) -> Proof:
        """A record under the newest signed checkpoint: hashes alone, so that one may be had before a release.

        Raises ArenaError V2082 where no signed checkpoint covers the record.
        """
        points = await self._points(validator) if validator in self.board.logs else []
        if not points or not 0 < seq <= points[-1].size:
            raise ArenaError("V2082", f"no signed checkpoint of {validator} covers record {seq} yet")
        record = await anext(aiter(self.board.store.records(validator, after_seq=seq - 1, page=1)))
        path = await self._tiles.inclusion(validator, seq, points[-1].size)
        return Proof(**envelope_of(record), checkpoint=points[-1].note, inclusion=path)

    async def validators(self) -> dict[str, Any]:
        """Whose logs are served here, and whether they agree."""
        points = {}
        for name in self.board.logs:
            if found := await self._points(name):
                anchored = max((one.anchor_block for one in found), default=0)
                points[name] = (found[-1].size, found[-1].signed_ms, anchored)
        told = [race for race in self.board.races() if race.moment in ("settled", "published")][-RACES_COMPARED:]
        return dict(validators=validator_rows(self.board), checkpoints=points, pairs=await self._pairs(told))

    async def _pairs(self, races: Sequence[RaceView]) -> Sequence[tuple[str, str, int, int]]:
        """How far the validators' public results of these races agree."""
        told = [await self._told(race) for race in races]
        return self.board.once(f"pairs of {[race.race_id for race in races]}", lambda: reading.disagreements(told))

    async def verify(
        self, validator: AgentFilter = "", record: RecordText = "", proof: RecordText = ""
    ) -> tuple[ValidatorRow, ...]:
        """Whose records can be checked here. The record that is asked for is the script's to check."""
        return validator_rows(self.board)

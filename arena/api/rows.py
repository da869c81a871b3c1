"""The rows that API, pages, door and SN15 routes show, how each follows from the board, and lists of them page by page.

Shares and scores are ten-thousandths (`_e4`). A value is None, or a list empty, where it is not public yet; `moment`
and `opens_ms` say what it waits for: every row asks `arena.visibility.rule`. A cursor is opaque to clients and holds
the key of the last row they have, so pages fit together whatever was added between.
"""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec

from arena.api.board import HOUR_MS, Board, DayCounts, RaceView, held
from arena.gate.rules import Finding, GateReport
from arena.race.settle import evidence_needed, policy_of, readable_policy
from arena.race.weights import UNIT, NoPlace, held_by_hotkey, margin_e4, needed, no_places, wins_needed
from arena.records.model import Evidence, SettlementRecord, Standing, Subject
from arena.records.port import SubmissionState
from arena.visibility.rule import MOMENTS, Access, Moment, Thing, may_see, opening_text
from foundation.canonical import UNREADABLE_JSON
from foundation.errors import ArenaError
from judge.render import neutral_name
from problems.model import Bucket, Pool

RaceStage = Literal["open", "closed", "running", "settling", "settled", "cancelled", "unknown"]
HOURS_SHOWN = 7 * 24
_OF_SETTLEMENT = ("reason", "policy_sha256", "seed", "beacon_round", "closing_block", "settling_block")


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer that is an error. `message` says what happened here; `head` is where the log ends, of a cursor
    behind its end, `line` the line of an agent file that is to blame."""

    code: str
    message: str
    whose_fault: Literal["agent", "client", "validator", "upstream", "problem"]
    what_it_costs: str
    what_to_do: str
    head: int | msgspec.UnsetType = msgspec.UNSET
    line: int | msgspec.UnsetType = msgspec.UNSET


# -- races


class RaceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A race. `number` counts the races of this validator; `moment` says what of it is public; `opens_ms`: when source
    and traces open, None while the race is not released, 0 where the release opened them."""

    number: int
    race_id: str
    stage: RaceStage
    moment: Moment
    closes_ms: int | None
    opens_ms: int | None
    agents: int  # that race; 0 before the field is fixed
    episodes: int  # that were evaluated so far
    top_agent_version_id: str = ""  # after the race
    is_promotion: bool = False


class RaceDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A race and, once it is settled, what it came to. `decision`: why the top is who it is, in sentences."""

    race: RaceRow
    reason: str = ""  # of a cancelled race
    policy_sha256: str = ""
    seed: str = ""
    beacon_round: int = 0
    closing_block: int = 0
    settling_block: int = 0
    problems: int = 0  # drawn
    void: int = 0
    decision: tuple[str, ...] = ()


def settled(race: RaceView) -> SettlementRecord:
    """The settlement of a race that may be shown. Raises ArenaError V2089, V2082 for none."""
    require_seen(race, "score")
    if race.settlement is None:
        raise ArenaError("V2082", f"{race.race_id} has no settlement in force here")
    return race.settlement


def latest_settled(board: Board) -> RaceView | None:
    """The newest race whose standings everybody may see."""
    return next((race for race in reversed(board.races()) if race.told and race.told.standings), None)


def require_seen(race: RaceView, thing: Thing) -> None:
    """Raises ArenaError V2089 unless everybody may see this of a race, whatever the pool."""
    pool: Pool = "train"
    access = may_see("public", thing, race.moment, pool=pool, pools=(pool,))
    if not access.is_seen:
        until = opening_text(race.opens_ms or 0) if access.opens == "published" else ""
        raise ArenaError("V2089", f"{race.race_id}: {access.reason}{f', until {until}' if until else ''}")


def race_row(board: Board, race: RaceView) -> RaceRow:
    """What everybody may know of a race."""
    shown = race.told
    stage = race.state.stage if race.state is not None else shown.state if shown else "unknown"
    return RaceRow(
        number=race.number,
        race_id=race.race_id,
        stage="unknown" if stage == "new" else stage,
        moment=race.moment,
        closes_ms=race.closes_ms,
        opens_ms=race.opens_ms,
        agents=len(shown.standings) if shown and shown.standings else len(race.field),
        episodes=board.race_episodes[race.race_id],
        top_agent_version_id=shown.top_agent_version_id if shown else "",
        is_promotion=shown.is_promotion if shown else False,
    )


def race_detail(board: Board, race: RaceView) -> RaceDetail:
    """The same, with the draw and what decided a settled race."""
    row, record = race_row(board, race), race.told
    if record is None:
        return RaceDetail(race=row)
    return RaceDetail(
        race=row,
        **{name: getattr(record, name) for name in _OF_SETTLEMENT},
        problems=len(record.drawn),
        void=len(record.void),
        decision=tuple(_decision(record, lambda agent: called(board, agent), board.now_ms())),
    )


def _decision(record: SettlementRecord, named: Callable[[str], str], now_ms: int) -> Iterable[str]:
    """Why the top is who it is, and what it takes to take the top, in the race and today."""
    inputs, standings = record.inputs, {one.agent_version_id: one for one in record.standings}
    if record.state != "settled" or inputs is None:
        return
    before = inputs.incumbent
    top, old = standings.get(record.top_agent_version_id), standings.get(before.agent_version_id if before else "")
    first = named(record.top_agent_version_id)
    if top is None:
        yield "Nobody is at the top"
    elif not record.is_promotion:
        yield f"{first} stays at the top: no agent beat it by the rule"
    elif old is None:
        yield f"{first} took an empty top"
    else:
        yield (
            f"{first} came to the top: {top.crown_score_e4 / 10_000:.4f} against {old.crown_score_e4 / 10_000:.4f} of"
            f" {named(old.agent_version_id)} before, {top.wins} problems better, {top.losses} worse"
        )
    if (policy := readable_policy(record)) is None:
        return
    rules = policy.promotion
    if rules.kind == "evidence":
        races = "1 race" if rules.evidence_races == 1 else f"{rules.evidence_races} races"
        least = needed(rules, len(inputs.validators))
        yield f"Evidence {least} against the top agent takes the top, after at least {races}"
        return
    if before is not None:
        then = margin_e4(rules, inputs.closes_ms - before.promoted_ms)
        asked = f"had to score {then / 100:.2f} % more than" if then else "needed any higher score than"
        yield f"In this race a challenger {asked} the top agent"
    since_ms = inputs.closes_ms if record.is_promotion else before.promoted_ms if before else None
    if since_ms is not None:
        today = margin_e4(rules, max(0, now_ms - since_ms))
        asked = f"has to score {today / 100:.2f} % more than" if today else "needs any higher score than"
        yield (
            f"Today a challenger {asked} the top agent; after a promotion the margin falls from"
            f" {rules.margin_e4 / 100:.2f} % to nothing within {rules.decay_ms / 86_400_000:g} days"
        )


# -- agents


class SourceAccess(msgspec.Struct, frozen=True, kw_only=True):
    """`opens` is the moment from which everybody reads it, "never" for an agent that no race promoted."""

    is_public: bool
    opens: str
    opens_ms: int | None
    href: str


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version. `source` says whether its file may be read here, and if not, when."""

    agent_version_id: str
    miner_hotkey: str
    name: str
    state: SubmissionState | Literal["unknown"]
    agent_sha256: str
    commitment_block: int
    suite_episodes: int
    race_episodes: int
    best_rank: int | None
    promoted_in: tuple[str, ...]  # races after which it came to the top
    source: SourceAccess


class AgentRace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent stood in one settled race. `evidence`: what its hotkey then held against the top agent (None of
    that agent itself), and `evidence_needed`, what took the top; both None under policies that crown otherwise.
    `wins_needed`: how many problems more it had to win, and lose none; `ties`: as many as it scored like the top agent.
    """

    race_id: str
    standing: Standing
    evidence: float | None = None
    evidence_needed: int | None = None
    wins_needed: int | None = None
    ties: int = 0
    no_place: NoPlace | None = None


class AgentDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An agent version, its versions before and after, where it stood in settled races, and what the gate found in it,
    once its source is public."""

    agent: ListedAgent
    versions: tuple[str, ...]  # of the same hotkey, by commitment
    races: tuple[AgentRace, ...]
    findings: tuple[Finding, ...] | None


def called(board: Board, agent_version_id: str) -> str:
    """An agent as people call it: its name made harmless, else the beginning of its id."""
    row = agent_rows(board).get(agent_version_id)
    return (neutral_name(row.name).strip() if row else "") or agent_version_id[:10]


@held
def agent_rows(board: Board) -> dict[str, ListedAgent]:
    """What everybody may know of every agent version, by its id."""
    subjects: dict[str, Subject] = dict(board.subjects)
    subjects |= {agent: stored.subject for agent, stored in board.submissions.items()}
    standings, promotions = standings_of(board), board.promotions()
    rows = {}
    for agent, subject in subjects.items():
        stored, promoted = board.submissions.get(agent), promotions.get(agent, ())
        access = _opened(promoted, "source")
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
            best_rank=min((one.standing.rank for one in standings.get(agent, ())), default=None),
            promoted_in=tuple(race.race_id for race in promoted),
            source=SourceAccess(is_public=access.is_seen, opens=access.opens, opens_ms=opens, href=href),
        )
    return rows


def _opened(promoted: Sequence[RaceView], thing: Thing) -> Access:
    """Whether everybody sees this of an agent, by the furthest of the races that promoted it."""
    moment: Moment = max((race.moment for race in promoted), key=MOMENTS.index, default="open")
    return may_see("public", thing, moment, is_winner=bool(promoted))


def by_commitment(row: ListedAgent) -> tuple[int, str]:
    """The place of an agent version in the order of commitments."""
    return row.commitment_block, row.agent_version_id


def read_agent(board: Board, agent_version_id: str) -> AgentDetail:
    """One agent version as everybody may know it. Raises ArenaError V2082."""
    row = _require(board, agent_version_id)
    same = [each for each in agent_rows(board).values() if each.miner_hotkey == row.miner_hotkey]
    stored = board.submissions.get(agent_version_id)
    is_open = _opened(board.promotions().get(agent_version_id, ()), "gate_finding").is_seen
    report = msgspec.json.decode(stored.report, type=GateReport) if is_open and stored and stored.report else None
    return AgentDetail(
        agent=row,
        versions=tuple(each.agent_version_id for each in sorted(same, key=by_commitment)),
        races=tuple(standings_of(board).get(agent_version_id, ())),
        findings=report.findings if report else None,
    )


async def read_source(board: Board, agent_version_id: str) -> str:
    """The file of a promoted agent. Raises ArenaError V2089 while it is closed, V2082 where there is none."""
    _require(board, agent_version_id)
    promoted = board.promotions().get(agent_version_id, ())
    access = _opened(promoted, "source")
    if not access.is_seen:
        until = opening_text(min((race.opens_ms or 0 for race in promoted), default=0))
        raise ArenaError("V2089", f"{access.reason}{f', until {until}' if until else ''}")
    source = await board.store.source(agent_version_id)
    if source is None:
        raise ArenaError("V2082", f"this validator does not hold the file of {agent_version_id}")
    return source


@held
def standings_of(board: Board) -> dict[str, list[AgentRace]]:
    """By agent version: its standings in settled races that may be shown, oldest first."""
    found: dict[str, list[AgentRace]] = defaultdict(list)
    for race in board.races():
        for row in agent_races(race.told):
            found[row.standing.agent_version_id].append(row)
    return found


def agent_races(record: SettlementRecord | None) -> Iterator[AgentRace]:
    """How each agent stood in a settled race."""
    if record is None:
        return
    evidence, least, unpaid = held_by_hotkey(record), evidence_needed(record), no_places(record)
    short: dict[str, int] = {}
    if least is not None and isinstance(record.evidence, Evidence) and record.inputs is not None:
        rules, validators = policy_of(record).promotion, len(record.inputs.validators)
        short = {one.miner_hotkey: wins_needed(one, rules, validators) for one in record.evidence.held}
    for standing in record.standings:
        held = evidence.get(standing.miner_hotkey)
        yield AgentRace(
            race_id=record.race_id,
            standing=standing,
            evidence=None if held is None else held / UNIT,
            evidence_needed=least,
            wins_needed=short.get(standing.miner_hotkey),
            ties=standing.problems - standing.wins - standing.losses,
            no_place=unpaid.get(standing.miner_hotkey),
        )


def _require(board: Board, agent_version_id: str) -> ListedAgent:
    row = agent_rows(board).get(agent_version_id)
    if row is None:
        raise ArenaError("V2082", f"there is no agent version {agent_version_id}")
    return row


# -- results


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """One validator's result for one agent on one problem. `coefficient_e4` None: no verdict (a failure needs none)."""

    agent_version_id: str
    validator: str
    seq: int
    is_success: bool | None  # None: unscored
    is_agentic: bool
    coefficient_e4: int | None
    body_sha256: str
    bucket: Bucket | Literal[""] = ""  # unscored: ""
    rule_e4: int | None = None  # how much of what was asked is met; None: unscored
    missed: tuple[str, ...] = ()  # axes on which a recommended product falls short
    failure: str = ""  # code of the fault that the run ended in
    tool_calls: int = 0
    model_calls: int = 0  # of them by the model, and such as it took from the prompt
    echoed_calls: int = 0
    tokens: int = 0  # of prompts and completions
    cost_micro_usd: int = 0  # by the policy's price table


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One released problem of a race, with every result on it."""

    problem_id: str
    pool: Pool
    is_drawn: bool
    is_void: bool
    results: tuple[PairResult, ...]


class TrajectoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """A published trajectory: `href` has it whole."""

    problem_id: str
    pool: Pool
    result: PairResult
    href: str


def pools_of(race: RaceView) -> dict[str, Pool]:
    """The problems of a released race, and the pool of each."""
    return {one.problem_id: one.pool for one in race.release.problems} if race.release else {}


def is_seen(race: RaceView, thing: Thing, pool: Pool | None = "train", pools: Sequence[Pool] = ("train",)) -> bool:
    """Whether everybody who asks for `pools` sees this of a race's problems of `pool`."""
    return may_see("public", thing, race.moment, pool=pool, pools=pools).is_seen


def trajectory_rows(
    race: RaceView,
    results: Mapping[str, Sequence[PairResult]],
    pools: Sequence[Pool],
    *,
    agent: str = "",
    problem: str = "",
) -> list[TrajectoryRow]:
    """The published trajectories of a race in these pools, of one agent or problem where it is named."""
    of = pools_of(race)
    named = "".join(f"{'&' if number else '?'}pool={one}" for number, one in enumerate(sorted(set(pools))))
    return [
        TrajectoryRow(
            problem_id=name, pool=of[name], result=one, href=f"/v1/trajectories/{one.validator}/{one.seq}{named}"
        )
        for name, found in results.items()
        if is_seen(race, "trace", of.get(name), pools)
        for one in found
        if problem in ("", name) and agent in ("", one.agent_version_id)
    ]


def problem_row(race: RaceView, problem_id: str, results: Iterable[PairResult]) -> ProblemRow:
    """A released problem with these results on it."""
    record = race.settlement
    return ProblemRow(
        problem_id=problem_id,
        pool=pools_of(race)[problem_id],
        is_drawn=record is not None and problem_id in record.drawn,
        is_void=record is not None and problem_id in record.void,
        results=tuple(results),
    )


# -- suites, validators, days


class SuiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """A public suite. `episodes`: of qualifying, on it."""

    suite: str
    problems: int
    episodes: int


class ValidatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A validator whose log is served here. `code` and `scoring`: what its newest public evaluation says it ran under.
    `signed_hours`: of the last `hours` UTC hours, those in which it signed a record; one with nothing to do signs none.
    `races_run`: of the `races` settled ones in which it held a permit, those in which it has a result."""

    validator: str
    records: int
    head: str
    episodes: int
    last_recorded_ms: int | None
    code: str = ""  # a commit, or a released version
    scoring: str = ""
    signed_hours: int = 0
    hours: int = 0  # 168, or fewer where the log is younger
    races_run: int = 0
    races: int = 0


class DayRow(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one UTC day. `solved` counts the suite and settled races alone, out of `scored`."""

    day: str
    episodes: int
    suite_episodes: int
    race_episodes: int
    scored: int
    solved: int
    agents: int


def suite_rows(board: Board) -> tuple[SuiteRow, ...]:
    """The public suites, by name."""
    return tuple(
        SuiteRow(suite=name, problems=len(board.suites.get(name, ())), episodes=board.suite_episodes[name])
        for name in sorted({*board.suites, *board.suite_episodes} - {""})
    )


def validator_rows(board: Board) -> tuple[ValidatorRow, ...]:
    """The validators whose logs are served here."""
    told = {race.race_id: race.told for race in board.races() if race.told is not None}
    this_hour, rows = board.now_ms() // HOUR_MS, []
    for name, log in board.logs.items():
        under = [conditions for race_id, conditions in log.ran_under.items() if not race_id or race_id in told]
        first = (log.first_recorded_ms or board.now_ms()) // HOUR_MS
        hours = range(max(first, this_hour - HOURS_SHOWN + 1), this_hour + 1)
        permitted = [
            race_id
            for race_id, record in told.items()
            if record.drawn and record.inputs and name in record.inputs.validators
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
    told = {"", *(race.race_id for race in board.races() if race.told is not None)}
    by_day: dict[str, dict[str, DayCounts]] = defaultdict(dict)
    for (day, race_id), counts in board.days.items():
        by_day[day][race_id] = counts
    return [
        DayRow(
            day=day,
            episodes=sum(counts.episodes for counts in races.values()),
            suite_episodes=races[""].episodes if "" in races else 0,
            race_episodes=sum(counts.episodes for race_id, counts in races.items() if race_id),
            scored=sum(counts.scored for race_id, counts in races.items() if race_id in told),
            solved=sum(counts.solved for race_id, counts in races.items() if race_id in told),
            agents=len(set[str]().union(*(counts.agents for counts in races.values()))),
        )
        for day, races in by_day.items()
    ]


# -- lists

Key = str | int
Row = TypeVar("Row")


class PageStart(NamedTuple):
    """Where in a list a client is, and how many rows it takes."""

    cursor: str
    limit: int


class ListPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """Some rows of a list. `next` is the cursor of the page after this one, "" where the list ends for now."""

    items: tuple[Row, ...]
    next: str = ""


def page_of(
    rows: Iterable[Row],
    key: Callable[[Row], tuple[Key, ...]],
    scope: str,
    start: PageStart,
    *,
    is_newest_first: bool = False,
) -> ListPage[Row]:
    """The next rows behind a cursor, in the order of their keys, which tell all rows apart.

    `scope` names the list, and so whose cursors it takes. Raises ArenaError V2081 for a cursor that is not its own.
    """
    ordered = sorted(rows, key=key, reverse=is_newest_first)
    if start.cursor:
        after = read_cursor(start.cursor, scope)
        try:
            ordered = [row for row in ordered if (key(row) < after if is_newest_first else key(row) > after)]
        except TypeError as error:
            raise ArenaError("V2081", "cursor: it is of another list") from error
    shown = ordered[: start.limit]
    following = write_cursor(scope, key(shown[-1])) if len(ordered) > start.limit else ""
    return ListPage(items=tuple(shown), next=following)


def write_cursor(scope: str, key: tuple[Key, ...]) -> str:
    """A cursor behind the row with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode([scope, *key])).decode().rstrip("=")


def read_cursor(cursor: str, scope: str) -> tuple[Key, ...]:
    """The key of a cursor of this list. Raises ArenaError V2081."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        found, *key = msgspec.json.decode(text, type=list[str | int])
    except (*UNREADABLE_JSON, ValueError, binascii.Error) as error:
        raise ArenaError("V2081", "the cursor is not one of ours") from error
    if found != scope or not key:
        raise ArenaError("V2081", "cursor: it is of another list")
    return tuple(key)

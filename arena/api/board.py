"""What the public reads are answered from: a fold over the logs of a store and the events of its races.

Every record is read once; what is kept of an episode is a count, so memory grows with agents, hours and races. It keeps
more than may be shown: every answer from it asks `arena.visibility.rule`. Verdicts never become a number: a
failure has none, so it would tell the score of a race that is under way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from arena.export.assembly import signed_content
from arena.race.machine import IllegalEventError, RaceState, replay, stream_of
from arena.race.settle import readable_policy
from arena.records import model
from arena.records.port import StoredSubmission
from arena.visibility.rule import Moment, may_see, released_moment, settlement_moment
from foundation.errors import ArenaError
from judge.rubric import Rubric
from judge.verdict import UnscoredVerdict, Verdict, counted_verdict
from problems.model import OutcomeScore, Problem

if TYPE_CHECKING:
    from arena.store.postgres import PostgresStore  # miners' commands read rows, too

REFRESH_S = 1.0
HOUR_MS = 3_600_000
_Value = TypeVar("_Value")


class RaceView(NamedTuple):
    """A race as this store has it. `settlement` is the one in force here, whether or not it may be shown yet."""

    number: int
    race_id: str
    state: RaceState | None
    settlement: model.SettlementRecord | None
    release: model.ReleaseRecord | None
    moment: Moment
    closes_ms: int | None

    @property
    def opens_ms(self) -> int | None:
        """When source and traces open; None while that is not known, 0 where the release opened them."""
        return self.release.opens_ms if self.release is not None else None

    @property
    def told(self) -> model.SettlementRecord | None:
        """The settlement, once everybody may know how the race ended."""
        return self.settlement if may_see("public", "score", self.moment).is_seen else None

    @property
    def rubric(self) -> Rubric | None:
        """What verdicts of the race count under; None while no settlement states it."""
        policy = readable_policy(self.settlement)
        return policy.rubric if policy else None

    @property
    def field(self) -> tuple[model.Candidate, ...]:
        """Who races, once that is fixed on chain."""
        if self.state is not None and self.state.field is not None:
            return self.state.field.field
        return self.told.inputs.field if self.told is not None and self.told.inputs is not None else ()


async def judged_evaluations(
    store: PostgresStore, validator: str, race_id: str, rubric: Rubric | None
) -> list[tuple[int, model.EvaluationRecord, Verdict | UnscoredVerdict | None]]:
    """What a log holds of a race's agents, without the control agent, in its order: number and record of each
    evaluation, and the verdict on it that counts. Raises ArenaError V2021."""
    evaluated, verdicts = [], defaultdict[str, list[Verdict | UnscoredVerdict]](list)
    async for record in store.records(validator, kinds=("evaluation", "verdict"), race_id=race_id):
        content = signed_content(record.content, record.content_sha256)
        payload = content.payload if content else None
        if isinstance(payload, model.VerdictRecord):
            verdicts[payload.verdict.body_sha256].append(payload.verdict)
        elif isinstance(payload, model.EvaluationRecord) and not payload.subject.is_control:
            evaluated.append((record.seq, payload))
    return [(seq, one, counted_verdict(verdicts[one.body_sha256], rubric)) for seq, one in evaluated]


class DayCounts:
    """Episodes of one day and race ("": the suite): all, scored, solved, and whose."""

    def __init__(self) -> None:
        self.episodes = self.scored = self.solved = 0
        self.agents: set[str] = set()


class _ServedLog:
    def __init__(self, validator: str) -> None:
        self.validator = validator
        self.last_seq = 0
        self.head = ""
        self.episodes = 0
        self.first_recorded_ms: int | None = None
        self.last_recorded_ms: int | None = None
        self.hours: set[int] = set()  # of unix time, in which it signed a record
        self.ran_under: dict[str, model.Conditions] = {}  # by race ("": the suite), newest evaluation last


class RunCounts:
    """What one validator evaluated of one agent in one race, or on the suite; times are of its records, in unix
    milliseconds."""

    def __init__(self, first_ms: int) -> None:
        self.episodes, self.first_ms, self.last_ms = 0, first_ms, first_ms


def held(make: Callable[[Board], _Value]) -> Callable[[Board], _Value]:
    """What follows from a board, made once between two refreshes."""

    @functools.wraps(make)
    def look(board: Board) -> _Value:
        return board.once(make, lambda: make(board))

    return look


@dataclasses.dataclass(eq=False)
class Board:
    """The public picture of one store. Refresh it before it is read; one reader at a time refreshes. `suites`: the
    public problems by suite, where the node that serves knows them."""

    store: PostgresStore
    now_ms: Callable[[], int]
    suites: Mapping[str, tuple[Problem, ...]] = dataclasses.field(default_factory=dict)
    refresh_s: float = REFRESH_S

    def __post_init__(self) -> None:
        self._refreshing, self._refreshed_at = asyncio.Lock(), float("-inf")
        self.logs: dict[str, _ServedLog] = {}
        self.subjects: dict[str, model.Subject] = {}  # by agent version
        self.first_seen_ms: dict[str, int] = {}  # by agent version: its first record, or when it was first read here
        self.submissions: dict[str, StoredSubmission] = {}
        self.suite_episodes: Counter[str] = Counter()  # by suite
        self.runs: dict[tuple[str, str, str], RunCounts] = {}  # by validator, race ("": the suite) and agent
        self.race_episodes: Counter[str] = Counter()
        self.episodes_of: Counter[tuple[str, bool]] = Counter()  # by agent version, and whether in races
        self.recorded: Counter[str] = Counter()  # by race: its evaluations and verdicts; never shown
        self.days: dict[tuple[str, str], DayCounts] = defaultdict(DayCounts)  # by UTC day and race ("": the suite)
        self._settlements: dict[str, model.SettlementRecord] = {}
        self._releases: dict[str, model.ReleaseRecord] = {}
        self._states: dict[str, RaceState] = {}
        self._stands_until_ms = math.inf  # until then no moment of a race changes
        self._derived: dict[object, Any] = {}  # since the last refresh

    def once(self, name: object, make: Callable[[], _Value]) -> _Value:
        """What `make` gives, made once between two refreshes, however many ask for it by this name."""
        if name not in self._derived:
            self._derived[name] = make()
        found: _Value = self._derived[name]
        return found

    async def refresh(self) -> None:
        """Read what came since the last time, at most once a second. Raises ArenaError V2021."""
        async with self._refreshing:
            is_recent = time.monotonic() - self._refreshed_at < self.refresh_s
            if is_recent and self.now_ms() < self._stands_until_ms:  # nor did an embargo end
                return
            for validator in await self.store.validators():
                log = self.logs.setdefault(validator, _ServedLog(validator))
                async for record in self.store.records(validator, after_seq=log.last_seq):
                    log.last_seq = record.seq
                    content = signed_content(record.content, record.content_sha256)
                    if content is not None:
                        self._take(log, content)
                log.head = (await self.store.head(validator)).hash
            self.submissions = {each.subject.agent_version_id: each for each in await self.store.submissions()}
            for agent in self.submissions:
                self.first_seen_ms.setdefault(agent, self.now_ms())
            await self._read_races()
            self._refreshed_at = time.monotonic()
            self._derived.clear()
            now_ms = self.now_ms()
            moments = {at_ms for race in self.races() for at_ms in (race.closes_ms, race.opens_ms) if at_ms is not None}
            self._stands_until_ms = min((at_ms for at_ms in moments if at_ms > now_ms), default=math.inf)

    @held
    def races(self) -> list[RaceView]:
        """Every race that was opened here or that the logs tell of, in that order."""
        names = dict.fromkeys([*self._states, *self._settlements, *self._releases])
        return [self._race(number, name) for number, name in enumerate(names, start=1)]

    def race(self, race_id: str) -> RaceView:
        """Raises ArenaError V2082 for a race that is not known here."""
        found = self.once("race", lambda: {race.race_id: race for race in self.races()}).get(race_id)
        if found is None:
            raise ArenaError("V2082", f"there is no race {race_id}")
        return found

    @held
    def promotions(self) -> dict[str, list[RaceView]]:
        """By agent version: the races that promoted it, if they may be shown."""
        found: dict[str, list[RaceView]] = {}
        for race in self.races():
            if race.told is not None and race.told.is_promotion:
                found.setdefault(race.told.top_agent_version_id, []).append(race)
        return found

    def _race(self, number: int, race_id: str) -> RaceView:
        state, release = self._states.get(race_id), self._releases.get(race_id)
        settlement = self._settlements.get(race_id)
        if state is not None:  # its events say how it ended
            settlement = state.settlement
        closes_ms = state.opened.closes_ms if state is not None and state.opened is not None else None
        if closes_ms is None and settlement is not None and settlement.inputs is not None:
            closes_ms = settlement.inputs.closes_ms
        moment: Moment
        if release is not None or settlement is not None:
            moment = released_moment(release, self.now_ms())
            moment = moment if settlement is None else settlement_moment(settlement, moment)
        else:
            moment = "racing" if self.now_ms() >= (closes_ms or 0) else "open"
        return RaceView(number, race_id, state, settlement, release, moment, closes_ms)

    def _take(self, log: _ServedLog, content: model.RecordContent) -> None:
        payload = content.payload
        log.last_recorded_ms = content.recorded_ms
        log.first_recorded_ms = log.first_recorded_ms or content.recorded_ms
        log.hours.add(content.recorded_ms // HOUR_MS)
        race_id = ""
        if isinstance(payload, model.EvaluationRecord | model.VerdictRecord):
            self.recorded[payload.context.race_id] += 1
        if isinstance(payload, model.EvaluationRecord):
            race_id = payload.context.race_id if payload.context.stage == "race" else ""
            log.ran_under.pop(race_id, None)
            log.ran_under[race_id] = payload.conditions
        if isinstance(payload, model.SettlementRecord):
            self._settlements.setdefault(payload.race_id, payload)
        elif isinstance(payload, model.ReleaseRecord):
            self._releases.setdefault(payload.race_id, payload)
        elif isinstance(payload, model.GateRecord):
            self.first_seen_ms.setdefault(payload.subject.agent_version_id, content.recorded_ms)
        elif isinstance(payload, model.EvaluationRecord) and not payload.subject.is_control:
            agent = payload.subject.agent_version_id
            self.subjects.setdefault(agent, payload.subject)
            self.first_seen_ms.setdefault(agent, content.recorded_ms)
            log.episodes += 1
            self.episodes_of[agent, bool(race_id)] += 1
            run = self.runs.setdefault((log.validator, race_id, agent), RunCounts(content.recorded_ms))
            run.episodes, run.last_ms = run.episodes + 1, content.recorded_ms
            if race_id:
                self.race_episodes[race_id] += 1
            else:
                self.suite_episodes[payload.context.suite] += 1
            day = datetime.fromtimestamp(content.recorded_ms / 1000, UTC).date().isoformat()
            counts, is_scored = self.days[day, race_id], isinstance(payload.outcome, OutcomeScore)
            counts.episodes += 1
            counts.scored += is_scored
            counts.solved += isinstance(payload.outcome, OutcomeScore) and payload.outcome.is_success
            counts.agents.add(agent)

    async def _read_races(self) -> None:
        prefix = stream_of("")
        for stream in await self.store.streams(prefix):
            name = stream.removeprefix(prefix)
            known = self._states.get(name)
            if known is None or not known.is_finished:
                try:
                    self._states[name] = replay(name, await self.store.events(stream))
                except (IllegalEventError, ArenaError):
                    self._states.setdefault(name, RaceState(race_id=name))

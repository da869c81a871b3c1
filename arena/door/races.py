"""What a miner may know of its agent's races: counts while one runs, its own row once it is settled, and what the judge
said once the race's problems are released.

Nothing of a race goes out before it is settled and released (`arena.visibility`) but how much work is done; of
others' agents, nothing but how many there are. A race that can't change any more is read once, and of the newest races
alone is anything kept.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.race.state.machine import RaceState, replay, stream_of
from arena.records.body import decode_content
from arena.records.model import Standing, VerdictRecord
from arena.store.port import ItemCount, Store
from arena.visibility.rule import Moment, may_see
from judge.verdict import Verdict
from problems.model import POOLS

RACES_JUDGED = 2  # released races whose verdicts are kept in memory
RACES_TOLD = 90  # the newest races, which a status tells of: a quarter of a year


class RaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One race of an agent. Scores are ten-thousandths with their 95 % interval, and None before the settlement;
    `done` of `total` episodes are this validator's."""

    race_id: str
    stage: Literal["upcoming", "racing", "settled", "cancelled"]
    closes_ms: int  # unix milliseconds
    done: int = 0
    total: int = 0
    agents: int = 0
    rank: int | None = None
    score_e4: int | None = None
    low_e4: int | None = None
    high_e4: int | None = None
    is_top: bool = False
    reason: str = ""  # of a cancelled one


class JudgedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge said of one episode: a sentence of each model."""

    race_id: str
    problem_id: str
    quality_e4: int
    sentences: tuple[str, ...]


class RaceBoard:
    """The races of one store, by agent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._finished: dict[str, RaceState] = {}
        self._judged: dict[str, dict[str, list[JudgedProblem]]] = {}

    async def states(self) -> list[RaceState]:
        """The newest races, at most RACES_TOLD, in the order in which they were opened; of others nothing is kept."""
        prefix, states = stream_of(""), []
        for stream in (await self._store.streams(prefix))[-RACES_TOLD:]:
            name = stream.removeprefix(prefix)
            states.append(self._finished.get(name) or replay(name, await self._store.events(stream)))
        self._finished = {state.race_id: state for state in states if state.is_finished}
        return states

    async def judged(self, states: list[RaceState], agent_version_id: str) -> tuple[JudgedProblem, ...]:
        """What this validator's judge said of an agent in the newest released race that it was in."""
        for state in reversed(states):
            moment: Moment = "settled" if state.is_released else "racing"
            # its miner asks for it in every pool by name
            access = may_see("owner", "verdict", moment, pool=POOLS[0], pools=POOLS)
            if access.is_seen and is_in(state, agent_version_id):
                break
        else:
            return ()
        if state.race_id not in self._judged:
            found: dict[str, list[JudgedProblem]] = {}
            async for record in self._store.records(self._store.validator, kinds=("verdict",), race_id=state.race_id):
                said = decode_content(record.content).payload
                if isinstance(said, VerdictRecord) and isinstance(said.verdict, Verdict):
                    found.setdefault(said.subject.agent_version_id, []).append(_judged(said, said.verdict))
            self._judged[state.race_id] = found
            while len(self._judged) > RACES_JUDGED:
                del self._judged[next(iter(self._judged))]
        return tuple(self._judged.get(state.race_id, {}).get(agent_version_id, ()))


def is_in(state: RaceState, agent_version_id: str) -> bool:
    """Whether an agent is in a race's field."""
    field = state.field.field if state.field is not None else ()
    return any(each.subject.agent_version_id == agent_version_id for each in field)


def race_statuses(
    states: list[RaceState], agent_version_id: str, counts: list[ItemCount], *, is_qualified: bool
) -> list[RaceStatus]:
    """The races of an agent, the newest first; a race that is still open, where it is qualified for it."""
    work = {each.race_id: each for each in counts if each.stage == "race"}
    found = []
    for state in states:
        is_open = state.opened is not None and state.field is None and state.settlement is None
        if not (is_in(state, agent_version_id) or (is_open and is_qualified)):
            continue
        done = work.get(state.race_id)
        status = RaceStatus(
            race_id=state.race_id,
            stage="upcoming" if is_open else "racing",
            closes_ms=state.opened.closes_ms if state.opened is not None else 0,
            done=done.done if done else 0,
            total=done.total if done else 0,
            agents=len(state.field.field) if state.field is not None else 0,
        )
        found.append(_settled(status, state, agent_version_id))
    return found[::-1]


def _settled(status: RaceStatus, state: RaceState, agent_version_id: str) -> RaceStatus:
    settlement = state.settlement
    if settlement is None:
        return status
    # a batch that was never drawn from has no release to wait for (`arena.visibility.moments`)
    moment: Moment = "settled" if state.is_released or state.draw is None else "racing"
    if not may_see("owner", "score", moment).is_seen:
        return status
    if settlement.state == "cancelled":
        return msgspec.structs.replace(status, stage="cancelled", reason=settlement.reason)
    row: Standing | None = next((r for r in settlement.standings if r.agent_version_id == agent_version_id), None)
    if row is None:
        return msgspec.structs.replace(status, stage="settled")
    return msgspec.structs.replace(
        status,
        stage="settled",
        agents=len(settlement.standings),
        rank=row.rank,
        score_e4=row.race_score_e4,
        low_e4=row.low_e4,
        high_e4=row.high_e4,
        is_top=settlement.top_agent_version_id == agent_version_id,
    )


def _judged(said: VerdictRecord, verdict: Verdict) -> JudgedProblem:
    return JudgedProblem(
        race_id=said.context.race_id,
        problem_id=said.context.problem_id,
        quality_e4=verdict.quality_e4,
        sentences=tuple(opinion.explanation for opinion in verdict.opinions),
    )

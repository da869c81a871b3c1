"""Where a hotkey's submissions stand, from the first second in the queue to the rank: what the door tells their miner.

Made of rows at each request; every state of a submission's life has an answer and says what to do. Findings name no
other agent. Nothing of a race goes out before it is settled and released (`arena.visibility`) but how much work is
done; of others' agents, nothing but how many there are. A race that can't change any more is read once, and of the
newest races alone is anything kept.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from arena.chain.port import Subtensor
from arena.gate.report import Finding, GateReport
from arena.policy import Policy
from arena.race.admission import hold_ends
from arena.race.machine import RaceState, replay, stream_of
from arena.records.body import decode_content
from arena.records.model import Standing, VerdictRecord
from arena.store.port import EVERY_STATE, GATED, AgreedStanding, ItemCount, Store, StoredSubmission, SubmissionState
from arena.submissions.admission import hold_of, next_allowed_block, past_submissions, read_report
from arena.visibility.rule import Moment, may_see
from foundation.errors import Failure
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
    # a batch that was never drawn from has no release to wait for (`arena.visibility.rule`)
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


RACES_SHOWN = 5  # the newest
_TO_DO: dict[SubmissionState, str] = {
    "waiting": "nothing: the gate looks at it once its commitment is final",
    "withdrawn": "nothing, or submit another version",
    "refused": "read the reason; commit and submit again from the block named",
    "rejected": "correct the lines named here, run `arena check AGENT.py`, submit again from the block named",
    "review": "nothing: a person looks at it",
    "accepted": "nothing: it is being qualified",
    "qualified": "nothing: of this hotkey's versions the one that qualified best races at the next close",
    "unqualified": "improve the agent (`arena run AGENT.py`) and submit a new version",
}


class QualifyingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Progress on the public suite at this validator. Scores are ten-thousandths; None until it is decided."""

    done: int
    total: int
    score_e4: int | None
    needed_e4: int


class SubmissionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one agent version stands with this validator."""

    agent_version_id: str
    name: str
    hotkey: str
    state: SubmissionState
    commitment_block: int
    received_ms: int  # unix milliseconds
    next_allowed_block: int  # for this hotkey's next commitment
    block: int  # final now
    failure: Failure | None
    findings: tuple[Finding, ...]
    held_until_block: int  # of a hold that runs out; else 0
    qualifying: QualifyingStatus | None
    agreed: AgreedStanding | None
    races: tuple[RaceStatus, ...]
    judged: tuple[JudgedProblem, ...]  # of the newest released race
    what_to_do: str


class StatusService:
    """Reads the status of submissions for one validator."""

    def __init__(self, store: Store, chain: Subtensor, policy: Policy) -> None:
        self._store, self._chain, self._policy = store, chain, policy
        self._board = RaceBoard(store)

    async def of(self, hotkey: str) -> list[SubmissionStatus]:
        """Every version of a hotkey, the newest commitment first. Raises ArenaError U3030, V2021."""
        rows = await self._store.submissions(EVERY_STATE, miner_hotkey=hotkey)
        if not rows:
            return []
        block = await self._chain.finalized_block()
        past = past_submissions(rows, hotkey, ("waiting", *GATED))
        allowed, states = next_allowed_block(past, self._policy.cooldown), await self._board.states()
        found = [await self._of(row, states, block, allowed) for row in rows]
        return sorted(found, key=lambda each: (-each.commitment_block, each.agent_version_id))

    async def _of(self, row: StoredSubmission, states: list[RaceState], block: int, allowed: int) -> SubmissionStatus:
        agent, is_gated = row.subject.agent_version_id, row.state in GATED
        counts = await self._store.item_counts(agent) if is_gated else []
        qualifying = None
        if row.state in ("accepted", "qualified", "unqualified"):
            work = next((each for each in counts if each.stage == "qualifying"), None)
            qualifying = QualifyingStatus(
                done=work.done if work else 0,
                total=work.total if work else self._policy.qualifying.problems,
                score_e4=row.qualifying_e4,
                needed_e4=self._policy.qualifying.score_min_e4,
            )
        report = read_report(row)
        races = race_statuses(states, agent, counts, is_qualified=row.state == "qualified")
        return SubmissionStatus(
            agent_version_id=agent,
            name=row.name,
            hotkey=row.subject.miner_hotkey,
            state=row.state,
            commitment_block=row.subject.commitment_block,
            received_ms=row.received_ms,
            next_allowed_block=allowed,
            block=block,
            failure=row.failure or (report.failure if report else None),
            findings=report.findings if report else (),
            held_until_block=self._held_until(row, report),
            qualifying=qualifying,
            agreed=row.agreed,
            races=tuple(races[:RACES_SHOWN]),
            judged=await self._board.judged(states, agent) if is_gated else (),
            what_to_do=_TO_DO[row.state],
        )

    def _held_until(self, row: StoredSubmission, report: GateReport | None) -> int:
        """The block from which a hold counts as accepted; 0 where nothing is held, or the hold does not run out."""
        rules = self._policy.admission
        is_running_out = row.state == "review" and rules.rule == "agreed" and hold_of(report) == "heuristic"
        return hold_ends(row.subject, rules) if is_running_out else 0

"""Where a hotkey's submissions stand, from the first second in the queue to the rank: what the door tells their miner.

Made of rows at each request; every state of a submission's life has an answer and says what to do. Findings name no
other agent. Of races it tells what the public reads tell (`arena.api.rows`), and beside it how much of the own work is
done; what the judge said, once their problems are released.
"""

from __future__ import annotations

import msgspec

from arena.api.board import Board, RaceView
from arena.api.rows import RaceRow, is_told, race_row
from arena.chain.port import Subtensor
from arena.gate.report import Finding, GateReport
from arena.policy import Policy
from arena.race.admission import hold_ends
from arena.records.body import decode_content
from arena.records.model import Standing, VerdictRecord
from arena.records.port import EVERY_STATE, GATED, AgreedStanding, ItemCount, Store, StoredSubmission, SubmissionState
from arena.submissions.admission import hold_of, next_allowed_block, past_submissions, read_report
from arena.visibility.rule import may_see
from foundation.errors import Failure
from judge.verdict import Verdict
from problems.model import POOLS

RACES_JUDGED = 2  # released races whose verdicts are kept in memory
RACES_TOLD = 90  # the newest races, which a status tells of: a quarter of a year
RACES_SHOWN = 5  # the newest of them
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


class OwnRace(msgspec.Struct, frozen=True, kw_only=True):
    """One race of an agent: the race as everybody knows it, and how the agent stood in it once that may be told.
    `done` of `total` episodes are this validator's."""

    race: RaceRow
    standing: Standing | None = None
    reason: str = ""  # of a cancelled one
    done: int = 0
    total: int = 0


class JudgedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge said of one episode: a sentence of each model."""

    race_id: str
    problem_id: str
    quality_e4: int
    sentences: tuple[str, ...]


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
    races: tuple[OwnRace, ...]
    judged: tuple[JudgedProblem, ...]  # of the newest released race
    what_to_do: str


class StatusService:
    """Reads the status of submissions for one validator."""

    def __init__(self, store: Store, chain: Subtensor, policy: Policy, board: Board) -> None:
        """`board` is of the same store."""
        self._store, self._chain, self._policy, self._board = store, chain, policy, board
        self._judged: dict[str, dict[str, list[JudgedProblem]]] = {}  # by race and agent

    async def of(self, hotkey: str) -> list[SubmissionStatus]:
        """Every version of a hotkey, the newest commitment first. Raises ArenaError U3030, V2021."""
        rows = await self._store.submissions(EVERY_STATE, miner_hotkey=hotkey)
        if not rows:
            return []
        await self._board.refresh()
        block = await self._chain.finalized_block()
        allowed = next_allowed_block(past_submissions(rows, hotkey, ("waiting", *GATED)), self._policy.cooldown)
        found = [await self._of(row, block, allowed) for row in rows]
        return sorted(found, key=lambda each: (-each.commitment_block, each.agent_version_id))

    async def _of(self, row: StoredSubmission, block: int, allowed: int) -> SubmissionStatus:
        agent, report = row.subject.agent_version_id, read_report(row)
        counts = await self._store.item_counts(agent) if row.state in GATED else []
        qualifying = None
        if row.state in ("accepted", "qualified", "unqualified"):
            work = next((each for each in counts if each.stage == "qualifying"), None)
            qualifying = QualifyingStatus(
                done=work.done if work else 0,
                total=work.total if work else self._policy.qualifying.problems,
                score_e4=row.qualifying_e4,
                needed_e4=self._policy.qualifying.score_min_e4,
            )
        own = [race for race in self._board.races()[-RACES_TOLD:] if _is_of(race, agent, row.state)]
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
            races=tuple(self._race(race, agent, counts) for race in own[: -RACES_SHOWN - 1 : -1]),
            judged=await self._said(own, agent) if row.state in GATED else (),
            what_to_do=_TO_DO[row.state],
        )

    def _race(self, race: RaceView, agent: str, counts: list[ItemCount]) -> OwnRace:
        work = next((each for each in counts if (each.stage, each.race_id) == ("race", race.race_id)), None)
        told = race.settlement if is_told(race) else None
        standings = told.standings if told else ()
        return OwnRace(
            race=race_row(self._board, race),
            standing=next((one for one in standings if one.agent_version_id == agent), None),
            reason=told.reason if told else "",
            done=work.done if work else 0,
            total=work.total if work else 0,
        )

    async def _said(self, own: list[RaceView], agent: str) -> tuple[JudgedProblem, ...]:
        """What this validator's judge said of an agent in the newest released race that it was in."""
        for race in reversed(own):  # its miner asks for it in every pool by name
            if race.release and may_see("owner", "verdict", race.moment, pool=POOLS[0], pools=POOLS).is_seen:
                break
        else:
            return ()
        if race.race_id not in self._judged:
            found: dict[str, list[JudgedProblem]] = {}
            async for record in self._store.records(self._store.validator, kinds=("verdict",), race_id=race.race_id):
                said = decode_content(record.content).payload
                if isinstance(said, VerdictRecord) and isinstance(said.verdict, Verdict):
                    judged = JudgedProblem(
                        race_id=race.race_id,
                        problem_id=said.context.problem_id,
                        quality_e4=said.verdict.quality_e4,
                        sentences=tuple(opinion.explanation for opinion in said.verdict.opinions),
                    )
                    found.setdefault(said.subject.agent_version_id, []).append(judged)
            self._judged[race.race_id] = found
            while len(self._judged) > RACES_JUDGED:
                del self._judged[next(iter(self._judged))]
        return tuple(self._judged[race.race_id].get(agent, ()))

    def _held_until(self, row: StoredSubmission, report: GateReport | None) -> int:
        """The block from which a hold counts as accepted; 0 where nothing is held, or the hold does not run out."""
        rules = self._policy.admission
        is_running_out = row.state == "review" and hold_of(report) == "heuristic"
        return hold_ends(row.subject, rules) if is_running_out else 0


def _is_of(race: RaceView, agent_version_id: str, state: SubmissionState) -> bool:
    """Whether a race is an agent's: it is in the field, or may be in the field of one that is open."""
    if race.state is None:
        return False
    if race.state.field is None:
        return state == "qualified" and race.state.opened is not None and race.state.settlement is None
    return any(each.subject.agent_version_id == agent_version_id for each in race.state.field.field)

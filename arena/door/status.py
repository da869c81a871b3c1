"""Where a hotkey's submissions stand, from its first second in the queue to its rank: what the door tells their miner.

Made of its row at each request; every state of a submission's life has an answer and says what to do. Findings name no
other agent.
"""

from __future__ import annotations

import msgspec

from arena.chain.port import Subtensor
from arena.door.races import JudgedProblem, RaceBoard, RaceStatus, race_statuses
from arena.gate.report import Finding, GateReport, shown_report
from arena.policy import Policy
from arena.race.consensus.rulings import hold_ends
from arena.race.state.machine import RaceState
from arena.store.port import EVERY_STATE, GATED, AgreedStanding, Store, StoredSubmission, SubmissionState
from arena.submissions.admission import hold_of, next_allowed_block, past_submissions, read_report
from foundation.errors import Failure

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
            findings=shown_report(report).findings if report else (),
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

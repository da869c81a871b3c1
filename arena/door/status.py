"""Where a hotkey's submissions stand, from its first second in the queue to its rank: what the door tells their miner.

Made of what is stored, at each request; every state of a submission's life has an answer and says what to do.
Findings are those of the receipt, which names no other agent.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from arena.chain.port import Subtensor
from arena.door.races import JudgedProblem, RaceBoard, RaceStatus, race_statuses
from arena.gate.report import Finding
from arena.policy import Policy
from arena.race.state.machine import RaceState
from arena.store.port import Arrival, Store, StoredSubmission
from arena.submissions.admission import next_allowed_block, past_submissions, read_report
from arena.submissions.inbox import AgreedStanding, Inbox, Receipt
from foundation.errors import Failure

State = Literal["waiting", "withdrawn", "refused", "rejected", "review", "accepted", "qualified", "unqualified"]

RACES_SHOWN = 5  # the newest
_TO_DO: dict[State, str] = {
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
    state: State
    commitment_block: int
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

    def __init__(self, store: Store, chain: Subtensor, inbox: Inbox, policy: Policy) -> None:
        """Receipts come from `inbox`; everything else from the store and the chain."""
        self._store, self._chain, self._inbox, self._policy = store, chain, inbox, policy
        self._board = RaceBoard(store)

    async def of(self, hotkey: str) -> list[SubmissionStatus]:
        """Every version of a hotkey, the newest commitment first. Raises ArenaError U3030, V2021."""
        arrivals = {each.agent_version_id: each for each in await self._store.arrivals(hotkey)}
        stored = {each.subject.agent_version_id: each for each in await self._store.submissions(miner_hotkey=hotkey)}
        if not (arrivals or stored):
            return []
        block = await self._chain.finalized_block()
        allowed = next_allowed_block(past_submissions(stored.values(), hotkey), self._policy.cooldown)
        states, found = await self._board.states(), []
        for agent in arrivals.keys() | stored.keys():
            receipt = await asyncio.to_thread(self._inbox.receipt, agent)
            told = await self._of(agent, arrivals.get(agent), stored.get(agent), receipt, states)
            next_block = max(allowed, told.next_allowed_block)
            found.append(msgspec.structs.replace(told, block=block, next_allowed_block=next_block))
        return sorted(found, key=lambda each: (-each.commitment_block, each.agent_version_id))

    async def _of(
        self,
        agent: str,
        arrival: Arrival | None,
        stored: StoredSubmission | None,
        receipt: Receipt | None,
        states: list[RaceState],
    ) -> SubmissionStatus:
        if (
            arrival is not None
            and stored is None
            and (receipt is None or receipt.submitted_block < arrival.commitment_block)
        ):
            return self._unanswered(arrival)
        if receipt is None:
            assert stored is not None, "what is not stored has a receipt, or waits"
            receipt = _receipt_of(stored)
        counts = await self._store.item_counts(agent)
        state: State = receipt.state
        qualifying = None
        if state in ("accepted", "qualified", "unqualified"):
            work = next((each for each in counts if each.stage == "qualifying"), None)
            qualifying = QualifyingStatus(
                done=work.done if work else 0,
                total=work.total if work else self._policy.qualifying.problems,
                score_e4=receipt.qualifying_e4,
                needed_e4=self._policy.qualifying.score_min_e4,
            )
        return SubmissionStatus(
            agent_version_id=agent,
            name=receipt.name,
            hotkey=receipt.hotkey,
            state=state,
            commitment_block=receipt.submitted_block,
            next_allowed_block=receipt.next_allowed_block if stored is None else 0,
            block=0,
            failure=receipt.failure,
            findings=receipt.report.findings if receipt.report else (),
            held_until_block=receipt.held_until if state == "review" else 0,
            qualifying=qualifying,
            agreed=receipt.agreed,
            races=tuple(race_statuses(states, agent, counts, is_qualified=state == "qualified")[:RACES_SHOWN]),
            judged=await self._board.judged(states, agent),
            what_to_do=_TO_DO[state],
        )

    def _unanswered(self, arrival: Arrival) -> SubmissionStatus:
        state: State = "withdrawn" if arrival.state == "withdrawn" else "waiting"
        cost = self._policy.cooldown.accepted_blocks if state == "waiting" else 0
        return SubmissionStatus(
            agent_version_id=arrival.agent_version_id,
            name=arrival.name,
            hotkey=arrival.miner_hotkey,
            state=state,
            commitment_block=arrival.commitment_block,
            next_allowed_block=arrival.commitment_block + cost if cost else 0,
            block=0,
            failure=None,
            findings=(),
            held_until_block=0,
            qualifying=None,
            agreed=None,
            races=(),
            judged=(),
            what_to_do=_TO_DO[state],
        )


def _receipt_of(stored: StoredSubmission) -> Receipt:
    """What a receipt would say of a submission that another validator brought."""
    report = read_report(stored)
    return Receipt(
        agent_version_id=stored.subject.agent_version_id,
        name=stored.name,
        hotkey=stored.subject.miner_hotkey,
        state=stored.state if stored.state != "queued" else "accepted",
        submitted_block=stored.submitted_block,
        next_allowed_block=0,
        failure=report.failure if report else None,
        report=report,
    )

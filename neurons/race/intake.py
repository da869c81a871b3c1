"""Intake: what waits, through admission and the gate into qualifying, and from qualifying results to a state.

A submission is one row from its arrival on, so none is lost when the process is killed, and each is decided with a
reason; the gate runs in a process of its own with a time limit.
"""

from __future__ import annotations

from itertools import islice

import msgspec
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Commitment, Subtensor
from arena.chain.real import BLOCK_MS
from arena.policy import Policy
from arena.race.admission import asked_count
from arena.race.decider import qualifying_items
from arena.race.draw import is_work_due, qualifying_order, qualifying_seed
from arena.records.model import Subject
from arena.records.port import StoredSubmission, SubmissionState
from arena.submissions.admission import admit, past_submissions
from arena.submissions.model import signed_submission
from foundation.backoff import Backoff, NextTry
from foundation.codes import lookup
from foundation.codes.names import STATE_PRUNED
from foundation.errors import ArenaError
from neurons.loops.node import Node
from neurons.race.admission import GATE_FAULTS, Admissions
from neurons.race.log import QUALIFYING, RaceLog
from neurons.race.sentences import short

GATE_PAUSES = Backoff(first_ms=1_000, most_ms=600_000)
DECISIONS_PER_TURN = 1_000  # however many wait, agents that are through with qualifying wait for no more than these
_OUTCOME_SAID = {"accept": "passes the gate", "review": "is held for a person", "reject": "is rejected"}
_STATE_OF_OUTCOME: dict[str, SubmissionState] = {"accept": "accepted", "review": "review", "reject": "rejected"}


class Intake:
    """Decides who is admitted, and who qualifies."""

    name, every_s = "intake", 0.5

    def __init__(self, node: Node, qualifying: RaceLog) -> None:
        self._node = node
        self._qualifying = qualifying
        self._paused: dict[str, NextTry] = {}  # submissions on which the gate itself failed
        self._seen: set[tuple[str, int]] = set()  # those that wait, with their commitments' blocks
        self._seeds = VariantSeeds(node.chain, node.policy)
        self._enqueued: set[str] = set()  # accepted agents whose suite this process has put into the queue
        self._admissions = Admissions(node, qualifying)

    async def turn(self) -> None:
        """Decide what waits, DECISIONS_PER_TURN of it at most, then the agents whose qualifying is over."""
        waiting = await self._node.store.submissions(("waiting",))
        self._say_new(waiting)
        self._paused = {each: self._paused[each] for each, _ in self._seen if each in self._paused}
        due = (
            each
            for each in waiting
            if self._node.now_ms() >= self._paused.get(each.subject.agent_version_id, NextTry()).not_before_ms
        )
        for each in islice(due, DECISIONS_PER_TURN):
            try:
                await self._decide(each)
            except ArenaError as error:
                if error.failure.code not in GATE_FAULTS:
                    raise
                self._put_off(each, error.failure.detail)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                # a bug of ours that one file brings out must not end the node at each of its starts
                self._put_off(each, ascii(f"{type(error).__name__}: {error}")[:500])
        await self._admissions.turn()
        suite = [problem.problem_id for problem in self._node.suite]
        accepted = await self._node.store.submissions(("accepted",))
        self._enqueued &= {each.subject.agent_version_id for each in accepted}
        block = await self._node.chain.block() if accepted else 0
        for submission in accepted:
            agent = submission.subject.agent_version_id
            is_due = agent not in self._enqueued and self._is_asked(submission, block)
            seed = await self._seeds.of(submission.subject) if is_due else None
            if seed is not None:
                items = qualifying_items(submission.subject, suite, self._node.policy, variant_seed=seed)
                await self._node.store.enqueue(items)
                self._enqueued.add(agent)
        qualifying = await self._node.store.submissions(("accepted",))
        if not qualifying:
            return
        await self._qualifying.refresh()
        for submission in qualifying:
            agent = submission.subject.agent_version_id
            result = self._qualifying.qualification(agent, suite, self._node.policy)
            state = result.state
            if state == "pending" and result.finished:  # our word; the field of a race is decided by all
                state = "qualified" if result.passes else "unqualified"
            if state != "pending":
                score_e4 = result.score_e4
                await self._node.store.set_submission_state(agent, state, was="accepted", qualifying_e4=score_e4)
                await self._node.store.close_items(QUALIFYING, "qualifying", agent)
                self._seeds.forget(agent)
                who = f"{submission.name} {short(submission.subject.miner_hotkey)}"
                text = f"{who} is {state}: score {(result.score_e4 or 0) / 10_000:.3f} in qualifying"
                told = {"agent": submission.name, "state": state, "score_e4": result.score_e4}
                self._node.log.info("qualifying", **told, text=text)

    def _say_new(self, waiting: list[StoredSubmission]) -> None:
        for each in waiting:
            subject = each.subject
            if (subject.agent_version_id, subject.commitment_block) not in self._seen:
                text = f"{each.name} {short(subject.miner_hotkey)} is submitted"
                self._node.log.info("submission taken", agent=each.name, hotkey=subject.miner_hotkey, text=text)
        self._seen = {(each.subject.agent_version_id, each.subject.commitment_block) for each in waiting}

    def _put_off(self, submission: StoredSubmission, reason: str) -> None:
        """The gate itself failed on a submission: it waits, longer each time, and the others go on."""
        agent = submission.subject.agent_version_id
        retry = GATE_PAUSES.after(self._paused.get(agent, NextTry()), self._node.now_ms())
        self._paused[agent] = retry
        self._node.log.warning("submission waits", agent=agent, wait_ms=retry.pause_ms, error=reason)

    async def _decide(self, row: StoredSubmission) -> None:
        """Admit or refuse one submission, and let the gate look at it."""
        store, policy, agent = self._node.store, self._node.policy, row.subject.agent_version_id
        finalized = await self._node.chain.finalized_block()
        commitment = await self._commitment_of(row, finalized)
        if commitment is not None and commitment.block > finalized:
            return  # it waits until its commitment's block is final
        submission = signed_submission(row, await store.source(agent) or "")
        stored = await store.submissions()
        admission = admit(
            submission,
            commitment=commitment,
            past=past_submissions(stored, row.subject.miner_hotkey),
            metagraph=await self._node.chain.metagraph(finalized),
            rules=policy.cooldown,
            verify=verify,
            is_commitment_enough=policy.admission.is_commitment_enough,
        )
        refusal = admission.refusal
        if refusal is not None:
            await store.set_submission_state(agent, "refused", was="waiting", failure=refusal)
            about = f"{refusal.code} {lookup(refusal.code).title}: {refusal.detail}"
            text = f"{row.name} {short(row.subject.miner_hotkey)} is refused: {about}"
            self._node.log.info("refused", agent=row.name, failure=str(refusal), text=text)
            return
        block = admission.submitted_block
        subject = replace(row.subject, commitment_block=block)
        report, around = await self._admissions.inspect(subject, submission.source, stored)
        state, text = _STATE_OF_OUTCOME[report.outcome], msgspec.json.encode(report).decode()
        if not await store.set_submission_state(agent, state, text, was="waiting", commitment_block=block):
            return  # its miner took it back meanwhile
        await self._admissions.say(subject, report, around)
        rules = [f"{finding.rule}:{finding.line}" for finding in report.findings]
        outcome = _OUTCOME_SAID[report.outcome]
        text = f"{row.name} {short(subject.miner_hotkey)} {outcome}" + (f": {', '.join(rules)}" if rules else "")
        self._node.log.info("gate", agent=row.name, outcome=report.outcome, rules=rules, text=text)

    async def _commitment_of(self, row: StoredSubmission, finalized: int) -> Commitment | None:
        """The commitment that a submission is judged by: its own, whatever its hotkey committed later. Where the chain
        forgot its block, or moved it, the latest of the hotkey. Raises ArenaError U3030."""
        chain, subject = self._node.chain, row.subject
        if subject.commitment_block > finalized:
            return await chain.commitment(subject.miner_hotkey)
        try:
            found = await chain.commitment(subject.miner_hotkey, subject.commitment_block)
        except ArenaError as error:
            if error.failure.code != STATE_PRUNED:
                raise
            found = None
        if found is None or found.sha256 != subject.commitment_sha256:
            latest = await chain.commitment(subject.miner_hotkey)
            is_its = latest is not None and latest.sha256 == subject.commitment_sha256
            found = latest if is_its else await chain.commitment(subject.miner_hotkey, finalized)
        return found

    def _is_asked(self, submission: StoredSubmission, block: int) -> bool:
        """Whether this validator qualifies the agent now. The first in the agent's own order do at once and the others
        follow, `stand_in_ms` apart: validators do not tell each other whom they have qualified, so each of them runs
        the suite in the end."""
        sharing, rules, me = self._node.sharing, self._node.policy, self._node.signer.hotkey
        permits = frozenset({me}) if sharing is None else sharing.permits.hotkeys
        return is_work_due(
            qualifying_order(submission.subject.agent_version_id, permits),
            me,
            asked_count(rules, len(permits)),
            rules.qualifying.validators_required,
            {},
            (block - submission.subject.commitment_block) * BLOCK_MS,
            rules.race.stand_in_ms,
        )


class VariantSeeds:
    """The seeds of agents' variants, read from the chain once each."""

    def __init__(self, chain: Subtensor, policy: Policy) -> None:
        self._chain, self._rules = chain, policy.qualifying
        self._known: dict[str, str] = {}  # by agent version id

    async def of(self, subject: Subject) -> str | None:
        """The seed of this agent's variants, "" where the policy asks the suite's own problems, None while the block
        that it follows from is not final. Raises ArenaError U3030 while the chain can't be read."""
        agent = subject.agent_version_id
        if not self._rules.variant_blocks:
            return ""
        if agent not in self._known:
            block = subject.commitment_block + self._rules.variant_blocks
            if block > await self._chain.finalized_block():
                return None
            block_hash = await self._chain.block_hash(block)
            self._known[agent] = qualifying_seed(self._rules.suite, agent, block_hash)
        return self._known[agent]

    def forget(self, agent_version_id: str) -> None:
        """Let go of an agent that was decided."""
        self._known.pop(agent_version_id, None)

"""Intake: from the inbox through admission and the gate into qualifying, and from qualifying results to a state.

Every submission gets a receipt with a reason; none is lost when the process is killed, because the inbox entry
goes only after the stored row; the gate runs in a process of its own with a time limit.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.chain.block_times import BLOCK_MS
from arena.chain.keys import verify
from arena.gate.report import GateReport
from arena.race.consensus.assignment import is_work_due, qualifying_order
from arena.race.consensus.rulings import asked_count
from arena.race.state.items import qualifying_items
from arena.records.model import Subject
from arena.store.port import StoredSubmission, SubmissionState
from arena.submissions.admission import Admission, admit, next_allowed_block, past_submissions, read_report
from arena.submissions.inbox import InboxEntry, Place, Receipt
from arena.submissions.model import SignedSubmission, is_authentic
from foundation.backoff import Backoff, NextTry
from foundation.codes import lookup
from foundation.codes.names import INBOX_UNREADABLE
from foundation.codes.row import Owner
from foundation.errors import ArenaError, Failure
from neurons.loops.admission import GATE_FAULTS, Admissions, held_until
from neurons.node.node import Node
from neurons.node.variants import VariantSeeds
from neurons.race.log import QUALIFYING, RaceLog
from neurons.race.sentences import short

ENTRY_PAUSES = Backoff(first_ms=1_000, most_ms=600_000)
ENTRIES_PER_TURN = 1_000  # however many wait, agents that are through with qualifying wait for no more than these
ENTRY_FAULTS = GATE_FAULTS | {INBOX_UNREADABLE}
_OUTCOME_SAID = {"accept": "passes the gate", "review": "is held for a person", "reject": "is rejected"}
_STATE_OF_OUTCOME: dict[str, SubmissionState] = {"accept": "accepted", "review": "review", "reject": "rejected"}


class Intake:
    """Polls the inbox and decides who qualifies."""

    name, every_s = "intake", 0.5

    def __init__(self, node: Node, qualifying: RaceLog) -> None:
        self._node = node
        self._qualifying = qualifying
        self._after: Place | None = None  # where in the inbox the latest turn ended; the next goes on behind it
        self._waiting: dict[Path, NextTry] = {}  # entries on which the gate itself failed
        self._seeds = VariantSeeds(node.chain, node.policy)
        self._enqueued: set[str] = set()  # accepted agents whose suite this process has put into the queue
        self._admissions = Admissions(node, qualifying)

    async def turn(self) -> None:
        """Answer what waits in the inbox, the next ENTRIES_PER_TURN of it, then decide the agents whose qualifying is
        over."""
        entries = islice(self._node.inbox.pending(self._after), ENTRIES_PER_TURN)
        self._after, met = None, 0
        while (entry := await asyncio.to_thread(next, entries, None)) is not None:
            if self._node.now_ms() >= self._waiting.get(entry.path, NextTry()).not_before_ms:
                try:
                    await self._answer(entry)
                    self._waiting.pop(entry.path, None)
                except ArenaError as error:
                    if error.failure.code not in ENTRY_FAULTS:
                        raise
                    self._put_off(entry, error.failure.detail)
                except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                    # a bug of ours that one file brings out must not end the node at each of its starts
                    self._put_off(entry, ascii(f"{type(error).__name__}: {error}")[:500])
            met += 1
            self._after = entry.place if met == ENTRIES_PER_TURN else None
        await self._admissions.turn()
        suite = [problem.problem_id for problem in self._node.suite]
        accepted = await self._node.store.submissions(("accepted",))
        self._enqueued &= {each.subject.agent_version_id for each in accepted}
        block = await self._node.chain.block() if self._node.sharing and accepted else 0
        for submission in accepted:
            agent = submission.subject.agent_version_id
            is_due = agent not in self._enqueued and self._is_asked(submission, block)
            seed = await self._seeds.of(submission.subject) if is_due else None
            if seed is not None:
                items = qualifying_items(submission.subject, suite, self._node.policy, variant_seed=seed)
                await self._node.store.enqueue(items)
                self._enqueued.add(agent)
        waiting = await self._node.store.submissions(("accepted",))
        if not waiting:
            return
        await self._qualifying.refresh()
        for submission in waiting:
            agent = submission.subject.agent_version_id
            result = self._qualifying.qualification(agent, suite, self._node.policy)
            state = result.state
            if state == "pending" and self._node.sharing and result.finished:  # our word; the field roll decides
                state = "qualified" if result.passes else "unqualified"
            if state != "pending":
                receipt = self._node.inbox.receipt(agent)
                if receipt is not None:  # first: a decided agent is not looked at again
                    decided = replace(receipt, state=state, qualifying_e4=result.score_e4)
                    self._node.inbox.put_receipt(decided)
                await self._node.store.set_submission_state(agent, state)
                await self._node.store.close_items(QUALIFYING, "qualifying", agent)
                self._seeds.forget(agent)
                who = f"{submission.name} {short(submission.subject.miner_hotkey)}"
                text = f"{who} is {state}: score {(result.score_e4 or 0) / 10_000:.3f} in qualifying"
                told = {"agent": submission.name, "state": state, "score_e4": result.score_e4}
                self._node.log.info("qualifying", **told, text=text)

    def _put_off(self, entry: InboxEntry, reason: str) -> None:
        """The gate itself failed on an entry: it waits, longer each time, and the others go on."""
        retry = ENTRY_PAUSES.after(self._waiting.get(entry.path, NextTry()), self._node.now_ms())
        self._waiting[entry.path] = retry
        if len(self._waiting) > ENTRIES_PER_TURN:  # the one put off first is looked at again
            self._waiting.pop(next(iter(self._waiting)))
        self._node.log.warning("entry waits", path=ascii(str(entry.path)), wait_ms=retry.pause_ms, error=reason)

    async def _answer(self, entry: InboxEntry) -> None:
        if entry.submission is None:
            failure = entry.failure or Failure(code="A1009")
            if failure.owner is Owner.VALIDATOR:
                raise ArenaError(failure.code, failure.detail)
            self._node.log.warning("unreadable submission", path=ascii(str(entry.path)), failure=failure.detail)
            self._node.inbox.discard(entry)
            return
        submission = entry.submission
        stored = await self._node.store.submissions()
        known = next((s for s in stored if s.subject.agent_version_id == submission.agent_version_id), None)
        is_commitment_enough = self._node.policy.admission.is_commitment_enough is True
        if known is not None and not is_authentic(submission, verify, is_commitment_enough=is_commitment_enough):
            self._node.log.warning("forged submission", path=ascii(str(entry.path)), agent=known.name)
            self._node.inbox.discard(entry)
            return
        if known is not None:
            self._node.inbox.answer(entry, await self._receipt_again(known, stored))
            return
        chain = self._node.chain
        finalized = await chain.finalized_block()
        commitment = await chain.commitment(submission.hotkey, finalized)
        latest = await chain.commitment(submission.hotkey)
        if latest != commitment and latest is not None and latest.sha256 == submission.commitment_sha256:
            return  # committed in a block that is not final yet: it stays in the inbox until it is
        past = past_submissions(stored, submission.hotkey)
        admission = admit(
            submission,
            commitment=commitment,
            past=past,
            metagraph=await chain.metagraph(finalized),
            rules=self._node.policy.cooldown,
            verify=verify,
            is_commitment_enough=is_commitment_enough,
        )
        if not admission.is_accepted:
            self._node.inbox.answer(entry, _receipt(submission, admission, "refused", None))
            refusal = admission.refusal
            about = f"{refusal.code} {lookup(refusal.code).title}: {refusal.detail}" if refusal else "no reason given"
            text = f"{submission.name} {short(submission.hotkey)} is refused: {about}"
            self._node.log.info("refused", agent=submission.name, failure=str(refusal), text=text)
            return
        if self._node.sharing:  # before it is decided: who committed it may be asked for at any validator
            await asyncio.to_thread(self._node.sharing.submission_cache.put, submission)
        subject = Subject(
            agent_version_id=submission.agent_version_id,
            miner_hotkey=submission.hotkey,
            agent_sha256=submission.agent_sha256,
            commitment_block=admission.submitted_block,
            commitment_sha256=submission.commitment_sha256,
        )
        report, around = await self._admissions.inspect(subject, submission.source, stored)
        state = _STATE_OF_OUTCOME[report.outcome]
        await self._node.store.put_submission(
            StoredSubmission(
                subject=subject,
                name=submission.name,
                state=state,
                submitted_block=admission.submitted_block,
                report=msgspec.json.encode(report).decode(),
            ),
            submission.source,
        )
        await self._admissions.say(subject, report, around)
        until = held_until(report, subject, self._node.policy.admission)
        self._node.inbox.answer(entry, replace(_receipt(submission, admission, state, report), held_until=until))
        rules = [f"{finding.rule}:{finding.line}" for finding in report.findings]
        outcome = _OUTCOME_SAID[report.outcome]
        text = f"{submission.name} {short(submission.hotkey)} {outcome}" + (f": {', '.join(rules)}" if rules else "")
        self._node.log.info("gate", agent=submission.name, outcome=report.outcome, rules=rules, text=text)

    async def _receipt_again(self, known: StoredSubmission, stored: list[StoredSubmission]) -> Receipt:
        others = [s for s in stored if s.subject.agent_version_id != known.subject.agent_version_id]
        past, report = past_submissions([*others, known], known.subject.miner_hotkey), read_report(known)
        return Receipt(
            agent_version_id=known.subject.agent_version_id,
            name=known.name,
            hotkey=known.subject.miner_hotkey,
            state=known.state if known.state != "queued" else "accepted",
            submitted_block=known.submitted_block,
            next_allowed_block=next_allowed_block(past, self._node.policy.cooldown),
            report=report,
        )

    def _is_asked(self, submission: StoredSubmission, block: int) -> bool:
        """Whether this validator qualifies the agent now. A validator that races alone always does. Of several, the
        first in the agent's own order do at once and the others follow, `stand_in_ms` apart: validators do not tell
        each other whom they have qualified, so each of them runs the suite in the end."""
        sharing, rules = self._node.sharing, self._node.policy
        if sharing is None:
            return True
        return is_work_due(
            qualifying_order(submission.subject.agent_version_id, sharing.permits.hotkeys),
            self._node.signer.hotkey,
            asked_count(rules, len(sharing.permits.hotkeys)),
            rules.qualifying.validators_required,
            {},
            (block - submission.submitted_block) * BLOCK_MS,
            rules.race.stand_in_ms,
        )


def _receipt(
    submission: SignedSubmission, admission: Admission, state: SubmissionState | str, report: GateReport | None
) -> Receipt:
    return msgspec.convert(
        {
            "agent_version_id": submission.agent_version_id,
            "name": submission.name,
            "hotkey": submission.hotkey,
            "state": state,
            "submitted_block": admission.submitted_block,
            "next_allowed_block": admission.next_allowed_block,
            "failure": msgspec.to_builtins(admission.refusal or (report.failure if report else None)),
            "report": msgspec.to_builtins(report),
        },
        Receipt,
    )

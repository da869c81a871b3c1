"""This validator's word on submissions: the gate run in the order of commitments, and said in signed records.

What is said follows from sources, rules and the order of commitments, never from that of arrival: a source
that comes late is put in its place, and what was committed after it is inspected again. A person's decision on what the
gate held is found in the store and said, too. A process that was killed says what is missing at its next start.

Whose code a submission is follows from what every validator reads alike: its coldkey is the one that held the hotkey in
the block of its own commitment, so a later swap changes no verdict; a promoted agent is a revealed winner for what was
committed in the block at which its embargo had ended, or later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from arena.gate.isolation import inspect_isolated
from arena.gate.likeness import Author, Neighbour, Sketch, make_sketch
from arena.gate.report import GateReport
from arena.race.admission import FieldStanding, GateWord, hold_ends, next_word, outcome_at
from arena.race.schedule import opening_ms
from arena.records.body import decode_content
from arena.records.model import GateRecord, SettlementRecord, Subject
from arena.records.port import Store, StoredSubmission, SubmissionState
from arena.submissions.admission import (
    Neighbourhood,
    commitment_order,
    hashes_before,
    hold_of,
    neighbourhood,
    read_report,
)
from arena.visibility.rule import may_see, moment_at
from foundation.codes.names import HOST_FAILED, HOST_LACKS, STATE_PRUNED
from foundation.errors import ArenaError
from neurons.loops.node import Node
from neurons.race.log import QUALIFYING, RaceLog

GATE_FAULTS = frozenset({HOST_FAILED, HOST_LACKS})
AGAIN_A_TURN = 4  # inspections of what was inspected before, so that new submissions never wait long
FAULT_PAUSE_MS = 60_000
_PASSED: frozenset[SubmissionState] = frozenset({"accepted", "qualified", "unqualified"})
_STATES: dict[str, SubmissionState] = {"accept": "accepted", "review": "review", "reject": "rejected"}


class Ownership:
    """What this node knows of owners and winners. What the chain said once is kept for the life of the process."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._coldkeys: dict[tuple[str, int], str] = {}
        self._last_seq = 0
        self._ends_ms: dict[str, int] = {}  # by promoted agent version: the end of its first embargo
        self._reveals: dict[str, int] = {}

    async def author(self, subject: Subject) -> Author:
        """Who committed a submission, with the coldkey of its hotkey in the block of the commitment; where the chain
        forgot that block, the one of today; "" where the hotkey is not registered. Raises ArenaError U3030."""
        place = (subject.miner_hotkey, subject.commitment_block)
        if place not in self._coldkeys:
            try:
                metagraph = await self._node.chain.metagraph(subject.commitment_block)
            except ArenaError as error:
                if error.failure.code != STATE_PRUNED:
                    raise
                self._node.log.warning("the chain forgot a commitment's block", block=subject.commitment_block)
                metagraph = await self._node.chain.metagraph(await self._node.chain.finalized_block())
            found = (each.coldkey for each in metagraph.neurons if each.hotkey == subject.miner_hotkey)
            self._coldkeys[place] = next(found, "")
        return Author(
            agent_version_id=subject.agent_version_id,
            miner_hotkey=subject.miner_hotkey,
            commitment_block=subject.commitment_block,
            miner_coldkey=self._coldkeys[place],
            is_public=subject.agent_version_id in self._reveals,
        )

    async def reveals(self) -> dict[str, int]:
        """By agent version of a revealed winner: the block at which its source opened. Raises ArenaError U3030.

        Winners are promotions that this validator settled; settlements that don't state their inputs name no time.
        """
        own = self._node.store.validator
        async for record in self._node.store.records(own, after_seq=self._last_seq, kinds=("settlement",)):
            self._last_seq = record.seq
            settled = decode_content(record.content).payload
            if not isinstance(settled, SettlementRecord) or settled.state != "settled" or not settled.is_promotion:
                continue
            if settled.inputs is not None:
                ends_ms = opening_ms(settled.inputs.closes_ms, self._node.policy)
                self._ends_ms.setdefault(settled.top_agent_version_id, ends_ms)
        now_ms = self._node.now_ms()
        for agent, ends_ms in self._ends_ms.items():
            moment = moment_at(now_ms, closes_ms=0, settled_ms=0, opens_ms=ends_ms)
            if agent in self._reveals or not may_see("public", "source", moment, is_winner=True).is_seen:
                continue
            try:
                block = await self._node.chain.block_at(ends_ms)
            except ArenaError as error:
                if error.failure.code != STATE_PRUNED:
                    raise
                self._node.log.warning("the chain forgot when a winner was revealed", agent=agent, ends_ms=ends_ms)
                continue
            if block is not None:
                self._reveals[agent] = block
        return dict(self._reveals)


class Admissions:
    """Runs the gate and keeps what this validator says of submissions up to date."""

    def __init__(self, node: Node, qualifying: RaceLog) -> None:
        self._node, self._qualifying = node, qualifying
        self._ownership = Ownership(node)
        self._sketches: dict[str, Sketch] = {}  # by agent version id
        self._held: frozenset[str] | None = None  # agents under review at the last look; None: look at everything
        self._not_before_ms = 0

    async def inspect(
        self, subject: Subject, source: str, stored: Iterable[StoredSubmission]
    ) -> tuple[GateReport, Neighbourhood]:
        """The gate's report on a source, beside what was committed before it. Raises ArenaError V2004."""
        reveals = await self._ownership.reveals()
        around = neighbourhood(subject, _comparable(stored), reveals)
        neighbours = []
        for other in around.others:
            agent = other.agent_version_id
            if agent not in self._sketches:  # it was parsed in the gate's own process before
                text = await self._node.store.source(agent) or ""
                self._sketches[agent] = await asyncio.to_thread(make_sketch, text)
            owner, is_winner = await self._ownership.author(other), other in around.winners
            neighbours.append(Neighbour(author=owner, sketch=self._sketches[agent], is_winner=is_winner))
        author = await self._ownership.author(subject)
        report = await asyncio.to_thread(
            inspect_isolated, source, self._node.policy.gate, self._node.knowledge, tuple(neighbours), author
        )
        return report, around

    async def say(self, subject: Subject, report: GateReport, around: Neighbourhood) -> None:
        """Append the gate's verdict on a stored submission."""
        self._held = None
        await self._node.sequencer.append([self._verdict(subject, report, around)])

    async def turn(self) -> None:
        """Look at what changed: a source that came in between, a person's decision, a hold that ran out."""
        if self._node.now_ms() < self._not_before_ms:
            return
        held = await self._node.store.submissions(("review",))
        block = await self._node.chain.finalized_block() if held or self._held != frozenset() else 0
        names = frozenset(each.subject.agent_version_id for each in held)
        rules = self._node.policy.admission
        if names == self._held and not any(
            hold_of(read_report(each)) == "heuristic" and block >= hold_ends(each.subject, rules) for each in held
        ):
            return
        self._held = None  # unless all is done
        try:
            is_whole = await self._look_at_all(block)
        except ArenaError as error:
            if error.failure.code not in GATE_FAULTS:
                raise
            self._not_before_ms = self._node.now_ms() + FAULT_PAUSE_MS
            self._node.log.warning("the gate waits", code=error.failure.code, detail=error.failure.detail)
            return
        self._held = names if is_whole else None

    async def _look_at_all(self, block: int) -> bool:
        """One pass over all submissions, in the order of commitments; False where something changed or is left."""
        await self._qualifying.refresh()
        stored = await self._node.store.submissions()
        known, reveals = _comparable(stored), await self._ownership.reveals()
        hashes = hashes_before(known, reveals)
        left, is_whole = AGAIN_A_TURN, True
        for each in sorted(stored, key=lambda each: commitment_order(each.subject)):
            word = self._qualifying.own_word(each.subject)
            if self._is_due(each, word, known, hashes, reveals):
                left -= 1
                is_whole &= left >= 0 and not await self._inspect_again(each, word, stored, block)
            elif word is not None:
                is_whole &= not await self._follow(each, word, block)
        return is_whole

    def _is_due(
        self,
        each: StoredSubmission,
        word: GateWord | None,
        known: list[Subject],
        hashes: dict[str, str],
        reveals: dict[str, int],
    ) -> bool:
        """Whether nothing was said of a submission yet, or under other rules or beside others than now."""
        if word is None or (each.state, word.said.outcome) == ("rejected", "accept"):
            return True
        if each.state == "unqualified" or (each.state, word.said.outcome) == ("rejected", "reject"):
            return False
        said = (word.said.policy_sha256, word.said.knowledge_sha256, word.said.neighbours_sha256)
        before = hashes.get(each.subject.agent_version_id) or neighbourhood(each.subject, known, reveals).sha256
        return said != (self._node.policy.policy_sha256, self._node.knowledge.inputs_sha256, before)

    async def _inspect_again(
        self, each: StoredSubmission, word: GateWord | None, stored: list[StoredSubmission], block: int
    ) -> bool:
        """Inspect a stored submission, say so and move it; False where its source is gone, and nothing can be said."""
        source = await self._node.store.source(each.subject.agent_version_id)
        if source is None:
            self._node.log.error("the source is not stored", agent=each.subject.agent_version_id)
            return False
        report, around = await self.inspect(each.subject, source, stored)
        record = self._verdict(each.subject, report, around)
        now = next_word(word, record)
        assert now is not None, "the gate's own verdict is a word"
        outcome = outcome_at(now, block, self._node.policy.admission)
        state = each.state if outcome == "accept" and each.state in _PASSED else _STATES[outcome]
        if outcome == "review" and each.state != "review":
            # what a person decided of the same hold, and this validator has not said yet, stays
            held_for = word.said.hold if word is not None else hold_of(read_report(each))
            state = each.state if held_for == now.said.hold else "review"
        await self._move(each, state, report)  # first: a state without its word is looked at again
        await self._node.sequencer.append([record])
        self._node.log.info("gate again", agent=each.name, outcome=report.outcome, state=state)
        return True

    async def _follow(self, each: StoredSubmission, word: GateWord, block: int) -> bool:
        """Say what a person decided of a hold, or let it run out; whether either happened."""
        if word.said.outcome != "review" or word.decided:
            return False
        is_out = outcome_at(word, block, self._node.policy.admission) == "accept"
        if each.state == "review":
            if is_out:
                await self._move(each, "accepted")
                self._node.log.info("the hold ran out", agent=each.name)
            return is_out
        if is_out and each.state in _PASSED:
            return False
        decided = GateRecord(
            subject=each.subject,
            policy_sha256=self._node.policy.policy_sha256,
            decided_by="person",
            outcome="accept" if each.state in _PASSED else "reject",
        )
        await self._node.sequencer.append([decided])
        self._node.log.info("a person decided", agent=each.name, outcome=decided.outcome)
        return True

    async def _move(self, each: StoredSubmission, state: SubmissionState, report: GateReport | None = None) -> None:
        agent = each.subject.agent_version_id
        text = msgspec.json.encode(report).decode() if report is not None else ""
        await self._node.store.set_submission_state(agent, state, text)
        if state in ("rejected", "review"):
            await self._node.store.close_items(QUALIFYING, "qualifying", agent)

    def _verdict(self, subject: Subject, report: GateReport, around: Neighbourhood) -> GateRecord:
        """What is said of a submission by the gate's report: its outcome and inputs, and nothing that was found."""
        return GateRecord(
            subject=subject,
            policy_sha256=self._node.policy.policy_sha256,
            decided_by="gate",
            outcome=report.outcome,
            severity=report.severity or "",
            hold=hold_of(report),
            rules_version=report.rules_version,
            knowledge_sha256=self._node.knowledge.inputs_sha256,
            neighbours_sha256=around.sha256,
        )


async def keep_standings(store: Store, rows: Iterable[FieldStanding]) -> None:
    """Write down, for their miners to read, where submissions that are here stood with all validators."""
    here = {each.subject.agent_version_id: each.subject.commitment_block for each in await store.submissions()}
    for row in rows:
        subject = row.subject
        if here.get(subject.agent_version_id) == subject.commitment_block:
            await store.put_agreed(subject.agent_version_id, row.standing)


def _comparable(stored: Iterable[StoredSubmission]) -> list[Subject]:
    """All but what the gate rejects: what a person rejects here, others may not, and it was committed all the same."""
    return [each.subject for each in stored if each.state != "rejected" or hold_of(read_report(each))]

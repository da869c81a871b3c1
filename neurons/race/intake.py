"""Submissions, from those that wait to those that qualified, and this validator's word on them in signed records.

A submission is one row from its arrival on, so none is lost when the process is killed, and each is decided with a
reason; the gate runs in a process of its own with a time limit.

What is said follows from sources, rules and the order of commitments, never from that of arrival: a source
that comes late is put in its place, and what was committed after it is inspected again. A person's decision on what the
gate held is found in the store and said, too. A process that was killed says what is missing at its next start.

Whose code a submission is follows from what every validator reads alike: its coldkey is the one that held the hotkey in
the block of its own commitment, so a later swap changes no verdict; a promoted agent is a revealed winner for what was
committed in the block at which its embargo had ended, or later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from itertools import islice, takewhile

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.chain.port import Commitment, StatePrunedError, Subtensor
from arena.chain.real import BLOCK_MS
from arena.gate.inspection import inspect_isolated
from arena.gate.likeness import Author, Neighbour, Sketch, class_heads, make_sketch
from arena.gate.rules import GateReport
from arena.policy import Policy
from arena.race.admission import GateWord, asked_count, hold_ends, next_word, outcome_at
from arena.race.decider import qualifying_items
from arena.race.draw import is_work_due, qualifying_order, qualifying_seed
from arena.race.machine import force_of
from arena.race.schedule import opening_ms
from arena.records.model import GateRecord, Origin, Subject
from arena.records.port import StoredSubmission, SubmissionState
from arena.submissions.submission import (
    admit,
    commitment_order,
    hashes_before,
    hold_of,
    neighbourhood,
    next_allowed_block,
    read_report,
    signed_submission,
)
from foundation.backoff import Backoff, NextTry
from foundation.codes import HOST_FAILED, HOST_LACKS, lookup
from foundation.errors import ArenaError
from neurons.loops.node import Node
from neurons.race.log import QUALIFYING, RaceList, RaceLog
from neurons.race.sentences import short

GATE_FAULTS = frozenset({HOST_FAILED, HOST_LACKS})
AGAIN_A_TURN = 4  # inspections of what was inspected before, so that new submissions never wait long
FAULT_PAUSE_MS = 60_000
_PASSED: frozenset[SubmissionState] = frozenset({"accepted", "qualified", "unqualified"})
_STATES: dict[str, SubmissionState] = {"accept": "accepted", "review": "review", "reject": "rejected"}


def _comparable(stored: Iterable[StoredSubmission]) -> list[Subject]:
    """All but what the gate rejects: what a person rejects here, others may not, and it was committed all the same."""
    return [each.subject for each in stored if each.state != "rejected" or hold_of(read_report(each))]


GATE_PAUSES = Backoff(first_ms=1_000, most_ms=600_000)
DECISIONS_PER_TURN = 1_000  # however many wait, agents that are through with qualifying wait for no more than these
_OUTCOME_SAID = {"accept": "passes the gate", "review": "is held for a person", "reject": "is rejected"}


class Intake:
    """Runs the gate, decides who is admitted and who qualifies, and keeps what this validator says of it up to date."""

    name, every_s = "intake", 0.5

    def __init__(self, node: Node, qualifying: RaceLog) -> None:
        self._node = node
        self._qualifying = qualifying
        self._paused: dict[str, NextTry] = {}  # submissions on which the gate itself failed
        self._seen: set[Subject] = set()  # those that wait
        self._enqueued: set[str] = set()  # accepted agents whose suite this process has put into the queue
        # what the chain said once is kept for the life of the process
        self._places: dict[tuple[str, int], tuple[str, int]] = {}  # by hotkey and block: coldkey and order there
        self._races = RaceList(node.store)
        self._reveals: dict[str, int] = {}  # by agent version of a winner: the block at which its source opened
        self._sketches: dict[str, Sketch] = {}  # by agent version id
        # what classes followed from when they were last asked for, in the order of commitments, and the heads
        self._classed: tuple[list[tuple[str, str, int]], dict[str, str]] = ([], {})
        self._held: frozenset[str] | None = None  # agents under review at the last look; None: look at everything
        self._not_before_ms = 0

    async def turn(self) -> None:
        """Decide what waits, DECISIONS_PER_TURN of it at most, then the agents whose qualifying is over."""
        waiting = await self._node.store.submissions(("waiting",))
        for each in (one for one in waiting if one.subject not in self._seen):
            hotkey = each.subject.miner_hotkey
            text = f"{each.name} {short(hotkey)} is submitted"
            self._node.log.info("submission taken", agent=each.name, hotkey=hotkey, text=text)
        self._seen = {each.subject for each in waiting}
        seen = {subject.agent_version_id for subject in self._seen}
        self._paused = {agent: retry for agent, retry in self._paused.items() if agent in seen}
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
        await self._review_held()
        accepted = await self._node.store.submissions(("accepted",))
        self._enqueued &= {each.subject.agent_version_id for each in accepted}
        if not accepted:
            return
        block = await self._node.chain.block()
        await self._qualifying.refresh()
        for each in accepted:
            await self._qualify(each, block)

    async def _qualify(self, row: StoredSubmission, block: int) -> None:
        """Ask for an accepted agent's suite once that is due, and say what came of it once it has ended."""
        node, policy, agent = self._node, self._node.policy, row.subject.agent_version_id
        suite = [problem.problem_id for problem in node.suite]
        is_due = agent not in self._enqueued and self._is_asked(row, block)
        seed = await variant_seed(node.chain, policy, row.subject) if is_due else None
        if seed is not None:
            items = qualifying_items(row.subject, suite, policy, variant_seed=seed)
            author = await self._author(row.subject)
            await node.store.enqueue(items, {author.miner_hotkey: author.owner})
            self._enqueued.add(agent)
        end = self._qualifying.own_suite_end(agent, suite, policy)
        if end is None:
            return
        state: SubmissionState = "qualified" if end.is_passed else "unqualified"  # our word alone
        await node.store.set_submission_state(agent, state, was="accepted", qualifying_e4=end.mean_e4)
        await node.store.close_items(QUALIFYING, "qualifying", agent)
        score = "" if end.mean_e4 is None else f": score {end.mean_e4 / 10_000:.3f} in qualifying"
        text = f"{row.name} {short(row.subject.miner_hotkey)} is {state}{score}"
        node.log.info("qualifying", agent=row.name, state=state, score_e4=end.mean_e4, text=text)

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
        metagraph = await self._node.chain.metagraph(finalized)
        try:
            block = admit(
                submission,
                commitment=commitment,
                allowed_block=next_allowed_block(stored, row.subject.miner_hotkey, policy.cooldown),
                metagraph=metagraph,
                verify=verify,
                is_commitment_enough=policy.admission.is_commitment_enough,
            )
        except ArenaError as error:
            refusal = error.failure
            await store.set_submission_state(agent, "refused", was="waiting", failure=refusal)
            about = f"{refusal.code} {lookup(refusal.code).title}: {refusal.detail}"
            text = f"{row.name} {short(row.subject.miner_hotkey)} is refused: {about}"
            self._node.log.info("refused", agent=row.name, failure=str(refusal), text=text)
            return
        admitted = replace(row, subject=replace(row.subject, commitment_block=block))
        await self._inspect_row(admitted, None, stored, finalized)
        self._held = None

    async def _commitment_of(self, row: StoredSubmission, finalized: int) -> Commitment | None:
        """The commitment that a submission is judged by: its own, whatever its hotkey committed later. Where the chain
        forgot its block, or moved it, the latest of the hotkey. Raises ArenaError U3030."""
        chain, subject = self._node.chain, row.subject
        if subject.commitment_block > finalized:
            return await chain.commitment(subject.miner_hotkey)
        found = None
        with contextlib.suppress(StatePrunedError):
            found = await chain.commitment(subject.miner_hotkey, subject.commitment_block)
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
        permits = frozenset({me}) if sharing is None else sharing.permits
        return is_work_due(
            qualifying_order(submission.subject.agent_version_id, permits),
            me,
            asked_count(rules, len(permits)),
            (block - submission.subject.commitment_block) * BLOCK_MS,
            rules.race.stand_in_ms,
        )

    def _heads(self, agents: Iterable[Neighbour]) -> dict[str, str]:
        """The heads of the classes of agents, decided anew only from the first on that is not as it was last time."""
        known, rules = self._node.knowledge, self._node.policy.gate
        order = sorted(agents, key=lambda each: each.author.place)
        rows = [(each.author.agent_version_id, each.author.miner_coldkey, each.revealed_block) for each in order]
        before, heads = self._classed
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, rows, strict=False))
        decided = {agent: heads[agent] for (agent, *_), _ in same}
        heads = class_heads(order, known.baseline, known.baseline_texts, rules, decided)
        self._classed = rows, heads
        return heads

    # -- owners and winners
    async def _author(self, subject: Subject) -> Author:
        """Who committed a submission: the coldkey of its hotkey in the block of the commitment ("": not registered) and
        the extrinsic there; today's coldkey and 0 where the chain forgot that block. Raises ArenaError U3030."""
        chain, hotkey, block = self._node.chain, subject.miner_hotkey, subject.commitment_block
        if (hotkey, block) not in self._places:
            try:
                metagraph = await chain.metagraph(block)
                order = await chain.commitment_place(hotkey, subject.commitment_sha256, block)
            except StatePrunedError:
                self._node.log.warning("the chain forgot a commitment's block", block=block)
                metagraph, order = await chain.metagraph(await chain.finalized_block()), 0
            found = (each.coldkey for each in metagraph.neurons if each.hotkey == hotkey)
            self._places[hotkey, block] = (next(found, ""), order)
        coldkey, order = self._places[hotkey, block]
        return Author(
            agent_version_id=subject.agent_version_id,
            miner_hotkey=hotkey,
            commitment_block=block,
            commitment_order=order,
            miner_coldkey=coldkey,
            is_public=subject.agent_version_id in self._reveals,
        )

    async def _revealed(self) -> dict[str, int]:
        """By agent version of a revealed winner: the block at which its source opened. Raises ArenaError U3030.

        Winners are the promotions of settlements that are in force here.
        """
        now_ms = self._node.now_ms()
        for state in await self._races.states(now_ms, self._node.policy):
            won, opened = state.settlement, state.opened
            if won is None or not won.is_promotion or opened is None or force_of(state) not in ("own", "adopted"):
                continue
            agent, ends_ms = won.top_agent_version_id, opening_ms(opened.closes_ms, opened.policy)
            if agent in self._reveals or now_ms < ends_ms:
                continue
            try:
                block = await self._node.chain.block_at(ends_ms)
            except StatePrunedError:
                self._node.log.warning("the chain forgot when a winner was revealed", agent=agent, ends_ms=ends_ms)
                continue
            if block is not None:
                self._reveals[agent] = block
        return dict(self._reveals)

    # -- what was said before
    async def inspect(
        self, subject: Subject, source: str, stored: Iterable[StoredSubmission]
    ) -> tuple[GateReport, GateRecord]:
        """The gate's report on a source beside what was committed before it, and our word. Raises ArenaError V2004."""
        rules, knowledge, reveals = self._node.policy.gate, self._node.knowledge, await self._revealed()
        around = neighbourhood(subject, _comparable(stored), reveals)
        neighbours = []
        for other in around.others:
            agent = other.agent_version_id
            if agent not in self._sketches:  # it was parsed in the gate's own process before
                text = await self._node.store.source(agent) or ""
                self._sketches[agent] = await asyncio.to_thread(make_sketch, text)
            owner, revealed = await self._author(other), reveals[agent] if other in around.winners else 0
            neighbours.append(Neighbour(author=owner, sketch=self._sketches[agent], revealed_block=revealed))
        author = await self._author(subject)
        compared = () if rules.class_e4 else tuple(neighbours)
        report = await asyncio.to_thread(inspect_isolated, source, rules, knowledge, compared, author)
        origin: Origin | UnsetType = UNSET
        if rules.class_e4 and report.outcome != "reject":
            mine = Neighbour(author=author, sketch=await asyncio.to_thread(make_sketch, source))
            heads = await asyncio.to_thread(self._heads, [*neighbours, mine])
            origin = Origin(owner=author.owner, head=heads[subject.agent_version_id], order=author.commitment_order)
        return report, GateRecord(
            subject=subject,
            policy_sha256=self._node.policy.policy_sha256,
            decided_by="gate",
            outcome=report.outcome,
            severity=report.severity or "",
            hold=hold_of(report),
            rules_version=report.rules_version,
            knowledge_sha256=knowledge.inputs_sha256,
            neighbours_sha256=around.sha256,
            origin=origin,
        )

    async def _review_held(self) -> None:
        """Review what is held once something changed: a source that came late, a decision, a hold that ran out."""
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
            is_whole = await self._review_all(block)
        except ArenaError as error:
            if error.failure.code not in GATE_FAULTS:
                raise
            self._not_before_ms = self._node.now_ms() + FAULT_PAUSE_MS
            self._node.log.warning("the gate waits", code=error.failure.code, detail=error.failure.detail)
            return
        self._held = names if is_whole else None

    async def _review_all(self, block: int) -> bool:
        """One pass over all submissions, in the order of commitments; False where something changed or is left."""
        await self._qualifying.refresh()
        stored = await self._node.store.submissions()
        known, reveals = _comparable(stored), await self._revealed()
        hashes = hashes_before(known, reveals)
        left, is_whole = AGAIN_A_TURN, True

        def is_due(each: StoredSubmission, word: GateWord | None) -> bool:
            """Whether nothing was said of a submission yet, or under other rules or beside others than now."""
            if word is None or (each.state, word.said.outcome) == ("rejected", "accept"):
                return True
            if each.state == "unqualified" or (each.state, word.said.outcome) == ("rejected", "reject"):
                return False
            said = (word.said.policy_sha256, word.said.knowledge_sha256, word.said.neighbours_sha256)
            before = hashes.get(each.subject.agent_version_id) or neighbourhood(each.subject, known, reveals).sha256
            return said != (self._node.policy.policy_sha256, self._node.knowledge.inputs_sha256, before)

        for each in sorted(stored, key=lambda each: commitment_order(each.subject)):
            word = self._qualifying.words.get(each.subject, {}).get(self._node.store.validator)
            if is_due(each, word):
                left -= 1
                is_whole &= left >= 0 and not await self._inspect_row(each, word, stored, block)
            elif word is not None:
                is_whole &= not await self._follow(each, word, block)
        return is_whole

    async def _inspect_row(
        self, each: StoredSubmission, word: GateWord | None, stored: list[StoredSubmission], block: int
    ) -> bool:
        """Inspect a submission, move it and say so; False where its source is gone, and nothing can be said."""
        source = await self._node.store.source(each.subject.agent_version_id)
        if source is None:
            self._node.log.error("the source is not stored", agent=each.subject.agent_version_id)
            return False
        report, record = await self.inspect(each.subject, source, stored)
        now = next_word(word, record)
        assert now is not None, "the gate's own verdict is a word"
        outcome = outcome_at(now, block, self._node.policy.admission)
        state = each.state if outcome == "accept" and each.state in _PASSED else _STATES[outcome]
        if outcome == "review" and each.state not in ("waiting", "review"):
            # what a person decided of the same hold, and this validator has not said yet, stays
            held_for = word.said.hold if word is not None else hold_of(read_report(each))
            state = each.state if held_for == now.said.hold else "review"
        if not await self._move(each, state, report):  # first: a state without its word is looked at again
            return True  # its miner took it back meanwhile, or a person decided
        await self._node.sequencer.append([record])
        rules = ", ".join(f"{finding.rule}:{finding.line}" for finding in report.findings)
        text = f"{each.name} {short(each.subject.miner_hotkey)} {_OUTCOME_SAID[outcome]}" + (rules and f": {rules}")
        self._node.log.info("gate", agent=each.name, outcome=report.outcome, state=state, rules=rules, text=text)
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

    async def _move(self, each: StoredSubmission, state: SubmissionState, report: GateReport | None = None) -> bool:
        """Move a submission from the state in which it was found; False where it is in another by now."""
        store, agent, block = self._node.store, each.subject.agent_version_id, each.subject.commitment_block
        text = msgspec.json.encode(report).decode() if report is not None else ""
        is_moved = await store.set_submission_state(agent, state, text, was=each.state, commitment_block=block)
        if is_moved and state == "rejected":  # what is held runs on: its hold may end, and a closed item stays closed
            await store.close_items(QUALIFYING, "qualifying", agent)
        return is_moved


async def variant_seed(chain: Subtensor, policy: Policy, subject: Subject) -> str | None:
    """The seed of an agent's variants, "" where the policy asks the suite's own problems, None while the block that it
    follows from is not final. Raises ArenaError U3030 while the chain can't be read."""
    rules = policy.qualifying
    block = subject.commitment_block + rules.variant_blocks
    if not rules.variant_blocks:
        return ""
    if block > await chain.finalized_block():
        return None
    return qualifying_seed(rules.suite, subject.agent_version_id, await chain.block_hash(block))

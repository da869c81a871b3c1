"""The race clock: drives one race after the other through its state machine, and carries out its effects.

Promise: decisions are `arena.race.state.decide`'s; this file gathers facts, carries out effects and appends events.
Each turn replays the stream, so a process killed at any instant goes on where it was. Effects come before their events
and may be repeated: a settlement, a release or a set of items that exists already is found, not made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from arena.chain.port import BeaconRound, ChainResult
from arena.race.candidates import select_candidates
from arena.race.events import (
    BatchReleased,
    Effect,
    EnqueueItems,
    Event,
    Facts,
    FetchBeacon,
    FieldFixed,
    FixField,
    ItemsEnqueued,
    RaceSettled,
    ReleaseBatch,
    SealBatch,
    Settle,
    SetWeights,
    WeightsAnswered,
    encode_event,
)
from arena.race.model import Batch, Candidate, SealedProblem
from arena.race.settle import settle
from arena.race.state import (
    RaceState,
    apply,
    decide,
    open_race,
    race_name,
    replay,
    settlement_inputs,
    stream_of,
    top_after,
)
from arena.records.model import ReleaseRecord, SettlementRecord
from arena.store.port import StoredSubmission, WeightsResult
from neurons.node import Node
from neurons.race_log import RaceLog
from problems.errors import ArenaError

TURN_S = 0.5
QUALIFYING = ""  # the race id under which qualifying runs


class RaceClock:
    """One turn a tick for the current race."""

    def __init__(self, node: Node, qualifying: RaceLog) -> None:
        self._node = node
        self._qualifying = qualifying
        self._logs: dict[str, RaceLog] = {}
        self._beacons: dict[int, BeaconRound] = {}
        self._finished: dict[str, RaceState] = {}  # states that can't change any more

    async def run(self, drain: asyncio.Event) -> None:
        """Turn until drained. A retryable failure waits for the next tick; any other is raised."""
        while not drain.is_set():
            try:
                await self.turn()
            except ArenaError as error:
                if not error.entry.is_retryable:
                    raise
                self._node.log.warning("race waits", code=error.failure.code, detail=error.failure.detail)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drain.wait(), TURN_S)

    async def turn(self) -> RaceState:
        """One turn of the oldest race that is not finished; opens the next when all are."""
        states = await self.states()
        state = states[-1]
        facts = await self._facts(state, states[:-1])
        for due in decide(state, facts):
            event = due if isinstance(due, Event) else await self._carry_out(due, state, states[:-1])
            if event is not None:
                await self._node.store.put_event(stream_of(state.race_id), state.events, encode_event(event))
                state = apply(state, event)
                self._node.log.info("race", race=state.race_id, happened=type(event).__name__, stage=state.stage)
        return state

    async def states(self) -> list[RaceState]:
        """Every race so far, the current one last (stage `new` when it has no event yet)."""
        states: list[RaceState] = []
        for number in itertools.count(1):
            name = race_name(number)
            state = self._finished.get(name) or replay(name, await self._node.store.events(stream_of(name)))
            states.append(state)
            if not state.is_finished:
                return states
            self._finished[name] = state
        raise AssertionError("unreachable: the count has no end")

    def log_of(self, race_id: str) -> RaceLog:
        """The records of a race, kept while the race is current."""
        if race_id not in self._logs:
            self._logs = {race_id: RaceLog(self._node.store, race_id)}
        return self._logs[race_id]

    def current_logs(self) -> list[RaceLog]:
        """The logs in which verdicts may be owed: qualifying and the current race."""
        return [self._qualifying, *self._logs.values()]

    async def _facts(self, state: RaceState, earlier: list[RaceState]) -> Facts:
        node, now_ms = self._node, self._node.now_ms()
        block, finalized = await node.chain.block(), await node.chain.finalized_block()
        if state.opened is None:
            return Facts(now_ms=now_ms, block=block, finalized_block=finalized)
        closes_ms = state.opened.closes_ms
        beacon_round = state.closed.beacon_round if state.closed else node.beacon.round_after(closes_ms)
        log = self.log_of(state.race_id)
        open_items = 0
        if state.stage == "running":
            open_items = await node.store.open_items(
                state.race_id, "race"
            )  # before the log: a result in between is seen
            await log.refresh()
        return Facts(
            now_ms=now_ms,
            block=block,
            finalized_block=finalized,
            closing_block=block if now_ms >= closes_ms else None,
            beacon_network=node.beacon.network,
            beacon_round=beacon_round,
            beacon=self._beacons.get(beacon_round),
            pending_qualifying=await self._pending_qualifying(),
            open_race_items=open_items,
            owed_verdicts=log.owed_successes(),
            is_previous_settled=not earlier or earlier[-1].settlement is not None,
        )

    async def _pending_qualifying(self) -> int:
        waiting = len(await self._node.store.submissions(("queued", "accepted"))) + len(self._node.inbox.pending())
        return waiting + await self._node.store.open_items(QUALIFYING, "qualifying")

    async def _carry_out(self, effect: Effect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        match effect:
            case SealBatch():
                batch = await asyncio.to_thread(self._seal, state.race_id)
                return open_race(state.race_id, self._node.policy, batch, self._node.now_ms())
            case FetchBeacon():
                found = await self._node.beacon.fetch(effect.round)
                if found is not None:
                    self._beacons = {effect.round: found}
                return None
            case FixField():
                return await self._fix_field(effect, earlier)
            case EnqueueItems():
                await self._node.store.enqueue(effect.items)
                return ItemsEnqueued(items=len(effect.items))
            case Settle():
                return RaceSettled(settlement=await self._settlement(effect, state, earlier))
            case SetWeights():
                return await self._set_weights(effect, state)
            case ReleaseBatch():
                return await self._release(effect, state)

    def _seal(self, race_id: str) -> Batch:
        sealed = self._node.stock.seal_for(race_id)
        clusters = sealed.cluster_commitments
        return Batch(
            batch_sha256=sealed.batch_sha256,
            problems=tuple(
                SealedProblem(problem_id=problem_id, cluster_commitment=clusters[problem_id])
                for problem_id in sealed.problem_ids
            ),
        )

    async def _fix_field(self, effect: FixField, earlier: list[RaceState]) -> FieldFixed:
        await self._qualifying.refresh()
        suite = [problem.problem_id for problem in self._node.suite]
        top = next((top_after(state) for state in reversed(earlier) if state.settlement), None)
        candidates = []
        for submission in await self._node.store.submissions(("qualified",)):
            agent = submission.subject.agent_version_id
            score = self._qualifying.qualification(agent, suite, self._node.policy).score_e4
            is_incumbent = top is not None and agent == top.agent_version_id
            candidates.append(_candidate(submission, score or 0, is_incumbent))
        eliminated = frozenset(
            standing.agent_version_id
            for state in earlier
            if state.settlement
            for standing in state.settlement.standings
            if standing.is_eliminated
        )
        metagraph = await self._node.chain.metagraph(effect.closing_block)
        return FieldFixed(
            field=select_candidates(candidates, effect.closing_block, eliminated),
            validators=tuple(sorted(n.hotkey for n in metagraph.neurons if n.has_validator_permit)),
            incumbent=top,
        )

    async def _settlement(self, effect: Settle, state: RaceState, earlier: list[RaceState]) -> SettlementRecord:
        log = self.log_of(state.race_id)
        await log.refresh()
        if log.settlement is not None:
            return log.settlement
        metagraph = await self._node.chain.metagraph(effect.settling_block)
        history = tuple(past.settlement for past in earlier if past.settlement is not None)
        inputs = settlement_inputs(
            state, self._node.policy, metagraph, tuple(log.evaluations), tuple(log.verdicts), history
        )
        record = settle(inputs)
        await self._node.sequencer.append([record])
        return record

    async def _set_weights(self, effect: SetWeights, state: RaceState) -> WeightsAnswered:
        result: ChainResult = await self._node.chain.set_weights(self._node.signer, effect.uids, effect.weights_u16)
        await self._node.store.put_weights_result(
            WeightsResult(
                race_id=state.race_id,
                block=result.block,
                uids=effect.uids,
                weights_u16=effect.weights_u16,
                status=result.status,
                detail=result.detail,
            )
        )
        log = self._node.log.info if result.status == "ok" else self._node.log.error
        log("weights", race=state.race_id, status=result.status, block=result.block, detail=result.detail)
        return WeightsAnswered(block=result.block, status=result.status)

    async def _release(self, effect: ReleaseBatch, state: RaceState) -> BatchReleased:
        log = self.log_of(state.race_id)
        await log.refresh()
        if log.release is None:
            batch = await asyncio.to_thread(self._node.stock.batch, state.race_id)
            await self._node.sequencer.append(
                [
                    ReleaseRecord(
                        race_id=state.race_id,
                        batch_sha256=effect.batch_sha256,
                        problem_ids=effect.problem_ids,
                        salt=batch.salt,
                    )
                ]
            )
        return BatchReleased(batch_sha256=effect.batch_sha256)


def _candidate(submission: StoredSubmission, score_e4: int, is_incumbent: bool) -> Candidate:
    return Candidate(subject=submission.subject, qualifying_score_e4=score_e4, is_incumbent=is_incumbent)

"""The race clock: drives one race after the other through its state machine.

Promise: decisions are `arena.race.state.decide`'s; this file gathers facts, has effects carried out and appends events.
Each turn replays the stream, so a process killed at any instant goes on where it was. Effects come before their events.
An effect that can't be done yet waits by itself and holds up no other. A race ends under the policy it was closed
under; another policy takes over before the close of a race, or after its settlement.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from arena.race.events import Effect, Event, Facts, FetchBeacon, SealBatch, encode_event
from arena.race.schedule import closing_ms
from arena.race.state import (
    RaceState,
    apply,
    decide,
    is_policy_replaceable,
    race_name,
    replay,
    runs_under_another,
    stream_of,
)
from arena.submissions.inbox import InboxEntry
from neurons.node import Node
from neurons.race_effects import RaceEffects
from neurons.race_log import RaceLog
from neurons.turns import take_turns
from problems.errors import ArenaError, Owner

TURN_S = 0.5
PAUSE_MS = 1_000
PAUSE_MS_MAX = 60_000
_DAMAGED_BATCH = "P4010"


class RaceClock:
    """One turn a tick for the current race."""

    def __init__(self, node: Node, qualifying: RaceLog) -> None:
        self._node = node
        self._qualifying = qualifying
        self._effects = RaceEffects(node, qualifying, self._log_of)
        self._logs: dict[str, RaceLog] = {}
        self._finished: dict[str, RaceState] = {}  # states that can't change any more
        self._pauses: dict[str, tuple[int, int]] = {}  # by effect: how long it waits, and until when (unix ms)
        self._commitments: dict[tuple[Path, int], int | None] = {}  # by inbox entry and closing block: in which block
        self._has_adopted = False

    async def run(self, drain: asyncio.Event) -> None:
        """Turn until drained. Raises what no retry can mend."""
        await take_turns("race", self.turn, drain, self._node.log, every_s=TURN_S)

    async def adopt_policy(self) -> None:
        """Make sure that the current race runs under the node's policy; to be called before any work is claimed.

        A race that has not closed yet is put under it. Raises ArenaError V2063, naming the policy file to start with,
        when the race is past its close under another one, or holds a batch that is sealed to its close and the new
        policy would move that; P4015 when its batch is too small for the new policy.
        """
        if self._has_adopted:
            return
        *earlier, state = await self.states()
        opened, policy = state.opened, self._node.policy
        if opened is not None and runs_under_another(state, policy):
            was, is_now = opened.policy_sha256[:12], policy.policy_sha256[:12]
            closes_ms = closing_ms(self._node.now_ms(), policy.race)
            if not is_policy_replaceable(state) or not await self._effects.is_served(opened.batch, closes_ms):
                path = await self._effects.keep_policy(opened)
                raise ArenaError("V2063", f"{state.race_id} is {state.stage} under {was}, not under {is_now}: {path}")
            self._node.log.warning("policy replaced before the close", race=state.race_id, was=was, now=is_now)
            await self._append(state, await self._effects.open(state, opened.batch, earlier))
        self._has_adopted = True

    async def turn(self) -> RaceState:
        """One turn of the oldest race that is not finished; opens the next when all are."""
        await self.adopt_policy()
        *earlier, state = await self.states()
        self._keep_logs(state, earlier)
        facts = await self._facts(state, earlier)
        for due in decide(state, facts):
            event = due if isinstance(due, Event) else await self._try(due, state, earlier)
            if event is not None:
                state = await self._append(state, event)
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

    def current_logs(self) -> list[RaceLog]:
        """The logs in which verdicts may be owed: qualifying, the current race, the one before it, and earlier ones
        that still owed some when they were last read."""
        return [self._qualifying, *self._logs.values()]

    def _log_of(self, race_id: str) -> RaceLog:
        if race_id not in self._logs:
            self._logs[race_id] = RaceLog(self._node.store, race_id)
        return self._logs[race_id]

    def _keep_logs(self, state: RaceState, earlier: list[RaceState]) -> None:
        current = {race.race_id: self._log_of(race.race_id) for race in (*earlier[-1:], state)}
        owing = {name: log for name, log in self._logs.items() if name not in current and self._is_owing(log)}
        self._logs = owing | current

    def _is_owing(self, log: RaceLog) -> bool:
        return bool(log.owed(self._node.store.validator))

    async def _append(self, state: RaceState, event: Event) -> RaceState:
        await self._node.store.put_event(stream_of(state.race_id), state.events, encode_event(event))
        state = apply(state, event)
        self._node.log.info("race", race=state.race_id, happened=type(event).__name__, stage=state.stage)
        return state

    async def _try(self, effect: Effect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        """Carry out one effect. A failure that may pass costs this effect a growing pause; any other is raised."""
        kind, now_ms = type(effect).__name__, self._node.now_ms()
        pause_ms, not_before_ms = self._pauses.get(kind, (0, 0))
        if now_ms < not_before_ms:
            return None
        try:
            event = await self._effects.carry_out(effect, state, earlier)
        except ArenaError as error:
            if not (error.entry.is_retryable or _is_of_the_bank(effect, error)):
                raise
            pause_ms = min(PAUSE_MS_MAX, max(PAUSE_MS, pause_ms * 2))
            self._pauses[kind] = (pause_ms, now_ms + pause_ms)
            code, detail = error.failure.code, error.failure.detail
            self._node.log.warning("race waits", race=state.race_id, effect=kind, code=code, detail=detail)
            return None
        self._pauses.pop(kind, None)
        return event

    # -- facts
    async def _facts(self, state: RaceState, earlier: list[RaceState]) -> Facts:
        node, now_ms = self._node, self._node.now_ms()
        block, finalized = await node.chain.block(), await node.chain.finalized_block()
        if state.opened is None:
            return Facts(now_ms=now_ms, validator=node.store.validator, finalized_block=finalized)
        closes_ms = state.opened.closes_ms
        beacon_round = state.closed.beacon_round if state.closed else node.beacon.round_after(closes_ms)
        log = self._log_of(state.race_id)
        open_items = 0
        if state.stage == "running":  # the items before the log: a result in between is seen
            open_items = await node.store.open_items(state.race_id, "race")
            await log.refresh()
        return Facts(
            now_ms=now_ms,
            validator=node.store.validator,
            finalized_block=finalized,
            closing_block=block if now_ms >= closes_ms else None,
            beacon_network=node.beacon.network,
            beacon_round=beacon_round,
            beacon=self._effects.beacon(beacon_round),
            pending_qualifying=await self._pending_qualifying(state, earlier),
            open_race_items=open_items,
            owed_verdicts=log.owed_successes(),
            is_previous_settled=not earlier or earlier[-1].settlement is not None,
        )

    async def _pending_qualifying(self, state: RaceState, earlier: list[RaceState]) -> int:
        """Undecided agents that a closed race waits for: committed by its close, and since the last race's close,
        so that no agent is waited for twice."""
        if state.closed is None or state.field is not None:
            self._commitments.clear()
            return 0
        closing = state.closed.closing_block
        since = max((past.closed.closing_block for past in earlier if past.closed), default=-1)
        blocks = [
            submission.subject.commitment_block
            for submission in await self._node.store.submissions(("queued", "accepted"))
        ]
        for entry in await asyncio.to_thread(self._node.inbox.pending):
            block = await self._commitment_block(entry, closing)
            if block is not None:
                blocks.append(block)
        return sum(since < block <= closing for block in blocks)

    async def _commitment_block(self, entry: InboxEntry, closing_block: int) -> int | None:
        """In which block a submission that waits in the inbox was committed, as the chain stood at the close."""
        submission, key = entry.submission, (entry.path, closing_block)
        if submission is None:
            return None
        if key not in self._commitments:
            found = await self._node.chain.commitment(submission.hotkey, closing_block)
            is_its = found is not None and found.sha256 == submission.commitment_sha256
            self._commitments[key] = found.block if found is not None and is_its else None
        return self._commitments[key]


def _is_of_the_bank(effect: Effect, error: ArenaError) -> bool:
    """What is wrong with the bank's files costs races, not the node: an operator mends it while submissions qualify,
    and a batch that does not open is not drawn from. A node's own batch that was tampered with is no such thing."""
    if isinstance(effect, FetchBeacon):
        return error.owner is Owner.PROBLEM
    return isinstance(effect, SealBatch) and error.owner is Owner.PROBLEM and error.failure.code != _DAMAGED_BATCH

"""The race clock: drives one race after the other through its state machine.

Decisions are `arena.race.decider`'s; this file gathers facts, has effects carried out and appends
events. Each turn replays the stream, so a process killed at any instant goes on where it was. Effects come before their
events. An effect that can't be done yet waits by itself and holds up no other. A race ends under the policy it was
closed under; another policy takes over before the close of a race, or after its settlement.
"""

from __future__ import annotations

from collections.abc import Set

from arena.race.agreement import RevealGate, explain_end, is_anchoring, is_sole, reveal_gate
from arena.race.decider import decide
from arena.race.events import Effect, Event, FetchBeacon, RaceObservation, RaceSettled, SealBatch, encode_event
from arena.race.logs import Pair
from arena.race.machine import (
    RaceState,
    apply,
    runs_under_another,
    stream_of,
)
from arena.race.schedule import ROLLS, Timeline, timeline, timeline_refusal
from arena.records.model import SettlementRecord
from foundation.backoff import Backoff, NextTry
from foundation.codes import HOST_FAILED, STATE_PRUNED, Owner
from foundation.errors import ArenaError
from harness.agents.registry import shipped_source
from neurons.loops.checkpoints import CheckpointLoop
from neurons.loops.node import Node
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.race.effects import RaceEffects
from neurons.race.log import RaceList, RaceLog
from neurons.race.sentences import names_of, race_sentence

TURN_S = 0.5
PAUSES = Backoff(first_ms=1_000, most_ms=60_000)  # of an effect that can't be done yet
# A bug of ours that a peer's record brings out must not end the node at each of its starts.
UNFORESEEN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
ASK_MS = 60_000  # between two times of asking the others how far they are


class RaceClock:
    """One turn a tick for the current race."""

    def __init__(self, node: Node, qualifying: RaceLog, checkpoints: CheckpointLoop) -> None:
        self._node = node
        self._qualifying = qualifying
        self._races = RaceList(node.store)
        self._effects = RaceEffects(node, qualifying, self._log_of, checkpoints)
        self._asked_ms = 0  # when the others were last asked how far they are
        self._plan: Timeline | None = None  # of the current race, where other validators may be in it
        self._latest: tuple[RaceState, ...] = ()  # the current race and the one before, at the last turn
        self._logs: dict[str, RaceLog] = {}
        self._waiting: dict[str, NextTry] = {}  # by effect that could not be done
        self._drain = StopSignal(node.now_ms)  # where it is said what effects wait for; the node's, once the clock runs
        self._has_adopted = False

    async def run(self, drain: StopSignal) -> None:
        """Turn until drained. Raises what no retry can mend."""
        self._drain = drain
        try:
            await run_loop("race", self.turn, drain, self._node.log, every_s=TURN_S)
        finally:
            await self._effects.peers.close()

    async def adopt_policy(self) -> None:
        """Make sure that the current race runs under the node's policy; to be called before any work is claimed.

        A race that has not closed yet is put under it, and keeps its close, to which its batch is sealed. Raises
        ArenaError V2062, naming the policy file to start with, when the race is past its close under another one, and
        when this release does not ship the policy's control agent; P4014 when the batch is too small for the policy.
        """
        if self._has_adopted:
            return
        control_sha256 = self._node.policy.race.control_sha256
        if shipped_source(control_sha256) is None:
            raise ArenaError(
                "V2062",
                f"policy {self._node.policy.name} names a control agent this release lacks: {control_sha256[:16]}",
                fix="start with a policy of this release, or install the release the policy was made for",
            )
        is_agreed = self._node.policy.admission.rule == "agreed"
        refusal = timeline_refusal(self._node.policy.race) if is_agreed else None
        if refusal:
            fix = "choose a policy whose run_ms is longer than qualifying_grace_ms + 2 x reveal_ms"
            raise ArenaError("V2062", refusal, fix=fix)
        *earlier, state = await self.states()
        self._plan = self._plan_of(state)
        opened, policy = state.opened, self._node.policy
        if opened is not None and runs_under_another(state, policy):
            was, is_now = opened.policy_sha256[:12], policy.policy_sha256[:12]
            if state.stage != "open":  # something was closed, drawn or raced under its policy
                path = await self._effects.keep_policy(opened)
                raise ArenaError(
                    "V2062",
                    f"{state.race_id} is {state.stage} under {was}, not under {is_now}",
                    fix=f"start with `--policy {path}`; a new policy can begin before a race closes, or after it",
                )
            self._node.log.warning("policy replaced before the close", race=state.race_id, was=was, now=is_now)
            await self._append(state, await self._effects.open(state, opened.batch, earlier, opened.closes_ms))
        self._has_adopted = True

    def is_quiet(self, now_ms: int) -> bool:
        """Whether this hotkey's slot on chain belongs to a race at that moment (unix ms)."""
        return self._plan is not None and self._plan.is_quiet(now_ms)

    async def rest(self) -> None:
        """Wait for what the last turn began and did not wait for: logs that are pulled."""
        await self._effects.peers.rest()

    def current(self) -> RaceState | None:
        """The race of the last turn; None before the first."""
        return self._latest[-1] if self._latest else None

    def race_id(self) -> str:
        """The race of the last turn; "" before the first."""
        return self._latest[-1].race_id if self._latest else ""

    def reveal_gate(self) -> RevealGate:
        """What others may be shown now, as of the last turn."""
        return reveal_gate(self._latest, self._node.signer.hotkey)

    def settlement(self, race_id: str) -> SettlementRecord | None:
        """The settlement in force here for a race, as of the last turn; None while there is none."""
        for state in (*self._races.finished, *self._latest):
            if state.race_id == race_id and state.settlement is not None:
                is_in_force = state.stage == "settled" or state.is_adopted or state.settlement == state.proposed
                return state.settlement if is_in_force else None
        return None

    async def turn(self) -> RaceState:
        """One turn of the oldest race that is not finished; opens the next when all are."""
        await self.adopt_policy()
        *earlier, state = await self.states()
        current = {race.race_id: self._log_of(race.race_id) for race in (*earlier[-1:], state)}
        validator = self._node.store.validator
        owing = {name: log for name, log in self._logs.items() if name not in current and log.owed(validator)}
        self._logs = owing | current
        self._plan = self._plan_of(state)
        self._latest = (*earlier[-1:], state)
        decided = decide(state, await self._facts(state, earlier))
        self._went_on(self._waiting.keys() - {type(due).__name__ for due in decided})  # not due any more
        for due in decided:
            event = due if isinstance(due, Event) else await self._try(due, state, earlier)
            if event is not None:
                state = await self._append(state, event)
        return state

    async def states(self) -> list[RaceState]:
        """Every race so far, the current one last (stage `new` when it has no event yet)."""
        return await self._races.states(self._node.now_ms(), self._node.policy)

    def current_logs(self) -> list[RaceLog]:
        """The logs in which verdicts may be owed: qualifying, the current race, the one before it, and earlier ones
        that still owed some when they were last read."""
        return [self._qualifying, *self._logs.values()]

    def _log_of(self, race_id: str) -> RaceLog:
        if race_id not in self._logs:
            self._logs[race_id] = RaceLog(self._node.store, race_id)
        return self._logs[race_id]

    async def _append(self, state: RaceState, event: Event) -> RaceState:
        await self._node.store.put_event(stream_of(state.race_id), state.events, encode_event(event))
        if isinstance(event, RaceSettled):
            failure = explain_end(state, event, {roll: self._effects.peers.held(state, roll) for roll in ROLLS})
            result = event.settlement.state if failure is None else "not_ours"
            self._node.metrics.races_ended.labels(result).inc()
            if failure is not None:
                self._node.log.error(
                    "no settlement of ours", race=state.race_id, code=failure.code, detail=failure.detail
                )
        state = apply(state, event)
        text = race_sentence(state.race_id, event, names_of(await self._node.store.submissions()))
        self._node.log.info("race", race=state.race_id, happened=type(event).__name__, stage=state.stage, text=text)
        return state

    async def _try(self, effect: Effect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        """Carry out one effect. A failure that may pass, or one that nobody foresaw, costs this effect a growing pause;
        any other is raised."""
        kind, now_ms = type(effect).__name__, self._node.now_ms()
        before = self._waiting.get(kind, NextTry())
        if now_ms < before.not_before_ms:
            return None
        try:
            event = await self._effects.carry_out(effect, state, earlier)
        except (ArenaError, *UNFORESEEN) as raised:
            error = raised if isinstance(raised, ArenaError) else ArenaError(HOST_FAILED, ascii(raised)[:500])
            if not (error.entry.is_retryable or _is_of_the_bank(effect, error)):
                raise
            self._waiting[kind] = PAUSES.after(before, now_ms)
            code, detail, trace = error.failure.code, error.failure.detail, None if error is raised else raised
            self._node.log.warning(
                "race waits", race=state.race_id, effect=kind, code=code, detail=detail, exc_info=trace
            )
            self._drain.failed(f"race {kind}", error)
            return None
        self._went_on({kind} & self._waiting.keys())
        return event

    def _went_on(self, kinds: Set[str]) -> None:
        """These effects wait for nothing any more."""
        for kind in kinds:
            del self._waiting[kind]
            self._drain.went_on(f"race {kind}")

    # -- facts
    async def _facts(self, state: RaceState, earlier: list[RaceState]) -> RaceObservation:
        node, now_ms = self._node, self._node.now_ms()
        finalized = await node.chain.finalized_block()
        if state.opened is None:
            return RaceObservation(now_ms=now_ms, validator=node.store.validator, finalized_block=finalized)
        closes_ms = state.opened.closes_ms
        beacon_round = state.closed.beacon_round if state.closed else node.beacon.round_after(closes_ms)
        tried, log, open_items = self._effects.beacon(beacon_round), self._log_of(state.race_id), 0
        if state.stage == "running":  # the items before the log: a result in between is seen
            open_items = await node.store.open_items(state.race_id, "race")
            await log.refresh()
        closing_block: int | None = None
        if now_ms >= closes_ms and state.closed is None:
            try:
                closing_block = await node.chain.block_at(closes_ms)
            except ArenaError as error:
                if error.failure.code != STATE_PRUNED:
                    raise
                closing_block = finalized  # such a race can only be adopted or given up
        return RaceObservation(
            now_ms=now_ms,
            validator=node.store.validator,
            finalized_block=finalized,
            closing_block=closing_block,
            beacon_network=node.beacon.network,
            beacon_round=beacon_round,
            beacon=tried.beacon,
            batch_failure=tried.batch_failure,
            is_beacon_asked=tried.asked_ms >= closes_ms + state.opened.policy.race.beacon_grace_ms,
            pending_qualifying=await self._pending_qualifying(state, earlier),
            open_race_items=open_items,
            owed_verdicts=log.owed_successes(),
            is_previous_settled=not earlier or earlier[-1].settlement is not None,
            held=self._effects.peers.held(state, "field" if state.stage == "closed" else "results"),
            done=await self._done(state, earlier, now_ms),
        )

    def _plan_of(self, state: RaceState) -> Timeline | None:
        if state.opened is None or self._node.sharing is None or is_sole(state, self._node.signer.hotkey):
            return None
        return timeline(state.opened.closes_ms, state.opened.policy.race)

    async def _done(self, state: RaceState, earlier: list[RaceState], now_ms: int) -> dict[str, frozenset[Pair]] | None:
        """What the others say they did, asked for now and then, from when stand-ins may be due until logs are anchored:
        what is done later need not stand in them."""
        draw, opened = state.draw, state.opened
        if self._plan is None or state.stage != "running" or draw is None or opened is None:
            return None
        is_early = now_ms < draw.drawn_ms + opened.policy.race.stand_in_ms
        if is_early or is_anchoring(self._plan, now_ms) or now_ms < self._asked_ms + ASK_MS:
            return None
        self._asked_ms = now_ms
        return await self._effects.peers.done(state, earlier)

    async def _pending_qualifying(self, state: RaceState, earlier: list[RaceState]) -> int:
        """Undecided agents that a closed race waits for: committed by its close as the chain stood then, and since the
        last race's close, so that no agent is waited for twice."""
        if state.closed is None or state.field is not None:
            return 0
        closing = state.closed.closing_block
        since = max((past.closed.closing_block for past in earlier if past.closed), default=-1)
        undecided = await self._node.store.submissions(("waiting", "accepted"))
        return sum(since < each.subject.commitment_block <= closing for each in undecided)


def _is_of_the_bank(effect: Effect, error: ArenaError) -> bool:
    """What is wrong with the bank's sealed files costs races, not the node: an operator mends it while submissions
    qualify, and a batch that does not open is not drawn from. Every other effect reads the node's own open batch: one
    that was tampered with ends the node."""
    return isinstance(effect, FetchBeacon | SealBatch) and error.owner is Owner.PROBLEM

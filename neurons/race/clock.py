"""The race clock: drives one race after the other through its state machine.

Decisions are `arena.race.decider`'s; this file gathers facts, carries effects out with a node's ports and appends
events. Every effect may be carried out twice: a settlement, a release, a batch or a set of items that exists already is
found, not made again. What is read from the chain is read at final blocks. Each turn replays the stream, so a process
killed at any instant goes on where it was. Effects come before their events. An effect that can't be done yet waits by
itself and holds up no other. A race ends under the policy it was closed under; another policy takes over before the
close of a race, or after its settlement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.bank.batch import Batch
from arena.chain.keys import verify
from arena.chain.port import BeaconRound, StatePrunedError
from arena.exchange.log_digest import add_digest, read_digest, take_digest
from arena.exchange.port import Progress
from arena.race import agreement, machine
from arena.race.admission import field_standings, seat, select_candidates
from arena.race.decider import decide, race_items
from arena.race.machine import Event, RaceObservation, RaceOpened, RaceSettled, RaceState, apply, force_of, succession
from arena.race.schedule import ANCHOR, Timeline, opening_ms, timeline, timeline_refusal
from arena.race.scores import Pair, compared_with_others
from arena.race.settle import differences, settle
from arena.race.weights import evidence_before
from arena.records.log import note_sha256, read_checkpoint
from arena.records.model import ReleaseRecord, SettlementRecord, Top
from arena.records.port import WorkItem
from foundation.backoff import Backoff, NextTry
from foundation.codes import HOST_FAILED, SETTLED_OTHERWISE, Owner
from foundation.errors import ArenaError, Failure
from harness.agents.registry import shipped_source
from neurons.loops.checkpoints import CheckpointLoop
from neurons.loops.node import Node
from neurons.loops.operator_files import write_policy
from neurons.loops.run_loop import StopSignal
from neurons.race.log import RaceList, RaceLog, owners_of
from neurons.race.peers import RacePeers, race_of
from neurons.race.sentences import names_of, race_sentence

STAND_INS_PAGE = 32
PAUSES = Backoff(first_ms=1_000, most_ms=60_000)  # of an effect that can't be done yet
# A bug of ours that a peer's record brings out must not end the node at each of its starts.
UNFORESEEN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
ASK_MS = 60_000  # between two times of asking the others how far they are


class BeaconTry(msgspec.Struct, frozen=True, kw_only=True):
    """A round, and when it was asked for last (unix ms; 0: never). `beacon`: it came, and the batch opened with it;
    `batch_failure`: the code with which the batch did not open although the round is out."""

    round: int
    asked_ms: int = 0
    beacon: BeaconRound | None = None
    batch_failure: str = ""


class RaceClock:
    """Turns of the current race, every tick."""

    name, every_s = "race", 0.5

    def __init__(
        self, node: Node, qualifying: RaceLog, checkpoints: CheckpointLoop, drain: StopSignal | None = None
    ) -> None:
        """`drain`: where it is said what effects wait for."""
        self._node, self._drain = node, drain or StopSignal(node.now_ms)
        self._qualifying = qualifying
        self._races = RaceList(node.store)
        self._checkpoints = checkpoints
        self.peers = RacePeers(node)
        self._suite = tuple(problem.problem_id for problem in node.suite)
        self._tried = BeaconTry(round=0)
        self._heard_ms = 0  # when the others last said how far they are
        self._plan: Timeline | None = None  # of the current race, where other validators may be in it
        self._latest: tuple[RaceState, ...] = ()  # the current race and the one before, at the last turn
        self._logs: dict[str, RaceLog] = {}
        # Of the race that ended last: why its settlement is not this node's. `missed`: this node only proposed none in
        # time, as after a kill, for the first time in a row
        self.not_ours: Failure | None = None
        self.missed: Failure | None = None
        self._waiting: dict[str, NextTry] = {}  # by effect that could not be done
        self._has_adopted = False

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
            raise ArenaError("V2062", refusal, fix="choose a policy with longer windows")
        *earlier, state = await self.states()
        self._plan = self._plan_of(state)
        for race in (*earlier[-2:], state):  # a node that is killed in every race misses them in a row
            if race.settlement is not None:
                self._explain(race, RaceSettled(settlement=race.settlement, is_adopted=race.is_adopted))
        opened, policy = state.opened, self._node.policy
        if opened is not None and machine.runs_under_another(state, policy):
            was, is_now = opened.policy_sha256[:12], policy.policy_sha256[:12]
            if state.stage != "open":  # something was closed, drawn or raced under its policy
                path = await self._keep_policy(opened)
                raise ArenaError(
                    "V2062",
                    f"{state.race_id} is {state.stage} under {was}, not under {is_now}",
                    fix=f"start with `--policy {path}`; a new policy can begin before a race closes, or after it",
                )
            self._node.log.warning("policy replaced before the close", race=state.race_id, was=was, now=is_now)
            await self._append(state, await self._open(state, opened.batch, earlier, opened.closes_ms))
        if state.stage == "running" and state.items is not None:  # a restored store may lack some of them
            items = race_items(state, self._node.store.validator)
            await self._plan_cost(state.race_id, items)
            await self._node.store.enqueue(items, owners_of(state))
        self._has_adopted = True

    def is_quiet(self, now_ms: int) -> bool:
        """Whether this hotkey's slot on chain belongs to a race at that moment (unix ms)."""
        return self._plan is not None and self._plan.is_quiet(now_ms)

    def current(self) -> RaceState | None:
        """The race of the last turn; None before the first."""
        return self._latest[-1] if self._latest else None

    def progress(self, race_id: str) -> Progress | None:
        """How far the race of the last turn is; for any other, only under which rules this node races."""
        race = self.current()
        if race is None or race.opened is None:
            return None
        return Progress(
            policy_sha256=race.opened.policy_sha256,
            guest_sha256=self._node.conditions.sandbox.guest_sha256,
            done=self._log_of(race_id).done(self._node.store.validator) if race.race_id == race_id else (),
        )

    def reveal_gate(self) -> agreement.RevealGate:
        """What others may be shown now, as of the last turn."""
        return agreement.reveal_gate(self._latest, self._node.signer.hotkey)

    def settlement(self, race_id: str) -> SettlementRecord | None:
        """The settlement in force here for a race, as of the last turn; None while there is none."""
        for state in (*self._races.finished.values(), *self._latest):
            if state.race_id == race_id and force_of(state) in ("own", "adopted"):
                return state.settlement
        return None

    async def turns(self) -> None:
        """Turns until one appends nothing: what a race can do at once waits for no tick."""
        while (await self.turn()).events > self._latest[-1].events:
            pass

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
        await self._node.store.put_event(machine.stream_of(state.race_id), state.events, machine.encode_event(event))
        if isinstance(event, RaceSettled):
            self._explain(state, event)
            ended = self.not_ours or self.missed
            result = "missed" if self.missed else "not_ours" if ended else event.settlement.state
            self._node.metrics.races_ended.labels(result).inc()
            if ended is not None:
                log = self._node.log.warning if self.missed else self._node.log.error
                log("no settlement of ours", race=state.race_id, code=ended.code, detail=ended.detail)
        state = apply(state, event)
        text = race_sentence(state.race_id, event, names_of(await self._node.store.submissions()))
        self._node.log.info("race", race=state.race_id, happened=type(event).__name__, stage=state.stage, text=text)
        return state

    def _explain(self, state: RaceState, end: RaceSettled) -> None:
        """Keep why a race ended with another settlement than this node's."""
        failure = agreement.explain_end(state, end, {roll: self.peers.held(state, roll) for roll in ANCHOR})
        before, is_first, own = self.missed, self.not_ours is None and self.missed is None, state.proposed
        self.not_ours = self.missed = None
        if failure is not None:
            ended = Failure(code=failure.code, detail=f"{state.race_id}: {failure.detail}")
            is_missed = is_first and own is None and failure.code == SETTLED_OTHERWISE
            if before is not None and own is not None:  # that one is not in its history yet
                is_missed = "inputs.history" in differences(own, end.settlement)
            self.not_ours, self.missed = (None, ended) if is_missed else (ended, None)

    async def _try(self, effect: machine.Effect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        """Carry out one effect. A failure that may pass, or one that nobody foresaw, costs this effect a growing pause;
        any other is raised."""
        kind, now_ms = type(effect).__name__, self._node.now_ms()
        before = self._waiting.get(kind, NextTry())
        if now_ms < before.not_before_ms:
            return None
        try:
            event = await self._carry_out(effect, state, earlier)
        except (ArenaError, *UNFORESEEN) as raised:
            error = raised if isinstance(raised, ArenaError) else ArenaError(HOST_FAILED, ascii(raised)[:500])
            # What is wrong with the bank's sealed files costs races, not the node: an operator mends it meanwhile.
            # Every other effect reads the node's own open batch: one that was tampered with ends the node.
            is_sealed = isinstance(effect, machine.FetchBeacon | machine.TakeBatch)
            if not (error.entry.is_retryable or (is_sealed and error.owner is Owner.PROBLEM)):
                raise
            self._waiting[kind] = PAUSES.after(before, now_ms)
            code, detail, trace = error.failure.code, error.failure.detail, None if error is raised else raised
            self._node.log.warning(
                "race waits", race=state.race_id, effect=kind, code=code, detail=detail, exc_info=trace
            )
            self._drain.failed(f"race {kind}", error)
            return None
        if event is not None or not isinstance(effect, machine.AdoptSettlement):  # which may still be under way
            self._went_on({kind} & self._waiting.keys())
        return event

    def _went_on(self, kinds: Set[str]) -> None:
        """These effects wait for nothing any more."""
        for kind in kinds:
            del self._waiting[kind]
            self._drain.went_on(f"race {kind}")

    # -- effects
    async def _carry_out(self, effect: machine.Effect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        """Do what is due and answer with its event. Raises ArenaError where it can't be done."""
        match effect:
            case machine.TakeBatch():
                return await self._take_batch(state, earlier)
            case machine.FetchBeacon():
                await self._fetch(effect, state)
            case machine.ReadChain():
                return await read_chain(self._node, effect)
            case machine.AnchorLog():
                return await anchor_log(self._node, self._checkpoints, effect, state)
            case machine.Commit():
                return await commit(self._node, effect)
            case machine.PullLogs():
                await self.peers.pull(effect, state)
            case machine.FixField():
                return await self._fix_field(effect, state, earlier)
            case machine.EnqueueItems():
                await self._plan_cost(state.race_id, effect.items)
                await self._node.store.enqueue(effect.items, owners_of(state))
                return machine.ItemsEnqueued(items=len(effect.items))
            case machine.EnqueueStandIns():
                added = 0  # the room is filled with pairs that are not in the queue, nor ever were
                for begin in range(0, len(effect.items), STAND_INS_PAGE):
                    if added >= effect.room:
                        break
                    page = effect.items[begin : begin + STAND_INS_PAGE]
                    added += await self._node.store.enqueue(page, owners_of(state))
                if added:
                    self._node.log.info("stands in", race=state.race_id, items=added)
            case machine.Settle():
                return await self._settle(effect, state, earlier)
            case machine.AdoptSettlement():
                return self.peers.hear("settlement", effect.value, lambda: self.peers.adopt(effect, state, earlier))
            case machine.ReleaseBatch():
                return await self._release(state)
        return None

    async def _plan_cost(self, race_id: str, items: Sequence[WorkItem]) -> None:
        """Hold the items of a race against what it may cost."""
        log = self._log_of(race_id)
        await log.refresh()
        await self._node.purse.plan(race_id, items, log)

    async def _open(self, state: RaceState, batch: Batch, earlier: list[RaceState], closes_ms: int) -> RaceOpened:
        """The opening of a race under the node's policy, which is kept in a file.

        Raises ArenaError P4014 when the batch can't serve its draw, V2064 when the file can't be written.
        """
        event = machine.open_race(state.race_id, self._node.policy, batch, self._node.now_ms(), closes_ms)
        await self._keep_policy(event)
        await self._requalify(succession(earlier).top)
        return event

    async def _keep_policy(self, opened: RaceOpened) -> Path:
        """The file with a race's policy, to start this node with again."""
        return await asyncio.to_thread(write_policy, self._node.state_dir, opened.policy, opened.policy_sha256)

    async def _take_batch(self, state: RaceState, earlier: list[RaceState]) -> RaceOpened:
        bank, problems = self._node.bank, self._node.policy.race.problems
        await asyncio.to_thread(bank.prepare)  # before the close is set, which nobody should wait away
        _, closes_ms = machine.coming_race(earlier, self._node.now_ms(), self._node.policy)
        opens_with = self._node.beacon.round_after(closes_ms)
        notice = await asyncio.to_thread(bank.notice_for, state.race_id, problems, round_number=opens_with)
        return await self._open(state, notice.batch, earlier, closes_ms)

    async def _fetch(self, effect: machine.FetchBeacon, state: RaceState) -> None:
        """Fetch the round and open the batch with it: a race whose batch does not open is never drawn."""
        asked = self._tried = replace(self._tried, asked_ms=self._node.now_ms())
        beacon = await self._node.beacon.fetch(effect.round)
        if beacon is None:
            return
        try:
            await asyncio.to_thread(self._node.bank.open, state.race_id, beacon)
        except ArenaError as error:
            self._tried = replace(asked, batch_failure=error.failure.code)
            raise
        self._tried = replace(asked, beacon=beacon)

    async def _requalify(self, top: Top | None) -> None:
        """Send agents that were decided under another policy back to qualifying: those that passed (the top agent races
        anyway), and of those that failed the ones that their miners' slots on chain still hold."""
        await self._qualifying.refresh()
        again, failed, policy = [], [], self._node.policy
        for submission in await self._node.store.submissions(("qualified", "unqualified")):
            agent = submission.subject.agent_version_id
            end = self._qualifying.own_suite_end(agent, self._suite, policy)
            if submission.state == "unqualified":
                failed += [submission] if end is None else []
            elif end is None or not end.is_passed:
                again += [submission] if top is None or agent != top.agent_version_id else []
        slots = {}
        if failed:
            miners = {each.subject.miner_hotkey for each in failed}
            slots = await self._node.chain.commitments(sorted(miners), await self._node.chain.block())
        held = {(slot.hotkey, slot.sha256) for slot in slots.values()}
        again += [each for each in failed if (each.subject.miner_hotkey, each.subject.commitment_sha256) in held]
        for submission in again:
            await self._node.store.set_submission_state(submission.subject.agent_version_id, "accepted")
            self._node.log.warning("qualifies again under another policy", agent=submission.name)

    async def _fix_field(
        self, effect: machine.FixField, state: RaceState, earlier: list[RaceState]
    ) -> machine.FieldFixed:
        """Who qualified by the logs that count."""
        closing, policy, before = state.read("closing"), _opened(state).policy, succession(earlier)
        assert closing is not None and state.closed is not None, "logs are counted after the closing block was read"
        closing_block = state.closed.closing_block
        _, records = await self.peers.counted(effect.logs, "field", state)
        validators, slots = agreement.validators_of(state), closing.commitments
        if policy.admission.rule == "own":
            validators = (self._node.signer.hotkey,)
        rows = field_standings(records, validators, slots, closing_block, self._suite, policy)
        found = [row.candidate for row in rows if row.candidate is not None]
        if before.incumbent is not None:  # the agent at the top races whether it qualified or not
            agent = before.incumbent.subject.agent_version_id
            scores = (each.qualifying_score_e4 for each in found if each.subject.agent_version_id == agent)
            incumbent = replace(before.incumbent, qualifying_score_e4=next(scores, 0))
            found = [*(each for each in found if each.subject.agent_version_id != agent), incumbent]
        wanted = select_candidates(found, closing_block, frozenset(before.eliminated))
        held = evidence_before(before.history, before.top)
        field = seat(wanted, held, len(validators), policy.race.seats)
        store, racing = self._node.store, {each.subject for each in field}
        here = {(each.subject.agent_version_id, each.subject.commitment_block) for each in await store.submissions()}
        for row in rows:  # miners read where their submission stood with all validators, if it is here
            agent = row.subject.agent_version_id
            if (agent, row.subject.commitment_block) in here:
                await store.put_agreed(agent, replace(row.standing, is_racing=row.subject in racing))
        return machine.FieldFixed(field=field, validators=validators, incumbent=before.top)

    async def _settle(
        self, effect: machine.Settle, state: RaceState, earlier: list[RaceState]
    ) -> machine.SettlementProposed:
        """Settle from the logs that count, and append the record unless the log holds one."""
        await self._node.store.close_items(state.race_id, "race")
        log, words = self._log_of(state.race_id), machine.ProgressClaims()
        await log.refresh()
        record = log.settlement
        if record is None:
            read = state.read("settling")
            assert state.due is not None, "a race settles once that is due"
            metagraph = read.metagraph if read else await self._node.chain.metagraph(state.due.settling_block)
            assert metagraph is not None, "the settling block is read with its metagraph"
            logs, records = await self.peers.counted(effect.logs, "results", state)
            inputs = machine.settlement_inputs(state, metagraph, records, succession(earlier), logs)
            record, words = settle(inputs), agreement.compare_words(self.peers.said_of(state.race_id), inputs)
            if words.broken:
                self._node.log.warning("said it was done and did not show it", race=state.race_id, peers=words.broken)
            await self._node.sequencer.append([record])
            compared, differing = compared_with_others(inputs, self._node.signer.hotkey)
            self._node.metrics.results_compared.inc(compared)
            self._node.metrics.results_differing.inc(differing)
        return machine.SettlementProposed(settlement=record, words=words)

    async def _release(self, state: RaceState) -> machine.BatchReleased:
        opened, log = _opened(state), self._log_of(state.race_id)
        is_open_at_once = opened.policy.race.closes_after_ms is not None  # by the release itself
        await log.refresh()
        if log.release is None:
            batch = await asyncio.to_thread(self._node.bank.batch, state.race_id)
            record = ReleaseRecord(
                race_id=state.race_id,
                batch_sha256=opened.batch.batch_sha256,
                partition_sha256=batch.partition_sha256,
                problems=batch.released_problems,
                salt=batch.salt,
                opens_ms=0 if is_open_at_once else opening_ms(opened.closes_ms, opened.policy),
            )
            await self._node.sequencer.append([record])
        return machine.BatchReleased(batch_sha256=opened.batch.batch_sha256)

    # -- facts
    async def _facts(self, state: RaceState, earlier: list[RaceState]) -> RaceObservation:
        node, now_ms = self._node, self._node.now_ms()
        finalized = await node.chain.finalized_block()
        if state.opened is None:
            return RaceObservation(now_ms=now_ms, validator=node.store.validator, finalized_block=finalized)
        closes_ms = state.opened.closes_ms
        beacon_round = state.closed.beacon_round if state.closed else node.beacon.round_after(closes_ms)
        if self._tried.round != beacon_round:
            self._tried = BeaconTry(round=beacon_round)
        tried, log, open_items = self._tried, self._log_of(state.race_id), 0
        if state.stage == "running":  # the items before the log: a result in between is seen
            open_items = await node.store.open_items(state.race_id, "race")
            await log.refresh()
        closing_block: int | None = None
        if now_ms >= closes_ms and state.closed is None:
            try:
                closing_block = await node.chain.block_at(closes_ms)
            except StatePrunedError:
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
            held=self.peers.held(state, "field" if state.stage == "closed" else "results"),
            done=self._done(state, earlier, now_ms),
        )

    def _plan_of(self, state: RaceState) -> Timeline | None:
        if state.opened is None or self._node.sharing is None or agreement.is_sole(state, self._node.signer.hotkey):
            return None
        return timeline(state.opened.closes_ms, state.opened.policy.race)

    def _done(self, state: RaceState, earlier: list[RaceState], now_ms: int) -> dict[str, frozenset[Pair]] | None:
        """What the others say they did, once it is heard, asked for now and then, from when stand-ins may be due until
        logs are anchored: what is done later need not stand in them."""
        draw, opened = state.draw, state.opened
        if self._plan is None or state.stage != "running" or draw is None or opened is None:
            return None
        is_early = now_ms < draw.drawn_ms + opened.policy.race.stand_in_ms
        if is_early or agreement.is_anchoring(self._plan, now_ms) or now_ms < self._heard_ms + ASK_MS:
            return None
        said = self.peers.hear("progress", state.race_id, lambda: self.peers.done(state, earlier))
        self._heard_ms = self._heard_ms if said is None else now_ms
        return said

    async def _pending_qualifying(self, state: RaceState, earlier: list[RaceState]) -> int:
        """Undecided agents that a closed race waits for: committed by its close as the chain stood then, and since the
        last race's close, so that no agent is waited for twice."""
        if state.closed is None or state.field is not None:
            return 0
        closing = state.closed.closing_block
        since = max((past.closed.closing_block for past in earlier if past.closed), default=-1)
        undecided = await self._node.store.submissions(("waiting", "accepted"))
        return sum(since < each.subject.commitment_block <= closing for each in undecided)


def _opened(state: RaceState) -> RaceOpened:
    assert state.opened is not None, "a race fixes its field after it was opened"
    return state.opened


async def read_chain(node: Node, effect: machine.ReadChain) -> machine.ChainRead | None:
    """What the block of that moment holds, once it is final. Raises ArenaError U3033 where it was forgotten."""
    block = await node.chain.block_at(effect.at_ms)
    if block is None:
        return None
    is_whole = effect.moment in ("closing", "settling")
    metagraph = await node.chain.metagraph(block) if is_whole else None
    hotkeys: Sequence[str] = effect.hotkeys or ()
    if effect.hotkeys is None and metagraph is not None:
        hotkeys = [neuron.hotkey for neuron in metagraph.neurons]
    found = await node.chain.commitments(hotkeys, block)
    commitments = tuple(found[hotkey] for hotkey in sorted(found))
    return machine.ChainRead(moment=effect.moment, block=block, commitments=commitments, metagraph=metagraph)


async def anchor_log(
    node: Node, checkpoints: CheckpointLoop, effect: machine.AnchorLog, state: RaceState
) -> machine.Committed | None:
    """Commit a note with this roll's digest; after a crash in between, the note that already stands. None for an empty
    log, or for one that nobody could ask for. Raises ArenaError U3031 where the chain refuses."""
    if node.sharing is None:
        return None
    held, race_id = node.sharing.peer_logs, race_of(effect.roll, state)
    slot, before = await node.chain.commitment(node.signer.hotkey), state.read("closing")
    note = held.note(node.signer.hotkey, slot.sha256) if slot else None
    is_of_roll = slot is not None and before is not None and slot.block > before.block
    if note is None or not is_of_roll or not _is_tallied(note, node.signer.hotkey, race_id):
        point = await checkpoints.newest()
        if point is None:
            return None
        note = add_digest(point.note, await take_digest(node.store, race_id, point.size), node.signer)
        held.keep_note(note)  # first: what the chain holds must be served
        await _put(node, note_sha256(note), effect.moment)
    checkpoint = read_checkpoint(note, verify)
    return machine.Committed(moment=effect.moment, sha256=note_sha256(note), size=checkpoint.size, root=checkpoint.root)


async def commit(node: Node, effect: machine.Commit) -> machine.Committed:
    """Fill this validator's slot unless it holds the value. Raises ArenaError U3031 where the chain refuses."""
    slot = await node.chain.commitment(node.signer.hotkey)
    if slot is None or slot.sha256 != effect.sha256:
        await _put(node, effect.sha256, effect.moment)
    return machine.Committed(moment=effect.moment, sha256=effect.sha256)


async def _put(node: Node, sha256: str, moment: str) -> None:
    node.committed.add(sha256)
    answer = await node.chain.commit(node.signer, sha256)
    if answer.status != "ok":
        raise ArenaError("U3031", f"{moment}: {answer.status} {answer.detail}")


def _is_tallied(note: str, validator: str, race_id: str) -> bool:
    try:
        read_digest(note, validator, race_id, verify)
    except ArenaError:
        return False
    return True

"""The effects of a race: what `arena.race.decider` asks for, done with a node's ports.

Every effect may be carried out twice; a settlement, a release, a batch or a set of items that exists already
is found, not made again. Each answers with the event that says it is done, or None where nothing follows yet. What is
read from the chain is read at final blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from arena.bank.batch import Batch
from arena.bank.stock import DAY_MS, HORIZON_RACES
from arena.chain.keys import verify
from arena.chain.port import BeaconRound
from arena.exchange.log_digest import add_tally, read_tally, take_tally
from arena.race.admission import field_standings, select_candidates
from arena.race.agreement import evaluators
from arena.race.events import (
    AdoptSettlement,
    AnchorLog,
    BatchReleased,
    ChainRead,
    Commit,
    Committed,
    Effect,
    EnqueueItems,
    EnqueueStandIns,
    Event,
    FetchBeacon,
    FieldFixed,
    FixField,
    ItemsEnqueued,
    PullLogs,
    RaceOpened,
    ReadChain,
    ReleaseBatch,
    SealBatch,
    Settle,
    SettlementProposed,
)
from arena.race.logs import ProgressClaims, compare_words
from arena.race.machine import RaceState, coming_race, open_race, settlement_inputs, succession
from arena.race.schedule import Moment, coming_closes_ms, stated_opening_ms
from arena.race.scores import compared_with_others
from arena.race.settle import settle
from arena.records.log import note_sha256, read_checkpoint
from arena.records.model import ReleaseRecord, Top
from foundation.errors import ArenaError
from neurons.health.status import BANK_DAYS_MIN
from neurons.loops.checkpoints import CheckpointLoop
from neurons.loops.node import Node
from neurons.race.admission import keep_standings
from neurons.race.log import RaceLog
from neurons.race.peers import RacePeers, race_of
from neurons.settings.released import write_policy

STAND_INS_PAGE = 32


class BeaconTry(msgspec.Struct, frozen=True, kw_only=True):
    """A round, and when it was asked for last (unix ms; 0: never). `beacon`: it came, and the batch opened with it;
    `batch_failure`: the code with which the batch did not open although the round is out."""

    round: int
    asked_ms: int = 0
    beacon: BeaconRound | None = None
    batch_failure: str = ""


class RaceEffects:
    """Carries out effects. `earlier` are the states of the races before, oldest first."""

    def __init__(
        self,
        node: Node,
        qualifying: RaceLog,
        log_of: Callable[[str], RaceLog],
        checkpoints: CheckpointLoop,
    ) -> None:
        self._node = node
        self._checkpoints = checkpoints
        self.peers = RacePeers(node)
        self._qualifying = qualifying
        self._log_of = log_of
        self._suite = tuple(problem.problem_id for problem in node.suite)
        self._tried = BeaconTry(round=0)

    def beacon(self, round_number: int) -> BeaconTry:
        """What became of a round, as far as this process has asked for it."""
        return self._tried if self._tried.round == round_number else BeaconTry(round=round_number)

    async def carry_out(self, effect: Effect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        """Do what is due and answer with its event. Raises ArenaError where it can't be done."""
        match effect:
            case SealBatch():
                return await self._seal(state, earlier)
            case FetchBeacon():
                await self._fetch(effect, state)
            case ReadChain():
                return await read_chain(self._node, effect)
            case AnchorLog():
                return await anchor_log(self._node, self._checkpoints, effect, state)
            case Commit():
                return await commit(self._node, effect)
            case PullLogs():
                await self.peers.pull(effect, state)
            case FixField():
                return await self._fix_field(effect, state, earlier)
            case EnqueueItems():
                self._node.judge_budgets.plan(state.race_id, effect.items)
                await self._node.store.enqueue(effect.items)
                return ItemsEnqueued(items=len(effect.items))
            case EnqueueStandIns():
                added = 0  # the room is filled with pairs that are not in the queue, nor ever were
                for begin in range(0, len(effect.items), STAND_INS_PAGE):
                    if added >= effect.room:
                        break
                    added += await self._node.store.enqueue(effect.items[begin : begin + STAND_INS_PAGE])
                if added:
                    self._node.log.info("stands in", race=state.race_id, items=added)
            case Settle():
                return await self._settle(effect, state, earlier)
            case AdoptSettlement():
                return await self.peers.adopt(effect, state, earlier)
            case ReleaseBatch():
                return await self._release(effect, state)
        return None

    async def open(self, state: RaceState, batch: Batch, earlier: list[RaceState], closes_ms: int) -> RaceOpened:
        """The opening of a race under the node's policy, which is kept in a file.

        Raises ArenaError P4014 when the batch can't serve its draw, V2064 when the file can't be written.
        """
        event = open_race(state.race_id, self._node.policy, batch, self._node.now_ms(), closes_ms)
        await self.keep_policy(event)
        await self._requalify(succession(earlier).top)
        return event

    async def keep_policy(self, opened: RaceOpened) -> Path:
        """The file with a race's policy, to start this node with again."""
        return await asyncio.to_thread(write_policy, self._node.state_dir, opened.policy, opened.policy_sha256)

    async def _seal(self, state: RaceState, earlier: list[RaceState]) -> RaceOpened:
        stock, rules = self._node.stock, self._node.policy.race
        await asyncio.to_thread(stock.prepare)  # before the close is set, which nobody should wait away
        _, closes_ms = coming_race(earlier, self._node.now_ms(), self._node.policy)
        opens_with = self._node.beacon.round_after(closes_ms)
        notice = await asyncio.to_thread(stock.seal_for, state.race_id, rules.problems, round_number=opens_with)
        event = await self.open(state, notice.batch, earlier, closes_ms)
        now_ms = self._node.now_ms()
        level = await asyncio.to_thread(stock.level, coming_closes_ms(now_ms, rules, HORIZON_RACES), now_ms)
        if level.is_low(BANK_DAYS_MIN):
            self._node.log.warning("bank runs low", races=level.races, days=level.lasts_ms // DAY_MS)
        return event

    async def _fetch(self, effect: FetchBeacon, state: RaceState) -> None:
        """Fetch the round and open the batch with it: a race whose batch does not open is never drawn."""
        asked = self._tried = replace(self.beacon(effect.round), asked_ms=self._node.now_ms())
        beacon = await self._node.beacon.fetch(effect.round)
        if beacon is None:
            return
        try:
            await asyncio.to_thread(self._node.stock.open, state.race_id, beacon)
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
            mean_e4 = self._qualifying.own_mean_e4(agent, self._suite, policy)
            if submission.state == "unqualified":
                failed += [submission] if mean_e4 is None else []
            elif mean_e4 is None or mean_e4 < policy.qualifying.score_min_e4:
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

    async def _fix_field(self, effect: FixField, state: RaceState, earlier: list[RaceState]) -> FieldFixed:
        """Who qualified by the logs that count; miners that handed in here are told where they stand."""
        closing, policy, before = state.read("closing"), _opened(state).policy, succession(earlier)
        assert closing is not None, "logs are counted after the closing block was read"
        _, records = await self.peers.counted(effect.logs, "field", state)
        validators, slots = evaluators(state, self._node.signer.hotkey), closing.commitments
        rows = field_standings(records, validators, slots, effect.closing_block, self._suite, policy)
        await keep_standings(self._node.store, rows)
        found = [row.candidate for row in rows if row.candidate is not None]
        if before.incumbent is not None:  # the agent at the top races whether it qualified or not
            agent = before.incumbent.subject.agent_version_id
            scores = (each.qualifying_score_e4 for each in found if each.subject.agent_version_id == agent)
            incumbent = replace(before.incumbent, qualifying_score_e4=next(scores, 0))
            found = [*(each for each in found if each.subject.agent_version_id != agent), incumbent]
        field = select_candidates(found, effect.closing_block, frozenset(before.eliminated))
        return FieldFixed(field=field, validators=validators, incumbent=before.top)

    async def _settle(self, effect: Settle, state: RaceState, earlier: list[RaceState]) -> SettlementProposed:
        """Settle from the logs that count, and append the record unless the log holds one."""
        await self._node.store.close_items(state.race_id, "race")
        log, words = self._log_of(state.race_id), ProgressClaims()
        await log.refresh()
        record = log.settlement
        if record is None:
            read = state.read("settling")
            metagraph = read.metagraph if read else await self._node.chain.metagraph(effect.settling_block)
            assert metagraph is not None, "the settling block is read with its metagraph"
            logs, records = await self.peers.counted(effect.logs, "results", state)
            inputs = settlement_inputs(state, metagraph, records, succession(earlier), logs)
            record, words = settle(inputs), compare_words(self.peers.said_of(state.race_id), inputs)
            if words.broken:
                self._node.log.warning("said it was done and did not show it", race=state.race_id, peers=words.broken)
            await self._node.sequencer.append([record])
            self._node.metrics.count_comparison(*compared_with_others(inputs, self._node.signer.hotkey))
        return SettlementProposed(settlement=record, words=words)

    async def _release(self, effect: ReleaseBatch, state: RaceState) -> BatchReleased:
        opened = _opened(state)
        log = self._log_of(state.race_id)
        await log.refresh()
        if log.release is None:
            batch = await asyncio.to_thread(self._node.stock.batch, state.race_id)
            record = ReleaseRecord(
                race_id=state.race_id,
                batch_sha256=effect.batch_sha256,
                partition_sha256=batch.partition_sha256,
                problems=batch.released_problems,
                salt=batch.salt,
                opens_ms=stated_opening_ms(opened.closes_ms, opened.policy),
            )
            await self._node.sequencer.append([record])
        return BatchReleased(batch_sha256=effect.batch_sha256)


def _opened(state: RaceState) -> RaceOpened:
    assert state.opened is not None, "a race fixes its field after it was opened"
    return state.opened


async def read_chain(node: Node, effect: ReadChain) -> ChainRead | None:
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
    return ChainRead(moment=effect.moment, block=block, commitments=commitments, metagraph=metagraph)


async def anchor_log(node: Node, checkpoints: CheckpointLoop, effect: AnchorLog, state: RaceState) -> Committed | None:
    """Commit a note with this roll's tally; after a crash in between, the note that already stands. None for an empty
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
        note = add_tally(point.note, await take_tally(node.store, race_id, point.size), node.signer)
        held.keep_note(note)  # first: what the chain holds must be served
        await _put(node, note_sha256(note), effect.moment)
    checkpoint = read_checkpoint(note, verify)
    return Committed(moment=effect.moment, sha256=note_sha256(note), size=checkpoint.size, root=checkpoint.root)


async def commit(node: Node, effect: Commit) -> Committed:
    """Fill this validator's slot unless it holds the value. Raises ArenaError U3031 where the chain refuses."""
    slot = await node.chain.commitment(node.signer.hotkey)
    if slot is None or slot.sha256 != effect.sha256:
        await _put(node, effect.sha256, effect.moment)
    return Committed(moment=effect.moment, sha256=effect.sha256)


async def _put(node: Node, sha256: str, moment: Moment) -> None:
    answer = await node.chain.commit(node.signer, sha256)
    if answer.status != "ok":
        raise ArenaError("U3031", f"{moment}: {answer.status} {answer.detail}")


def _is_tallied(note: str, validator: str, race_id: str) -> bool:
    try:
        read_tally(note, validator, race_id, verify)
    except ArenaError:
        return False
    return True

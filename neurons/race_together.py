"""The effects of a race that several validators share: reading the chain, stating things there, asking others.

Promise: as `neurons.race_effects`: every effect may be carried out twice, and none is half done. What is read from the
chain is read at final blocks; what others answer counts only under a hash the chain held before. A peer that is away,
slow or lying costs its answer and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from arena.chain.keys import verify
from arena.exchange.port import HeldLogs, Peer, Peers
from arena.exchange.pull import Puller, Wanted
from arena.exchange.tally import COUNTED_KINDS, add_tally, counts, read_tally, take_tally
from arena.race.belief import Pair, believed, compare_words
from arena.race.candidates import select_candidates
from arena.race.events import (
    AdoptSettlement,
    AnchorLog,
    ChainRead,
    Commit,
    Committed,
    EnqueueStandIns,
    Event,
    FieldFixed,
    FixField,
    PullLogs,
    RaceSettled,
    ReadChain,
    Settle,
    SettlementProposed,
)
from arena.race.field import field_standings, qualified_candidates
from arena.race.fold import RaceRecords
from arena.race.model import Candidate
from arena.race.quorum import countersign_value
from arena.race.roll import AnchoredLog
from arena.race.settle import settle
from arena.race.state import RaceState, settlement_inputs
from arena.race.statement import settlement_sha256
from arena.race.succession import Succession, succession
from arena.race.timeline import Moment, Roll, anchor_of
from arena.race.together import validators_of
from arena.records.anchors import note_sha256
from arena.records.body import decode_content
from arena.records.checkpoint import read_checkpoint
from arena.records.model import CountedLog, SettlementRecord
from neurons.admission import tell_miners
from neurons.checkpoints import CheckpointLoop
from neurons.node import Node
from problems.errors import ArenaError

SharedEffect = FixField | Settle | ReadChain | AnchorLog | Commit | PullLogs | EnqueueStandIns | AdoptSettlement
PULL_PAUSE_MS, PULL_PAUSE_MS_MAX = 2_000, 120_000
STAND_INS_PAGE = 32
_QUALIFYING = ""
_AWAY = "U3040"


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What a node shares races with: the other validators, what it pulled from them, and the signer of its log."""

    peers: Peers
    held: HeldLogs
    puller: Puller
    checkpoints: CheckpointLoop


class SharedEffects:
    """Carries out the effects of shared races. `earlier` are the states of the races before, oldest first."""

    def __init__(self, node: Node, sharing: Sharing) -> None:
        self._node = node
        self._sharing = sharing
        self._suite = tuple(problem.problem_id for problem in node.suite)
        self._pulling: asyncio.Task[None] | None = None
        self._asked: tuple[AnchoredLog, ...] = ()
        self._pause_ms = self._not_before_ms = 0
        self._unfit: set[AnchoredLog] = set()  # what no peer can mend is not asked for again
        self._said: tuple[str, dict[str, set[Pair]]] = ("", {})  # of one race, by validator

    async def rest(self) -> None:
        """Wait for the pull under way, if there is one. How it ended is said at the next turn that asks for logs."""
        if self._pulling is not None:
            await asyncio.wait([self._pulling])

    async def close(self) -> None:
        """End a pull that is under way: what it held already stays held."""
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)

    async def carry_out(self, effect: SharedEffect, state: RaceState, earlier: list[RaceState]) -> Event | None:
        """Do what is due and answer with its event, or None. Raises ArenaError where it can't be done."""
        match effect:
            case ReadChain():
                return await self._read(effect)
            case AnchorLog():
                return await self._anchor(effect, state)
            case Commit():
                return await self._commit(effect)
            case PullLogs():
                await self._pull(effect, state)
                return None
            case EnqueueStandIns():
                await self._enqueue(effect, state)
                return None
            case FixField():
                return await self._fix_field(effect, state, earlier)
            case AdoptSettlement():
                return await self._adopt(effect, state, earlier)
            case Settle():
                return await self.settle(effect, state, earlier, None)

    async def peers(self, state: RaceState) -> tuple[Peer, ...]:
        """The race's other validators, where they answer now."""
        others = frozenset(validators_of(state)) - {self._node.signer.hotkey}
        metagraph = await self._node.chain.metagraph()
        endpoints = {neuron.hotkey: neuron.endpoint for neuron in metagraph.neurons}
        return tuple(Peer(hotkey=hotkey, endpoint=endpoints.get(hotkey, "")) for hotkey in sorted(others))

    async def settle(
        self, effect: Settle, state: RaceState, earlier: list[RaceState], made: SettlementRecord | None
    ) -> SettlementProposed:
        """Settle from the counted logs and append the record, unless the log holds one (`made`)."""
        await self._node.store.close_items(state.race_id, "race")
        if made is not None:
            return SettlementProposed(settlement=made)
        logs, records = await self._counted(effect.logs or (), "results", state)
        before, settling = succession(earlier), state.read("settling")
        assert settling is not None and settling.metagraph is not None, "a race settles after its settling block"
        inputs = settlement_inputs(
            state,
            settling.metagraph,
            records.evaluations,
            records.verdicts,
            before.history,
            before.eliminated,
            logs,
            attempts=records.attempts,
        )
        record, words = settle(inputs), compare_words(self._said_of(state.race_id), inputs)
        if words.broken:
            self._node.log.warning("said it was done and did not show it", race=state.race_id, peers=words.broken)
        await self._node.sequencer.append([record])
        return SettlementProposed(settlement=record, words=words)

    # -- the chain
    async def _read(self, effect: ReadChain) -> ChainRead | None:
        """What the block of that moment holds, once it is final. Raises ArenaError U3033 where it was forgotten."""
        chain = self._node.chain
        block = await chain.block_at(effect.at_ms)
        if block is None:
            return None
        is_whole = effect.moment in ("closing", "settling")
        metagraph = await chain.metagraph(block) if is_whole else None
        hotkeys: Sequence[str] = effect.hotkeys or ()
        if effect.hotkeys is None and metagraph is not None:
            hotkeys = [neuron.hotkey for neuron in metagraph.neurons]
        found = await chain.commitments(hotkeys, block)
        commitments = tuple(found[hotkey] for hotkey in sorted(found))
        return ChainRead(moment=effect.moment, block=block, commitments=commitments, metagraph=metagraph)

    async def _anchor(self, effect: AnchorLog, state: RaceState) -> Committed | None:
        """Commit a note with this roll's tally; after a crash in between, the note that already stands."""
        node, held, race_id = self._node, self._sharing.held, _race_of(effect.roll, state)
        slot = await node.chain.commitment(node.signer.hotkey)
        before = state.read("closing")
        note = held.note(node.signer.hotkey, slot.sha256) if slot else None
        is_of_roll = slot is not None and before is not None and slot.block > before.block
        if note is None or not is_of_roll or not _is_tallied(note, node.signer.hotkey, race_id):
            point = await self._sharing.checkpoints.newest()
            if point is None:
                return None  # an empty log: there is nothing to say
            note = add_tally(point.note, await take_tally(node.store, race_id, point.size), node.signer)
            held.keep_note(note)  # first: what the chain holds must be served
            await self._put(note_sha256(note), effect.moment)
        checkpoint = read_checkpoint(note, verify)
        return Committed(moment=effect.moment, sha256=note_sha256(note), size=checkpoint.size, root=checkpoint.root)

    async def _commit(self, effect: Commit) -> Committed:
        slot = await self._node.chain.commitment(self._node.signer.hotkey)
        if slot is None or slot.sha256 != effect.sha256:
            await self._put(effect.sha256, effect.moment)
        return Committed(moment=effect.moment, sha256=effect.sha256)

    async def _put(self, sha256: str, moment: Moment) -> None:
        """Fill the slot. Raises ArenaError U3031 where the chain refuses: the effect pauses and is tried again."""
        answer = await self._node.chain.commit(self._node.signer, sha256)
        if answer.status != "ok":
            raise ArenaError("U3031", f"{moment}: {answer.status} {answer.detail}")

    # -- what others say
    async def _pull(self, effect: PullLogs, state: RaceState) -> None:
        """Begin to ask for logs, one pull at a time: a long one must not make the race miss a moment."""
        if self._pulling is not None:
            if not self._pulling.done():
                return
            pulled, self._pulling = self._pulling, None
            pulled.result()
        logs, now_ms = tuple(log for log in effect.logs if log not in self._unfit), self._node.now_ms()
        if logs != self._asked:  # another roll, or some came: what is still lacking may come too
            self._asked, self._pause_ms, self._not_before_ms = logs, 0, now_ms
        if not logs or now_ms < self._not_before_ms:
            return
        self._pause_ms = min(PULL_PAUSE_MS_MAX, max(PULL_PAUSE_MS, 2 * self._pause_ms))
        self._not_before_ms = now_ms + self._pause_ms
        race_id, peers = _race_of(effect.roll, state), await self.peers(state)
        wanted = [Wanted(validator=log.validator, note_sha256=log.note_sha256, race_id=race_id) for log in logs]
        self._pulling = asyncio.create_task(self._pull_all(wanted, peers))

    async def _pull_all(self, wanted: Sequence[Wanted], peers: Sequence[Peer]) -> None:
        for pulled in await self._sharing.puller.pull_all(wanted, peers):
            about = {"validator": pulled.wanted.validator, "race": pulled.wanted.race_id}
            for complaint in pulled.complaints:
                code, detail = complaint.failure.code, complaint.failure.detail
                self._node.log.warning("peer", peer=complaint.peer, code=code, detail=detail, **about)
            if pulled.unfit is not None:
                self._unfit.add(AnchoredLog(validator=pulled.wanted.validator, note_sha256=pulled.wanted.note_sha256))
            for failure in (pulled.unfit, pulled.rewritten):
                if failure is not None:
                    self._node.log.warning("log", code=failure.code, detail=failure.detail, **about)
            if pulled.log is not None:
                self._node.log.info("log held", size=pulled.log.size, rows=pulled.log.rows, **about)

    async def done(self, state: RaceState, earlier: list[RaceState]) -> dict[str, frozenset[Pair]]:
        """The pairs that each of the others that are believed says it has done; one that does not answer, or runs the
        race under another policy, has done none. What anybody says is kept, to be compared with its log."""
        trusted, raced = believed(past.words for past in earlier), _pairs_of(state)
        said: dict[str, frozenset[Pair]] = {}
        for peer in await self.peers(state):
            try:
                progress = await self._sharing.peers.progress(peer, state.race_id)
            except ArenaError as error:
                self._complain(peer, error)
                continue
            if progress is None:
                continue
            if state.opened is not None and progress.policy_sha256 != state.opened.policy_sha256:
                self._node.log.warning("another policy", peer=peer.hotkey, theirs=progress.policy_sha256[:12])
                continue
            pairs = raced.intersection(progress.done)  # nobody fills our memory with other pairs
            self._said_of(state.race_id).setdefault(peer.hotkey, set()).update(pairs)
            if peer.hotkey in trusted:
                said[peer.hotkey] = pairs
        return said

    def _said_of(self, race_id: str) -> dict[str, set[Pair]]:
        """All that was heard in a race of pairs that are done; a process that is killed forgets it."""
        if self._said[0] != race_id:
            self._said = (race_id, {})
        return self._said[1]

    async def _enqueue(self, effect: EnqueueStandIns, state: RaceState) -> None:
        """Fill the room with pairs that are not in the queue, nor ever were."""
        added = 0
        for begin in range(0, len(effect.items), STAND_INS_PAGE):
            if added >= effect.room:
                break
            added += await self._node.store.enqueue(effect.items[begin : begin + STAND_INS_PAGE])
        if added:
            self._node.log.info("stands in", race=state.race_id, items=added)

    def had(self, state: RaceState, roll: Roll) -> tuple[AnchoredLog, ...]:
        """The logs that this node has for a roll, its own among them."""
        own = state.stated(anchor_of(roll))
        mine = () if own is None else (AnchoredLog(validator=self._node.signer.hotkey, note_sha256=own.sha256),)
        return (*self.held(state, roll), *mine)

    def held(self, state: RaceState, roll: Roll) -> tuple[AnchoredLog, ...]:
        """The logs of others that this node holds for a roll."""
        found = self._sharing.held.held(_race_of(roll, state))
        return tuple(AnchoredLog(validator=log.validator, note_sha256=log.note_sha256) for log in found)

    # -- logs
    async def _fix_field(self, effect: FixField, state: RaceState, earlier: list[RaceState]) -> FieldFixed:
        closing, policy = state.read("closing"), state.opened.policy if state.opened else self._node.policy
        assert closing is not None, "a field is fixed after the closing block was read"
        _, records = await self._counted(effect.logs or (), "field", state)
        before, validators = succession(earlier), validators_of(state)
        if policy.admission.rule == "agreed":
            rows = field_standings(records, validators, closing.commitments, effect.closing_block, self._suite, policy)
            found = tuple(row.candidate for row in rows if row.candidate is not None)
            await asyncio.to_thread(tell_miners, self._node.inbox, rows)
        else:
            found = qualified_candidates(records, validators, closing.commitments, self._suite, policy)
        field = select_candidates(_with_incumbent(found, before), effect.closing_block, frozenset(before.eliminated))
        return FieldFixed(field=field, validators=validators, incumbent=before.top)

    async def _counted(
        self, logs: Iterable[AnchoredLog], roll: Roll, state: RaceState
    ) -> tuple[tuple[CountedLog, ...], RaceRecords]:
        """The counted logs with their sizes, and what they say of the race (or of qualifying)."""
        race_id, records, counted = _race_of(roll, state), RaceRecords(), []
        held = {(log.validator, log.note_sha256): log for log in self._sharing.held.held(race_id)}
        own = state.stated(anchor_of(roll))
        for log in logs:
            if own is not None and (log.validator, log.note_sha256) == (self._node.signer.hotkey, own.sha256):
                counted.append(_counted_log(log, own.size, own.root))
                await self._take_own(records, race_id, own.size)
                continue
            found = held[log.validator, log.note_sha256]
            counted.append(_counted_log(log, found.size, found.root))
            for row in self._sharing.held.rows(race_id, log.validator, note_sha256=log.note_sha256):
                if row.content is not None:
                    payload = decode_content(bytes(row.content)).payload
                    records.take(row.validator, row.seq, row.content_sha256, payload)
        return tuple(counted), records

    async def _take_own(self, records: RaceRecords, race_id: str, size: int) -> None:
        """Our own log as the others see it: the records under the anchored root that count."""
        store = self._node.store
        async for record in store.records(store.validator, kinds=COUNTED_KINDS, race_id=race_id):
            if record.seq > size:
                break
            content = decode_content(record.content)
            if counts(content, len(record.content), race_id):
                records.take(record.validator, record.seq, record.content_sha256, content.payload)

    # -- agreement
    async def _adopt(self, effect: AdoptSettlement, state: RaceState, earlier: list[RaceState]) -> RaceSettled:
        """The settlement that has the quorum, and the earlier ones it names. Raises ArenaError U3040 while nobody
        shows them."""
        peers = await self.peers(state)
        for peer in peers:
            found = await self._ask_settlement(peer, state.race_id)
            if found is None or countersign_value(state.race_id, settlement_sha256(found)) != effect.value:
                continue
            history = await self._history_of(found, peers, succession(earlier))
            if history is not None:
                return RaceSettled(settlement=found, is_adopted=True, history=history)
        raise ArenaError(_AWAY, f"nobody shows the settlement of {state.race_id} that has the quorum, with its history")

    async def _history_of(
        self, found: SettlementRecord, peers: Iterable[Peer], before: Succession
    ) -> tuple[SettlementRecord, ...] | None:
        """The earlier settlements that one names and this node does not have; None while nobody shows one of them."""
        known = {settlement_sha256(past) for past in before.history}
        history = []
        for past in found.inputs.history if found.inputs else ():
            if past.settlement_sha256 in known:
                continue
            for peer in peers:
                shown = await self._ask_settlement(peer, past.race_id)
                if shown is not None and settlement_sha256(shown) == past.settlement_sha256:
                    history.append(shown)
                    break
            else:
                return None
        return tuple(history)

    async def _ask_settlement(self, peer: Peer, race_id: str) -> SettlementRecord | None:
        try:
            return await self._sharing.peers.settlement(peer, race_id)
        except ArenaError as error:
            self._complain(peer, error)
            return None

    def _complain(self, peer: Peer, error: ArenaError) -> None:
        self._node.log.warning("peer", peer=peer.hotkey, code=error.failure.code, detail=error.failure.detail)


def _pairs_of(state: RaceState) -> frozenset[Pair]:
    """The (agent, problem) pairs of a race that runs."""
    field, drawn = state.field.field if state.field else (), state.draw.drawn if state.draw else ()
    return frozenset((each.subject.agent_version_id, problem_id) for each in field for problem_id in drawn)


def _with_incumbent(found: tuple[Candidate, ...], before: Succession) -> list[Candidate]:
    """Who qualified, and the agent at the top whether it did or not."""
    incumbent = before.incumbent
    if incumbent is None:
        return list(found)
    agent = incumbent.subject.agent_version_id
    score_e4 = next((each.qualifying_score_e4 for each in found if each.subject.agent_version_id == agent), 0)
    others = [each for each in found if each.subject.agent_version_id != agent]
    return [*others, replace(incumbent, qualifying_score_e4=score_e4)]


def _counted_log(log: AnchoredLog, size: int, root: str) -> CountedLog:
    return CountedLog(validator=log.validator, note_sha256=log.note_sha256, size=size, root=root)


def _race_of(roll: Roll, state: RaceState) -> str:
    return _QUALIFYING if roll == "field" else state.race_id


def _is_tallied(note: str, validator: str, race_id: str) -> bool:
    try:
        read_tally(note, validator, race_id, verify)
    except ArenaError:
        return False
    return True

"""What the other validators of a race say: their logs, which pairs are done, the settlement that has the quorum.

What they answer counts only under a hash the chain held before. A peer that is away, slow or lying costs its
answer and nothing else: logs are pulled each on its own, and what one turn asks of several is asked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from operator import eq
from typing import Any, TypeVar

from arena.exchange.log_digest import COUNTED_KINDS, counts
from arena.exchange.port import Answer, Peer, ProgressQuestion, Question, SettlementQuestion
from arena.exchange.pull import Wanted
from arena.race.admission import RaceRecords
from arena.race.agreement import Pair, believed, countersign_value, validators_of
from arena.race.machine import AdoptSettlement, AnchoredLog, PullLogs, RaceSettled, RaceState, own_log, succession
from arena.race.schedule import ANCHOR, ANSWER_MS_MAX, RECEIPT, Roll, answer_ms
from arena.race.settle import settlement_sha256
from arena.records.body import decode_content
from arena.records.model import CountedLog, SettlementRecord
from foundation.backoff import Backoff, NextTry
from foundation.codes import PEER_AWAY
from foundation.errors import ArenaError, Failure
from neurons.loops.node import Node, Sharing
from neurons.race.log import QUALIFYING

PULL_PAUSES = Backoff(first_ms=2_000, most_ms=120_000)
ASKED_AT_ONCE = 16  # answers that are whole in memory
Heard = TypeVar("Heard")


class RacePeers:
    """Asks the other validators, and keeps what they said."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pulling: dict[Wanted, asyncio.Task[None]] = {}  # under way, or ended since logs were last asked for
        self._wanted: frozenset[Wanted] = frozenset()
        self._retries: dict[Wanted, NextTry] = {}
        self._unfit: set[Wanted] = set()  # what no peer can mend is not asked for again
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        self._hearing: dict[str, tuple[str, asyncio.Task[Any]]] = {}  # by kind of question: about what
        self._said: tuple[str, dict[str, set[Pair]]] = ("", {})  # of one race, by validator

    @property
    def sharing(self) -> Sharing:
        """The way to the others."""
        assert self._node.sharing is not None, "only a node that can ask others shares a race"
        return self._node.sharing

    async def rest(self) -> bool:
        """Wait for what is asked of others now, if it is something. How it ended is said at the next turn that asks."""
        asked = [*self._pulling.values(), *(task for _, task in self._hearing.values())]
        return bool(asked and await asyncio.wait(asked))

    async def close(self) -> None:
        """End what is asked of others: logs that were held already stay held."""
        for _, task in self._hearing.values():
            task.cancel()
        await self._end(self._pulling.keys())

    def hear(self, kind: str, about: str, ask: Callable[[], Coroutine[Any, Any, Heard]]) -> Heard | None:
        """What came of a question, at the first call after it was answered; None: it is under way. Another question of
        the kind takes its place. Nobody waits for a peer here: a race has its moments. Raises what asking raised."""
        asked, task = self._hearing.pop(kind, ("", None))
        if task is None or asked != about:
            if task is not None:
                task.cancel()
            task = asyncio.create_task(ask())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # of one that nobody asks after
        if not task.done():
            self._hearing[kind] = (about, task)
            return None
        heard: Heard = task.result()
        return heard

    def held(self, state: RaceState, roll: Roll) -> tuple[AnchoredLog, ...]:
        """The logs that this node holds for a roll, its own as it anchored it among them."""
        sharing = self._node.sharing
        pulled = sharing.peer_logs.held(race_of(roll, state)) if sharing else ()
        logs = [AnchoredLog(validator=log.validator, note_sha256=log.note_sha256) for log in pulled]
        own = state.stated(ANCHOR[roll])
        if own is not None:
            logs.append(AnchoredLog(validator=self._node.signer.hotkey, note_sha256=own.sha256))
        return tuple(logs)

    async def counted(
        self, logs: Iterable[AnchoredLog], roll: Roll, state: RaceState
    ) -> tuple[tuple[CountedLog, ...], RaceRecords]:
        """The anchored ones of counted logs with their sizes, and what all of them say of the race (or of
        qualifying)."""
        race_id, records, counted, me = race_of(roll, state), RaceRecords(), [], self._node.signer.hotkey
        sharing, own = self._node.sharing, state.stated(ANCHOR[roll])
        held = {(log.validator, log.note_sha256): log for log in sharing.peer_logs.held(race_id)} if sharing else {}
        for log in logs:
            mine = own if own and log == AnchoredLog(validator=me, note_sha256=own.sha256) else None
            is_whole = log == own_log(me)
            if not is_whole:
                found = mine or held[log.validator, log.note_sha256].point
                counted.append(
                    CountedLog(validator=log.validator, note_sha256=log.note_sha256, size=found.size, root=found.root)
                )
            if is_whole or mine is not None:
                store = self._node.store  # our own log as the others see it: under the anchored root
                async for record in store.records(store.validator, kinds=COUNTED_KINDS, race_id=race_id):
                    if mine is not None and record.seq > mine.size:
                        break
                    content = decode_content(record.content)
                    if counts(content, len(record.content), race_id):
                        records.take(record.validator, record.seq, record.content_sha256, content.payload)
                continue

            def take(log: AnchoredLog = log) -> None:
                for row in self.sharing.peer_logs.rows(held[log.validator, log.note_sha256]):
                    if row.content is not None:
                        payload = decode_content(bytes(row.content)).payload
                        records.take(row.validator, row.seq, row.content_sha256, payload)

            await asyncio.to_thread(take)  # a long log must not make the race miss a moment
        return tuple(counted), records

    async def pull(self, effect: PullLogs, state: RaceState) -> None:
        """Begin to ask for logs, each on its own: one that takes long delays no other, nor a moment of the race. Pulls
        of logs that are not wanted any more end; those of peers that are ignored are not, until they count. Raises
        V2064 of a pull that ended since, once others have begun."""
        race_id, now_ms = race_of(effect.roll, state), self._node.now_ms()
        logs = (Wanted(validator=log.validator, note_sha256=log.note_sha256, race_id=race_id) for log in effect.logs)
        ignored = frozenset[str]() if state.read(RECEIPT[effect.roll]) else self._ignored()
        wanted = [one for one in logs if one not in self._unfit and one.validator not in ignored]
        ended = [self._pulling.pop(one) for one in list(self._pulling) if self._pulling[one].done()]
        await self._end(self._pulling.keys() - set(wanted))
        if self._wanted != frozenset(wanted):  # another roll, or some came: what is still lacking may come too
            self._wanted, self._retries = frozenset(wanted), {}
        due = [
            one
            for one in wanted
            if one not in self._pulling and now_ms >= self._retries.get(one, NextTry()).not_before_ms
        ]
        within_s = (effect.until_ms - now_ms) / 1_000
        if due and within_s > 0 and self._node.sharing is not None:
            peers = await self._peers(state)
            for one in due:
                self._retries[one] = PULL_PAUSES.after(self._retries.get(one, NextTry()), now_ms)
                self._pulling[one] = asyncio.create_task(self._pull_one(one, peers, within_s))
        await asyncio.gather(*ended)

    async def done(self, state: RaceState, earlier: list[RaceState]) -> dict[str, frozenset[Pair]]:
        """The pairs that each of the others that are believed says it has done; one that does not answer, or runs the
        race under another policy, has done none. What anybody says is kept, to be compared with its log."""
        trusted = believed(past.words for past in earlier)
        field, drawn = state.field.field if state.field else (), state.draw.drawn if state.draw else ()
        raced = frozenset((each.subject.agent_version_id, problem_id) for each in field for problem_id in drawn)
        said: dict[str, frozenset[Pair]] = {}
        peers, question = await self._peers(state), ProgressQuestion(race=state.race_id)
        answers = await asyncio.gather(*(self._ask(peer, question, state) for peer in peers))
        for peer, progress in zip(peers, answers, strict=True):
            if progress is None:
                continue
            if state.opened is not None and progress.policy_sha256 != state.opened.policy_sha256:
                self._node.log.warning("another policy", peer=peer.hotkey, theirs=progress.policy_sha256[:12])
                continue
            pairs = raced.intersection(progress.done)  # nobody fills our memory with other pairs
            self.said_of(state.race_id).setdefault(peer.hotkey, set()).update(pairs)
            if peer.hotkey in trusted:
                said[peer.hotkey] = pairs
        return said

    def said_of(self, race_id: str) -> dict[str, set[Pair]]:
        """All that was heard in a race of pairs that are done; a process that is killed forgets it."""
        if self._said[0] != race_id:
            self._said = (race_id, {})
        return self._said[1]

    async def adopt(self, effect: AdoptSettlement, state: RaceState, earlier: list[RaceState]) -> RaceSettled:
        """The settlement that has the quorum, and the earlier ones it names. Raises ArenaError U3040 while nobody
        shows them."""
        peers = await self._peers(state)
        found = await self._settlement(
            state, state.race_id, peers, lambda sha256: countersign_value(state.race_id, sha256) == effect.value
        )
        known = {settlement_sha256(past) for past in succession(earlier).history}
        named = found.inputs.history if found and found.inputs else ()
        lacking = [past for past in named if past.settlement_sha256 not in known]
        history = [
            shown
            for shown in await asyncio.gather(
                *(self._settlement(state, past.race_id, peers, partial(eq, past.settlement_sha256)) for past in lacking)
            )
            if shown is not None
        ]
        if found is None or len(history) < len(lacking):
            raise ArenaError(
                PEER_AWAY, f"nobody shows the settlement of {state.race_id} that has the quorum, with its history"
            )
        return RaceSettled(settlement=found, is_adopted=True, history=tuple(history))

    async def _peers(self, state: RaceState) -> tuple[Peer, ...]:
        """The race's other validators, where they answer now; nobody where this node can ask nobody."""
        if self._node.sharing is None:
            return ()
        others = frozenset(validators_of(state)) - {self._node.signer.hotkey} - self._ignored()
        metagraph = await self._node.chain.metagraph()
        endpoints = {neuron.hotkey: neuron.endpoint for neuron in metagraph.neurons}
        return tuple(Peer(hotkey=hotkey, endpoint=endpoints.get(hotkey, "")) for hotkey in sorted(others))

    def _ignored(self) -> frozenset[str]:
        return self._node.sharing.peer_logs.ignored() if self._node.sharing else frozenset()

    async def _end(self, outdated: Iterable[Wanted]) -> None:
        """Cancel pulls that are under way, and wait until they ended."""
        tasks = [self._pulling.pop(one) for one in list(outdated)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pull_one(self, wanted: Wanted, peers: Sequence[Peer], within_s: float) -> None:
        pulled = await self.sharing.puller.pull(wanted, peers, within_s=within_s)
        about = {"validator": wanted.validator, "race": wanted.race_id}
        for complaint in pulled.complaints:
            self._complain(complaint.peer, complaint.failure, **about)
        if pulled.unfit is not None:
            self._unfit.add(wanted)
            self._node.log.warning("log", code=pulled.unfit.code, detail=pulled.unfit.detail, **about)
        if pulled.log is not None:
            self._node.log.info("log held", size=pulled.log.point.size, rows=pulled.log.due.count.rows, **about)

    async def _settlement(
        self, state: RaceState, race_id: str, peers: Sequence[Peer], is_it: Callable[[str], bool]
    ) -> SettlementRecord | None:
        """The settlement of a race with this hash, from the first peer that shows it; None: none does."""
        question = SettlementQuestion(race=race_id)
        answers = await asyncio.gather(*(self._ask(peer, question, state) for peer in peers))
        return next((one for one in answers if one is not None and is_it(settlement_sha256(one))), None)

    async def _ask(self, peer: Peer, question: Question[Answer], state: RaceState) -> Answer | None:
        """A peer's answer in a race; None where it has none or is at fault, which is said in the log."""
        within_s = (answer_ms(state.opened.policy.race) if state.opened else ANSWER_MS_MAX) / 1_000
        async with self._asking:
            try:
                async with asyncio.timeout(within_s):
                    return await self.sharing.peers.ask(peer, question)
            except TimeoutError:
                self._complain(peer.hotkey, Failure(code=PEER_AWAY, detail=f"no answer within {within_s:g} s"))
            except ArenaError as error:
                self._complain(peer.hotkey, error.failure)
            return None

    def _complain(self, peer: str, failure: Failure, **about: str) -> None:
        self._node.log.warning("peer", peer=peer, code=failure.code, detail=failure.detail, **about)


def race_of(roll: Roll, state: RaceState) -> str:
    """Under which race id the records lie that a roll counts."""
    return QUALIFYING if roll == "field" else state.race_id

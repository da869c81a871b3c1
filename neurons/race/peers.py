"""The network's other validators: what a node opens to race with them, the loops that keep it fed, and what they say of
a race: their logs, which pairs are done, the settlement that has the quorum.

Only permit holders of the metagraph seen last are answered; the address published on chain is the one the settings
name; sources that the chain knows and this node does not are asked of peers and wait for the gate, as if their miners
had brought them. What others answer of a race counts only under a hash the chain held before. A peer that is away, slow
or lying costs its answer and a log line: logs are pulled each on its own, and several are asked at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from operator import eq
from typing import Any, TypeVar

from arena.chain.keys import HttpAuth, verify
from arena.chain.port import Metagraph, Signer, split_endpoint
from arena.exchange.log_digest import COUNTED_KINDS, counts
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.port import Answer, HttpPeers, NoteQuestion, Peer, ProgressQuestion, Question, SettlementQuestion
from arena.exchange.pull import Puller, PullJob, SourceRelay
from arena.race.admission import RaceRecords
from arena.race.agreement import believed, countersign_value, validators_of
from arena.race.draw import permitted_validators
from arena.race.machine import AdoptSettlement, AnchoredLog, PullLogs, RaceSettled, RaceState, own_log, succession
from arena.race.schedule import ANCHOR, ANSWER_MS_MAX, RECEIPT, Roll, answer_ms
from arena.race.scores import Pair
from arena.race.settle import settlement_sha256
from arena.records.body import decode_content
from arena.records.log import read_checkpoint
from arena.records.model import CountedLog, SettlementRecord
from arena.store.location import StoreLocation
from foundation.backoff import Backoff, NextTry
from foundation.codes import PEER_AWAY
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from neurons.health.status import PeerRules
from neurons.loops.node import Node, Sharing
from neurons.race.log import QUALIFYING, open_reading, take_pulled
from neurons.settings.inputs import held_path
from neurons.settings.settings import Settings

PULL_PAUSES = Backoff(first_ms=2_000, most_ms=120_000)
ASKED_AT_ONCE = 16  # answers that are whole in memory
Heard = TypeVar("Heard")


class RacePeers:
    """Asks the other validators, and keeps what they said."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pulling: dict[PullJob, asyncio.Task[None]] = {}  # under way, or ended since logs were last asked for
        self._wanted: frozenset[PullJob] = frozenset()
        self._retries: dict[PullJob, NextTry] = {}
        self._unfit: set[PullJob] = set()  # what no peer can mend is not asked for again
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
            else:  # a long log must not make the race miss a moment
                pulled = held[log.validator, log.note_sha256]
                await asyncio.to_thread(take_pulled, records, self.sharing.peer_logs, pulled)
        return tuple(counted), records

    async def pull(self, effect: PullLogs, state: RaceState) -> None:
        """Begin to ask for logs, each on its own: one that takes long delays no other, nor a moment of the race. Pulls
        of logs that are not wanted any more end; those of peers that are ignored are not, until they count. Raises
        V2064 of a pull that ended since, once others have begun."""
        race_id, now_ms = race_of(effect.roll, state), self._node.now_ms()
        logs = (PullJob(validator=log.validator, note_sha256=log.note_sha256, race_id=race_id) for log in effect.logs)
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

    async def _end(self, outdated: Iterable[PullJob]) -> None:
        """Cancel pulls that are under way, and wait until they ended."""
        tasks = [self._pulling.pop(one) for one in list(outdated)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pull_one(self, wanted: PullJob, peers: Sequence[Peer], within_s: float) -> None:
        pulled = await self.sharing.puller.pull(wanted, peers, within_s=within_s)
        about = {"validator": wanted.validator, "race": wanted.race_id}
        for each in pulled.complaints:
            code, detail = each.failure.code, each.failure.detail
            self._node.log.warning("peer", peer=each.peer, code=code, detail=detail, **about)
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
        """A peer's answer in a race, as `ask_peer`."""
        within_s = (answer_ms(state.opened.policy.race) if state.opened else ANSWER_MS_MAX) / 1_000
        async with self._asking:
            return await ask_peer(self.sharing.peers, peer, question, within_s, self._node.log.warning)


async def ask_peer(
    peers: HttpPeers, peer: Peer, question: Question[Answer], within_s: float, say: Callable[..., object]
) -> Answer | None:
    """A peer's answer; None where it has none, is late or at fault, which is said in the log by `say`."""
    try:
        async with asyncio.timeout(within_s):
            return await peers.ask(peer, question)
    except TimeoutError:
        say("peer", peer=peer.hotkey, code=PEER_AWAY, detail=f"no answer within {within_s:g} s")
    except ArenaError as error:
        say("peer", peer=peer.hotkey, code=error.failure.code, detail=error.failure.detail)
    return None


def race_of(roll: Roll, state: RaceState) -> str:
    """Under which race id the records lie that a roll counts."""
    return QUALIFYING if roll == "field" else state.race_id


LOOK_EVERY_S = 60.0  # at the address that the chain names; a chain that refused one is asked again then


class AddressLoop:
    """Keeps the address of a node's hotkey on chain: of the exchange, or of the door of one that shares no races."""

    name, every_s = "address", LOOK_EVERY_S

    def __init__(self, node: Node, endpoint: str) -> None:
        self._node, self._endpoint = node, endpoint

    async def turn(self) -> None:
        """Publish the address unless the chain names it or this hotkey is not on it. Raises ArenaError U3030."""
        node = self._node
        metagraph = await node.chain.metagraph()
        published = next((each.endpoint for each in metagraph.neurons if each.hotkey == node.signer.hotkey), None)
        if published in (None, self._endpoint):
            return
        result = await node.chain.publish(node.signer, self._endpoint)
        about = {"endpoint": self._endpoint, "status": result.status, "detail": result.detail}
        if result.status == "ok":
            node.log.info("address published", **about, text=f"others find this node on chain: {self._endpoint}")
            return
        text = f"address is not on chain: {result.status} {result.detail}; tried again in {LOOK_EVERY_S:.0f} s"
        node.log.warning("address not published", **about, text=text)


HEAR_EVERY_S = 60.0
ANSWER_S = 10.0  # a start waits no longer for the others


def exchange_port(settings: Settings) -> int:
    """Where a node that shares races answers the others. Raises ArenaError V2030 when it has no address that others
    reach, or one that the chain can't hold."""
    if not settings.public_endpoint:
        raise ArenaError("V2030", "share: others must reach this node, so public_endpoint is needed")
    return split_endpoint(settings.public_endpoint.rstrip("/"))[1]


@contextlib.asynccontextmanager
async def open_sharing(settings: Settings, signer: Signer, location: StoreLocation) -> AsyncIterator[Sharing | None]:
    """The ports of a node that shares races, None for one that does not.

    What others read takes none of the node's own connections to the store. Raises ArenaError V2030 as `exchange_port`;
    V2014 when the port cannot be had; V2021; V2064 (folders).
    """
    if not settings.share:
        yield None
        return
    port = exchange_port(settings)
    auth = HttpAuth(signer, time.time_ns)
    auth.sign("GET", "/", signer.hotkey)  # the SDK is imported before the loops run
    held = PeerLogStore(held_path(settings.state_dir))
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(listen(settings.public_host, port))
        peers = await stack.enter_async_context(contextlib.aclosing(HttpPeers(auth)))
        yield Sharing(
            listener=listener,
            store=await open_reading(location, stack),
            auth=auth,
            peers=peers,
            peer_logs=held,
            puller=Puller(peers, held, verify),
            endpoint=settings.public_endpoint.rstrip("/"),
        )


class SharingLoop:
    """Keeps the permit list, the sources and what is heard of others up to date; each is a loop of its own, so that a
    slow peer does not hold up the permit list."""

    name, every_s = "sharing", 1.0  # the chain is looked at once a final block

    def __init__(self, node: Node, ports: Sharing, race: Callable[[], RaceState | None]) -> None:
        """`race` is the one this node is at."""
        self._node, self._ports, self._race = node, ports, race
        self._metagraph: Metagraph | None = None
        self._relayed = -1  # the block whose sources were asked for last
        self._seen: dict[str, PeerRules] = {}
        self._ignored = frozenset[str]()
        self._relay = SourceRelay(
            ports.peers,
            node.store,
            verify,
            now_ms=node.now_ms,
            is_commitment_enough=node.policy.admission.is_commitment_enough,
        )

    def has_permit(self, hotkey: str) -> bool:
        """Whether a hotkey held a permit when the chain was last asked, and is not ignored here."""
        return hotkey in self._ports.permits and hotkey not in self._ignored

    def peers_seen(self) -> tuple[PeerRules, ...]:
        """The others that answered, and under which rules they run."""
        return tuple(self._seen[hotkey] for hotkey in sorted(self._seen) if hotkey in self._ports.permits)

    async def turn(self) -> None:
        """Look at the next final block, if there is one, and do what follows. Raises ArenaError U3030 while the chain
        is away."""
        chain = self._node.chain
        finalized = await chain.finalized_block()
        if self._metagraph is not None and finalized == self._metagraph.block:
            return
        self._metagraph = await chain.metagraph(finalized)
        self._ports.permits = frozenset(permitted_validators(self._metagraph))
        if (ignored := self._ports.peer_logs.ignored()) != self._ignored:
            self._ignored, others = ignored, ignored - self._ports.permits
            self._node.log.info("peers ignored", peers=sorted(ignored - others), without_permit=sorted(others))

    async def bring_sources(self) -> None:
        """Ask for the sources behind commitments of the newest final block, once a block; not while there is nobody to
        ask. Raises ArenaError U3030, V2064."""
        metagraph, peers = self._metagraph, self.peers()
        if metagraph is None or not peers or metagraph.block == self._relayed:
            return
        miners = [neuron.hotkey for neuron in metagraph.neurons if neuron.hotkey not in self._ports.permits]
        commitments = await self._node.chain.commitments(miners, metagraph.block)
        delivered, complaints = await self._relay.fetch(tuple(commitments.values()), peers)
        for each in complaints:
            self._node.log.warning("peer", peer=each.peer, code=each.failure.code, detail=each.failure.detail)
        if delivered:
            self._node.log.info("sources relayed", count=len(delivered))
        self._relayed = metagraph.block

    async def hear(self) -> None:
        """Ask every peer how far it is with the race: under which rules it runs is seen by that."""
        if (race := self._race()) is not None:
            for peer, said in await self._answers(self.peers(), ProgressQuestion(race=race.race_id), HEAR_EVERY_S):
                rules = {"policy_sha256": said.policy_sha256, "guest_sha256": said.guest_sha256}
                self._seen[peer.hotkey] = PeerRules(hotkey=peer.hotkey, **rules)

    def peers(self) -> list[Peer]:
        """The other validators that publish an address, as of the final block seen last, but for those ignored."""
        return self._ports.others(self._metagraph, self._node.signer.hotkey) if self._metagraph else []

    async def own_notes(self) -> list[str]:
        """The newest signed state of this node's log that each other validator holds. One that does not answer soon, or
        shows what this hotkey did not sign, proves nothing."""
        node, notes = self._node, list[str]()
        try:
            peers = self._ports.others(await node.chain.metagraph(), node.signer.hotkey)
        except ArenaError as error:
            node.log.warning("others were not asked for our notes", code=error.failure.code)
            return []
        for peer, note in await self._answers(peers, NoteQuestion(validator=node.signer.hotkey), ANSWER_S):
            try:
                notes += [note] if read_checkpoint(note, verify).validator == node.signer.hotkey else []
            except ArenaError as error:
                node.log.info("peer holds no note of ours", peer=peer.hotkey, reason=str(error))
        return notes

    async def _answers(
        self, peers: Sequence[Peer], question: Question[Answer], within_s: float
    ) -> list[tuple[Peer, Answer]]:
        """What peers answer that are asked at once, beside who said it."""
        asked = (ask_peer(self._ports.peers, peer, question, within_s, self._node.log.info) for peer in peers)
        answers = zip(peers, await asyncio.gather(*asked), strict=True)
        return [(peer, answer) for peer, answer in answers if answer]

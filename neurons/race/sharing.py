"""What a node opens to race together with the network's other validators, the loops that keep it fed, and its address;
and the loop that keeps the operator's files up to date.

Only permit holders of the metagraph seen last are answered; the address published on chain is the one the
settings name; sources that the chain knows and this node does not are asked of peers and wait for the gate, as if
their miners had brought them. A peer that is away or lying costs its answer and a log line. Sealed batches of a whole
release are usable at once; policy, suite, titles and index take effect together, at the next start, and until then the
log and the status say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from arena.chain.keys import HttpAuth, verify
from arena.chain.port import Metagraph, Signer, split_endpoint
from arena.exchange.http_peers import HttpPeers
from arena.exchange.operator_files import FilesRelease, ReleaseStore, of_operator
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.peer_service import PeerService
from arena.exchange.port import Peer, ProgressQuestion
from arena.exchange.pull import Puller, ReleasePuller, ReleaseTurn, SourceRelay
from arena.race.draw import permitted_validators
from arena.records.log import read_checkpoint
from arena.store.postgres import PostgresStore
from arena.submissions.model import SignedSubmission, waiting_row
from foundation.codes import POLICY_WAITS
from foundation.errors import ArenaError, Failure
from harness.catalogue.server import listen
from neurons.health.status import OperatorFacts, PeerSeen
from neurons.loops.node import Node, OperatorFiles, Permits, Sharing
from neurons.loops.run_loop import StopSignal, run_loop
from neurons.race.clock import RaceClock
from neurons.settings.inputs import held_path
from neurons.settings.released import place_files, released_policy
from neurons.settings.settings import Settings

if TYPE_CHECKING:
    from arena.web.server import ExchangeServer

LOOK_EVERY_S = 60.0  # at the address that the chain names; a chain that refused one is asked again then


class AddressLoop:
    """Keeps one address of a node's hotkey on chain."""

    name, every_s = "address", LOOK_EVERY_S

    def __init__(self, node: Node, endpoint: str, *, whose: str, told: str = "") -> None:
        """`whose` begins the log lines; `told` is the sentence of one that went well, before the address."""
        self._node, self._endpoint, self._whose, self._told = node, endpoint, whose, told

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
            text = f"{self._told} {self._endpoint}" if self._told else ""
            node.log.info(f"{self._whose} published", **about, text=text)
            return
        text = f"{self._whose} is not on chain: {result.status} {result.detail}; tried again in {LOOK_EVERY_S:.0f} s"
        node.log.warning(f"{self._whose} not published", **about, text=text)


TURN_S = 1.0  # the chain is looked at once a final block
PROGRESS_EVERY_MS = 300_000
ANSWER_S = 10.0  # a start waits no longer for the others


@contextlib.asynccontextmanager
async def open_sharing(
    settings: Settings, signer: Signer, open_store: Callable[[], Awaitable[PostgresStore]]
) -> AsyncIterator[Sharing | None]:
    """The ports of a node that shares races, None for one that does not.

    `open_store` connects to the node's log once more: what others read takes none of the node's own connections. Raises
    ArenaError V2030 when it has no address that others reach, or the live tail's port, or one that the
    chain can't hold; V2014 when the port cannot be had; V2064 (folders).
    """
    if not settings.share:
        yield None
        return
    if not settings.public_endpoint:
        raise ArenaError("V2030", "share: others must reach this node, so public_endpoint is needed")
    endpoint = settings.public_endpoint.rstrip("/")
    _, port = split_endpoint(endpoint)
    if port == settings.serve_port:
        detail = f"serve_port and the exchange both want port {port}: set another serve_port"
        raise ArenaError("V2030", detail)
    auth = HttpAuth(signer, time.time_ns)
    auth.sign("GET", "/", signer.hotkey)  # the SDK is imported before the loops run
    held = PeerLogStore(held_path(settings.state_dir))
    with listen(settings.public_host, port) as listener:
        async with contextlib.aclosing(HttpPeers(auth)) as peers:
            yield Sharing(
                listener=listener,
                store=await open_store(),
                auth=auth,
                peers=peers,
                peer_logs=held,
                puller=Puller(peers, held, verify),
                endpoint=endpoint,
                permits=Permits(),
            )


class SharingLoop:
    """Keeps the permit list, the published address, the sources and what is heard of others up to date."""

    def __init__(self, node: Node, ports: Sharing, race_id: Callable[[], str]) -> None:
        """`race_id` is the race this node is at."""
        self._node, self._ports, self._race_id = node, ports, race_id
        self._metagraph: Metagraph | None = None
        self._progress_not_before_ms = 0
        self._block = self._relayed = -1  # the final block looked at last, and the one whose sources were asked for
        self._seen: dict[str, PeerSeen] = {}
        self._ignored = frozenset[str]()
        self._relay = SourceRelay(
            ports.peers,
            node.store,
            verify,
            self._take,
            now_ms=node.now_ms,
            is_commitment_enough=node.policy.admission.is_commitment_enough,
        )

    async def run(self, drain: StopSignal) -> None:
        """Turn until drained. Raises what no retry can mend."""
        log = self._node.log  # loops of their own: a peer that is slow to answer must not hold up the permit list
        await asyncio.gather(
            run_loop("sharing", self.turn, drain, log, every_s=TURN_S),
            run_loop("sources", self.bring_sources, drain, log, every_s=TURN_S),
            run_loop("hearing", self.hear, drain, log, every_s=TURN_S),
        )

    async def _take(self, submission: SignedSubmission, commitment_block: int) -> None:
        await self._node.store.put_submission(waiting_row(submission, commitment_block), submission.source)

    def has_permit(self, hotkey: str) -> bool:
        """Whether a hotkey held a permit when the chain was last asked, and is not ignored here."""
        return hotkey in self._ports.permits.hotkeys and hotkey not in self._ignored

    def peers_seen(self) -> tuple[PeerSeen, ...]:
        """The others that answered, and under which rules they run."""
        return tuple(self._seen[hotkey] for hotkey in sorted(self._seen) if hotkey in self._ports.permits.hotkeys)

    async def turn(self) -> None:
        """Look at the next final block, if there is one, and do what follows. Raises ArenaError U3030 while the chain
        is away."""
        chain = self._node.chain
        finalized = await chain.finalized_block()
        if finalized == self._block:
            return
        self._metagraph = await chain.metagraph(finalized)
        self._ports.permits.hotkeys = frozenset(permitted_validators(self._metagraph))
        self._block = finalized
        if (ignored := self._ports.peer_logs.ignored()) != self._ignored:
            self._ignored, others = ignored, ignored - self._ports.permits.hotkeys
            self._node.log.info("peers ignored", peers=sorted(ignored - others), without_permit=sorted(others))

    async def bring_sources(self) -> None:
        """Ask for the sources behind commitments of the newest final block, once a block; not while there is nobody to
        ask. Raises ArenaError U3030, V2064."""
        metagraph, peers = self._metagraph, self.peers()
        if metagraph is None or not peers or metagraph.block == self._relayed:
            return
        miners = [neuron.hotkey for neuron in metagraph.neurons if neuron.hotkey not in self._ports.permits.hotkeys]
        commitments = await self._node.chain.commitments(miners, metagraph.block)
        delivered, complaints = await self._relay.fetch(tuple(commitments.values()), peers)
        for complaint in complaints:
            code, detail = complaint.failure.code, complaint.failure.detail
            self._node.log.warning("peer", peer=complaint.peer, code=code, detail=detail)
        if delivered:
            self._node.log.info("sources relayed", count=len(delivered))
        self._relayed = metagraph.block

    async def hear(self) -> None:
        """Ask every peer how far it is with the race, now and again: under which rules it runs is seen by that."""
        peers, now_ms = self.peers(), self._node.now_ms()
        if peers and self._race_id() and now_ms >= self._progress_not_before_ms:
            self._progress_not_before_ms = now_ms + PROGRESS_EVERY_MS
            await asyncio.gather(*(self._hear(peer, now_ms) for peer in peers))

    def peers(self) -> list[Peer]:
        """The other validators that publish an address, as of the final block seen last, but for those ignored."""
        found = peers_of(self._metagraph, self._node.signer.hotkey) if self._metagraph else []
        return [peer for peer in found if peer.hotkey not in self._ignored]

    async def own_notes(self) -> list[str]:
        """The newest signed state of this node's log that each other validator holds. One that does not answer soon, or
        shows what this hotkey did not sign, proves nothing."""
        node = self._node
        question = NoteQuestion(validator=node.signer.hotkey)

        async def ask(peer: Peer) -> str:
            try:
                async with asyncio.timeout(ANSWER_S):
                    note = await self._ports.peers.ask(peer, question) or ""
                return note if note and read_checkpoint(note, verify).validator == node.signer.hotkey else ""
            except (ArenaError, TimeoutError) as error:
                node.log.info("peer holds no note of ours", peer=peer.hotkey, reason=str(error))
                return ""

        try:
            peers = peers_of(await node.chain.metagraph(), node.signer.hotkey)
        except ArenaError as error:
            node.log.warning("others were not asked for our notes", code=error.failure.code)
            return []
        return [note for note in await asyncio.gather(*map(ask, peers)) if note]

    async def _hear(self, peer: Peer, now_ms: int) -> None:
        try:
            said = await self._ports.peers.ask(peer, ProgressQuestion(race=self._race_id()))
        except ArenaError as error:
            self._node.log.info("peer", peer=peer.hotkey, code=error.failure.code, detail=error.failure.detail)
            return
        if said is not None:
            self._seen[peer.hotkey] = PeerSeen(
                hotkey=peer.hotkey,
                policy_sha256=said.policy_sha256,
                guest_sha256=said.guest_sha256,
                seen_ms=now_ms,
            )


def open_exchange(node: Node, ports: Sharing, loop: SharingLoop, clock: RaceClock) -> ExchangeServer:
    """Where and what this node answers the other validators."""
    from arena.exchange.routes import Exchange
    from arena.web.server import ExchangeServer

    service = PeerService(
        ports.store,
        ports.peer_logs,
        has_permit=loop.has_permit,
        gate=clock.reveal_gate,
        progress=clock.progress,
        settled=clock.settlement,
        releases=node.operator_files.store if node.operator_files else None,
    )
    door_port = node.serving.door_port if node.serving else 0
    return ExchangeServer(Exchange(service, ports.auth, door_port=door_port), ports.listener)


def peers_of(metagraph: Metagraph, own_hotkey: str) -> list[Peer]:
    """The other validators of a metagraph that publish an address."""
    permitted = permitted_validators(metagraph)
    return [
        Peer(hotkey=neuron.hotkey, endpoint=neuron.endpoint)
        for neuron in metagraph.neurons
        if neuron.hotkey in permitted and neuron.hotkey != own_hotkey and neuron.endpoint
    ]


class ReleaseLoop:
    """Fetches releases for one node, and says what became of them."""

    name, every_s = "operator files", 30.0

    def __init__(self, node: Node, files: OperatorFiles, peers: Callable[[], Sequence[Peer]]) -> None:
        """`peers` are the other validators now; of a node that shares no races nobody is asked."""
        self._node, self._files, self._peers = node, files, peers
        asks = node.sharing.peers if node.sharing else None
        self._puller = ReleasePuller(asks, files.store, files.operator, verify) if asks else None
        self._said: set[tuple[str, str]] = set()
        self._placed: FilesRelease | None = files.started_with
        self._unusable: tuple[str, ...] = ()
        self.facts = OperatorFacts(operator=files.operator.hotkey)

    async def turn(self) -> OperatorFacts:
        """Ask the others, take what came. Raises ArenaError V2064, V2115."""
        peers = self._peers()
        if self._puller is not None and peers:
            turn = await self._puller.turn(peers)
            for complaint in turn.complaints:
                self._node.metrics.release_complaints.labels(complaint.failure.code).inc()
            log_turn(turn, self._files.store, self._said)
        self.facts = await asyncio.to_thread(self._look)
        metrics = self._node.metrics
        metrics.release_sequence.set(self.facts.sequence)
        metrics.release_files_lacking.set(self.facts.lacking)
        metrics.policy_waits.set(bool(self.facts.policy_waits))
        return self.facts

    def _look(self) -> OperatorFacts:
        """Place what a newer whole release brought, also one that was published here, and tell how it stands."""
        files, log = self._files, self._node.log
        newest, whole = (of_operator(signed, files.operator) for signed in (files.store.newest(), files.store.whole()))
        waits = ""
        if whole is not None:
            if whole.release != self._placed:
                self._place(whole.release)
            try:
                policy = None if files.settings.policy else released_policy(files.store, whole.release)
            except ArenaError as error:  # it stops the next start, not this node
                self._refuse(error.failure)
                policy = None
            if policy is not None and policy.policy_sha256 != files.policy_sha256:
                waits = policy.policy_sha256
        if waits and waits != self.facts.policy_waits:
            log.warning(
                "released policy takes effect at the next start",
                code=POLICY_WAITS,
                now=self._node.policy.policy_sha256[:12],
                released=waits[:12],
            )
        return OperatorFacts(
            operator=files.operator.hotkey,
            sequence=newest.release.sequence if newest else 0,
            release_sha256=newest.release.release_sha256 if newest else "",
            files=len(newest.release.files) if newest else 0,
            lacking=len(files.store.missing(newest.release)) if newest else 0,
            policy_waits=waits,
            unusable=self._unusable,
        )

    def _place(self, release: FilesRelease) -> None:
        files, log = self._files, self._node.log
        self._unusable = ()
        failures = place_files(files.settings, files.store, release, ("batch",))
        for failure in failures:
            self._refuse(failure)
        log.info(
            "operator's batches are in the bank; the rest of the release takes effect at the next start",
            release=release.sequence,
            batches=len(release.of_kind("batch")) - len(failures),
        )
        self._placed = release

    def _refuse(self, failure: Failure) -> None:
        if failure.detail not in self._unusable:
            self._unusable += (failure.detail,)
            self._node.log.warning("operator's file", code=failure.code, detail=failure.detail)


def log_turn(turn: ReleaseTurn, store: ReleaseStore, said: set[tuple[str, str]]) -> None:
    """What a turn of fetching brought, and complaints (peer, code) that are not `said` since the turn before."""
    log, before = structlog.get_logger(), frozenset(said)
    said.clear()
    for complaint in turn.complaints:
        said.add(told := (complaint.peer, complaint.failure.code))
        if told not in before:
            log.warning("peer", peer=complaint.peer, code=complaint.failure.code, detail=complaint.failure.detail)
    newest = store.newest()
    if newest is None or not (turn.is_new or turn.fetched or turn.is_whole):
        return
    release = newest.release
    state = "whole" if not turn.lacking else "incomplete"
    log.info(
        "operator's release", release=release.sequence, state=state, lacking=turn.lacking, fetched=len(turn.fetched)
    )

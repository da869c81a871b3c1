"""What a node opens to race together with the network's other validators, the loops that keep it fed, and its address.

Only permit holders of the metagraph seen last are answered; the address published on chain is the one the
settings name; sources that the chain knows and this node does not are asked of peers and wait for the gate, as if
their miners had brought them. A peer that is away or lying costs its answer and a log line.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from arena.chain.keys import HttpAuth, verify
from arena.chain.port import Metagraph, Signer, split_endpoint
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.peer_service import PeerService
from arena.exchange.port import HttpPeers, NoteQuestion, Peer, ProgressQuestion
from arena.exchange.pull import Puller, SourceRelay
from arena.race.draw import permitted_validators
from arena.race.machine import RaceState
from arena.records.log import read_checkpoint
from arena.store.location import StoreLocation
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from neurons.health.status import PeerSeen
from neurons.loops.node import Node, Sharing
from neurons.race.clock import RaceClock
from neurons.race.log import open_reading
from neurons.settings.inputs import held_path
from neurons.settings.settings import Settings

if TYPE_CHECKING:
    from arena.web.server import ExchangeServer

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
        self._seen: dict[str, PeerSeen] = {}
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

    def peers_seen(self) -> tuple[PeerSeen, ...]:
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
        for complaint in complaints:
            code, detail = complaint.failure.code, complaint.failure.detail
            self._node.log.warning("peer", peer=complaint.peer, code=code, detail=detail)
        if delivered:
            self._node.log.info("sources relayed", count=len(delivered))
        self._relayed = metagraph.block

    async def hear(self) -> None:
        """Ask every peer how far it is with the race: under which rules it runs is seen by that."""
        if (race := self._race()) is not None:
            await asyncio.gather(*(self._hear(peer, ProgressQuestion(race=race.race_id)) for peer in self.peers()))

    def peers(self) -> list[Peer]:
        """The other validators that publish an address, as of the final block seen last, but for those ignored."""
        return self._ports.others(self._metagraph, self._node.signer.hotkey) if self._metagraph else []

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
            peers = self._ports.others(await node.chain.metagraph(), node.signer.hotkey)
        except ArenaError as error:
            node.log.warning("others were not asked for our notes", code=error.failure.code)
            return []
        return [note for note in await asyncio.gather(*map(ask, peers)) if note]

    async def _hear(self, peer: Peer, question: ProgressQuestion) -> None:
        try:
            said = await self._ports.peers.ask(peer, question)
        except ArenaError as error:
            self._node.log.info("peer", peer=peer.hotkey, code=error.failure.code, detail=error.failure.detail)
            return
        if said is not None:
            rules = {"policy_sha256": said.policy_sha256, "guest_sha256": said.guest_sha256}
            self._seen[peer.hotkey] = PeerSeen(hotkey=peer.hotkey, **rules)


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

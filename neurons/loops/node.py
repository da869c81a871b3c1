"""One validator node: the open ports its loops share; `neurons.node.opening` opens and closes them."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from arena.bank.stock import Bank
from arena.chain.keys import HttpAuth
from arena.chain.port import Beacon, Metagraph, Signer, Subtensor
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.port import HttpPeers, Peer
from arena.exchange.pull import Puller
from arena.gate.knowledge import GateKnowledge
from arena.policy import Policy
from arena.race.draw import permitted_validators
from arena.records.model import Conditions, HostFacts
from arena.records.sequencer import Sequencer
from arena.store.postgres import PostgresStore
from neurons.health.metrics import Metrics
from neurons.loops.operator_files import OperatorFiles
from neurons.loops.purse import Purse
from neurons.loops.serving import Serving
from neurons.settings.settings import Endpoint
from neurons.worker.pool import WorkerPool
from problems.model import Problem, Product
from problems.suites import Variant, VariantMaker

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from arena.web.server import ChainServer


Variants = Callable[[str, str], Variant]  # as `VariantMaker.variant`


def suite_variants(suite: Iterable[Problem], products: Callable[[], Iterable[Product]]) -> Variants:
    """The variants of the active suite, from any thread. `products` is the whole catalogue, asked for once: the first
    call builds the index and takes its time."""
    drawing, maker = threading.Lock(), functools.cache(lambda: VariantMaker(suite, products()))

    def variant(problem_id: str, seed: str) -> Variant:
        with drawing:
            return maker().variant(problem_id, seed)

    return variant


@dataclass(kw_only=True)
class Sharing:
    """What a node that shares races has beside its own ports. `endpoint` is the address it publishes, `listener` the
    socket on which it answers, from `store`."""

    listener: socket.socket
    store: PostgresStore
    auth: HttpAuth
    peers: HttpPeers
    peer_logs: PeerLogStore
    puller: Puller
    endpoint: str
    permits: frozenset[str] = frozenset()  # who held a validator permit when the chain was last asked

    def others(self, metagraph: Metagraph, own_hotkey: str) -> list[Peer]:
        """The other validators of a metagraph that publish an address, but for those ignored here."""
        asked = set(permitted_validators(metagraph)) - self.peer_logs.ignored() - {own_hotkey}
        found = ((neuron.hotkey, neuron.endpoint) for neuron in metagraph.neurons if neuron.hotkey in asked)
        return [Peer(hotkey=hotkey, endpoint=endpoint) for hotkey, endpoint in found if endpoint]


@dataclass(frozen=True, kw_only=True)
class Node:
    """Everything a loop may touch."""

    policy: Policy
    signer: Signer
    chain: Subtensor
    beacon: Beacon
    store: PostgresStore
    sequencer: Sequencer
    pool: WorkerPool
    bank: Bank
    suite: tuple[Problem, ...]  # the active public suite, for qualifying
    knowledge: GateKnowledge
    conditions: Conditions
    host: HostFacts
    state_dir: Path
    now_ms: Callable[[], int]
    metrics: Metrics
    log: FilteringBoundLogger
    purse: Purse
    variants: Variants | None = None  # of the suite, drawn for each agent; None: this node draws none
    serving: Serving | None = None  # public reads, live tail and door, where the settings name a port for one
    operator_files: OperatorFiles | None = None  # None: it takes nobody's
    local_chain: ChainServer | None = None  # where miners on other machines reach the local network's chain
    sharing: Sharing | None = None  # where it shares races with the network's other validators
    upstreams: tuple[Endpoint, ...] = ()
    judges: tuple[Endpoint, ...] = ()  # none: the scripted judge
    committed: set[str] = field(default_factory=set)  # every hash that this process put into the hotkey's slot on chain

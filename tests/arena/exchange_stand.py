"""Validators that ask each other, in one process or over real HTTP on loopback: logs, desks, gates, held folders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.chain.keys import HttpAuth, generate_signer, verify
from arena.exchange.http_peers import HttpPeers
from arena.exchange.log_digest import add_tally, take_tally
from arena.exchange.operator_files import ReleaseStore
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.peer_service import PeerService, ShareRules
from arena.exchange.port import Peer, Peers, Progress
from arena.exchange.pull import Puller, PullPace, Wanted
from arena.exchange.routes import Exchange
from arena.records.log import MerkleFrontier, checkpoint_of, note_sha256, sign_checkpoint, signing_message
from arena.records.model import Payload, SettlementRecord
from arena.records.port import StoredSubmission
from arena.records.sequencer import Sequencer
from arena.submissions.model import SignedSubmission, waiting_row
from arena.web.server import ExchangeServer
from harness.catalogue.server import listen
from tests.arena.local_peers import LocalPeers
from tests.arena.log_stand import HOST, Clock, MemoryLog, episode

RACE = "r1"
TERMS = Progress(policy_sha256="e5" * 32, guest_sha256="d4" * 32)


class MemoryStore(MemoryLog):
    """A log in memory that selects as the real store does, and the submissions beside it."""

    def __init__(self, *named) -> None:
        super().__init__(*named)
        self.kept: list[tuple[StoredSubmission, str]] = []

    async def put_submission(self, submission, source):
        self.kept.append((submission, source))

    async def submissions(self, states=(), *, miner_hotkey=""):
        return [row for row, _ in self.kept if row.subject.miner_hotkey == miner_hotkey]

    async def source(self, agent_version_id):
        return next((source for row, source in self.kept if row.subject.agent_version_id == agent_version_id), None)

    async def records(self, validator=None, *, after_seq=0, kinds=(), race_id=None, page=500):
        for record in list(self.log):
            payload = msgspec.json.decode(record.content)["payload"]
            about = payload.get("race_id", payload.get("context", {}).get("race_id"))
            if record.seq > after_seq and (not kinds or payload["kind"] in kinds) and race_id in (None, about):
                yield record


class Node:
    """One validator: its log and all of its exchange. `permits` and `reveals` are read at every request."""

    def __init__(self, folder: Path, permits: set[str], store=None, signer=None, **options) -> None:
        self.signer = signer or generate_signer()
        self.hotkey = self.signer.hotkey
        self.store = store or MemoryStore(self.hotkey)
        self.sequencer = Sequencer(self.store, self.signer, Clock(), HOST)
        self.permits, self.reveals, self.races = permits, {}, {RACE}
        self.settlements: dict[str, SettlementRecord] = {}
        self.folder = folder / self.hotkey
        self.held = PeerLogStore(self.folder / "held", **options)
        self.releases = ReleaseStore(self.folder / "operator")
        self.rules = ShareRules()
        self.desk = self.make_desk()
        self.auth = HttpAuth(self.signer, time.time_ns)
        permits.add(self.hotkey)

    def make_desk(self, rules: ShareRules | None = None) -> PeerService:
        return PeerService(
            self.store,
            self.held,
            has_permit=lambda hotkey: hotkey in self.permits,
            gate=lambda: self.reveals,
            terms=lambda race_id: TERMS if race_id in self.races else None,
            settled=self.settlements.get,
            releases=self.releases,
            rules=rules,
        )

    async def hold_source(self, submission: SignedSubmission) -> None:
        await self.store.put_submission(waiting_row(submission, 7), submission.source)

    async def append(self, payloads: Sequence[Payload], bodies=()) -> int:
        return (await self.sequencer.append(payloads, bodies)).seq

    async def evaluate(self, problems: Sequence[int], race_id: str = RACE) -> int:
        """Episodes of some problems in a race, or, with "", in qualifying; three records each."""
        payloads, bodies = [], []
        for problem in problems:
            made, body = episode(problem, race_id=race_id, attempt_id=f"{self.hotkey}-{race_id}-{problem}:1")
            if not race_id:
                made = [_qualifying(payload) for payload in made]
            payloads += made
            bodies.append(body)
        return await self.append(payloads, bodies)

    async def note(self, race_id: str = RACE, size: int | None = None) -> str:
        """A signed note of the log with the tally of a race, kept by this node."""
        tree = MerkleFrontier()
        async for leaf in self.store.leaves(self.hotkey, to_seq=size):
            tree.append(signing_message(self.hotkey, leaf.seq, leaf.prev, leaf.content_sha256))
        note = sign_checkpoint(checkpoint_of(self.hotkey, tree), self.signer)
        note = add_tally(note, await take_tally(self.store, race_id, tree.size), self.signer)
        self.held.keep_note(note)
        return note

    async def anchor(self, race_id: str = RACE, *, is_final: bool = True) -> Wanted:
        """What others want once this note's hash stands on chain; `is_final`: its anchor block is."""
        note = await self.note(race_id)
        size = int(note.split("\n")[1])
        if is_final:
            self.reveal(race_id, size)
        return Wanted(validator=self.hotkey, note_sha256=note_sha256(note), race_id=race_id)

    def reveal(self, race_id: str = RACE, to_seq: int = 0) -> None:
        self.reveals[race_id] = max(to_seq, self.reveals.get(race_id, 0))

    def puller(self, peers: Peers, **options) -> Puller:
        return Puller(peers, self.held, verify, **options)


def _qualifying(payload: Payload) -> Payload:
    context = msgspec.structs.replace(payload.context, stage="qualifying")
    return msgspec.structs.replace(payload, context=context)


class LocalNet:
    """Nodes that reach each other directly."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    async def join(self, node: Node) -> Peer:
        self.nodes.append(node)
        return Peer(hotkey=node.hotkey, endpoint="local")

    def peers(self, node: Node) -> LocalPeers:
        made = LocalPeers(node.hotkey, sleep=lambda _: asyncio.sleep(0))
        made.services = {other.hotkey: other.desk for other in self.nodes}
        return made

    async def close(self) -> None:
        pass


class HttpNet:
    """The same over real HTTP, each node with a server in this loop."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._clients: list[HttpPeers] = []

    async def join(self, node: Node) -> Peer:
        listener = listen("127.0.0.1", 0)
        server = ExchangeServer(Exchange(node.desk, node.auth), listener)
        self._running.append(asyncio.create_task(server.run(self._stop)))
        return Peer(hotkey=node.hotkey, endpoint=server.address)

    def peers(self, node: Node) -> HttpPeers:
        self._clients.append(HttpPeers(node.auth, silence_s=5, answer_s=10))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._stop.set()
        await asyncio.gather(*self._running)


FAST = PullPace(window_s=20.0)

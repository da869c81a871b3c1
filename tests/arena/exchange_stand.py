"""Validators that ask each other, in one process or over real HTTP on loopback: logs, desks, gates, held folders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from arena.chain.keys import HttpAuth, verify
from arena.exchange import port
from arena.exchange.log_digest import add_digest, extend, take_digest
from arena.exchange.operator_files import ReleaseStore
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.peer_service import PeerService, ShareRules
from arena.exchange.pull import Puller, PullJob, PullPace, PullResult
from arena.exchange.routes import Exchange
from arena.export.assembly import log_row
from arena.export.model import LogRow
from arena.race.admission import RaceRecords
from arena.records.body import decode_content
from arena.records.log import LogStart, note_sha256, sign_checkpoint
from arena.records.model import Payload, SettlementRecord
from arena.records.sequencer import Sequencer
from arena.submissions.submission import SignedSubmission, waiting_row
from arena.web.server import ExchangeServer
from foundation.codes import PEER_AWAY, PEER_REFUSED
from foundation.errors import ArenaError
from harness.catalogue.server import listen
from tests.arena.log_stand import HOST, Clock, MemoryLog, episode, signed_bytes, signed_note, walked
from tests.keys import generate_signer

RACE = "r1"
TERMS = port.Progress(policy_sha256="e5" * 32, guest_sha256="d4" * 32)


class Node:
    """One validator: its log and all of its exchange. `permits` and `reveals` are read at every request."""

    def __init__(self, folder: Path, permits: set[str], store=None, signer=None, **options) -> None:
        self.signer = signer or generate_signer()
        self.hotkey = self.signer.hotkey
        self.store = store or MemoryLog(self.hotkey)
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
            progress=self.progress,
            settled=self.settlements.get,
            releases=self.releases,
            rules=rules,
        )

    def progress(self, race_id: str) -> port.Progress | None:
        records = RaceRecords()
        for record in self.store.log:
            payload = decode_content(record.content).payload
            records.take(record.validator, record.seq, record.content_sha256, payload)
        return replace(TERMS, done=records.done(self.hotkey)) if race_id in self.races else TERMS

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
                made = [replace(one, context=replace(one.context, stage="qualifying")) for one in made]
            payloads += made
            bodies.append(body)
        return await self.append(payloads, bodies)

    async def note(self, race_id: str = RACE, size: int | None = None) -> str:
        """A signed note of the log with the digest of a race, kept by this node."""
        leaves = [leaf async for leaf in self.store.leaves(self.hotkey, to_seq=size)]
        digest = await take_digest(self.store, race_id, len(leaves))
        note = add_digest(signed_note(self.signer, leaves), digest, self.signer)
        self.held.keep_note(note)
        return note

    async def anchor(self, race_id: str = RACE, *, is_final: bool = True) -> PullJob:
        """What others want once this note's hash stands on chain; `is_final`: its anchor block is."""
        note = await self.note(race_id)
        size = int(note.split("\n")[1])
        if is_final:
            self.reveal(race_id, size)
        return PullJob(validator=self.hotkey, note_sha256=note_sha256(note), race_id=race_id)

    def reveal(self, race_id: str = RACE, to_seq: int = 0) -> None:
        self.reveals[race_id] = max(to_seq, self.reveals.get(race_id, 0))

    def puller(self, peers, **options) -> Puller:
        return Puller(peers, self.held, verify, **options)


class LocalNet:
    """Nodes that reach each other directly."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    async def join(self, node: Node) -> port.Peer:
        self.nodes.append(node)
        return port.Peer(hotkey=node.hotkey, endpoint="local")

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
        self._clients: list[port.HttpPeers] = []

    async def join(self, node: Node) -> port.Peer:
        listener = listen("127.0.0.1", 0)
        server = ExchangeServer(Exchange(node.desk, node.auth), listener)
        self._running.append(asyncio.create_task(server.run(self._stop)))
        return port.Peer(hotkey=node.hotkey, endpoint=server.address)

    def peers(self, node: Node) -> port.HttpPeers:
        self._clients.append(port.HttpPeers(node.auth, silence_s=5, answer_s=10))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._stop.set()
        await asyncio.gather(*self._running)


FAST = PullPace(window_s=20.0)


class Case:
    """An author, a relay that may hold its log, and a reader."""

    def __init__(self, folder: Path, net: LocalNet | HttpNet | None = None) -> None:
        self.net, permits = net or LocalNet(), set()
        self.author, self.relay, self.reader = (Node(folder, permits) for _ in range(3))
        self.wanted: PullJob
        self.peers: list[port.Peer] = []

    async def join(self):
        self.peers = [await self.net.join(node) for node in (self.author, self.relay, self.reader)]
        self.ask = self.net.peers(self.reader)
        return self

    async def fill(self) -> Case:
        """Nine records in the author's log, held whole by the relay under its note."""
        await self.join()
        await self.author.evaluate([1, 2])
        await self.author.evaluate([3], "r2")
        self.wanted = await self.author.anchor()
        await self.pull_by_relay(self.wanted)
        self.relay.reveal(RACE)
        return self

    async def pull_by_relay(self, wanted: PullJob) -> PullResult:
        return await self.relay.puller(self.net.peers(self.relay), pace=FAST).pull(wanted, self.peers)

    async def pull(self, peers=None, wanted: PullJob | None = None, pace: PullPace = FAST) -> PullResult:
        return await self.reader.puller(peers or self.ask, pace=pace).pull(wanted or self.wanted, self.peers)


class Handmade:
    """An author that writes whatever it likes, signs it, counts it, and serves it whole. `claims`: more records than
    there are, which its note is of."""

    def __init__(self, contents: list[bytes], race_id: str = RACE, claims: int = 0) -> None:
        self.signer = generate_signer()
        self.peer = port.Peer(hotkey=self.signer.hotkey, endpoint="here")
        walk, count = walked(self.signer.hotkey, ()), port.Count()
        self._rows = []
        for content in contents:
            record = signed_bytes(self.signer, content, walk.head)
            self._rows.append(log_row(record))
            walk.take(record)
            count = extend(count, record.seq, record.content_sha256)
        digest = port.LogDigest(race_id=race_id, count=count, start=LogStart(validator=self.signer.hotkey))
        point = replace(walk.checkpoint, size=max(claims, walk.seq))
        self._note = add_digest(sign_checkpoint(point, self.signer), digest, self.signer)
        self.wanted = PullJob(validator=self.signer.hotkey, note_sha256=note_sha256(self._note), race_id=race_id)

    async def ask(self, peer: port.Peer, question: port.NoteQuestion) -> str:
        return self._note

    async def rows(self, peer: port.Peer, question: port.RowsQuestion):
        for row in self._rows[question.after : question.to]:
            yield row


# -- peers within one process: their services themselves, with faults that can be set. The twin of `http_peers`


class PeerFault(msgspec.Struct, frozen=True, kw_only=True):
    """How a peer misbehaves, until it is set otherwise."""

    is_away: bool = False
    slow_s: float = 0.0  # before each answer
    is_lying: bool = False  # notes, sources, settlements and whole rows come with other contents
    is_withholding: bool = False  # whole rows come as stubs
    rows_max: int | None = None  # an answer breaks off behind so many rows


class LocalPeers:
    """The other services as one validator sees them."""

    def __init__(self, caller: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.services: dict[str, PeerService] = {}
        self.faults: dict[str, PeerFault] = {}
        self._caller, self._sleep = caller, sleep

    async def ask(self, peer: port.Peer, question: port.Question[port.Answer]) -> port.Answer | None:
        """As `HttpPeers.ask`."""
        service, fault = await self._reach(peer)
        with _refusals(peer):
            found: Any = await service.answer(self._caller, question)
        return _falsified(found) if fault.is_lying else found

    async def rows(self, peer: port.Peer, question: port.RowsQuestion) -> AsyncGenerator[LogRow]:
        """As `HttpPeers.rows`."""
        service, fault = await self._reach(peer)
        sent = 0
        with _refusals(peer):
            async with aclosing(await service.rows(self._caller, question)) as rows:
                async for row in rows:
                    if sent == fault.rows_max:
                        raise ArenaError(PEER_AWAY, f"{peer.hotkey} broke off")
                    if row.content is not None and fault.is_withholding:
                        row = msgspec.structs.replace(row, content=None, body=None, withheld="unreleased")
                    elif row.content is not None and fault.is_lying:
                        other = bytes(row.content).replace(b"true", b"null")
                        row = msgspec.structs.replace(row, content=msgspec.Raw(other))
                    yield row
                    sent += 1

    async def _reach(self, peer: port.Peer) -> tuple[PeerService, PeerFault]:
        service, fault = self.services.get(peer.hotkey), self.faults.get(peer.hotkey, PeerFault())
        if fault.slow_s:
            await self._sleep(fault.slow_s)
        if service is None or fault.is_away:
            raise ArenaError(PEER_AWAY, peer.hotkey)
        return service, fault


def _falsified(found: Any) -> Any:
    match found:
        case str():
            return found + "\n"
        case bytes():
            return bytes(byte ^ 1 for byte in found)
        case SignedSubmission():
            return msgspec.structs.replace(found, source=found.source + "#\n")
        case SettlementRecord():
            return msgspec.structs.replace(found, seed="00" * 32)
    return found


@contextmanager
def _refusals(peer: port.Peer) -> Iterator[None]:
    """A service's own codes as its caller sees them: its server's troubles are an absence, the rest a refusal."""
    try:
        yield
    except ArenaError as error:
        code = error.failure.code
        if code.startswith("U304"):
            raise
        away = code.startswith("V202") or code == "V2064"
        raise ArenaError(
            PEER_AWAY if away else PEER_REFUSED, f"{peer.hotkey}: {code} {error.failure.detail}"
        ) from error

"""An author with a log, a relay that holds it and a reader; and an author that writes whatever it likes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from arena.chain.keys import generate_signer
from arena.exchange.log_digest import add_tally, extend
from arena.exchange.port import Count, LogDigest, NoteQuestion, Peer, RowsQuestion
from arena.exchange.pull import Pulled, PullPace, Wanted
from arena.export.model import LogRow
from arena.records.log import (
    LogStart,
    MerkleFrontier,
    checkpoint_of,
    first_head,
    note_sha256,
    record_hash,
    sign_checkpoint,
    signing_message,
)
from tests.arena.exchange_stand import FAST, RACE, LocalNet, Node


class Case:
    """An author with a log of nine records, whole under its note; a relay that holds it; a reader."""

    def __init__(self, folder: Path) -> None:
        self.net, permits = LocalNet(), set()
        self.author, self.relay, self.reader = (Node(folder, permits) for _ in range(3))
        self.wanted: Wanted
        self.peers: list[Peer] = []

    async def fill(self) -> Case:
        self.peers = [await self.net.join(node) for node in (self.author, self.relay, self.reader)]
        await self.author.evaluate([1, 2])
        await self.author.evaluate([3], "r2")
        self.wanted = await self.author.anchor()
        await self.relay.puller(self.net.peers(self.relay), pace=FAST).pull(self.wanted, self.peers)
        self.relay.reveal(RACE)
        return self

    async def pull(self, peers, wanted: Wanted | None = None, pace: PullPace = FAST) -> Pulled:
        return await self.reader.puller(peers, pace=pace).pull(wanted or self.wanted, self.peers)

    def leaves_no_trace(self) -> bool:
        rows = self.reader.folder / "held" / "rows"
        return self.reader.held.held(RACE) == [] and list(rows.iterdir()) == []


class Handmade:
    """An author that writes whatever it likes, signs it, counts it, and serves it whole. `claims`: more records than
    there are, which its note is of."""

    def __init__(self, contents: list[bytes], race_id: str = RACE, claims: int = 0) -> None:
        self.signer = generate_signer()
        self.peer = Peer(hotkey=self.signer.hotkey, endpoint="here")
        tree, head, count = MerkleFrontier(), first_head(self.signer.hotkey).hash, Count()
        self._rows = []
        for seq, content in enumerate(contents, 1):
            sha256 = hashlib.sha256(content).hexdigest()
            leaf = signing_message(self.signer.hotkey, seq, head, sha256)
            self._rows.append(
                LogRow(
                    validator=self.signer.hotkey,
                    seq=seq,
                    prev=head,
                    content_sha256=sha256,
                    signature=self.signer.sign(leaf).hex(),
                    content=msgspec.Raw(content),
                )
            )
            tree.append(leaf)
            head, count = record_hash(head, sha256), extend(count, seq, sha256)
        tally = LogDigest(race_id=race_id, count=count, start=LogStart(validator=self.signer.hotkey))
        point = checkpoint_of(self.signer.hotkey, tree)
        point = msgspec.structs.replace(point, size=max(claims, point.size))
        self._note = add_tally(sign_checkpoint(point, self.signer), tally, self.signer)
        self.wanted = Wanted(validator=self.signer.hotkey, note_sha256=note_sha256(self._note), race_id=race_id)

    async def ask(self, peer: Peer, question: NoteQuestion) -> str:
        return self._note

    async def rows(self, peer: Peer, question: RowsQuestion):
        for row in self._rows[question.after : question.to]:
            yield row

"""Peers that lie, withhold, stall and replay: nothing of theirs is held, they are named, and the next one is asked."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import generate_signer, verify
from arena.exchange.log_digest import add_tally, extend, read_tally
from arena.exchange.port import ROW_BYTES_MAX, Count, LogDigest, Peer
from arena.exchange.pull import PULL_ROWS_MAX, Pulled, PullPace, Wanted
from arena.export.model import LogRow
from arena.records.log.anchors import note_sha256
from arena.records.log.checkpoint import checkpoint_of, sign_checkpoint
from arena.records.log.hash_chain import first_head, record_hash, signing_message
from arena.records.log.merkle import MerkleFrontier
from arena.records.verify.log_check import LogStart
from foundation.errors import ArenaError
from tests.arena.exchange_stand import FAST, RACE, LocalNet, Node
from tests.arena.local_peers import LocalPeers, PeerFault

Change = Callable[[list[LogRow]], list[LogRow]]


class Meddler:
    """Peers of which one changes the rows it passes on."""

    def __init__(self, peers, liar: str, change: Change) -> None:
        self._peers, self._liar, self._change, self.note = peers, liar, change, peers.note

    async def rows(self, peer: Peer, validator: str, **named):
        rows = [row async for row in self._peers.rows(peer, validator, **named)]
        for row in self._change(rows) if peer.hotkey == self._liar else rows:
            yield row


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


@pytest.fixture
async def case(tmp_path: Path) -> Case:
    return await Case(tmp_path).fill()


def change_content(rows: list[LogRow]) -> list[LogRow]:
    forged = msgspec.Raw(bytes(rows[1].content).replace(b'"is_success":true', b'"is_success":null'))
    return [rows[0], msgspec.structs.replace(rows[1], content=forged), *rows[2:]]


def change_content_and_hash(rows: list[LogRow]) -> list[LogRow]:
    """A forged record under a signature of somebody else."""
    forged = bytes(rows[1].content).replace(b'"is_success":true', b'"is_success":null')
    other, sha256 = generate_signer(), hashlib.sha256(forged).hexdigest()
    signature = other.sign(signing_message(rows[1].validator, 2, rows[1].prev, sha256)).hex()
    row = msgspec.structs.replace(rows[1], content=msgspec.Raw(forged), content_sha256=sha256, signature=signature)
    return [rows[0], row, *rows[2:]]


def change_stub_hash(rows: list[LogRow]) -> list[LogRow]:
    return [*rows[:8], msgspec.structs.replace(rows[8], content_sha256="ab" * 32)]


def hide_one(rows: list[LogRow]) -> list[LogRow]:
    return [rows[0], msgspec.structs.replace(rows[1], content=None, withheld="unreleased"), *rows[2:]]


def swap_contents(rows: list[LogRow]) -> list[LogRow]:
    first, second = rows[0], rows[3]
    return [msgspec.structs.replace(first, content=second.content), *rows[1:3],
            msgspec.structs.replace(second, content=first.content), *rows[4:]]  # fmt: skip


def change_signature(rows: list[LogRow]) -> list[LogRow]:
    return [msgspec.structs.replace(rows[0], signature=rows[1].signature), *rows[1:]]


def whole_and_withheld(rows: list[LogRow]) -> list[LogRow]:
    return [msgspec.structs.replace(rows[0], withheld="pool"), *rows[1:]]


ATTACKS: dict[str, Change] = {
    "another content": change_content,
    "another content under its own hash and another's signature": change_content_and_hash,
    "another hash in a stub": change_stub_hash,
    "a stub where a whole record is due": hide_one,
    "all of them stubs": lambda rows: [msgspec.structs.replace(r, content=None, withheld="unreleased") for r in rows],
    "two contents swapped": swap_contents,
    "two rows swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "a row left out": lambda rows: [*rows[:4], *rows[5:]],
    "a row twice": lambda rows: [rows[0], *rows],
    "the end cut off": lambda rows: rows[:5] if rows[0].seq == 1 else [],
    "the beginning cut off": lambda rows: rows[1:],
    "rows of another validator": lambda rows: [msgspec.structs.replace(row, validator="5Other") for row in rows],
    "the signature of another record": change_signature,
    "a whole row that says it is withheld": whole_and_withheld,
    "a body": lambda rows: [msgspec.structs.replace(rows[0], body=msgspec.Raw(b"{}")), *rows[1:]],
    "a malformed hash": lambda rows: [msgspec.structs.replace(rows[0], content_sha256="zz"), *rows[1:]],
    "a row beyond the note": lambda rows: [*rows, msgspec.structs.replace(rows[-1], seq=rows[-1].seq + 1)],
    "nothing": lambda rows: [],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_liar_is_named_and_the_next_peer_is_asked(case: Case, attack: str) -> None:
    liar = Meddler(case.net.peers(case.reader), case.author.hotkey, ATTACKS[attack])
    pulled = await case.pull(liar)
    assert pulled.log is not None
    assert [(c.peer, c.failure.code) for c in pulled.complaints] == [(case.author.hotkey, "U3042")]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_of_a_liar_is_held(case: Case, attack: str) -> None:
    case.peers = case.peers[:1]
    pulled = await case.pull(Meddler(case.net.peers(case.reader), case.author.hotkey, ATTACKS[attack]))
    assert pulled.log is None
    assert case.leaves_no_trace()


async def test_whole_rows_of_another_race_are_not_taken(case: Case) -> None:
    leaked = case.author.store.log[6]

    def leak(rows: list[LogRow]) -> list[LogRow]:
        whole = msgspec.structs.replace(rows[6], content=msgspec.Raw(leaked.content), withheld=None)
        return [*rows[:6], whole, *rows[7:]]

    case.peers = case.peers[:1]
    pulled = await case.pull(Meddler(case.net.peers(case.reader), case.author.hotkey, leak))
    assert (pulled.log, pulled.complaints[0].failure.code) == (None, "U3042")


async def test_a_note_with_another_hash_is_a_lie(case: Case) -> None:
    peers = case.net.peers(case.reader)
    peers.faults[case.author.hotkey] = PeerFault(is_lying=True)
    pulled = await case.pull(peers)
    assert pulled.log is not None
    assert {(c.peer, c.failure.code) for c in pulled.complaints} == {(case.author.hotkey, "U3042")}


async def test_a_peer_that_withholds_is_named_and_one_that_is_away_too(case: Case) -> None:
    for fault, code in ((PeerFault(is_withholding=True), "U3042"), (PeerFault(is_away=True), "U3040")):
        peers = case.net.peers(case.reader)
        peers.faults = {case.author.hotkey: fault, case.relay.hotkey: fault}
        pulled = await case.pull(peers)
        assert pulled.log is None
        assert {c.failure.code for c in pulled.complaints if c.peer != case.reader.hotkey} == {code}


async def test_a_peer_that_never_ends_is_given_up(case: Case) -> None:
    class Endless(Meddler):
        async def rows(self, peer: Peer, validator: str, **named):
            async for row in super().rows(peer, validator, **named):
                yield row
                if peer.hotkey == self._liar:
                    await asyncio.Event().wait()

    endless = Endless(case.net.peers(case.reader), case.author.hotkey, list)
    pulled = await case.pull(endless, pace=PullPace(window_s=0.2))
    assert pulled.log is not None
    assert [c.failure.code for c in pulled.complaints] == ["U3040"]


async def test_a_log_of_any_size_that_stands_still_leaves_its_place_to_the_next(case: Case) -> None:
    """Its author's note claims as many records as a pull may have, and the first is all that ever comes."""

    class Still(Handmade):
        async def rows(self, peer: Peer, validator: str, **named):
            async for row in super().rows(peer, validator, **named):
                yield row
            await asyncio.Event().wait()

    author = Still([case.author.store.log[0].content], claims=PULL_ROWS_MAX)
    honest = case.net.peers(case.reader)
    author.note, author.rows = by_author(author, honest, "note"), by_author(author, honest, "rows")
    puller = case.reader.puller(author, pace=PullPace(window_s=0.3, logs_at_once=1))
    async with asyncio.timeout(30):
        still, other = await asyncio.gather(
            puller.pull(author.wanted, [author.peer]), puller.pull(case.wanted, case.peers)
        )
    assert (still.log, [c.failure.code for c in still.complaints]) == (None, ["U3040"])
    assert other.log is not None


def by_author(author: Handmade, others, method: str):
    """What asks an author itself for what is its own, and the others for all else."""
    own = getattr(author, method)

    def ask(peer: Peer, validator: str, *args, **named):
        whose = own if peer == author.peer else getattr(others, method)
        return whose(peer, validator, *args, **named)

    return ask


@pytest.mark.parametrize(("window_rows", "blamed"), [(1, []), (100, ["U3040"])])
async def test_a_peer_has_as_long_as_enough_rows_come_in_each_window(
    case: Case, monkeypatch, window_rows: int, blamed: list[str]
) -> None:
    """Nine rows that take longer than one window; each in an answer of its own."""
    monkeypatch.setattr("arena.exchange.peer_service.ANSWER_ROWS", 1)

    class Slow(Meddler):
        async def rows(self, peer: Peer, validator: str, **named):
            if peer.hotkey == self._liar:
                await asyncio.sleep(0.2)
            async for row in super().rows(peer, validator, **named):
                yield row

    peers = Slow(case.net.peers(case.reader), case.author.hotkey, list)
    pulled = await case.pull(peers, pace=PullPace(window_s=1.0, window_rows=window_rows))
    assert pulled.log is not None
    assert [c.failure.code for c in pulled.complaints] == blamed


async def test_the_time_until_a_log_is_of_no_use_is_shared_by_several_peers(case: Case) -> None:
    class Stalled(Meddler):
        async def rows(self, peer: Peer, validator: str, **named):
            if peer.hotkey == self._liar:
                await asyncio.Event().wait()
            async for row in super().rows(peer, validator, **named):
                yield row

    peers = Stalled(case.net.peers(case.reader), case.author.hotkey, list)
    pulled = await case.reader.puller(peers).pull(case.wanted, case.peers, within_s=2.0)
    assert pulled.log is not None
    assert [(c.peer, c.failure.code) for c in pulled.complaints] == [(case.author.hotkey, "U3040")]


async def test_a_peer_slower_than_it_may_be_counts_as_away(case: Case) -> None:
    peers = LocalPeers(case.reader.hotkey)
    peers.services = {node.hotkey: node.desk for node in case.net.nodes}
    peers.faults[case.author.hotkey] = PeerFault(slow_s=0.5)
    pulled = await case.pull(peers, pace=PullPace(window_s=0.2))
    assert pulled.log is not None
    assert [(c.peer, c.failure.code) for c in pulled.complaints] == [(case.author.hotkey, "U3040")]


# -- what an author does to its own log


async def anchored(case: Case, note: str, race_id: str = RACE) -> Pulled:
    """Pull by a note that the author made itself, its hash on chain."""
    case.author.held.keep_note(note)
    case.author.reveal(race_id, 99)
    wanted = Wanted(validator=case.author.hotkey, note_sha256=note_sha256(note), race_id=race_id)
    return await case.pull(case.net.peers(case.reader), wanted)


async def test_an_author_cannot_show_a_record_to_some_and_hide_it_from_others(case: Case) -> None:
    """Its note counts the records: who gets fewer holds nothing, who gets all holds all."""
    note = await case.author.note()
    tally = read_tally(note, case.author.hotkey, RACE, verify)
    assert (tally.count.rows, tally.start.after_seq) == (6, 0)
    plain = note.rpartition("— ")[0]
    change = msgspec.structs.replace
    for wrong in (
        change(tally, count=Count()),
        change(tally, count=change(tally.count, rows=5)),
        change(tally, count=change(tally.count, rows=7)),
        change(tally, start=LogStart(validator=tally.start.validator, after_seq=1, head="ab" * 32, peaks=("cd" * 32,))),
        change(
            tally, start=LogStart(validator=tally.start.validator, after_seq=9, head="ab" * 32, peaks=("cd" * 32,) * 2)
        ),
        change(
            tally, start=LogStart(validator=tally.start.validator, after_seq=16, head="ab" * 32, peaks=("cd" * 32,))
        ),
    ):
        pulled = await anchored(case, add_tally(plain, wrong, case.author.signer))
        assert pulled.log is None


async def test_a_note_without_a_tally_of_the_race_holds_no_log_and_blames_its_author(case: Case) -> None:
    note = await case.author.note()
    twice = f"{note}—{note.rpartition(chr(10) + chr(8212))[2]}"
    for wrong in (note.rpartition("— ")[0], await case.author.note("r2"), twice):
        pulled = await anchored(case, wrong)
        assert (pulled.log, pulled.complaints) == (None, ())
        assert pulled.unfit.code == "U3043"


async def test_a_tally_of_another_hotkey_or_of_another_note_does_not_count(case: Case) -> None:
    note, eve = await case.author.note(), generate_signer()
    plain = note.rpartition("— ")[0]
    line = note.rpartition("— ")[2]
    await case.author.evaluate([9])
    later = (await case.author.note()).rpartition("— ")[0]
    moved = f"{later}— {line}"
    raw = base64.b64decode(line.split(" ")[1])
    forged = raw[:-64] + eve.sign(b"anything")
    by_eve = f"{plain}— {line.split(' ')[0]} {base64.b64encode(forged).decode()}\n"
    for wrong in (moved, by_eve):
        with pytest.raises(ArenaError) as caught:
            read_tally(wrong, case.author.hotkey, RACE, verify)
        assert caught.value.failure.code == "U3043"


async def test_a_note_of_another_validator_holds_no_log(case: Case) -> None:
    note = await case.relay.note()
    pulled = await anchored(case, note)
    assert pulled.log is None


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

    async def note(self, peer: Peer, validator: str, note_sha256: str) -> str:
        return self._note

    async def rows(self, peer: Peer, validator: str, *, after_seq: int, to_seq: int, race_id: str):
        for row in self._rows[after_seq:to_seq]:
            yield row


@pytest.mark.parametrize(
    "wrong",
    [
        lambda content: content.replace(b'"kind":"evaluation"', b'"kind":"evaluatiom"'),
        lambda content: content.replace(b'"version":1', b'"version":2'),
        lambda content: b"[]",
        lambda content: content.replace(b'"failure":null', b'"failure":{"code":"Z9999","detail":""}'),
        lambda content: content.replace(b'"failure":null', b'"failure":{"code":"","detail":""}'),
        lambda content: re.sub(rb'"recorded_ms":\d+', b'"recorded_ms":%d' % 2**53, content),
        lambda content: content.replace(b'"version":1', b'"version": 1'),
    ],
)
async def test_a_record_that_is_none_makes_the_log_unfit_and_blames_no_peer(case: Case, wrong) -> None:
    """Only its author can have put it under the root."""
    sound = [record.content for record in case.author.store.log[:3]]
    for contents, is_held in ((sound, True), ([*sound, wrong(sound[1])], False)):
        author = Handmade(contents)
        pulled = await case.reader.puller(author, pace=FAST).pull(author.wanted, [author.peer])
        assert (pulled.log is not None, pulled.complaints) == (is_held, ())
        assert (pulled.unfit is None) == is_held


@pytest.mark.parametrize("field", [b"coefficient_e4", b"quality_e4"])
@pytest.mark.parametrize("value", [-1, 10_001, 10**7, -(10**17), 10**30])
async def test_a_verdict_beyond_its_scale_makes_the_log_unfit(case: Case, field: bytes, value: int) -> None:
    """Else one validator's number would outweigh everybody's on a problem that few have a result for."""
    sound = [record.content for record in case.author.store.log[:3]]
    beyond = re.sub(b'"%s":[0-9]+' % field, b'"%s":%d' % (field, value), sound[2])
    assert beyond != sound[2]
    author = Handmade([*sound[:2], beyond])
    pulled = await case.reader.puller(author, pace=FAST).pull(author.wanted, [author.peer])
    assert (pulled.log, pulled.complaints) == (None, ())
    assert pulled.unfit is not None and pulled.unfit.code == "U3043"


async def test_a_record_over_the_limit_is_not_counted_for_anybody(case: Case) -> None:
    record = case.author.store.log[1]
    large = record.content.replace(b'"scoring/1"', b'"' + b"x" * ROW_BYTES_MAX + b'"')
    author = Handmade([large])
    pulled = await case.reader.puller(author, pace=FAST).pull(author.wanted, [author.peer])
    assert pulled.log is None

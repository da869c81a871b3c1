"""Authors that hide what they count, or write what is no record: nothing of theirs is held, and no peer is blamed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from arena.chain.keys import verify
from arena.exchange.log_digest import add_digest, read_digest
from arena.exchange.peer_logs import PeerLogStore
from arena.exchange.port import Claim, Count, LogDigest, Peer, RowsQuestion
from arena.exchange.pull import PullJob, PullPace, PullResult
from arena.export.model import LogRow
from arena.records.log import Checkpoint, LogStart, note_sha256
from foundation.errors import ArenaError
from tests.arena.exchange_stand import FAST, RACE, Case, Handmade
from tests.keys import generate_signer


@pytest.fixture
async def case(tmp_path: Path) -> Case:
    return await Case(tmp_path).fill()


# -- what an author does to its own log


async def anchored(case: Case, note: str, race_id: str = RACE) -> PullResult:
    """Pull by a note that the author made itself, its hash on chain."""
    case.author.held.keep_note(note)
    case.author.reveal(race_id, 99)
    wanted = PullJob(validator=case.author.hotkey, note_sha256=note_sha256(note), race_id=race_id)
    return await case.pull(case.net.peers(case.reader), wanted)


async def test_an_author_cannot_show_a_record_to_some_and_hide_it_from_others(case: Case) -> None:
    """Its note counts the records: who gets fewer holds nothing, who gets all holds all."""
    note = await case.author.note()
    digest = read_digest(note, case.author.hotkey, RACE, verify)
    assert (digest.count.rows, digest.start.after_seq) == (6, 0)
    plain = note.rpartition("— ")[0]
    for wrong in (
        replace(digest, count=Count()),
        replace(digest, count=replace(digest.count, rows=5)),
        replace(digest, count=replace(digest.count, rows=7)),
        replace(digest, start=replace(digest.start, after_seq=1, head="ab" * 32, peaks=("cd" * 32,))),
        replace(digest, start=replace(digest.start, after_seq=9, head="ab" * 32, peaks=("cd" * 32,) * 2)),
        replace(digest, start=replace(digest.start, after_seq=16, head="ab" * 32, peaks=("cd" * 32,))),
    ):
        pulled = await anchored(case, add_digest(plain, wrong, case.author.signer))
        assert pulled.log is None


async def test_a_digest_of_another_hotkey_or_of_another_note_does_not_count(case: Case) -> None:
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
            read_digest(wrong, case.author.hotkey, RACE, verify)
        assert caught.value.failure.code == "U3043"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda content: content.replace(b'"kind":"evaluation"', b'"kind":"evaluatiom"'),
        lambda content: content.replace(b'"version":1', b'"version":2'),
        lambda content: b"[]",
        lambda content: content.replace(b'"failure":null', b'"failure":{"code":"","detail":""}'),
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


async def test_a_note_without_a_digest_of_the_race_holds_no_log_and_blames_its_author(case: Case) -> None:
    note = await case.author.note()
    twice = f"{note}—{note.rpartition(chr(10) + chr(8212))[2]}"
    for wrong in (note.rpartition("— ")[0], await case.author.note("r2"), twice):
        pulled = await anchored(case, wrong)
        assert (pulled.log, pulled.complaints) == (None, ())
        assert pulled.unfit.code == "U3043"


async def test_a_log_over_its_round_is_refused_unread_and_of_qualifying_not_passed_on(case: Case, monkeypatch) -> None:
    for module in ("pull", "peer_logs"):
        monkeypatch.setattr(f"arena.exchange.{module}.ROUND_ROWS_MAX", 8)
    await case.author.evaluate([4], "")
    qualifying = await case.author.anchor("")
    await case.author.evaluate([5])
    race, nothing = await case.author.anchor(), await case.author.note("r9")
    digest = read_digest(nothing, case.author.hotkey, "r9", verify)
    idle = replace(digest, start=LogStart(validator=case.author.hotkey))
    nothing = add_digest(nothing.rpartition("— ")[0], idle, case.author.signer)
    monkeypatch.setattr(case.ask, "rows", None)  # of neither is a row asked for
    assert (await case.pull(wanted=race)).unfit.code == "U3043"
    case.author.held.keep_note(nothing)
    stubs = PullJob(validator=case.author.hotkey, note_sha256=note_sha256(nothing), race_id="r9")
    assert (await case.pull(wanted=stubs)).unfit.code == "U3043"
    monkeypatch.undo()
    monkeypatch.setattr("arena.exchange.peer_logs.ROUND_ROWS_MAX", 2)
    log = (await case.pull(wanted=qualifying)).log
    assert (log.due.start.after_seq, log.shown_after) == (9, 12)


# -- peers that lie, withhold, stall and replay: nothing of theirs is held, they are named, and the next one is asked


Change = Callable[[list[LogRow]], list[LogRow]]
STUB = {"content": None, "withheld": "unreleased"}


class Meddler:
    """Peers of which one changes the rows it passes on."""

    def __init__(self, peers, liar: str, change: Change) -> None:
        self._peers, self._liar, self._change, self.ask = peers, liar, change, peers.ask

    async def rows(self, peer: Peer, question: RowsQuestion):
        rows = [row async for row in self._peers.rows(peer, question)]
        for row in self._change(rows) if peer.hotkey == self._liar else rows:
            yield row


def change_content(rows: list[LogRow]) -> list[LogRow]:
    forged = msgspec.Raw(bytes(rows[1].content).replace(b'"is_success":true', b'"is_success":null'))
    return [rows[0], replace(rows[1], content=forged), *rows[2:]]


ATTACKS: dict[str, Change] = {
    "another content": change_content,
    "another hash in a stub": lambda rows: [*rows[:8], replace(rows[8], content_sha256="ab" * 32)],
    "a stub where a whole record is due": lambda rows: [rows[0], replace(rows[1], **STUB), *rows[2:]],
    "all of them stubs": lambda rows: [replace(row, **STUB) for row in rows],
    "two rows swapped": lambda rows: [rows[1], rows[0], *rows[2:]],
    "a row left out": lambda rows: [*rows[:4], *rows[5:]],
    "a row twice": lambda rows: [rows[0], *rows],
    "the end cut off": lambda rows: rows[:5] if rows[0].seq == 1 else [],
    "the beginning cut off": lambda rows: rows[1:],
    "rows of another validator": lambda rows: [replace(row, validator="5Other") for row in rows],
    "the signature of another record": lambda rows: [replace(rows[0], signature=rows[1].signature), *rows[1:]],
    "a body": lambda rows: [replace(rows[0], body=msgspec.Raw(b"{}")), *rows[1:]],
    "a whole record that says it is withheld": lambda rows: [replace(rows[0], withheld="unreleased"), *rows[1:]],
    "a stub that does not": lambda rows: [*rows[:8], replace(rows[8], withheld=None)],
    "a malformed hash": lambda rows: [replace(rows[0], content_sha256="zz"), *rows[1:]],
    "a row beyond the note": lambda rows: [*rows, replace(rows[-1], seq=rows[-1].seq + 1)],
    "nothing": lambda rows: [],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_liar_is_named_and_the_next_peer_is_asked(case: Case, attack: str) -> None:
    liar = Meddler(case.net.peers(case.reader), case.author.hotkey, ATTACKS[attack])
    pulled = await case.pull(liar)
    assert pulled.log is not None
    assert [(c.peer, c.failure.code) for c in pulled.complaints] == [(case.author.hotkey, "U3042")]


@pytest.mark.parametrize(("window_rows", "blamed"), [(1, []), (100, ["U3040"])])
async def test_a_peer_has_as_long_as_enough_rows_come_in_each_window(
    case: Case, monkeypatch, window_rows: int, blamed: list[str]
) -> None:
    """Nine rows that take longer than one window; each in an answer of its own."""
    monkeypatch.setattr("arena.exchange.peer_service.ANSWER_ROWS", 1)

    class Slow(Meddler):
        async def rows(self, peer: Peer, question: RowsQuestion):
            if peer.hotkey == self._liar:
                await asyncio.sleep(0.2)
            async for row in super().rows(peer, question):
                yield row

    peers = Slow(case.net.peers(case.reader), case.author.hotkey, list)
    pulled = await case.pull(peers, pace=PullPace(window_s=1.0, window_rows=window_rows))
    assert pulled.log is not None
    assert [c.failure.code for c in pulled.complaints] == blamed


# -- held logs on disk: whole or not at all, through kills and damage, and no more of them than are kept


VALIDATOR = "5Author"
ROWS = 40


def row(race_id: str, seq: int, validator: str = VALIDATOR) -> LogRow:
    content = msgspec.json.encode({"race": race_id, "seq": seq, "filling": "x" * 2_000})
    return LogRow(
        validator=validator,
        seq=seq,
        prev="00" * 32,
        content_sha256="11" * 32,
        signature="22" * 64,
        content=msgspec.Raw(content),
    )


def hold(held: PeerLogStore, race_id: str, validator: str = VALIDATOR) -> None:
    """Hold one log of ROWS rows."""
    writer = held.writer(race_id)
    for first in range(1, ROWS, 10):
        writer.write([row(race_id, seq, validator) for seq in range(first, first + 10)])
    claim = Claim(
        point=Checkpoint(validator=validator, size=ROWS, root="33" * 32),
        note=f"note of {race_id} by {validator}",
        due=LogDigest(race_id=race_id, count=Count(rows=ROWS), start=LogStart(validator=validator)),
    )
    held.put(writer, claim, end=LogStart(validator=validator, after_seq=ROWS, head="44" * 32, peaks=("55" * 32,) * 2))


def whole(held: PeerLogStore, race_id: str) -> bool:
    return [row.seq for row in held.rows(held.held(race_id)[-1])] == list(range(1, ROWS + 1))


def races(held: PeerLogStore) -> list[str]:
    return [log.race_id for log in held.held()]


def test_a_kill_at_any_instant_leaves_whole_logs_and_nothing_else(tmp_path: Path) -> None:
    for run, delay_s in enumerate((0.0, 0.013, 0.037)):
        running = subprocess.Popen(
            [sys.executable, "-m", "tests.arena.test_exchange_authors", str(tmp_path), f"run{run}"],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None
        said = [running.stdout.readline().strip() for _ in range(3)]
        time.sleep(delay_s)
        running.kill()
        said += running.stdout.read().split()
        running.wait()
        held = PeerLogStore(tmp_path, races_kept=5)
        assert said[-1] in races(held)[-2:]  # one more may stand there that it did not come to say
        assert all(whole(held, race_id) for race_id in races(held))
        named = {tmp_path / file.path for log in held.held() for file in log.files}
        assert set((tmp_path / "rows").iterdir()) == named


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-5]), Path.unlink])
def test_a_changed_file_is_never_read_and_its_log_is_held_no_longer(tmp_path: Path, damage) -> None:
    held = PeerLogStore(tmp_path)
    hold(held, "r1")
    hold(held, "r2")
    (file,) = held.held("r1")[0].files
    damage(tmp_path / file.path)
    with pytest.raises(ArenaError) as caught:
        whole(held, "r1")
    assert caught.value.failure.code == "V2064"
    assert races(held) == races(PeerLogStore(tmp_path)) == ["r2"]
    assert held.note(VALIDATOR, "") == held.held("r2")[0].note and held.note("5Other", "") is None


def test_a_race_has_no_more_bytes_than_races_have_and_qualifying_may_have_more(tmp_path: Path, monkeypatch) -> None:
    rows = [replace(row("r1", seq), **STUB) for seq in range(1, 11)]
    monkeypatch.setattr(
        "arena.exchange.peer_logs.RACE_BYTES_MAX", sum(len(msgspec.json.encode(one)) + 1 for one in rows)
    )
    held = PeerLogStore(tmp_path)
    writer, of_a_whole_log = held.writer("r1"), held.writer("")
    writer.write(rows)
    with pytest.raises(ArenaError, match=r"U3043.*stubs too, are over"):
        writer.write(rows[:1])
    for _ in range(3):
        of_a_whole_log.write(rows)
    for each in (writer, of_a_whole_log):
        each.abandon()


def test_an_author_over_its_budget_loses_its_own_oldest_logs_and_stubs_go_once_nobody_asks(
    tmp_path: Path, monkeypatch
) -> None:
    held = PeerLogStore(tmp_path)
    for race_id in ("r1", "r2", "r3"):
        hold(held, race_id)
        hold(held, race_id, "5Other")
    assert [log.shown_after for log in held.held(validator=VALIDATOR)] == [ROWS, 0, 0]
    assert len(list((tmp_path / "stubs").iterdir())) == 4
    size = sum(file.size_bytes for file in held.held("r3", VALIDATOR)[0].kept)
    monkeypatch.setattr("arena.exchange.peer_logs.AUTHOR_BYTES_MAX", 2 * size + 10)
    hold(held, "r4")
    assert [(log.race_id, log.validator) for log in held.held()][-2:] == [("r3", "5Other"), ("r4", VALIDATOR)]
    assert races(PeerLogStore(tmp_path)) == races(held) == ["r1", "r2", "r3", "r3", "r4"]
    monkeypatch.setattr("arena.exchange.peer_logs.AUTHOR_BYTES_MAX", 10)
    with pytest.raises(ArenaError, match="U3043"):
        hold(held, "r5")
    assert {log.validator for log in held.held()} == {"5Other"}


if __name__ == "__main__":
    folder = PeerLogStore(Path(sys.argv[1]), races_kept=5)
    for number in itertools.count():
        hold(folder, f"{sys.argv[2]}-{number}")
        print(f"{sys.argv[2]}-{number}", flush=True)

"""Authors that hide what they count, or write what is no record: nothing of theirs is held, and no peer is blamed."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from arena.exchange.log_digest import add_tally, read_tally
from arena.exchange.port import Count
from arena.exchange.pull import Pulled, Wanted
from arena.records.log import LogStart, note_sha256
from foundation.errors import ArenaError
from tests.arena.exchange_stand import FAST, RACE, Case, Handmade
from tests.keys import generate_signer


@pytest.fixture
async def case(tmp_path: Path) -> Case:
    return await Case(tmp_path).fill()


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


async def test_a_note_without_a_tally_of_the_race_holds_no_log_and_blames_its_author(case: Case) -> None:
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
    tally = read_tally(nothing, case.author.hotkey, "r9", verify)
    idle = msgspec.structs.replace(tally, start=LogStart(validator=case.author.hotkey))
    nothing = add_tally(nothing.rpartition("— ")[0], idle, case.author.signer)
    monkeypatch.setattr(case.ask, "rows", None)  # of neither is a row asked for
    assert (await case.pull(wanted=race)).unfit.code == "U3043"
    case.author.held.keep_note(nothing)
    stubs = Wanted(validator=case.author.hotkey, note_sha256=note_sha256(nothing), race_id="r9")
    assert (await case.pull(wanted=stubs)).unfit.code == "U3043"
    monkeypatch.undo()
    monkeypatch.setattr("arena.exchange.peer_logs.ROUND_ROWS_MAX", 2)
    log = (await case.pull(wanted=qualifying)).log
    assert (log.due.start.after_seq, log.shown_after) == (9, 12)

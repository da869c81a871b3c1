"""What every way of asking a validator does, directly and over HTTP: who gets what, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from arena.chain.keys import verify
from arena.exchange.peer_service import ANSWERS_AT_ONCE, ShareRules, Shares
from arena.exchange.port import NoteQuestion, Peer, ProgressQuestion, Question, RowsQuestion, SubmissionQuestion
from arena.records.log import message_of, note_sha256
from arena.submissions.submission import make_submission
from foundation.errors import ArenaError
from tests.arena.exchange_stand import RACE, TERMS, Case, HttpNet, LocalNet
from tests.arena.log_stand import attempt, episode


class World(Case):
    """How the reader asks the author."""

    @property
    def peer(self) -> Peer:
        return self.peers[0]

    async def rows(self, after_seq: int, to_seq: int, race_id: str = RACE, validator: str = ""):
        named = validator or self.author.hotkey
        question = RowsQuestion(validator=named, after=after_seq, to=to_seq, race=race_id)
        return [row async for row in self.ask.rows(self.peer, question)]

    async def asks(self, question: Question, peer: Peer | None = None):
        return await self.ask.ask(peer or self.peer, question)


@pytest.fixture(params=[LocalNet, HttpNet], ids=["local", "http"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path, request.param()).join()
    yield made
    await made.net.close()


async def refused(asking) -> str:
    with pytest.raises(ArenaError) as caught:
        await asking
    return caught.value.failure.code


async def test_a_note_is_found_by_its_hash_and_by_no_other(world: World) -> None:
    await world.author.evaluate([1])
    note = await world.author.note()
    assert await world.asks(NoteQuestion(validator=world.author.hotkey, sha256=note_sha256(note))) == note
    assert await world.asks(NoteQuestion(validator=world.author.hotkey, sha256="ab" * 32)) is None
    assert await world.asks(NoteQuestion(validator=world.reader.hotkey, sha256=note_sha256(note))) is None


async def test_rows_come_whole_for_the_race_and_as_stubs_for_all_else(world: World) -> None:
    await world.author.evaluate([1])
    await world.author.evaluate([2], "r2")
    await world.author.evaluate([3], "")
    size = await world.author.append([attempt(4)])  # of race r1
    await world.author.anchor()
    rows = await world.rows(0, size)
    assert [row.seq for row in rows if row.content is not None] == [1, 2, 3, 10]
    assert [row.withheld for row in rows] == [None] * 3 + ["unreleased"] * 6 + [None]
    assert all(row.body is None for row in rows)
    for row, record in zip(rows, world.author.store.log, strict=True):
        assert (row.prev, row.content_sha256, row.signature) == (record.prev, record.content_sha256, record.signature)
        assert verify(row.validator, message_of(row), bytes.fromhex(row.signature))


async def test_nothing_of_a_race_leaves_before_its_roll_is_final(world: World) -> None:
    size = await world.author.evaluate([1])
    await world.author.anchor(is_final=False)
    assert await refused(world.rows(0, size)) == "U3041"
    world.author.reveal("r2", size)
    world.author.reveal("", size)
    assert await refused(world.rows(0, size)) == "U3041"
    world.author.reveal(RACE, size)
    assert len(await world.rows(0, size)) == size


async def test_a_source_is_found_by_its_commitment(world: World) -> None:
    submission = make_submission(world.reader.signer, "agent", "def agent_main(problem):\n    return '✓'\n", 5)
    await world.author.hold_source(submission)
    assert (
        await world.asks(SubmissionQuestion(hotkey=submission.hotkey, sha256=submission.commitment_sha256))
        == submission
    )
    assert await world.asks(SubmissionQuestion(hotkey="5X", sha256="ab" * 32)) is None


async def test_progress_names_pairs_with_their_verdicts_and_nothing_about_how(world: World) -> None:
    await world.author.evaluate([1])
    progress = await world.asks(ProgressQuestion(race=RACE))
    assert progress.done == (("a1" * 32, "p0001"),)
    assert (progress.policy_sha256, progress.guest_sha256) == (TERMS.policy_sha256, TERMS.guest_sha256)
    assert set(msgspec.to_builtins(progress)) == {"policy_sha256", "guest_sha256", "done"}
    made, body = episode(2)
    await world.author.append(made[:2], [body])
    assert (await world.asks(ProgressQuestion(race=RACE))).done == progress.done  # whatever its outcome
    await world.author.append(made[2:])
    assert len((await world.asks(ProgressQuestion(race=RACE))).done) == 2
    assert await world.asks(ProgressQuestion(race="r9")) is None


async def test_a_peer_that_is_not_there_is_away(world: World) -> None:
    nobody = Peer(hotkey="5Nobody", endpoint="http://127.0.0.1:9")
    assert await refused(world.asks(NoteQuestion(validator=world.author.hotkey, sha256="ab" * 32), nobody)) == "U3040"
    assert await refused(world.asks(ProgressQuestion(race=RACE), Peer(hotkey="5Nobody", endpoint=""))) == "U3040"


async def test_one_that_asks_too_much_is_refused_and_others_are_not(tmp_path: Path) -> None:
    case = await Case(tmp_path).join()
    case.author.desk = case.author.make_desk(ShareRules(requests_per_s=0.001, requests_burst=2))
    eager, calm, question = case.net.peers(case.reader), case.net.peers(case.relay), ProgressQuestion(race=RACE)
    for _ in range(2):
        await eager.ask(case.peers[0], question)
    assert await refused(eager.ask(case.peers[0], question)) == "U3041"
    assert await calm.ask(case.peers[0], question) is not None


async def test_one_that_takes_many_answers_at_once_is_refused_until_it_is_done(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("arena.exchange.peer_service.ANSWERS_MAX", ANSWERS_AT_ONCE)
    case = await Case(tmp_path).fill()
    peer, question = case.peers[0], RowsQuestion(validator=case.author.hotkey, to=9, race=RACE)
    eager, calm = case.net.peers(case.reader), case.net.peers(case.relay)
    begun = [eager.rows(peer, question) for _ in range(ANSWERS_AT_ONCE)]
    for rows in begun:
        await anext(rows)
    assert await refused(anext(eager.rows(peer, question))) == "U3041"
    begun.append(calm.rows(peer, question))
    assert (await anext(begun[-1])).seq == 1
    assert await refused(anext(calm.rows(peer, question))) == "U3041"  # where many are answered each has one
    for rows in begun:
        await rows.aclose()
    assert (await anext(eager.rows(peer, question))).seq == 1


def test_a_share_of_bytes_is_waited_for_and_fills_up_again() -> None:
    now_s = 0.0
    shares = Shares(ShareRules(bytes_per_s=100, bytes_burst=1_000), lambda: now_s)
    assert shares.spend_bytes("a", 1_000) == 0
    assert shares.spend_bytes("a", 200) == 2
    assert shares.spend_bytes("b", 1_000) == 0
    now_s = 3.0
    assert shares.spend_bytes("a", 100) == 0
    now_s = 1_000.0
    assert shares.spend_bytes("a", 1_100) == 1

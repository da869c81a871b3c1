"""What every way of asking a validator does, directly and over HTTP: who gets what, and when."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify
from arena.chain.port import Commitment
from arena.exchange import port
from arena.exchange.log_digest import COUNTED_KINDS, counts
from arena.exchange.peer_service import ANSWERS_AT_ONCE, ShareRules, Shares
from arena.exchange.pull import SourceRelay, require_committed
from arena.export.assembly import signed_content
from arena.records.log import message_of, note_sha256
from arena.records.model import HostFacts, RecordContent
from arena.records.port import EVERY_STATE
from arena.submissions.submission import make_submission, signed_submission
from foundation.errors import ArenaError
from tests.arena.exchange_stand import FAST, RACE, TERMS, Case, HttpNet, LocalNet, Node, PeerFault
from tests.arena.log_stand import attempt, episode, gate
from tests.keys import generate_signer


class World(Case):
    """How the reader asks the author."""

    @property
    def peer(self) -> port.Peer:
        return self.peers[0]

    async def rows(self, after_seq: int, to_seq: int, race_id: str = RACE, validator: str = ""):
        named = validator or self.author.hotkey
        question = port.RowsQuestion(validator=named, after=after_seq, to=to_seq, race=race_id)
        return [row async for row in self.ask.rows(self.peer, question)]

    async def asks(self, question: port.Question, peer: port.Peer | None = None):
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
    assert await world.asks(port.NoteQuestion(validator=world.author.hotkey, sha256=note_sha256(note))) == note
    assert await world.asks(port.NoteQuestion(validator=world.author.hotkey, sha256="ab" * 32)) is None
    assert await world.asks(port.NoteQuestion(validator=world.reader.hotkey, sha256=note_sha256(note))) is None


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
        await world.asks(port.SubmissionQuestion(hotkey=submission.hotkey, sha256=submission.commitment_sha256))
        == submission
    )
    assert await world.asks(port.SubmissionQuestion(hotkey="5X", sha256="ab" * 32)) is None


async def test_progress_names_pairs_with_their_verdicts_and_nothing_about_how(world: World) -> None:
    await world.author.evaluate([1])
    progress = await world.asks(port.ProgressQuestion(race=RACE))
    assert progress.done == (("a1" * 32, "p0001"),)
    assert (progress.policy_sha256, progress.guest_sha256) == (TERMS.policy_sha256, TERMS.guest_sha256)
    assert set(msgspec.to_builtins(progress)) == {"policy_sha256", "guest_sha256", "done"}
    made, body = episode(2)
    await world.author.append(made[:2], [body])
    assert (await world.asks(port.ProgressQuestion(race=RACE))).done == progress.done  # whatever its outcome
    await world.author.append(made[2:])
    assert len((await world.asks(port.ProgressQuestion(race=RACE))).done) == 2
    assert (await world.asks(port.ProgressQuestion(race="r9"))).done == ()


async def test_a_peer_that_is_not_there_is_away(world: World) -> None:
    nobody = port.Peer(hotkey="5Nobody", endpoint="http://127.0.0.1:9")
    assert (
        await refused(world.asks(port.NoteQuestion(validator=world.author.hotkey, sha256="ab" * 32), nobody)) == "U3040"
    )
    assert (
        await refused(world.asks(port.ProgressQuestion(race=RACE), port.Peer(hotkey="5Nobody", endpoint=""))) == "U3040"
    )


async def test_one_that_asks_too_much_is_refused_and_others_are_not(tmp_path: Path) -> None:
    case = await Case(tmp_path).join()
    case.author.desk = case.author.make_desk(ShareRules(requests_per_s=0.001, requests_burst=2))
    eager, calm, question = case.net.peers(case.reader), case.net.peers(case.relay), port.ProgressQuestion(race=RACE)
    for _ in range(2):
        await eager.ask(case.peers[0], question)
    assert await refused(eager.ask(case.peers[0], question)) == "U3041"
    assert await calm.ask(case.peers[0], question) is not None


async def test_one_that_takes_many_answers_at_once_is_refused_until_it_is_done(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("arena.exchange.peer_service.ANSWERS_MAX", ANSWERS_AT_ONCE)
    case = await Case(tmp_path).fill()
    peer, question = case.peers[0], port.RowsQuestion(validator=case.author.hotkey, to=9, race=RACE)
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


# -- pulling logs from others: what is held is what the log holds, read on from where it was left, whoever serves it


@pytest.fixture
async def trio(tmp_path: Path) -> Case:
    return await Case(tmp_path).join()


def counted(node: Node, race_id: str, size: int) -> list[tuple[int, bytes]]:
    """What the log itself says that a reader must hold."""
    found = []
    for record in node.store.log[:size]:
        content = signed_content(record.content, record.content_sha256)
        if counts(content, len(record.content), race_id):
            found.append((record.seq, record.content))
    return found


def held(node: Node, race_id: str, validator: str) -> list[tuple[int, bytes]]:
    newest = node.held.held(race_id, validator)[-1]
    return [(row.seq, bytes(row.content)) for row in node.held.rows(newest)]


async def test_who_holds_a_log_passes_it_on_when_its_author_is_away(world: World) -> None:
    author, relay, reader = world.author, world.relay, world.reader
    await author.evaluate([7], "r0")
    size = await author.evaluate([1, 2])
    wanted = await author.anchor()
    await world.pull_by_relay(wanted)
    others = [peer for peer in world.peers if peer.hotkey != author.hotkey]
    refused = await reader.puller(world.ask, pace=FAST).pull(wanted, others)
    assert refused.log is None  # the relay's own roll is not final: it shows nothing of the race
    relay.reveal(RACE, 0)
    pulled = await reader.puller(world.ask, pace=FAST).pull(wanted, others)
    assert (pulled.complaints, pulled.unfit) == ((), None)
    assert held(reader, RACE, author.hotkey) == counted(author, RACE, size)


async def test_a_connection_that_breaks_is_taken_up_behind_the_last_row(trio: Case) -> None:
    size = await trio.author.evaluate([1, 2, 3])
    trio.ask.faults[trio.author.hotkey] = PeerFault(rows_max=4)
    pulled = await trio.pull(wanted=await trio.author.anchor())
    assert (pulled.log.point.size, pulled.complaints) == (size, ())


async def test_a_log_that_was_rewritten_counts_as_it_stands(trio: Case, tmp_path: Path) -> None:
    author = trio.author
    await author.evaluate([1])
    await trio.pull(wanted=await author.anchor())
    other = Node(tmp_path / "again", author.permits, signer=author.signer)  # the same hotkey, another log
    trio.ask.services[author.hotkey] = other.desk
    size = await other.evaluate([5, 6], "r2")
    pulled = await trio.pull(wanted=(wanted := await other.anchor("r2")))
    assert held(trio.reader, "r2", author.hotkey) == counted(other, "r2", size)
    fresh = Node(tmp_path / "fresh", author.permits)
    trio.net.nodes = [other]
    without_past = await fresh.puller(trio.net.peers(fresh), pace=FAST).pull(wanted, trio.peers)
    assert without_past.log.point == pulled.log.point  # whether it is held does not follow from what was held before


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(st.sampled_from(["r1", "r2", "r3", "", "plain"]), st.sampled_from(["", "anchor", "relay"])),
        min_size=1,
        max_size=8,
    )
)
def test_however_races_and_anchors_follow_each_other_readers_hold_what_the_log_holds(steps) -> None:
    async def check(folder: Path) -> None:
        trio = await Case(folder).join()
        for race_id in ("r1", "r2", "r3", ""):
            trio.relay.reveal(race_id)
        for number, (race_id, then) in enumerate(steps, 1):
            size = await (trio.author.append([attempt(number)]) if race_id == "plain" else
                          trio.author.evaluate([number], race_id))  # fmt: skip
            race_id = RACE if race_id == "plain" else race_id
            if not then:
                continue
            wanted = await trio.author.anchor(race_id)
            if then == "relay":
                assert (await trio.pull_by_relay(wanted)).log is not None
            assert (await trio.pull(wanted=wanted)).log.point.size == size
            assert held(trio.reader, race_id, trio.author.hotkey) == counted(trio.author, race_id, size)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder)))


def test_what_gates_say_counts_for_qualifying_and_for_no_race() -> None:
    content = RecordContent(recorded_ms=1, host=HostFacts(), payload=gate(1))
    assert counts(content, 500, "") and not counts(content, 500, "race-000001")
    assert not counts(content, port.ROW_BYTES_MAX + 1, "") and "gate" in COUNTED_KINDS


# -- sources between validators: what the chain knows is fetched from whoever has it, checked, and delivered once


SOURCE = "def agent_main(problem):\n    return None\n"
MINER = keypair_signer("//Miner")
SUBMISSION = make_submission(MINER, "agent", SOURCE, 5)


COMMITMENT = Commitment(hotkey=SUBMISSION.hotkey, sha256=SUBMISSION.commitment_sha256, block=7)


def relay_of(trio: Case, **options) -> SourceRelay:
    """The reader relays what the two others have."""
    return SourceRelay(trio.ask, trio.reader.store, verify, now_ms=lambda: 1_000_000, **options)


async def test_a_source_committed_on_chain_reaches_who_lacks_it(trio: Case) -> None:
    await trio.relay.hold_source(SUBMISSION)
    relay = relay_of(trio)
    for delivered in ([SUBMISSION.commitment_sha256], []):
        assert await relay.fetch([COMMITMENT], trio.peers[:2]) == (delivered, [])
    (row,) = await trio.reader.store.submissions(EVERY_STATE)
    assert signed_submission(row, SOURCE) == SUBMISSION and row.subject.commitment_block == COMMITMENT.block


async def test_an_unsigned_one_is_relayed_only_where_the_policy_takes_its_commitment(trio: Case) -> None:
    await trio.relay.hold_source(msgspec.structs.replace(SUBMISSION, signature=""))
    delivered, complaints = await relay_of(trio).fetch([COMMITMENT], trio.peers[:2])
    assert (delivered, [each.failure.code for each in complaints]) == ([], ["U3042"])
    delivered, _ = await relay_of(trio, is_commitment_enough=True).fetch([COMMITMENT], trio.peers[:2])
    assert delivered == [SUBMISSION.commitment_sha256]


def test_only_the_source_that_the_hotkey_committed_and_signed_is_taken() -> None:
    other = make_submission(generate_signer(), "agent", SOURCE, 5)
    changed = msgspec.structs.replace(SUBMISSION, source=SOURCE + "#")
    unsigned = msgspec.structs.replace(SUBMISSION, signature=other.signature)
    renamed = msgspec.structs.replace(SUBMISSION, name="another")
    ill_named = make_submission(MINER, "agent", SOURCE, 5)
    ill_named = msgspec.structs.replace(ill_named, name="a b")
    require_committed(SUBMISSION, COMMITMENT, verify)
    for wrong in (other, changed, unsigned, renamed, ill_named):
        with pytest.raises(ArenaError) as caught:
            require_committed(wrong, COMMITMENT, verify)
        assert caught.value.failure.code == "U3042"

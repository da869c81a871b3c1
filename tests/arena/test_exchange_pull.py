"""Pulling logs from others: what is held is what the log holds, read on from where it was left, whoever serves it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.exchange.log_digest import COUNTED_KINDS, counts
from arena.exchange.port import ROW_BYTES_MAX
from arena.export.assembly import signed_content
from arena.records.model import HostFacts, RecordContent
from tests.arena.exchange_stand import FAST, RACE, Case, HttpNet, LocalNet, Node
from tests.arena.local_peers import PeerFault
from tests.arena.log_stand import attempt, gate


@pytest.fixture(params=[LocalNet, HttpNet], ids=["local", "http"])
async def any_trio(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Case]:
    made = await Case(tmp_path, request.param()).join()
    yield made
    await made.net.close()


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


async def test_who_holds_a_log_passes_it_on_when_its_author_is_away(any_trio: Case) -> None:
    author, relay, reader = any_trio.author, any_trio.relay, any_trio.reader
    await author.evaluate([7], "r0")
    size = await author.evaluate([1, 2])
    wanted = await author.anchor()
    await any_trio.pull_by_relay(wanted)
    others = [peer for peer in any_trio.peers if peer.hotkey != author.hotkey]
    refused = await reader.puller(any_trio.ask, pace=FAST).pull(wanted, others)
    assert refused.log is None  # the relay's own roll is not final: it shows nothing of the race
    relay.reveal(RACE, 0)
    pulled = await reader.puller(any_trio.ask, pace=FAST).pull(wanted, others)
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
    assert not counts(content, ROW_BYTES_MAX + 1, "") and "gate" in COUNTED_KINDS

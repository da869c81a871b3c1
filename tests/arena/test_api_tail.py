"""The live tail over real HTTP: cursors, following, the release rule, slow clients."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.api.client import RowCheck
from arena.api.reads import PAGE_ROWS
from arena.chain.keys import keypair_signer, verify
from arena.export.assembly import log_row
from arena.export.files import read_row
from arena.export.model import LogRow
from arena.records.sequencer import Sequencer
from foundation.errors import ArenaError
from tests.arena.log_stand import HOST, Clock, MemoryLog, attempt, episode
from tests.arena.tail_stand import Author, client, free_port, rows, serving
from tests.keys import generate_signer


@pytest.fixture
def author(postgres, signer) -> Author:
    return Author(postgres.dsn_for(signer.hotkey), signer)


# -- the release rule


class Stream:
    """One follower's rows, one at a time, over an open connection."""

    def __init__(self, address: str) -> None:
        self._stream = httpx2.stream("GET", f"{address}/v1/tail", params={"follow": "true"}, timeout=30)

    def __enter__(self) -> Stream:
        self._lines = self._stream.__enter__().iter_lines()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.__exit__(None, None, None)

    def next(self) -> LogRow:
        for line in self._lines:
            if line:
                return read_row(line.encode())
        raise AssertionError("the stream ended")


def test_a_follower_of_an_open_race_sees_its_release_and_then_fetches_its_rows(author: Author) -> None:
    author.race("r1", [1, 2])
    with serving(author.dsn) as server, Stream(server.address) as stream:
        assert [stream.next().withheld for _ in range(6)] == ["unreleased"] * 6
        answer = httpx2.get(f"{server.address}/v1/records", params={"race": "r1"})
        assert (answer.status_code, answer.json()["code"]) == (404, "V2082")
        author.finish("r1", [1, 2])
        settled, released = stream.next(), stream.next()
        assert settled.withheld is None
        payload = msgspec.json.decode(released.content)["payload"]
        assert (payload["kind"], payload["race_id"]) == ("release", "r1")
        now = rows(server.address, "/v1/records", race=payload["race_id"])
        assert [(row.seq, row.withheld) for row in now] == [(seq, None) for seq in range(1, 9)]
        for row in (row for row in now if row.body is not None):
            named = msgspec.json.decode(row.content)["payload"]["body_sha256"]
            assert hashlib.sha256(bytes(row.body)).hexdigest() == named
        assert rows(server.address, "/v1/records", race="r1", after=6, limit=1)[0].seq == 7


def test_one_address_has_half_of_the_streams_and_gets_its_places_back(author: Author) -> None:
    author.append([attempt(1)])
    elsewhere = httpx2.HTTPTransport(local_address="127.0.0.2")
    with serving(author.dsn, clients=4) as server, httpx2.Client(transport=elsewhere) as other:
        with Stream(server.address) as first, Stream(server.address) as second:
            assert [first.next().seq, second.next().seq] == [1, 1]
            refused = httpx2.get(f"{server.address}/v1/tail")
            assert (refused.status_code, refused.json()["code"]) == (429, "V2112")
            assert other.get(f"{server.address}/v1/tail").status_code == 200
        while httpx2.get(f"{server.address}/v1/tail").status_code == 429:  # the server has yet to notice that both left
            time.sleep(0.05)


def test_stopping_the_server_ends_its_followers(author: Author) -> None:
    author.append([attempt(1)])
    with serving(author.dsn) as server, Stream(server.address) as stream:
        stream.next()
        server.end()
        with pytest.raises(AssertionError, match="ended"):
            stream.next()


def test_a_store_that_goes_away_never_looks_like_the_end_of_the_log(author: Author) -> None:
    author.append([attempt(number) for number in range(PAGE_ROWS)])
    with serving(author.dsn) as server:
        with Stream(server.address) as stream:
            for _ in range(PAGE_ROWS):
                stream.next()
            server.store.is_away = True
            author.append([attempt(99)])
            with pytest.raises(httpx2.RemoteProtocolError):
                stream.next()
        server.store.is_away = False
        assert len(rows(server.address)) == PAGE_ROWS + 1


def test_a_server_of_several_logs_asks_which(postgres) -> None:
    for _ in range(2):
        signer = generate_signer()
        Author(postgres.dsn_for(signer.hotkey), signer).append([attempt(1)])
    with serving(postgres.owner_dsn) as server:
        assert httpx2.get(f"{server.address}/v1/tail").json()["code"] == "V2081"
        assert [row.validator for row in rows(server.address, validator=signer.hotkey)] == [signer.hotkey]


# -- the client of the live tail: it believes nothing, and comes back by itself


def signed_lines() -> list[bytes]:
    """Rows of a small log: an attempt, an episode with its body, stubs."""
    signer = keypair_signer("//Alice")
    log = MemoryLog(signer.hotkey)
    payloads, body = episode(1)

    async def write() -> None:
        sequencer = Sequencer(log, signer, Clock(), HOST)  # type: ignore[arg-type]
        await sequencer.append([attempt(0)])
        await sequencer.append(payloads, [body])
        await sequencer.append([attempt(2), attempt(3)])

    asyncio.run(write())
    given = {3: {"body": body.content}, 5: {"withheld": "unreleased"}}
    return [msgspec.json.encode(log_row(record, **given.get(record.seq, {}))) for record in log.log]


LINES = signed_lines()
ALICE = keypair_signer("//Alice").hotkey


def check_all(lines: list[bytes], validator: str = ALICE, after: int = 0) -> RowCheck:
    check = RowCheck(validator, after, verify)
    for line in lines:
        check.check(line)
    return check


def test_a_true_log_is_believed_from_its_beginning_and_from_any_cursor() -> None:
    assert check_all(LINES).after == len(LINES)
    assert check_all(LINES, validator="").walk.head == check_all(LINES).walk.head
    for after in range(1, len(LINES)):
        assert check_all(LINES[after:], after=after).walk.head == check_all(LINES).walk.head


@given(st.integers(0, len(LINES) - 1), st.data())
def test_any_changed_byte_of_a_row_is_found(place: int, data: st.DataObject) -> None:
    line = bytearray(LINES[place])
    where = data.draw(st.integers(0, len(line) - 1))
    line[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ArenaError, match=r"V2050|V2084"):
        check_all([*LINES[:place], bytes(line), *LINES[place + 1 :]])


@pytest.mark.parametrize(
    "change",
    [
        {"body": None},
        {"content": None},
        {"withheld": "pool"},
        {"content": None, "body": None, "withheld": None},
        {"signature": "00" * 64},
        {"seq": 2**60},
    ],
)
def test_a_row_that_lacks_what_it_should_hold_is_a_break(change: dict[str, object]) -> None:
    row = msgspec.structs.replace(read_row(LINES[2]), **change)
    with pytest.raises(ArenaError, match="V2050"):
        check_all([*LINES[:2], msgspec.json.encode(row)])


# -- how it comes back


def test_it_reads_a_log_to_its_end(author: Author) -> None:
    author.race("r1", range(10))
    author.finish("r1", range(10))
    with serving(author.dsn) as server:
        assert [read_row(line).seq for line in client(server.address).lines()] == list(range(1, 33))
        assert [read_row(line).seq for line in client(server.address).lines(after=30)] == [31, 32]


def take(lines: Iterator[bytes], count: int) -> list[int]:
    return [read_row(next(lines)).seq for _ in range(count)]


def test_a_follower_goes_on_behind_its_last_row_when_the_server_was_restarted(author: Author) -> None:
    port, told = free_port(), []
    lines = client(f"http://127.0.0.1:{port}", tell=told.append).lines(is_following=True)
    author.append([attempt(1), attempt(2)])
    with serving(author.dsn, port):
        assert take(lines, 2) == [1, 2]
    author.append([attempt(3)])
    with serving(author.dsn, port):
        assert take(lines, 1) == [3]
        author.append([attempt(4)])
        assert take(lines, 1) == [4]
    assert any("after record 2" in text for text in told)


def test_a_log_that_got_shorter_is_a_break(postgres, author: Author) -> None:
    """The server comes back over another store: rows that were read are not there any more."""
    author.append([attempt(1), attempt(2)])
    other = generate_signer()
    shorter = Author(postgres.dsn_for(other.hotkey), other)
    shorter.append([attempt(1)])
    port = free_port()
    lines = client(f"http://127.0.0.1:{port}").lines(is_following=True)
    with serving(author.dsn, port):
        take(lines, 2)
    with serving(shorter.dsn, port), pytest.raises(ArenaError, match="V2050"):
        next(lines)


def test_a_refused_request_is_not_tried_again(author: Author) -> None:
    author.append([attempt(1)])
    with serving(author.dsn) as server:
        with pytest.raises(ArenaError, match="V2081"):
            list(client(server.address).lines("no hotkey", is_following=True))
        with pytest.raises(ArenaError, match="V2082"):
            list(client(server.address).lines(after=9, is_following=True))

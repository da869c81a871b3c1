"""The live tail over real HTTP: cursors, following, the release rule, slow clients."""

from __future__ import annotations

import hashlib
import time

import httpx2
import msgspec
import pytest

from arena.api.reads import PAGE_ROWS
from arena.export.files import read_row
from arena.export.model import LogRow
from tests.arena.log_stand import attempt
from tests.arena.tail_stand import Author, rows, serving
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

"""Answers of strangers: bounded in bytes and in time, with and without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.bounded_http import BoundedClient, Lines, UnfitAnswerError, ask
from tests.hostile_http import DRIPS, GUARD_S, HostileServer, ended, endless, says

BYTES_MAX = 1 << 20
SOCKET_BYTES = 16 << 20  # what the kernel may hold between the two

SILENCE_S, WITHIN_S = 2 * GUARD_S, 1.0

Ask = Callable[..., httpx2.Response]


def ask_in_a_loop(url: str, content: bytes = b"") -> httpx2.Response:
    async def asking() -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=SILENCE_S) as client:
            return await ask(client, "POST", url, content=content, bytes_max=BYTES_MAX, within_s=WITHIN_S)

    return asyncio.run(asking())


def ask_without_one(url: str, content: bytes = b"") -> httpx2.Response:
    with BoundedClient(silence_s=SILENCE_S, connect_s=SILENCE_S) as client:
        return client.ask("POST", url, content=content, bytes_max=BYTES_MAX, within_s=WITHIN_S)


both = pytest.mark.parametrize("asking", [ask_in_a_loop, ask_without_one])


@both
def test_an_answer_comes_whole_with_status_words_and_headers(asking: Ask) -> None:
    with HostileServer(says(b"12345", b"418 Short And Stout", b"x-more: yes")) as server:
        answer = asking(server.url)
    assert (answer.status_code, answer.reason_phrase, answer.content) == (418, "Short And Stout", b"12345")
    assert answer.headers["x-more"] == "yes"
    with pytest.raises(httpx2.HTTPStatusError):
        answer.raise_for_status()


@both
@pytest.mark.parametrize("drip", DRIPS)
def test_whatever_drips_ends_by_the_deadline(asking: Ask, drip: str) -> None:
    with HostileServer(DRIPS[drip]) as server:
        assert isinstance(ended(lambda: asking(server.url)), httpx2.ReadTimeout)


@both
def test_who_takes_no_request_is_not_written_to_for_ever(asking: Ask) -> None:
    with HostileServer(DRIPS["header"]) as server:
        assert isinstance(ended(lambda: asking(server.url, b"x" * (64 << 20))), httpx2.TimeoutException)


@both
@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity, gzip"])
def test_a_compressed_answer_is_refused_unread(asking: Ask, encoding: str) -> None:
    behave = endless(b"200 OK", b"content-encoding: " + encoding.encode())
    with HostileServer(behave) as server:
        error = ended(lambda: asking(server.url))
        assert isinstance(error, UnfitAnswerError) and "compressed" in str(error)
        assert server.sent < SOCKET_BYTES


@both
@pytest.mark.parametrize("status", [b"200 OK", b"500 Oops"])
def test_an_answer_without_an_end_is_read_to_its_bound(asking: Ask, status: bytes) -> None:
    with HostileServer(endless(status)) as server:
        error = ended(lambda: asking(server.url))
        assert isinstance(error, UnfitAnswerError) and str(BYTES_MAX) in str(error)
        assert server.sent < BYTES_MAX + SOCKET_BYTES


@pytest.mark.parametrize("redirects", [0, 1])
def test_a_redirect_is_followed_unread_and_only_as_often_as_asked(redirects: int) -> None:
    with (
        HostileServer(says(b"there")) as there,
        HostileServer(endless(b"307 Elsewhere", b"location: " + there.url.encode())) as here,
        HostileServer(says(b"go", b"302 Elsewhere", b"location: " + here.url.encode())) as far,
        BoundedClient(silence_s=20, connect_s=20, redirects=redirects) as client,
    ):
        answer = client.ask("POST", here.url, bytes_max=100, within_s=20, content=b"x")
        assert (answer.status_code, answer.content) == ((200, b"there") if redirects else (307, b""))
        if redirects:
            with pytest.raises(httpx2.TooManyRedirects):
                client.ask("GET", far.url, bytes_max=100, within_s=20)


@both
def test_a_handshake_without_an_answer_ends_by_the_deadline(asking: Ask) -> None:
    with HostileServer(says(b"")) as server:
        assert isinstance(ended(lambda: asking(server.url.replace("http:", "https:"))), httpx2.TimeoutException)


def test_the_environments_proxy_is_asked_but_for_hosts_that_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostileServer(says(b"through")) as proxy, HostileServer(says(b"direct")) as server:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//name:word@"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with BoundedClient(silence_s=20, connect_s=20) as client:
            assert client.ask("GET", "http://away.invalid/x", bytes_max=9, within_s=20).content == b"through"
            assert client.ask("GET", server.url, bytes_max=9, within_s=20).content == b"direct"
    assert proxy.heads[0].startswith(b"GET http://away.invalid/x ")
    assert b"\r\nproxy-authorization: basic bmftztp3b3jk" in proxy.heads[0].lower()


def test_a_deadline_is_of_one_request_and_one_thread() -> None:
    with (
        HostileServer(DRIPS["body"]) as drip,
        HostileServer(says(b"fine")) as fine,
        BoundedClient(silence_s=20, connect_s=20) as client,
        ThreadPoolExecutor(1) as other,
    ):
        with client.within(0.0):
            answer = other.submit(lambda: client.ask("GET", fine.url, bytes_max=9, within_s=20)).result()
            assert answer.content == b"fine"
            with pytest.raises(httpx2.ReadTimeout):
                client.ask("GET", fine.url, bytes_max=9, within_s=0.0)
        assert client.ask("GET", fine.url, bytes_max=9, within_s=20).content == b"fine"
        assert isinstance(
            ended(lambda: client.ask("GET", drip.url, bytes_max=1 << 20, within_s=0.2)), httpx2.ReadTimeout
        )


def test_a_stream_lasts_as_long_as_its_bytes_come() -> None:
    with HostileServer(DRIPS["body"]) as server, BoundedClient(silence_s=20, connect_s=20) as client:
        with client.stream("GET", server.url) as answer:
            pieces = answer.iter_raw()
            assert sum(len(next(pieces)) for _ in range(20)) >= 20
        with client.stream("GET", server.url) as answer, client.within(0.2), pytest.raises(httpx2.ReadTimeout):
            answer.read()


@given(st.lists(st.binary(max_size=12)), st.integers(1, 30))
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(line.replace(b"\n", b".") + b"\n" for line in lines) + b"rest"
    cut = Lines(bytes_max=100)
    found = [line for start in range(0, len(stream), size) for line in cut.feed(stream[start : start + size])]
    assert found == stream.split(b"\n")[:-1]
    assert cut.is_within_one


def test_a_line_too_long_is_refused_whether_or_not_it_ends() -> None:
    cut = Lines(bytes_max=10)
    assert [*cut.feed(b"1234567890\n1234567890")] == [b"1234567890"]
    with pytest.raises(UnfitAnswerError, match="more than 10 bytes"):
        [*cut.feed(b"1")]
    with pytest.raises(UnfitAnswerError, match="more than 10 bytes"):
        [*Lines(bytes_max=10).feed(b"12345678901\n")]

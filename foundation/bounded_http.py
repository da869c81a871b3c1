"""Answers of strangers over HTTP: bounded in bytes and in time, whoever sends them.

Nothing is decompressed: none is asked for a compressed answer, and one that comes is refused before a byte of it is
read. A deadline holds from the first look-up of an address to the last byte, however slowly bytes drip in. What an
answer says is its reader's to check.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ssl import SSLContext
from types import TracebackType
from typing import Any

import httpcore
import httpx

_IDENTITY = {"accept-encoding": "identity"}
_PIECE_BYTES = 64 << 10  # of a request that is written at once


class UnfitAnswerError(Exception):
    """An answer that is compressed or too large. Its text says which of the two, for people."""


class Lines:
    """Cuts pieces of a stream into lines of at most `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting = bytearray()

    @property
    def is_within_one(self) -> bool:
        """The pieces so far end within a line."""
        return bool(self._waiting)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in this piece, without their ends. Raises UnfitAnswerError for one too long."""
        searched, start = len(self._waiting), 0
        self._waiting += piece
        while (end := self._waiting.find(b"\n", max(start, searched))) >= 0:
            self._require_short(end - start)
            yield bytes(self._waiting[start:end])
            start = end + 1
        del self._waiting[:start]
        self._require_short(len(self._waiting))

    def _require_short(self, size: int) -> None:
        if size > self._bytes_max:
            raise UnfitAnswerError(f"a line of more than {self._bytes_max} bytes")


@asynccontextmanager
async def answering(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> AsyncIterator[httpx.Response]:
    """An answer that is still to be read, raw. Raises UnfitAnswerError for a compressed one, and what httpx does."""
    async with client.stream(method, url, headers={**(headers or {}), **_IDENTITY}, content=content) as answer:
        _require_identity(answer)
        yield answer


async def read_whole(answer: httpx.Response, bytes_max: int) -> bytes:
    """What is left of an answer. Raises UnfitAnswerError for more than `bytes_max`."""
    content = bytearray()
    async for piece in answer.aiter_raw():
        _add(content, piece, bytes_max)
    return bytes(content)


async def ask(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    bytes_max: int,
    within_s: float,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> httpx.Response:
    """A whole answer of any status. Raises UnfitAnswerError, httpx.TimeoutException after `within_s`, as httpx does."""
    try:
        async with (
            asyncio.timeout(within_s),
            answering(client, method, url, headers=headers, content=content) as answer,
        ):
            return _kept(answer, await read_whole(answer, bytes_max))
    except TimeoutError as error:
        raise httpx.ReadTimeout(f"no whole answer within {within_s:g} s") from error


class BoundedClient:
    """The same for code without a loop. Threads may share one. Close it when done."""

    def __init__(
        self,
        *,
        silence_s: float,
        connect_s: float,
        base_url: str = "",
        headers: Mapping[bytes, bytes] | None = None,
        trust_env: bool = True,
        redirects: int = 0,
        connections: int | None = 100,
    ) -> None:
        """`silence_s` without a byte end a request, `redirects` are followed. Raises httpx.InvalidURL."""
        self._redirects = redirects
        self._due = _Due()
        self._client = httpx.Client(
            base_url=base_url,
            headers={**(headers or {}), b"accept-encoding": b"identity"},
            timeout=httpx.Timeout(silence_s, connect=connect_s),
            trust_env=trust_env,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=20),
        )
        for transport in (self._client._transport, *self._client._mounts.values()):
            if isinstance(transport, httpx.HTTPTransport):  # which can't be given a backend
                transport._pool._network_backend = _DueBackend(self._due)

    @property
    def base_url(self) -> str:
        """What the paths of requests are relative to."""
        return str(self._client.base_url)

    def __enter__(self) -> BoundedClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Whatever this thread asks and reads here ends in httpx.TimeoutException when the seconds are over."""
        before, self._due.at_s = self._due.at_s, time.monotonic() + seconds
        try:
            yield
        finally:
            self._due.at_s = before

    @contextmanager
    def answering(self, request: httpx.Request) -> Iterator[httpx.Response]:
        """As the function."""
        answer = self._client.send(request, stream=True)
        try:
            _require_identity(answer)
            yield answer
        finally:
            answer.close()

    def request(self, method: str, url: str, **given: Any) -> httpx.Request:
        """A request to this client's server, to be sent by it. `given` is httpx's. Raises httpx.InvalidURL."""
        return self._client.build_request(method, url, **given)

    def read_whole(self, answer: httpx.Response, bytes_max: int) -> bytes:
        """As the function."""
        content = bytearray()
        for piece in answer.iter_raw():
            _add(content, piece, bytes_max)
        return bytes(content)

    def ask(self, method: str, url: str, *, bytes_max: int, within_s: float, **given: Any) -> httpx.Response:
        """As the function. Of redirects only the last answer is read."""
        request = self.request(method, url, **given)
        with self.within(within_s):
            for left in range(self._redirects, -1, -1):
                with self.answering(request) as answer:
                    if not left or answer.next_request is None:
                        return _kept(answer, self.read_whole(answer, bytes_max))
                    request = answer.next_request
        raise AssertionError("the last answer is handed on")


def _require_identity(answer: httpx.Response) -> None:
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnfitAnswerError("a compressed answer that was not asked for")


def _add(content: bytearray, piece: bytes, bytes_max: int) -> None:
    content += piece
    if len(content) > bytes_max:
        raise UnfitAnswerError(f"an answer of more than {bytes_max} bytes")


def _kept(answer: httpx.Response, content: bytes) -> httpx.Response:
    """The answer without its connection."""
    return httpx.Response(
        answer.status_code,
        headers=answer.headers,
        content=content,
        request=answer.request,
        extensions={"reason_phrase": answer.reason_phrase.encode()},
    )


class _Due(threading.local):
    """When what a thread reads has to be there, by the monotonic clock; None: whenever."""

    at_s: float | None = None

    def left_s(self, wanted_s: float | None) -> float | None:
        """How long one wait may last. Raises httpcore.ReadTimeout when the time is over."""
        if self.at_s is None:
            return wanted_s
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout("timed out before the whole answer was there")
        return left_s if wanted_s is None else min(wanted_s, left_s)


class _DueBackend(httpcore.NetworkBackend):
    """Connections whose every wait ends by the deadline: httpx bounds each wait alone, and a header may take many."""

    def __init__(self, due: _Due) -> None:
        self._due, self._inner = due, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        wait_s = self._due.left_s(timeout)
        return _DueStream(self._inner.connect_tcp(host, port, wait_s, local_address, socket_options), self._due)


class _DueStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, due: _Due) -> None:
        self._inner, self._due = inner, due

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._due.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], self._due.left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _DueStream(self._inner.start_tls(ssl_context, server_hostname, self._due.left_s(timeout)), self._due)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

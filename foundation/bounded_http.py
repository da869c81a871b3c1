"""Answers of strangers over HTTP: bounded in bytes and in time, from any sender.

Nothing is decompressed: none is asked for a compressed answer, and one that comes is refused before a byte of it is
read. A deadline holds from the first look-up of an address to the last byte, however slowly bytes drip in. What an
answer says is its reader's to check.
"""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ssl import SSLContext
from typing import Any

import httpcore2
import httpx2

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
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> AsyncIterator[httpx2.Response]:
    """An answer that is still to be read, raw. Raises UnfitAnswerError for a compressed one, and what httpx2 does."""
    async with client.stream(method, url, headers={**(headers or {}), **_IDENTITY}, content=content) as answer:
        _require_identity(answer)
        yield answer


async def read_whole(answer: httpx2.Response, bytes_max: int) -> bytes:
    """What is left of an answer. Raises UnfitAnswerError for more than `bytes_max`."""
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) > bytes_max:
            raise UnfitAnswerError(f"an answer of more than {bytes_max} bytes")
    return bytes(content)


async def ask(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    bytes_max: int,
    within_s: float,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> httpx2.Response:
    """A whole answer of any status. Raises UnfitAnswerError, httpx2.TimeoutException after `within_s`, as httpx2."""
    try:
        async with (
            asyncio.timeout(within_s),
            answering(client, method, url, headers=headers, content=content) as answer,
        ):
            return _kept(answer, await read_whole(answer, bytes_max))
    except TimeoutError as error:
        raise httpx2.ReadTimeout(f"no whole answer within {within_s:g} s") from error


def _require_identity(answer: httpx2.Response) -> None:
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnfitAnswerError("a compressed answer that was not asked for")


def _kept(answer: httpx2.Response, content: bytes) -> httpx2.Response:
    """The answer without its connection."""
    return httpx2.Response(
        answer.status_code,
        headers=answer.headers,
        content=content,
        request=answer.request,
        extensions={"reason_phrase": answer.reason_phrase.encode()},
    )


class _Bounds(threading.local):
    """What answers to this thread have to keep to: a time by the monotonic clock, and bytes; None: no bound."""

    at_s: float | None = None
    bytes_max: int | None = None

    def left_s(self, wanted_s: float | None) -> float | None:
        """How long one wait may last. Raises httpcore2.ReadTimeout when the time is over."""
        if self.at_s is None:
            return wanted_s
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise httpcore2.ReadTimeout("timed out before the whole answer was there")
        return left_s if wanted_s is None else min(wanted_s, left_s)


class BoundedClient(httpx2.Client):
    """The same for code without a loop, and for libraries that take an HTTP client. Threads may share one."""

    def __init__(
        self,
        *,
        silence_s: float,
        connect_s: float,
        base_url: str = "",
        headers: Mapping[bytes, bytes] | None = None,
        redirects: int = 0,
        connections: int | None = 100,
    ) -> None:
        """`silence_s` without a byte end a request, `redirects` are followed. Proxies are the environment's. Raises
        httpx2.InvalidURL."""
        self._bounds = _Bounds()
        super().__init__(
            base_url=base_url,
            headers={**(headers or {}), b"accept-encoding": b"identity"},
            timeout=httpx2.Timeout(silence_s, connect=connect_s),
            transport=_BoundedTransport(self._bounds, connections=connections),
            follow_redirects=redirects > 0,
            max_redirects=max(redirects, 1),
        )

    @contextmanager
    def within(self, seconds: float, bytes_max: int | None = None) -> Iterator[None]:
        """What this thread asks and reads here ends in httpx2.TimeoutException when the seconds are over, and in
        UnfitAnswerError for an answer of more bytes."""
        bounds = self._bounds
        before = bounds.at_s, bounds.bytes_max
        bounds.at_s, bounds.bytes_max = time.monotonic() + seconds, bytes_max
        try:
            yield
        finally:
            bounds.at_s, bounds.bytes_max = before

    def ask(self, method: str, url: str, *, bytes_max: int, within_s: float, **given: Any) -> httpx2.Response:
        """As the function; `given` is httpx2's. Of redirects only the last answer is read."""
        with self.within(within_s, bytes_max):
            return self.request(method, url, **given)


class _BoundedTransport(httpx2.BaseTransport):
    """Connections over a network backend of ours: httpx2 bounds each wait alone, and a header may take many."""

    def __init__(self, bounds: _Bounds, *, connections: int | None) -> None:
        self._bounds = bounds
        proxies = urllib.request.getproxies()
        self._proxies = {kind: address for kind, address in proxies.items() if kind in ("http", "https", "all")}
        tls = httpx2.create_ssl_context()
        self._pools = {  # by proxy; "": without one
            proxy: httpcore2.ConnectionPool(
                tls,
                _proxy_at(proxy) if proxy else None,
                max_connections=connections,
                max_keepalive_connections=20,
                keepalive_expiry=5.0,
                network_backend=_BoundedBackend(bounds),
            )
            for proxy in {"", *self._proxies.values()}
        }

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it (`httpx2.BaseTransport`). Raises UnfitAnswerError for a compressed answer."""
        url = request.url
        asked = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx2():
            given = self._pool(url).handle_request(asked)
        answer = httpx2.Response(
            given.status, headers=given.headers, stream=_Body(given, self._bounds), extensions=given.extensions
        )
        try:
            _require_identity(answer)
        except UnfitAnswerError:
            given.close()
            raise
        if answer.has_redirect_location:
            given.close()
            answer.stream = httpx2.ByteStream(b"")
        return answer

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools.values():
            pool.close()

    def _pool(self, url: httpx2.URL) -> httpcore2.ConnectionPool:
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all", "")
        return self._pools["" if proxy and urllib.request.proxy_bypass(url.netloc.decode("ascii")) else proxy]


def _proxy_at(address: str) -> httpcore2.Proxy:
    url = httpx2.URL(address)
    return httpcore2.Proxy(str(url.copy_with(userinfo=b"")), (url.username, url.password) if url.userinfo else None)


class _Body(httpx2.SyncByteStream):
    def __init__(self, answer: httpcore2.Response, bounds: _Bounds) -> None:
        self._answer, self._bounds = answer, bounds

    def __iter__(self) -> Iterator[bytes]:
        size, bytes_max = 0, self._bounds.bytes_max
        with _as_httpx2():
            for piece in self._answer.iter_stream():
                size += len(piece)
                if bytes_max is not None and size > bytes_max:
                    raise UnfitAnswerError(f"an answer of more than {bytes_max} bytes")
                yield piece

    def close(self) -> None:
        self._answer.close()


@contextmanager
def _as_httpx2() -> Iterator[None]:
    """The errors of httpcore2 as those of httpx2, which have the same names."""
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx2, type(error).__name__)(str(error)) from error


class _BoundedBackend(httpcore2.NetworkBackend):
    """Connections whose every wait ends by the deadline."""

    def __init__(self, bounds: _Bounds) -> None:
        self._bounds, self._inner = bounds, httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        wait_s = self._bounds.left_s(timeout)
        return _BoundedStream(self._inner.connect_tcp(host, port, wait_s, local_address, socket_options), self._bounds)


class _BoundedStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, bounds: _Bounds) -> None:
        self._inner, self._bounds = inner, bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._bounds.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], self._bounds.left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        wait_s = self._bounds.left_s(timeout)
        return _BoundedStream(self._inner.start_tls(ssl_context, server_hostname, wait_s), self._bounds)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

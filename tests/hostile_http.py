"""Servers on loopback that mean no good: one behaviour for every request, over plain sockets.

Each is a thread, so that clients with and without a loop can be put before it. A behaviour is what is sent, piece by
piece, whatever was asked.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator

import zstandard

Behaviour = Callable[[], Iterator[bytes]]

OK = b"HTTP/1.1 200 OK\r\n"
GUARD_S = 30.0  # for what would hang for ever without a bound
LARGE_BYTES = 64 << 20


def says(body: bytes, status: bytes = b"200 OK", *headers: bytes) -> Behaviour:
    """One whole answer."""
    head = b"".join(header + b"\r\n" for header in headers)

    def behave() -> Iterator[bytes]:
        yield b"HTTP/1.1 %s\r\n%sconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, head, len(body)) + body

    return behave


def _drips(start: bytes) -> Behaviour:
    def behave() -> Iterator[bytes]:
        yield start
        while True:
            time.sleep(0.05)
            yield b" "

    return behave


def bomb(encoding: str, status: bytes = b"200 OK") -> Behaviour:
    """A small answer that is large when it is unpacked."""
    return says(_packed(encoding), status, b"content-encoding: " + encoding.encode())


@functools.cache
def _packed(encoding: str) -> bytes:
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    return pack(b" " * LARGE_BYTES)


def endless(status: bytes = b"200 OK", *headers: bytes) -> Behaviour:
    """An answer without an end, as fast as it is taken, without a line's end."""
    head = b"".join(header + b"\r\n" for header in headers)

    def behave() -> Iterator[bytes]:
        yield b"HTTP/1.1 %s\r\n%s\r\n" % (status, head)
        while True:
            yield b"[" * 65_536

    return behave


DRIPS = {
    "body": _drips(OK + b"content-length: 1000000\r\n\r\n"),
    "refusal": _drips(b"HTTP/1.1 400 Bad\r\ncontent-length: 1000000\r\n\r\n"),
    "header": _drips(OK + b"x-more: "),
    "chunk's size": _drips(OK + b"transfer-encoding: chunked\r\n\r\n5;"),
}


class HostileServer:
    """A server at `url` until the block ends. `heads`: of the requests that came; `sent`: how many bytes went."""

    def __init__(self, behave: Behaviour) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heads: list[bytes] = []
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> HostileServer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(GUARD_S)
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(65_536)):
                    return  # it left: to ask again would take a whole core until the last test is over
                head += piece
            self.heads.append(head)
            for piece in self._behave():
                connection.sendall(piece)
                self.sent += len(piece)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):  # closing before all was read would cut off what was sent
                pass


def ended(work: Callable[[], object]) -> BaseException:
    """How the work failed. It has to end soon enough, and not well."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is handed on
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(GUARD_S)
    assert not thread.is_alive(), "it goes on and on"
    assert failures, "it ended well"
    return failures[0]

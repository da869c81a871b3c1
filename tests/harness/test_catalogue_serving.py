"""The search server as clients meet it: sockets, limits, disconnects, workers and signals."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import uvicorn

from foundation.errors import ArenaError
from harness.catalogue import server as guard
from harness.catalogue.native import open_catalogue
from harness.catalogue.server import SearchApplication, listen, make_config, serve
from tests.harness.catalogue_stand import index_of, product
from tests.harness.episode_stand import is_alive, wait_for

ROOT = Path(__file__).parents[2]
SHELF = [product("101", "Red Canvas Bag"), product("102", "Blue Canvas Bag", description="x" * 2_000)]
TARGET = "/find_product?q=canvas&page=1"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index_of(SHELF, tmp_path_factory.mktemp("serving"))


@pytest.fixture(scope="module")
def server(index: Path) -> Iterator[tuple[uvicorn.Server, int]]:
    """A server in this process, with the limits of the real one and less patience."""
    patience = guard.HEAD_TIMEOUT_S, guard.STALL_TIMEOUT_S
    guard.HEAD_TIMEOUT_S, guard.STALL_TIMEOUT_S = 0.5, 0.5
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(make_config(SearchApplication(functools.partial(open_catalogue, index))))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield server, listener.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()
    guard.HEAD_TIMEOUT_S, guard.STALL_TIMEOUT_S = patience


@pytest.fixture
def port(server: tuple[uvicorn.Server, int]) -> int:
    return server[1]


def get(port: int, target: str = TARGET) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.read()


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        yield client


def read_all(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def assert_alive(port: int) -> None:
    status, body = get(port)
    assert status == 200 and {row["product_id"] for row in json.loads(body)} == {"101", "102"}


# -- one server


def test_a_head_without_end_is_cut_off(port: int) -> None:
    with connected(port) as client:
        client.sendall(b"GET /find_product?q=")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                client.sendall(b"x" * 4_096)
        assert read_all(client)[:12] in (b"", b"HTTP/1.1 431", b"HTTP/1.1 400")
    assert_alive(port)


def test_a_client_that_reads_nothing_is_dropped(server: tuple[uvicorn.Server, int]) -> None:
    """It asks for far more than buffers hold; the server lets go of it instead of keeping the answers."""
    state, port = server[0].server_state, server[1]
    ids = ",".join(["102"] * 900)
    size = len(get(port, f"/get_product_raw?product_ids={ids}")[1])
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(60)  # with so small a window, what is left comes by probes, seconds apart
        client.connect(("127.0.0.1", port))
        for _ in range(8):
            client.sendall(f"GET /get_product_raw?product_ids={ids} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert wait_for(lambda: state.connections)  # the kernel takes a connection before the server does
        assert wait_for(lambda: not state.connections)
        assert len(read_all(client)) < 8 * size
    assert_alive(port)


def test_the_methods_and_the_catalogue_stand_in_the_headers(port: int, index: Path) -> None:
    for method, path, name, value in (
        ("OPTIONS", "/", "allow", "GET, HEAD, OPTIONS"),
        ("GET", "/health", "x-catalogue-sha256", open_catalogue(index).content_sha256),
    ):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request(method, path)
            assert connection.getresponse().headers[name] == value


# -- processes


@contextlib.contextmanager
def serving(index: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "neurons.cli.app", "catalogue", "serve", str(index), "--port", "0", *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            assert found, server.stderr.read() if server.stderr else line
            yield server, int(found[1])
        finally:
            if server.poll() is None:
                server.terminate()


def await_workers(server: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    """So many workers, each with the thread that answers its supervisor."""

    def found() -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended while it was looked at
            alive = [one for one in psutil.Process(server.pid).children() if one.status() != psutil.STATUS_ZOMBIE]
            return [one for one in alive if "spawn_main" in " ".join(one.cmdline()) and one.num_threads() > 1]
        return []

    assert wait_for(lambda: len(found()) == count)
    return found()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_workers_answer_a_killed_one_is_replaced_and_all_end_with_their_supervisor(index, number, status) -> None:
    with serving(index, "--workers", "2") as (server, port):
        assert get(port)[0] == 200
        victim, survivor = await_workers(server, 2)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(20)  # gone from the process table when the supervisor has collected it
        family = await_workers(server, 2)
        assert survivor in family and victim not in family
        assert get(port)[0] == 200
        server.send_signal(number)
        assert server.wait(20) == status
        assert wait_for(lambda: not any(is_alive(one.pid) for one in family))
    with pytest.raises(ConnectionError):
        get(port)


def test_a_port_that_is_taken_and_a_missing_index_are_told_with_their_codes(index: Path, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(ArenaError, match="V2014"):
        serve(index, port=taken.getsockname()[1], workers=1)
    with pytest.raises(ArenaError, match="V2010"):
        serve(tmp_path, port=0, workers=1)
    with pytest.raises(ArenaError, match="V2030"):
        serve(index, engine="sphinx", port=0, workers=1)

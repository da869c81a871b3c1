"""The search server under load: requests a second and latency seen by eight clients, engine and HTTP together.

Server processes and load generator share the machine. Each client holds one connection and asks again as soon as it is
answered; the run ends at a count or a time, whichever comes first.
Run alone: `python -m tests.benchmarks.bench_server [documents] [workers]`, one JSON line a figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from harness.catalogue.build import build_index, document_line
from harness.catalogue.port import SearchRequest
from harness.catalogue.server import available_cores
from harness.catalogue.synthetic import generate
from tests.benchmarks.row import Row
from tests.harness.catalogue_stand import mixed_requests

DOCUMENTS, CLIENTS, REQUESTS, WARM_UP, LIMIT_S = 20_000, 8, 8_000, 400, 20.0
TARGET_PER_S = 500.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients saw; failures are answers other than 200."""

    answered: int
    failed: int
    seconds: float
    milliseconds: list[float]  # ascending

    def percentile(self, share: int) -> float:
        return self.milliseconds[len(self.milliseconds) * share // 100]


def measure(documents: int = DOCUMENTS, workers: int = 0) -> Sequence[Row]:
    """Requests a second against the target, p50 and p99, failures."""
    products = list(generate(documents, 7))
    targets = [target_of(request) for request in mixed_requests(products, 2_000, seed=5)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "documents.jsonl").write_bytes(b"".join(map(document_line, products)))
        build_index(folder / "documents.jsonl", folder / "index")
        del products
        with serving(folder / "index", workers) as port:
            asyncio.run(load(port, targets, WARM_UP))
            seen = asyncio.run(load(port, targets, REQUESTS))
    workers = workers or available_cores()
    command = f"python -m tests.benchmarks.bench_server {documents} {workers}"
    about = f"{documents // 1000}k documents, {CLIENTS} clients, {workers} workers"
    rate = seen.answered / seen.seconds
    return [
        Row(
            name=f"search server, {about}",
            value=rate,
            unit="requests/s",
            baseline=TARGET_PER_S,
            ratio=rate / TARGET_PER_S,
            command=command,
        ),
        *(
            Row(name=f"search server p{share}, {about}", value=seen.percentile(share), unit="ms", command=command)
            for share in (50, 99)
        ),
        Row(name=f"search server answers other than 200, {about}", value=seen.failed, unit="", command=command),
    ]


def target_of(request: SearchRequest) -> bytes:
    """Path and query string of a search."""
    given = {name: value for name, value in msgspec.structs.asdict(request).items() if value is not None}
    return f"/find_product?{urlencode(given)}".encode()


@contextlib.contextmanager
def serving(index: Path, workers: int) -> Iterator[int]:
    """`arena catalogue serve` in a process of its own; gives the port."""
    command = [sys.executable, "-m", "neurons.cli.app", "catalogue", "serve", str(index), "--port", "0"]
    with subprocess.Popen([*command, "--workers", str(workers)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line:
                raise RuntimeError("the server did not start; its reason stands above")
            yield int(line.rstrip().rpartition(":")[2])
        finally:
            server.terminate()


async def load(port: int, targets: Sequence[bytes], count: int) -> Load:
    """Ask `count` times with all clients, for at most `LIMIT_S`."""
    waiting, failures, milliseconds = itertools.cycle(targets), [0], list[float]()
    left = itertools.repeat(None, count)
    started = time.perf_counter()

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in left:
            begun = time.perf_counter()
            if begun - started > LIMIT_S:
                break
            writer.write(b"GET " + next(waiting) + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0])
            await reader.readexactly(length)
            milliseconds.append((time.perf_counter() - begun) * 1e3)
            failures[0] += not head.startswith(b"HTTP/1.1 200 ")
        writer.close()

    await asyncio.gather(*(ask() for _ in range(CLIENTS)))
    seconds = time.perf_counter() - started
    return Load(answered=len(milliseconds), failed=failures[0], seconds=seconds, milliseconds=sorted(milliseconds))


if __name__ == "__main__":
    arguments = [int(text) for text in sys.argv[1:]]
    for row in measure(*arguments):
        sys.stdout.write(msgspec.json.encode(row).decode() + "\n")

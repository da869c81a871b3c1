"""What public reads and submissions cost: processor time of the server and of its Postgres, whatever else runs.

One process serves the public reads and the door over a store of eight settled races; the clients are another process.
Processor time, and not latency, is measured here: it hardly depends on what else the machine does.

A read is asked of a store that stands still, and of one that grows between two refreshes of the board, as beside a
race: 200 reads to a refresh. A submission is new, or the same again under another signature, or of a file that nobody
committed to, which is refused.
Run alone: `python -m tests.benchmarks.bench_door [reads] [submissions]`, one JSON line a figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import psutil
from msgspec.structs import replace

from arena.chain.keys import generate_signer, keypair_signer
from arena.records.model import Subject
from arena.store.embedded.server import EmbeddedServer, start_embedded
from arena.store.port import StoredSubmission
from arena.store.postgres.store import PostgresStore
from arena.submissions.model import SignedSubmission, agent_version_id
from foundation.canonical import text_hash
from harness.agents.registry import baseline_source
from tests.arena.door_stand import WIDE_RULES, Miner, Stand
from tests.arena.log_stand import episode, release, settlement
from tests.arena.tail_stand import Author
from tests.benchmarks.row import Row

ROOT = Path(__file__).parents[2]
READS, SUBMISSIONS = 2_000, 150
RACES, FIELD, PROBLEMS = 8, 40, 2
DISTINCT, READS_A_REFRESH = 19, 200  # as `bench_load` asks
READ_TARGET_MS, SUBMISSION_TARGET_MS = 2.0, 15.0  # 200 and 20 a second within two thirds of one core
URI = "//Bench"


def measure(reads: int = READS, submissions: int = SUBMISSIONS) -> Sequence[Row]:
    """Milliseconds of processor time a read and a submission."""
    command = f"python -m tests.benchmarks.bench_door {reads} {submissions}"
    with tempfile.TemporaryDirectory(prefix="arena-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = start_embedded(folder)
        try:
            dsn = server.dsn_for(keypair_signer(URI).hotkey)
            targets = fill(dsn)
            with serving(folder, dsn) as (process, reads_url, door_url):
                burned = Burned(process, server)
                rows = [
                    *of_reads(burned, dsn, reads_url, targets, reads),
                    *asyncio.run(of_submissions(burned, folder, dsn, door_url, submissions)),
                ]
        finally:
            server.stop()
    return [replace(row, command=command) for row in rows]


def of_reads(burned: Burned, dsn: str, url: str, targets: list[str], reads: int) -> list[Row]:
    """Reads of a store that stands still, and of one that grows."""
    with httpx.Client(base_url=url) as http:
        require(http, targets[:200])
        burned.start()
        require(http, [targets[number % len(targets)] for number in range(reads)])
        still = burned.stop()
        growing, author = (0.0, 0.0), Author(dsn, keypair_signer(URI))
        asked = [targets[number % DISTINCT] for number in range(READS_A_REFRESH)]
        rounds = max(1, reads // READS_A_REFRESH)
        for number in range(rounds):
            made = episode(PROBLEMS + 1 + number, race_id="race-000000", agent="00")
            author.append(made[0], [made[1]])
            time.sleep(1.1)  # the board is refreshed by the next read
            burned.start()
            require(http, asked)
            growing = tuple(map(sum, zip(growing, burned.stop(), strict=True)))
    growing_reads = READS_A_REFRESH * rounds
    return [
        *_rows("public read", still, reads, READ_TARGET_MS),
        *_rows("public read of a store that grows", growing, growing_reads, READ_TARGET_MS),
    ]


async def of_submissions(burned: Burned, folder: Path, dsn: str, url: str, count: int) -> list[Row]:
    """Submissions that are new, that come again, and that nobody committed to."""
    miners = await make_miners(folder, dsn, url, count + 1)
    rows = []
    with httpx.Client(timeout=60) as http:
        miner, made = miners.pop()
        http.send(miner.request(made))  # starts the parser
        for name, added, status in (("new", b"", 202), ("again", b"", 202), ("not committed", b"# another\n", 422)):
            burned.start()
            for miner, made in miners:
                answer = http.send(miner.request(made, file=made.source.encode() + added))
                assert answer.status_code == status, answer.text
            rows += _rows(f"submission, {name}", burned.stop(), count, SUBMISSION_TARGET_MS)
    return rows


def _rows(name: str, seconds: tuple[float, float], requests: int, target_ms: float) -> list[Row]:
    total, stored = (1_000 * each / requests for each in (sum(seconds), seconds[1]))
    return [
        Row(name=f"{name}, processor time", value=total, unit="ms", baseline=target_ms),
        Row(name="... of it in Postgres", value=stored, unit="ms"),
    ]


class Burned:
    """Processor seconds of the server with its children, and of Postgres with its backends."""

    def __init__(self, server: int, postgres: EmbeddedServer) -> None:
        self._server = psutil.Process(server)
        self._postgres = psutil.Process(postgres.pid)
        self._before = (0.0, 0.0)

    def start(self) -> None:
        self._before = (_seconds(self._server), _seconds(self._postgres))

    def stop(self) -> tuple[float, float]:
        """Seconds since the start."""
        return _seconds(self._server) - self._before[0], _seconds(self._postgres) - self._before[1]


def _seconds(process: psutil.Process) -> float:
    """By the scheduler's own account: the clock ticks that `cpu_times` counts are longer than a request."""
    nanoseconds = 0
    for one in (process, *process.children(recursive=True)):
        for task in Path(f"/proc/{one.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                nanoseconds += int(task.read_text().split()[0])
    return nanoseconds / 1e9


def fill(dsn: str) -> list[str]:
    """A store of settled and open races; the addresses that readers ask for."""
    author = Author(dsn, keypair_signer(URI))
    agents = [f"{number:02x}" for number in range(FIELD)]
    for number in range(RACES):
        race_id = f"race-{number:06d}"
        pairs = [(problem, agent) for agent in agents for problem in range(1, PROBLEMS + 1)]
        made = [episode(problem, race_id=race_id, agent=agent) for problem, agent in pairs]
        author.append([each for payloads, _ in made for each in payloads], [body for _, body in made])
        record = settlement(race_id)
        (first,) = record.standings
        standings = tuple(
            replace(first, rank=rank, agent_version_id=agent * 32) for rank, agent in enumerate(agents, start=1)
        )
        author.append([replace(record, standings=standings), release(race_id, range(1, PROBLEMS + 1))])
    asyncio.run(_submissions(dsn))
    races = [f"race-{number:06d}" for number in range(RACES)]
    return [
        "/v1/leaderboard",
        "/v1/races",
        "/v1/stats/days",
        "/v1/validators",
        "/v1/agents?limit=50",
        *(f"/v1/races/{race}" for race in races),
        *(f"/v1/races/{race}/leaderboard" for race in races),
        *(f"/v1/agents/{agent * 32}" for agent in agents[:16]),
        *(f"/v1/races/{race}/problems?agent={agents[0] * 32}" for race in races[:4]),
    ]


async def _submissions(dsn: str) -> None:
    store = await PostgresStore.open(dsn, keypair_signer(URI).hotkey)
    for number in range(FIELD):
        miner, source = generate_signer().hotkey, f"# {number}\n{baseline_source('scripted-expert')}"
        code = text_hash(source)
        subject = Subject(agent_version_id=agent_version_id(miner, code), miner_hotkey=miner, agent_sha256=code)
        stored = StoredSubmission(subject=subject, name=f"agent-{number}", state="qualified")
        await store.put_submission(stored, source)
    await store.close()


async def make_miners(folder: Path, dsn: str, url: str, count: int) -> list[tuple[Miner, SignedSubmission]]:
    """Registered miners, each with an agent that it committed to."""
    stand = Stand(folder, dsn, URI)
    stand.address = url
    miners = [Miner(stand) for _ in range(count)]
    made: list[tuple[Miner, SignedSubmission]] = []
    for number, miner in enumerate(miners):
        assert (await stand.chain.register(miner.signer)).status == "ok"
        made.append((miner, await miner.commit(f"{baseline_source('scripted-expert')}# {number}\n")))
    await asyncio.sleep(1)  # until the last registration is final
    return made


def require(http: httpx.Client, targets: Sequence[str]) -> None:
    """Ask for each; all have to be there."""
    for target in targets:
        answer = http.get(target)
        assert answer.status_code == 200, (target, answer.text)


@contextlib.contextmanager
def serving(folder: Path, dsn: str) -> Iterator[tuple[int, str, str]]:
    """The reads and the door in a process of their own: its id and their addresses."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_door", "--serve", str(folder), dsn]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        reads_url, door_url = process.stdout.readline().split()
        yield process.pid, reads_url, door_url
    finally:
        process.communicate()  # closing its input ends it


async def _serve(folder: str, dsn: str) -> None:
    from arena.api.server import TailServer
    from harness.catalogue.server.guard import listen

    stand, stop, loop = Stand(Path(folder), dsn, URI), asyncio.Event(), asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)), daemon=True).start()
    store = await PostgresStore.open(dsn)
    with listen("127.0.0.1", 0) as listener:
        reads = TailServer(store, listener, requests_per_s=1e6)
        tell = lambda: print(reads.address, stand.address, flush=True)  # noqa: E731 - once both listen
        await asyncio.gather(reads.run(stop), stand.serve(stop, tell, WIDE_RULES, refresh_s=6.0))
    await store.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(_serve(*sys.argv[2:]))
    else:
        started = time.perf_counter()
        for row in measure(*map(int, sys.argv[1:])):
            print(msgspec.json.encode(row).decode())
        print(f"{time.perf_counter() - started:.1f} s", file=sys.stderr)

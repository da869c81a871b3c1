"""Readers and miners beside a running race: what they wait for, and what the race's episodes lose by them.

A validator of its own process races the demo's agents; the scripted models are served by this process, as a
validator's endpoint is never served by its own; a further process reads 200 times a second over kept connections
and submits 20 times a second, both by the clock and not as fast as answers come. The same race is measured without
load for half the time before and half the time after, so every figure on episodes is a ratio of one run. The figures
of latency mean something only where nothing else runs: the load average before the start is one of them. Processor
time is told by part, since it hardly depends on what else runs.

"Slowed" is told twice. `median episode` is the time of one episode, from the start of its jail to its verdict: what an
agent and its time limits feel. `episodes` is how many end in a second: what a race lasts. On a machine whose cores are
all taken by the race itself the second falls by whatever the load takes.

The node is told to stop once the measurement is over, in mid-race: what it had begun then has to stand in its log. An
episode counts as lost that was begun and has no evaluation: its attempt faulted or was given up, or its work item is
done without a record. What was never begun waits for the node's next start and is not lost.

Run alone: `python -m tests.benchmarks.bench_load [seconds]`, one JSON line a figure, and the stages on standard error.
It lasts twice the seconds, and a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import psutil
from msgspec.structs import replace

from arena.chain.auth import HttpAuth
from arena.chain.keys import generate_signer, keypair_signer
from arena.chain.local.chain import LocalSubtensor
from arena.chain.opening import local_chain_path
from arena.policy import Policy
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, EvaluationRecord
from arena.store.embedded.server import start_embedded
from arena.store.location import read_location
from arena.store.postgres.store import PostgresStore
from arena.submissions.model import make_submission
from harness.agents.registry import baseline_source
from harness.inference.scripted.server import start_scripted_server
from neurons.demo.demo import VALIDATOR, DemoRun, running_validator
from neurons.node.wiring import unix_ms
from tests.benchmarks.row import Row
from tests.neurons.arena_stand import SMALL, build_small_catalogue, make_run, short_folder
from tests.neurons.shared_nodes_stand import free_port

SECONDS, READS_PER_S, SUBMISSIONS_PER_S, CONNECTIONS = 20, 200, 20, 24
MINERS = 60  # new agents of the load; their further submissions are retries, other versions and repetitions
RACERS, PROBLEMS_PER_S = ("expert", "careful", "hasty", "subtask", "echoer"), 4
P99_TARGET_MS = 250.0
WAIT_S = 240.0
# by command line; the rest: the node
PARTS = ("neurons.worker", "arena.gate.isolation", "neurons.serving", "arena.door.parser", "postgres")
PARTS_SAID = ("workers and jails", "gate", "reads and door", "parser", "Postgres", "node")
PARTS_AS_SAID = dict(zip((*PARTS, "node"), PARTS_SAID, strict=True))


def measure(seconds: int = SECONDS) -> Sequence[Row]:
    """p50 and p99 of reads and submissions, and what the load does to episodes."""
    command = f"python -m tests.benchmarks.bench_load {seconds}"
    with short_folder() as base:
        return [replace(row, command=command) for row in _measure(base, seconds)]


def _measure(base: Path, seconds: int) -> list[Row]:
    load_average = os.getloadavg()[0]
    ports = {name: free_port() for name in ("DOOR_PORT", "SERVE_PORT")}
    os.environ |= {f"ARENA_{name}": str(port) for name, port in ports.items()}
    catalogue_dir, policy = build_small_catalogue(base), policy_for(seconds)
    with start_scripted_server() as models:
        run = make_run(base, catalogue_dir, policy=policy, names=RACERS, openai_base_url=models.base_url)
        address = f"http://127.0.0.1:{ports['SERVE_PORT']}"
        with running_validator(run) as process, httpx.Client(base_url=address, timeout=30) as http:
            race_id = wait_for_stage(http, "running", process, WAIT_S)
            with Load(run, ports, race_id, seconds) as load:
                _say("the race runs, the clients are ready")
                burned = Burned(process.pid, run)
                spans, burns = [("quiet", unix_ms())], [burned.seconds()]
                time.sleep(seconds / 2)
                spans.append(("loaded", unix_ms()))
                burns.append(burned.seconds())
                _say("load begins")
                seen = load.run()
                is_running = stage_of(http)[1] == "running"
                spans.append(("quiet", unix_ms()))
                burns.append(burned.seconds())
                _say("load has ended")
            time.sleep(seconds / 2)
            is_running &= stage_of(http)[1] == "running"
            spans.append(("", unix_ms()))
            _say("the race is over" if not is_running else "the node is told to stop")
    assert process.returncode == 0, (run.folder / "validator.log").read_text()[-2_000:]
    assert is_running, "the race was over before the measurement: raise PROBLEMS_PER_S"
    server = start_embedded(run.folder)
    try:
        quiet, loaded, lost = asyncio.run(read_episodes(run, race_id, spans))
    finally:
        server.stop()
    lasted_s = (spans[2][1] - spans[1][1]) / 1_000
    return [
        Row(name="load average before a race under load", value=load_average, unit="processes", baseline=0),
        *_rows_of_requests(seen, lasted_s),
        *_rows_of_episodes(quiet, loaded, lost, (lasted_s, seconds)),
        *_rows_of_processor(burns, (seconds / 2, lasted_s)),
        Row(name="... the clients, on the same machine", value=seen.processor_s / lasted_s, unit="cores"),
    ]


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}; load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def _rows_of_requests(seen: Seen, lasted_s: float) -> list[Row]:
    rows = [
        Row(name=f"{kind} beside a race, {share}", value=values[at], unit="ms", baseline=P99_TARGET_MS)
        for kind, values in seen.milliseconds.items()
        for share, at in (("p50", len(values) // 2), ("p99", len(values) * 99 // 100))
    ]
    counted = Counter({f"{kind} {family}xx": 0 for kind in seen.milliseconds for family in (2, 4, 5)})
    for status, count in seen.statuses.items():
        counted[f"{status[:-2]}xx"] += count
    rows += [Row(name=f"... answers {kind}", value=count, unit="answers") for kind, count in sorted(counted.items())]
    asked = {"read": READS_PER_S, "submission": SUBMISSIONS_PER_S}
    for kind, values in seen.milliseconds.items():
        rows.append(Row(name=f"... {kind}s", value=len(values) / lasted_s, unit="1/s", baseline=asked[kind]))
    return rows


def _rows_of_episodes(quiet: list[int], loaded: list[int], lost: int, lasted_s: tuple[float, float]) -> list[Row]:
    usual, under_load = statistics.median(quiet), statistics.median(loaded)
    per_s = len(loaded) / lasted_s[0], len(quiet) / lasted_s[1]
    return [
        Row(name="... median episode", value=under_load, unit="ms", baseline=usual, ratio=under_load / usual),
        Row(name="... episodes", value=per_s[0], unit="1/s", baseline=per_s[1], ratio=per_s[0] / per_s[1]),
        Row(name="... episodes lost", value=lost, unit="episodes", baseline=0),
    ]


def _rows_of_processor(burns: list[Counter[str]], lasted_s: tuple[float, float]) -> list[Row]:
    """Processor seconds a second, under load and before it."""
    before, loaded = burns[1] - burns[0], burns[2] - burns[1]
    return [
        Row(name=f"... {name}", value=loaded[part] / lasted_s[1], unit="cores", baseline=before[part] / lasted_s[0])
        for part, name in PARTS_AS_SAID.items()
    ]


class Burned:
    """Processor seconds of a node by part, children that have ended among their parent's."""

    def __init__(self, node: int, run: DemoRun) -> None:
        folder = (run.folder / "postgres" / "data").resolve()
        postmaster = int((folder / "postmaster.pid").read_text().split()[0])
        self._roots = (psutil.Process(node), psutil.Process(postmaster))

    def seconds(self) -> Counter[str]:
        """So far."""
        found: Counter[str] = Counter()
        for one in [each for root in self._roots for each in (root, *root.children(recursive=True))]:
            with contextlib.suppress(psutil.NoSuchProcess):
                command, times = " ".join(one.cmdline()), one.cpu_times()
                part = next((part for part in PARTS if part in command), "node")
                found[part] += times.user + times.system
                # the node's own children that end are gates; its workers last as long as it does
                found["arena.gate.isolation" if part == "node" else part] += times.children_user + times.children_system
        return found


def policy_for(seconds: int) -> Policy:
    """A race that lasts longer than the measurement at 20 episodes a second."""
    problems = max(6, PROBLEMS_PER_S * (2 * seconds + 4))
    race = replace(SMALL.race, problems=problems, batch_problems=problems + 2, closes_after_ms=15_000, lease_ms=30_000)
    return replace(SMALL, name="load", race=race, qualifying=replace(SMALL.qualifying, problems=2, variant_blocks=0))


def wait_for_stage(http: httpx.Client, stage: str, process: subprocess.Popen[bytes], wait_s: float) -> str:
    """The first race once it is at that stage."""
    end_s = time.monotonic() + wait_s
    while process.poll() is None and time.monotonic() < end_s:
        with contextlib.suppress(httpx.TransportError):
            race_id, found = stage_of(http)
            if found == stage:
                return race_id
        time.sleep(0.5)
    raise AssertionError(f"the first race is not {stage}")


def stage_of(http: httpx.Client) -> tuple[str, str]:
    """The first race and its stage; empty where there is none."""
    races = http.get("/v1/races").json()["items"]
    return (str(races[-1]["race_id"]), str(races[-1]["stage"])) if races else ("", "")


async def read_episodes(
    run: DemoRun, race_id: str, spans: Sequence[tuple[str, int]]
) -> tuple[list[int], list[int], int]:
    """Milliseconds of the race's episodes outside and under load, by when they were recorded; how many are lost."""
    location = read_location(run.folder)
    assert location is not None
    store = await PostgresStore.open(location.dsn, location.validator)
    found: dict[str, list[int]] = {"quiet": [], "loaded": [], "": []}
    recorded: Counter[str] = Counter()
    lost = 0
    async for record in store.records(location.validator, race_id=race_id):
        content = decode_content(record.content)
        if isinstance(content.payload, AttemptRecord):
            lost += content.payload.ended != "evaluated"
        elif isinstance(content.payload, EvaluationRecord):
            recorded[content.payload.subject.agent_version_id] += 1
            if content.recorded_ms >= spans[0][1]:
                span = [name for name, since_ms in spans if since_ms <= content.recorded_ms][-1]
                found[span].append(content.host.episode_ms)
    for agent, records in recorded.items():
        work = {(each.stage, each.race_id): each for each in await store.item_counts(agent)}
        lost += abs(work["race", race_id].done - records)
    await store.close()
    return found["quiet"], found["loaded"], lost


class Seen(msgspec.Struct, frozen=True):
    """What the clients saw: milliseconds from when a request was due, ascending, by kind; and what they took
    themselves."""

    milliseconds: dict[str, list[float]]
    statuses: dict[str, int]
    processor_s: float


class Load:
    """The clients, a process of their own: ready once it is entered, and run once."""

    def __init__(self, run: DemoRun, ports: dict[str, int], race_id: str, seconds: int) -> None:
        told = json.dumps({"folder": str(run.folder), "race": race_id, "seconds": seconds, **ports})
        self._command = [sys.executable, "-m", "tests.benchmarks.bench_load", "--clients", told]

    def __enter__(self) -> Load:
        pipe, root = subprocess.PIPE, Path(__file__).parents[2]
        self._process = subprocess.Popen(self._command, cwd=root, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the clients ended"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(self) -> Seen:
        """Run the clients."""
        said, _ = self._process.communicate("go\n")
        assert self._process.returncode == 0, "the clients failed"
        return msgspec.json.decode(said, type=Seen)


# -- the clients


class Clients:
    """Readers and miners of one validator."""

    def __init__(self, folder: Path, ports: dict[str, int], race_id: str) -> None:
        self.chain = LocalSubtensor(local_chain_path(folder), now_ms=unix_ms)
        self.ports, self.race_id = ports, race_id
        self.receiver = keypair_signer(VALIDATOR).hotkey
        self.miners = [generate_signer() for _ in range(MINERS)]
        self.auths = [HttpAuth(miner, time.time_ns) for miner in self.miners]
        self.sources = [f"{baseline_source('scripted-expert')}# of miner {number}\n" for number in range(MINERS)]
        self.seen: dict[str, list[float]] = {"read": [], "submission": []}
        self.statuses: Counter[str] = Counter()
        self.targets = itertools.cycle(
            [
                "/v1/leaderboard",
                "/v1/races",
                f"/v1/races/{race_id}",
                "/v1/agents?limit=50",
                "/v1/stats/days",
                "/v1/validators",
                "/v1/suites",
                f"/v1/races/{race_id}/leaderboard",
                *(f"/v1/agents?limit={count}" for count in range(1, 12)),
            ]
        )

    async def enrol(self) -> None:
        """Register every miner and commit to its agent."""
        for miner, source in zip(self.miners, self.sources, strict=True):
            assert (await self.chain.register(miner)).status == "ok"
            made = make_submission(miner, "load", source, unix_ms())
            assert (await self.chain.commit(miner, made.commitment_sha256)).status == "ok"
        await asyncio.sleep(2)  # until the last registration is final
        seen, statuses = self.seen, self.statuses
        self.seen, self.statuses = {"read": [], "submission": []}, Counter()
        await asyncio.gather(self.work("read", CONNECTIONS, 1), self.work("submission", 1, 1))  # starts the parser
        self.seen, self.statuses = seen, statuses

    def submission(self, number: int) -> bytes:
        """Whole requests: each miner's agent, then by turns the same again and a version without a commitment."""
        miner, auth = number % MINERS, self.auths[number % MINERS]
        changed = "# another\n" if (number // MINERS) % 2 else ""
        made = make_submission(self.miners[miner], "load", self.sources[miner] + changed, unix_ms())
        form = {"agent_name": made.name, "submitted_ms": str(made.submitted_ms), "signature": made.signature}
        request = httpx.Request("POST", "http://x/v1/submissions", data=form, files={"file": ("a.py", made.source)})
        body = request.read()
        signed = auth.sign("POST", "/v1/submissions", self.receiver, body)
        lines = {**signed, "host": "x", "content-type": request.headers["content-type"], "content-length": len(body)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST /v1/submissions HTTP/1.1\r\n{head}\r\n".encode() + body

    async def work(self, kind: str, per_s: int, seconds: int) -> None:
        """Requests of one kind, each sent when it is due by a free connection, or by the next that gets free."""
        port = self.ports["SERVE_PORT" if kind == "read" else "DOOR_PORT"]
        due: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()
        workers = [asyncio.create_task(self.connection(kind, port, due)) for _ in range(CONNECTIONS)]
        started = time.monotonic()
        for number in range(per_s * seconds):
            at = started + number / per_s
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            due.put_nowait((number, at))
        for _ in workers:
            due.put_nowait(None)
        await asyncio.gather(*workers)

    async def connection(self, kind: str, port: int, due: asyncio.Queue[tuple[int, float] | None]) -> None:
        """One connection that is kept as long as the server keeps it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (order := await due.get()) is not None:
            number, at = order
            if kind == "read":
                request = f"GET {next(self.targets)} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
            else:
                request = self.submission(number)
            if writer.is_closing():
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            await reader.readexactly(length)
            self.seen[kind].append(1_000 * (time.monotonic() - at))
            self.statuses[f"{kind} {head.split()[1].decode()}"] += 1
            if b"connection: close" in head:
                writer.close()
        writer.close()


async def _clients(told: str) -> None:
    asked = json.loads(told)
    clients = Clients(Path(asked["folder"]), asked, asked["race"])
    await clients.enrol()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    before_s = time.process_time()
    await asyncio.gather(
        clients.work("read", READS_PER_S, asked["seconds"]),
        clients.work("submission", SUBMISSIONS_PER_S, asked["seconds"]),
    )
    seen = {kind: sorted(values) for kind, values in clients.seen.items()}
    print(msgspec.json.encode(Seen(seen, dict(clients.statuses), time.process_time() - before_s)).decode())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--clients"]:
        asyncio.run(_clients(sys.argv[2]))
    else:
        for row in measure(*map(int, sys.argv[1:])):
            print(msgspec.json.encode(row).decode())

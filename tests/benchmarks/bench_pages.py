"""Processor time to make each page of a node with 100,000 records and 200 agents, in its server's process: p95 of each
route, and the size of the largest page. What the database spends is not in it: `tests/web/test_pages.py` has its plans.

Two ways: as served, with the public picture read again once a second, and with the picture read again for every request
and nothing kept between two.
Run alone: `python -m tests.benchmarks.bench_pages [records] [agents]`, one JSON line a figure.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import msgspec
from msgspec.structs import replace

from arena.api.board import REFRESH_S, Board
from arena.api.tail import Tail
from arena.chain.keys import generate_signer
from arena.chain.port import Signer
from arena.exchange.streams import Places
from arena.policies import PAPER
from arena.records.body import encode_body
from arena.records.model import Payload, ReleasedProblem, SettlementRecord, StoredBody
from arena.records.port import StoredSubmission
from arena.records.sequencer import Sequencer
from arena.store.embedded import EmbeddedServer
from arena.store.postgres import PostgresStore
from arena.web.server import make_tail_app
from foundation.canonical import text_hash
from tests.arena.agents_stand import promotion
from tests.arena.log_stand import HOST, Clock, body, episode, release, settlement
from tests.benchmarks.row import Row
from tests.postgres_stand import start_new

RECORDS, AGENTS, PROBLEMS = 100_000, 200, 16
ROUNDS = 25
TARGET_MS, TARGET_KB = 100.0, 200.0
NOW_MS = 2_000_000_000_000


def measure(records: int = RECORDS, agents: int = AGENTS) -> Sequence[Row]:
    """p95 over all pages and of the slowest one, each way."""
    with tempfile.TemporaryDirectory(prefix="arena-") as name:
        server = start_new(Path(name))
        try:
            return asyncio.run(_measure(server, records, agents))
        finally:
            server.stop()


async def _measure(server: EmbeddedServer, records: int, agents: int) -> list[Row]:
    signer = generate_signer()
    rows = []
    store = await PostgresStore.open(server.dsn_for(signer.hotkey), signer.hotkey)
    try:
        races, size = await fill(store, signer, records, agents)
        about = f"{size:,} records, {agents} agents"
        for how, refresh_s in (("as served", REFRESH_S), ("nothing kept", 0.0)):
            seen, sizes = await look(store, signer.hotkey, races, refresh_s)
            rows += list(figures(seen, f"pages, {how}, {about}", f"{records} {agents}"))
            rows.append(largest(sizes, f"pages, {how}, {about}", f"{records} {agents}"))
    finally:
        await store.close()
    return rows


def figures(seen: dict[str, list[float]], about: str, arguments: str) -> Iterator[Row]:
    """The slowest page, and all pages."""
    command = f"python -m tests.benchmarks.bench_pages {arguments}"
    p95 = {path: sorted(each)[len(each) * 95 // 100] for path, each in seen.items()}
    everything = sorted(one for each in seen.values() for one in each)
    whole = everything[len(everything) * 95 // 100]
    yield Row(
        name=f"{about}: p95", value=whole, unit="ms", baseline=TARGET_MS, ratio=whole / TARGET_MS, command=command
    )
    for path, each in sorted(p95.items(), key=lambda pair: -pair[1]):
        yield Row(
            name=f"{about}: p95 of {path[:40]}",
            value=each,
            unit="ms",
            baseline=TARGET_MS,
            ratio=each / TARGET_MS,
            command=command,
        )


def largest(sizes: dict[str, int], about: str, arguments: str) -> Row:
    """The largest page."""
    path, size = max(sizes.items(), key=lambda pair: pair[1])
    return Row(
        name=f"{about}: size of {path[:40]}",
        value=size / 1_000,
        unit="kB",
        baseline=TARGET_KB,
        ratio=size / 1_000 / TARGET_KB,
        command=f"python -m tests.benchmarks.bench_pages {arguments}",
    )


async def look(
    store: PostgresStore, validator: str, races: Sequence[str], refresh_s: float
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Milliseconds of processor time of each page, asked one after another; and its bytes."""
    board = Board(store, now_ms=lambda: NOW_MS, refresh_s=refresh_s)
    app = make_tail_app(Tail(store, now_ms=lambda: NOW_MS), Places(8), board)
    transport = httpx2.ASGITransport(app=app)
    seen: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    async with httpx2.AsyncClient(transport=transport, base_url="http://pages", timeout=120) as http:
        listed = (await http.get(f"/v1/races/{races[-1]}/trajectories?limit=2")).json()["items"]
        first, second = (one["href"].removeprefix("/v1/trajectories/").partition("?")[0] for one in listed)
        agent, problem = listed[0]["result"]["agent_version_id"], listed[0]["problem_id"]
        paths = ("/", "/races", *(f"/races/{race}" for race in races[-2:]), f"/races/{races[-1]}/problems/{problem}")
        paths += (f"/traces/{first}", f"/traces/{first}?with={second}", "/agents", "/agents?name=agent-1")
        paths += (f"/agents/{agent}", "/firehose", f"/firehose?agent={agent}", "/validators", "/verify", "/api")
        paths += ("/no/such/page", *(("/proofs/" + first,) if await store.checkpoints(validator) else ()))
        for turn in range(ROUNDS + 1):
            for path in paths:
                begun = time.process_time()
                answer = await http.get(path, headers={"accept": "text/html"})
                if answer.status_code != (404 if path == "/no/such/page" else 200):
                    raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:200]}")
                if turn:  # the first round reads the log
                    seen.setdefault(path.replace(validator, "V"), []).append((time.process_time() - begun) * 1e3)
                    sizes[path.replace(validator, "V")] = len(answer.content)
    return seen, sizes


async def fill(store: PostgresStore, signer: Signer, records: int, agents: int) -> tuple[list[str], int]:
    """Races of all agents until there are so many records; their names, and the log's size."""
    sequencer = Sequencer(store, signer, Clock(), HOST)
    names = [f"{number:04x}" for number in range(agents)]
    races, size = [], 0
    while size < records:
        race_id = f"race-{len(races) + 1:06d}"
        races.append(race_id)
        for agent in names:
            payloads, bodies = run_of(agent, race_id)
            await sequencer.append(payloads, bodies)
        ended = replace(release(race_id, ()), problems=tuple(released(race_id)))
        size = (await sequencer.append([settled(race_id, names), ended])).seq
    for agent in names:
        subject = replace(episode(1, agent="a1")[0][0].subject, agent_version_id=agent * 16, miner_hotkey=f"5{agent}")
        stored = StoredSubmission(subject=subject, name=f"agent-{int(agent, 16)}", state="qualified")
        await store.put_submission(stored, "def agent_main(problem):\n    return []\n" * 200)
    return races, size


def run_of(agent: str, race_id: str) -> tuple[list[Payload], list[StoredBody]]:
    """An agent's episodes in a race."""
    payloads: list[Payload] = []
    bodies = []
    for problem in range(PROBLEMS):
        made, _ = episode(problem, race_id=race_id)
        own = replace(body(problem), query=f"a shirt, asked of {agent} in {race_id}")
        stored = encode_body(own)
        bodies.append(stored)
        for one in made:
            about = replace(one.subject, agent_version_id=agent * 16, miner_hotkey=f"5{agent}")
            named = replace(one.context, problem_id=f"{race_id}-p{problem:02}")
            one = replace(one, subject=about, context=named)
            if hasattr(one, "verdict"):
                one = replace(one, verdict=replace(one.verdict, body_sha256=stored.body_sha256))
            else:
                one = replace(one, body_sha256=stored.body_sha256, attempt_id=f"{race_id}-{agent}-{problem}:1")
            payloads.append(one)
    return payloads, bodies


def released(race_id: str) -> Iterator[ReleasedProblem]:
    for problem in range(PROBLEMS):
        name = f"{race_id}-p{problem:02}"
        yield ReleasedProblem(problem_id=name, pool="train", cluster_id=text_hash(name)[:8])


def settled(race_id: str, names: Sequence[str]) -> SettlementRecord:
    """A settlement with a standing for each agent."""
    (row,) = settlement(race_id).standings
    standings = tuple(
        replace(row, rank=rank, agent_version_id=agent * 16, miner_hotkey=f"5{agent}", race_score_e4=9_900 - rank)
        for rank, agent in enumerate(names, 1)
    )
    stated = promotion(race_id, "a1", 1_790_000_000_000, PAPER)
    drawn = tuple(one.problem_id for one in released(race_id))
    return replace(stated, standings=standings, top_agent_version_id=names[0] * 16, drawn=drawn)


if __name__ == "__main__":
    for figure in measure(*(int(text) for text in sys.argv[1:])):
        sys.stdout.write(msgspec.json.encode(figure).decode() + "\n")

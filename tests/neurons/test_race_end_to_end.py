"""The one path, end to end, on real parts: jails, index, Postgres, local chain, a validator process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from arena.chain.keys import keypair_signer
from arena.race.model import LoggedRecord
from arena.records.model import EvaluationRecord
from neurons.demo.demo import RACE, VALIDATOR, DemoRun, DemoView, conclude, running_validator, watch
from neurons.race.log import QUALIFYING
from problems.formats import read_problems
from tests.neurons.arena_stand import SMALL, is_alive, make_run, read_back

HOTKEY = keypair_signer(VALIDATOR).hotkey
ROOT = Path(__file__).resolve().parents[2]
# every agent qualifies on the suite itself: which variants it would be asked hangs on the chain of the moment
UNVARIED = replace(SMALL, name="unvaried", qualifying=replace(SMALL.qualifying, variant_blocks=0))


def race_to_the_end(run: DemoRun) -> DemoView:
    async def follow(process: subprocess.Popen[bytes]) -> DemoView:
        last = None
        async with asyncio.timeout(150):
            async for view in watch(run, process):
                last = view
        assert last is not None
        return last

    with running_validator(run) as process:
        view = asyncio.run(follow(process))
    assert process.returncode == 0, (run.folder / "validator.log").read_text()[-2_000:]
    return view


def pairs(rows: list[LoggedRecord[EvaluationRecord]]) -> Counter[tuple[str, str]]:
    return Counter((row.record.subject.agent_version_id, row.record.context.problem_id) for row in rows)


@pytest.fixture(scope="module")
def finished(arena_base: Path, small_catalogue: Path) -> tuple[DemoRun, DemoView]:
    run = make_run(arena_base, small_catalogue)
    return run, race_to_the_end(run)


def test_race_is_settled_paid_and_verifies(finished: tuple[DemoRun, DemoView]) -> None:
    run, view = finished
    report, weights = asyncio.run(conclude(run))
    assert report.is_ok
    assert report.kinds["settlement"] == report.kinds["release"] == 1
    settlement = view.race.settlement
    assert settlement is not None
    assert settlement.state == "settled"
    assert sorted(weights.values()) == sorted(settlement.weights_u16)
    assert max(settlement.weights_u16) == 65_535
    top = settlement.standings[0]
    names = {s.subject.agent_version_id: s.name for s in view.submissions}
    assert names[top.agent_version_id] == "expert"
    assert (
        weights[top.miner_hotkey]
        == dict(zip(settlement.uids, settlement.weights_u16, strict=True))[sorted(settlement.uids)[1]]
    )


def test_every_agent_and_problem_is_counted_once_and_every_attempt_recorded(
    finished: tuple[DemoRun, DemoView],
) -> None:
    run, view = finished
    report, (race,) = read_back(run, HOTKEY, (RACE,))
    assert report.kinds["attempt"] == report.kinds["evaluation"] == report.kinds["verdict"]
    counts = pairs(race.evaluations)
    assert set(counts.values()) == {1}
    settlement = view.race.settlement
    assert settlement is not None
    assert len(counts) == (len(settlement.standings) + 1) * len(settlement.drawn)  # the control agent is one more


def test_a_local_run_gives_the_body_hash_the_validator_recorded(
    finished: tuple[DemoRun, DemoView], tmp_path: Path
) -> None:
    run, view = finished
    suite = next((run.folder / "suites").glob("*.jsonl"))
    problem_id = read_problems(suite.open(encoding="utf-8"))[0].problem_id
    for name in ("expert", "subtask"):
        agent = next(a for a in run.agents if a.name == name)
        (tmp_path / "agent.py").write_text(agent.source, encoding="utf-8")
        version = next(s.subject.agent_version_id for s in view.submissions if s.name == name)
        recorded = {
            (row.record.context.variant_seed, row.record.body_sha256)
            for row in view.qualifying.evaluations
            if row.record.subject.agent_version_id == version and row.record.context.problem_id == problem_id
        }
        ((seed, _),) = recorded
        assert isinstance(seed, str) and len(seed) == 64
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "neurons.cli.app", "run", str(tmp_path / "agent.py"), "--json"),
                *("--problems", str(suite), "--problem", problem_id, "--variant", seed),
                *("--policy", run.settings.policy),
                *("--catalogue", str(run.settings.catalogue_dir), "--state-dir", str(run.settings.guest_dir)),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        (local,) = json.loads(answer.stdout)
        assert recorded == {(seed, local["body_sha256"])}


@pytest.mark.prove  # in every run of the tests: test_kills.py
def test_killed_in_mid_race_the_validator_completes_it_without_losing_or_doubling(
    arena_base: Path, small_catalogue: Path
) -> None:
    run = make_run(arena_base, small_catalogue, policy=UNVARIED, names=("expert", "careful", "subtask"))

    async def until_racing(process: subprocess.Popen[bytes]) -> None:
        async with asyncio.timeout(120):
            async for view in watch(run, process):
                if len(view.race.evaluations) >= 3:
                    return

    with running_validator(run) as process:
        asyncio.run(until_racing(process))
        children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        workers = [pid for pid in children if is_worker(pid)]
        assert workers
        process.kill()
        process.wait()
    for pid in workers:
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
        assert not is_alive(pid), "a worker outlived its supervisor"
    view = race_to_the_end(run)
    report, (qualifying, race) = read_back(run, HOTKEY, (QUALIFYING, RACE))
    assert report.is_ok
    settlement = view.race.settlement
    assert settlement is not None
    assert settlement.state == "settled"
    assert not any(standing.missing for standing in settlement.standings)
    for log in (qualifying, race):
        assert set(pairs(log.evaluations).values()) == {1}
    assert len(pairs(race.evaluations)) == 4 * SMALL.race.problems  # three agents and the control agent
    # every claim left its attempt: the finished ones and those the kill cut off
    assert report.kinds["attempt"] >= report.kinds["evaluation"]
    fences = attempts_in(run)
    assert len(fences) == len(set(fences)) == report.kinds["attempt"]
    assert claimed_fences(run) == len(fences)


def is_worker(process_id: int) -> bool:
    try:
        return "neurons.worker.process" in " ".join(psutil.Process(process_id).cmdline())
    except psutil.NoSuchProcess:
        return False


def attempts_in(run: DemoRun) -> list[str]:
    from arena.records.body import decode_content
    from arena.records.model import AttemptRecord
    from arena.store.embedded import start_embedded
    from arena.store.postgres import PostgresStore

    async def read() -> list[str]:
        server = await asyncio.to_thread(start_embedded, run.folder)
        try:
            store = await PostgresStore.open(server.dsn_for(HOTKEY), HOTKEY)
            found = [decode_content(r.content).payload async for r in store.records(kinds=("attempt",))]
            await store.close()
            return [payload.attempt_id for payload in found if isinstance(payload, AttemptRecord)]
        finally:
            await asyncio.to_thread(server.stop)

    return asyncio.run(read())


def claimed_fences(run: DemoRun) -> int:
    """How many leases were ever given out, by the server's own count."""
    import asyncpg

    from arena.store.embedded import start_embedded

    async def read() -> int:
        server = await asyncio.to_thread(start_embedded, run.folder)
        try:
            connection = await asyncpg.connect(server.owner_dsn)
            try:
                return int(await connection.fetchval("select count(*) from arena.lease"))
            finally:
                await connection.close()
        finally:
            await asyncio.to_thread(server.stop)

    return asyncio.run(read())

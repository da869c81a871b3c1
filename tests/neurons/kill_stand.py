"""A validator in a process of its own whose parts are killed at random instants, and what it has counted in the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import asyncpg
import msgspec
import psutil
from msgspec.structs import replace

from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer, verify
from arena.race.scores import control_subject
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, EvaluationRecord
from arena.records.verification import verify_store
from arena.store.embedded import embedded_server
from arena.store.postgres import PostgresStore
from harness.catalogue.native import open_catalogue
from neurons.demo.demo import RACE, VALIDATOR, DemoRun, running_validator, watch
from neurons.race.log import QUALIFYING
from tests.arena.bank_stand import problems_of, put_sealed, sealed_file
from tests.neurons.arena_stand import SMALL, make_run

HOTKEY = keypair_signer(VALIDATOR).hotkey
PROBLEMS = 8
# Every problem of the batch is raced, and every agent qualifies on the suite itself: what is asked does not hang on the
# beacon or the chain of the moment.
POLICY = replace(
    SMALL,
    name="killed",
    qualifying=replace(SMALL.qualifying, problems=3, variant_blocks=0),
    race=replace(SMALL.race, problems=PROBLEMS, batch_problems=PROBLEMS, lease_ms=3_000, attempts=20),
)
AGENTS = ("expert", "subtask")
FINISH_S = 150
OPENS_MS = 600_000  # the race opens within this time: one batch for each round of it
EXIT_NOT_READY = 3

Counted = frozenset[tuple[str, str, str]]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a run left behind. `counted` holds (agent, problem, body hash)."""

    counted: Counted
    evaluations: int
    attempts: int


def prepare(base: Path, catalogue_dir: Path) -> DemoRun:
    """A run whose agents and problems are always the same."""
    run = make_run(base, catalogue_dir, policy=POLICY, names=AGENTS)
    products = tuple(open_catalogue(catalogue_dir).products())
    problems, now_ms = problems_of(products, 1, PROBLEMS), time.time_ns() // 1_000_000
    signer, beacon = keypair_signer(VALIDATOR), LocalBeacon(lambda: now_ms)
    for opens_with in range(beacon.round_after(now_ms), beacon.round_after(now_ms + OPENS_MS)):
        put_sealed(run.folder / "bank", sealed_file(RACE, problems, opens_with, random.Random(1), signer))
    return run


def finish(run: DemoRun) -> Kept:
    """Let the validator race to the end, stop it, and read what it kept."""

    async def follow(process: subprocess.Popen[bytes]) -> None:
        async with asyncio.timeout(FINISH_S):
            async for _ in watch(run, process):
                pass

    with running_validator(run) as process:
        asyncio.run(follow(process))
    assert process.returncode == 0, (run.folder / "validator.log").read_text()[-2_000:]
    return asyncio.run(read_kept(run))


def disturb(run: DemoRun, dice: random.Random, kills: int) -> Counter[str]:
    """Start the validator and kill it or one of its processes so often; how often each kind was killed.

    A validator that ends by itself because its Postgres died while it was starting is started again.
    """
    victims = [dice.choice(sorted(_FIND)) for _ in range(max(0, kills - len(_FIND)))] + sorted(_FIND)[:kills]
    dice.shuffle(victims)
    killed: Counter[str] = Counter()
    while victims:
        with running_validator(run) as process:
            while victims:
                victim = victims[-1]
                is_killed = _kill(run, process, dice, victim)
                if process.poll() is not None and not is_killed:
                    assert process.returncode == EXIT_NOT_READY, (run.folder / "validator.log").read_text()[-2_000:]
                    break
                killed[victims.pop()] += 1
                if victim == "validator":
                    process.wait()
                    break
    return killed


def _kill(run: DemoRun, process: subprocess.Popen[bytes], dice: random.Random, victim: str) -> bool:
    """Wait until there is such a process, then for a random while, then kill one; False when the validator ended.

    One kill in four may fall into the start; the others come once the loops run.
    """
    is_early = dice.random() < 0.25
    while process.poll() is None:
        if (is_early or _is_running(run)) and _FIND[victim](run, process):
            time.sleep(dice.uniform(0.0, 4.0))
            found = _FIND[victim](run, process)
            if found and process.poll() is None:
                for each in dice.choice(found):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
                return True
        time.sleep(0.1)
    return False


def _is_running(run: DemoRun) -> bool:
    return '"event":"log stands"' in (run.folder / "validator.log").read_text(errors="replace")


def _find_validator(run: DemoRun, process: subprocess.Popen[bytes]) -> list[list[psutil.Process]]:
    return [[psutil.Process(process.pid)]]


def _find_children(process: subprocess.Popen[bytes], module: str) -> list[list[psutil.Process]]:
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if module in " ".join(child.cmdline()):
                    found.append([child])
    return found


def _find_postgres(run: DemoRun, process: subprocess.Popen[bytes]) -> list[list[psutil.Process]]:
    """The postmaster with every process of it: they die together, as in a power cut."""
    for path in run.folder.glob("*/**/postmaster.pid"):
        with contextlib.suppress(psutil.NoSuchProcess, ValueError, FileNotFoundError, IndexError):
            postmaster = psutil.Process(int(path.read_text().split()[0]))
            return [[postmaster, *postmaster.children()]]
    return []


_FIND: dict[str, Callable[[DemoRun, subprocess.Popen[bytes]], list[list[psutil.Process]]]] = {
    "postgres": _find_postgres,
    "serving": lambda run, process: _find_children(process, "neurons.node.serving"),
    "validator": _find_validator,
    "worker": lambda run, process: _find_children(process, "neurons.worker.process"),
}


async def read_kept(run: DemoRun) -> Kept:
    """Verify the log of a finished run and read what it counts."""
    async with embedded_server(run.folder) as server, contextlib.AsyncExitStack() as stack:
        store = await PostgresStore.open(server.dsn_for(HOTKEY), HOTKEY)
        stack.push_async_callback(store.close)
        report = await verify_store(store, verify)
        assert report.is_ok, report.defects
        kinds = ("evaluation", "attempt")
        payloads = [decode_content(row.content).payload async for row in store.records(HOTKEY, kinds=kinds)]
        connection = await asyncpg.connect(server.owner_dsn)
        stack.push_async_callback(connection.close)
        fences = await connection.fetch("select item_id, fence from arena.lease")
    # kills take their time: the race may be over before the last, and the next one have begun; a worker's death has a
    # witness, which is no result of anybody
    evaluations = [
        payload
        for payload in payloads
        if isinstance(payload, EvaluationRecord)
        and payload.context.race_id in (QUALIFYING, RACE)
        and (not payload.subject.is_control or payload.subject == control_subject(POLICY.race))
    ]
    attempts = [payload.attempt_id for payload in payloads if isinstance(payload, AttemptRecord)]
    assert sorted(attempts) == sorted(f"{row['item_id']}:{row['fence']}" for row in fences), "a lease, one record"
    counted = ((one.subject.agent_version_id, one.context.problem_id, one.body_sha256) for one in evaluations)
    return Kept(counted=frozenset(counted), evaluations=len(evaluations), attempts=len(attempts))

"""A validator with its workers and its Postgres as real processes: killed at random instants, or looked at for long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import asyncpg
import msgspec
import numpy as np
import psutil
from msgspec.structs import replace

from arena.chain.beacon import LocalBeacon
from arena.chain.keys import keypair_signer, verify
from arena.race.scores import control_subject
from arena.records.body import decode_content
from arena.records.model import AttemptRecord, EvaluationRecord
from arena.records.verification import verify_store
from arena.store.embedded import embedded_server
from harness.catalogue.native import open_catalogue
from neurons.demo.demo import RACE, VALIDATOR, DemoRun, running_validator, watch
from neurons.race.log import QUALIFYING
from tests.arena.bank_stand import problems_of, put_sealed, sealed_file
from tests.neurons.arena_stand import SMALL, make_run, opened_store

HOTKEY = keypair_signer(VALIDATOR).hotkey
AGENTS = ("expert", "subtask")
PROBLEMS = 8
# Every problem of the batch is raced, and every agent qualifies on the suite itself: what is asked does not hang on the
# beacon or the chain of the moment.
KILLED = replace(
    SMALL,
    name="killed",
    qualifying=replace(SMALL.qualifying, problems=3, variant_blocks=0),
    race=replace(SMALL.race, problems=PROBLEMS, batch_problems=PROBLEMS, lease_ms=3_000, attempts=20),
)
SOAKED = replace(
    SMALL,
    name="soaked",
    qualifying=replace(SMALL.qualifying, variant_blocks=0),
    race=replace(SMALL.race, closes_after_ms=1_000, problems=3, batch_problems=3),  # 2,000 products last for 260 races
)
SUBMIT = "submit examples/model_loop.py --policy demo --wallet.hotkey //Bob --register --yes"
FINISH_S, READY_S, RACE_S, LOOK_S = 150, 60.0, 90.0, 0.5
OPENS_MS = 600_000  # the race opens within this time: one batch for each round of it
EXIT_NOT_READY = 3
_MODULES = {"serving": "neurons.node.serving", "worker": "neurons.worker.process"}
KINDS = ("postgres", "serving", "validator", "worker")


def log_of(run: DemoRun) -> str:
    """What the validator logged."""
    return (run.folder / "validator.log").read_text(errors="replace")


def postgres_of(run: DemoRun) -> list[psutil.Process]:
    """The postmaster, which is nobody's child, with every process of it; empty while it does not run."""
    for path in run.folder.glob("*/**/postmaster.pid"):
        with contextlib.suppress(psutil.NoSuchProcess, ValueError, FileNotFoundError, IndexError):
            postmaster = psutil.Process(int(path.read_text().split()[0]))
            return [postmaster, *postmaster.children()]
    return []


def family_of(run: DemoRun, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The validator, all it started, and its Postgres."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        return [root, *root.children(recursive=True), *postgres_of(run)]
    return postgres_of(run)


# -- kills


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a run left behind. `counted` holds (agent, problem, body hash)."""

    counted: frozenset[tuple[str, str, str]]
    evaluations: int
    attempts: int


def prepare(base: Path, catalogue_dir: Path) -> DemoRun:
    """A run whose agents and problems are always the same."""
    run = make_run(base, catalogue_dir, policy=KILLED, names=AGENTS)
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
            while '"event":"log stands"' not in log_of(run) and process.poll() is None:
                await asyncio.sleep(0.1)  # the kills may have come after the race: asked to stop, it can't yet hear

    with running_validator(run) as process:
        asyncio.run(follow(process))
    assert process.returncode == 0, log_of(run)[-2_000:]
    return asyncio.run(_read_kept(run))


def disturb(run: DemoRun, dice: random.Random, kills: int) -> Counter[str]:
    """Start the validator and kill it or one of its processes so often; how often each kind was killed.

    A validator that ends by itself because its Postgres died while it was starting is started again.
    """
    victims = [dice.choice(KINDS) for _ in range(max(0, kills - len(KINDS)))] + list(KINDS[:kills])
    dice.shuffle(victims)
    killed: Counter[str] = Counter()
    while victims:
        with running_validator(run) as process:
            while victims:
                is_killed = _kill(run, process, dice, victims[-1])
                if process.poll() is not None and not is_killed:
                    assert process.returncode == EXIT_NOT_READY, log_of(run)[-2_000:]
                    break
                killed[victims[-1]] += 1
                if victims.pop() == "validator":
                    process.wait()
                    break
    return killed


def _kill(run: DemoRun, process: subprocess.Popen[bytes], dice: random.Random, kind: str) -> bool:
    """Wait until there is such a process, then for a random while, then kill one; False when the validator ended.

    One kill in four may fall into the start; the others come once the loops run.
    """
    is_early = dice.random() < 0.25
    while not ((is_early or '"event":"log stands"' in log_of(run)) and _find(run, process, kind)):
        if process.poll() is not None:
            return False
        time.sleep(0.1)
    time.sleep(dice.uniform(0.0, 4.0))
    found = _find(run, process, kind)
    if process.poll() is not None or not found:
        return process.poll() is None and _kill(run, process, dice, kind)
    for each in dice.choice(found):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return True


def _find(run: DemoRun, process: subprocess.Popen[bytes], kind: str) -> list[list[psutil.Process]]:
    """The processes of a kind; those of one list die together, as Postgres's do in a power cut."""
    if kind == "validator":
        return [[psutil.Process(process.pid)]]
    if kind == "postgres":
        return [found] if (found := postgres_of(run)) else []
    found = []
    for each in family_of(run, process):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [[each]] if _MODULES[kind] in " ".join(each.cmdline()) else []
    return found


async def _read_kept(run: DemoRun) -> Kept:
    """Verify the log of a finished run and read what it counts."""
    async with opened_store(run.settings) as store, embedded_server(run.folder) as server:
        report = await verify_store(store, verify)
        assert report.is_ok, report.defects
        kinds = ("evaluation", "attempt")
        payloads = [decode_content(row.content).payload async for row in store.records(HOTKEY, kinds=kinds)]
        connection = await asyncpg.connect(server.owner_dsn)
        fences = await connection.fetch("select item_id, fence from arena.lease")
        await connection.close()
    # kills take their time: the race may be over before the last, and the next one have begun; a worker's death has a
    # witness, which is no result of anybody
    evaluations = [
        payload
        for payload in payloads
        if isinstance(payload, EvaluationRecord)
        and payload.context.race_id in (QUALIFYING, RACE)
        and (not payload.subject.is_control or payload.subject == control_subject(KILLED.race))
    ]
    attempts = [payload.attempt_id for payload in payloads if isinstance(payload, AttemptRecord)]
    assert sorted(attempts) == sorted(f"{row['item_id']}:{row['fence']}" for row in fences), "a lease, one record"
    counted = ((one.subject.agent_version_id, one.context.problem_id, one.body_sha256) for one in evaluations)
    return Kept(counted=frozenset(counted), evaluations=len(evaluations), attempts=len(attempts))


# -- what is held over many races; memory is proportional: what processes share is counted once


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One race: the most memory of all processes while it ran, and what stood open when it was settled."""

    most_mb: float
    processes: int
    threads: int
    files: int  # open descriptors of the validator's own process


def rest(base: Path, catalogue: Path) -> tuple[float, dict[str, float]]:
    """The MB that a validator without agents holds; the seconds to its first line, and of commands beside it."""
    idle, began = make_run(base, catalogue, policy=SOAKED, names=("nobody",)), time.time()
    with running_validator(idle) as process:
        next(_ for _ in _looks(idle, process, READY_S) if '"event":"ready"' in log_of(idle))
        first = datetime.fromisoformat(json.loads(log_of(idle).splitlines()[0])["timestamp"])
        time.sleep(5)
        resting_mb, waits = _held_mb(family_of(idle, process)), {"validator, first line": first.timestamp() - began}
        for words in ("validator status", SUBMIT, SUBMIT):  # the second time it is registered
            command, started = [sys.executable, "-m", "neurons.cli.app", *words.split()], time.monotonic()
            subprocess.run([*command, "--state-dir", str(idle.folder)], capture_output=True, check=False)
            waits[f"arena {' '.join(words.split()[:2])}"] = time.monotonic() - started
        return resting_mb, waits


def soak(
    base: Path,
    catalogue: Path,
    races: int,
    after_race: Callable[[DemoRun, int], None] = lambda run, race: None,
    **flags,
) -> list[Seen]:
    """So many races of one validator. Raises TimeoutError when they stop."""
    run = make_run(base, catalogue, policy=SOAKED, names=AGENTS, **flags)
    seen = []
    with running_validator(run) as process:
        for race in range(1, races + 1):
            seen.append(_race(run, process, race))
            after_race(run, race)
    return seen


def growth_mb(seen: list[Seen]) -> float:
    """MB that a race adds, by least squares over the later two thirds: the first races fill caches."""
    later = [one.most_mb for one in seen[len(seen) // 3 :]]
    return float(np.polyfit(range(len(later)), later, 1)[0])


def _race(run: DemoRun, process: subprocess.Popen[bytes], race: int) -> Seen:
    """Look until that many races are settled."""
    most_mb, own = 0.0, psutil.Process(process.pid)
    for family in _looks(run, process, RACE_S):
        most_mb = max(most_mb, _held_mb(family))
        races = [json.loads(line) for line in log_of(run).splitlines() if '"event":"race"' in line]
        if len({one["race"] for one in races if one["stage"] == "settled"}) >= race:
            break
    return Seen(most_mb=most_mb, processes=len(family), threads=own.num_threads(), files=own.num_fds())


def _looks(run: DemoRun, process: subprocess.Popen[bytes], within_s: float) -> Iterator[list[psutil.Process]]:
    """The processes there are, twice a second. Raises TimeoutError when the time is over or the validator ends."""
    until = time.monotonic() + within_s
    while process.poll() is None and time.monotonic() < until:
        yield family_of(run, process)
        time.sleep(LOOK_S)
    raise TimeoutError(log_of(run)[-2_000:])


def _held_mb(processes: list[psutil.Process]) -> float:
    held = 0.0
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            held += float(each.memory_full_info().pss) / (1 << 20)
    return held

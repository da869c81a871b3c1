"""A validator that races again and again, and what all its processes hold meanwhile.

The real validator with its workers and its Postgres, real jails, the scripted model and judge; memory is
proportional (what processes share is counted once), looked at twice a second.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from neurons.demo.demo import DemoRun, running_validator
from tests.neurons.arena_stand import SMALL, make_run

SOAKED = msgspec.structs.replace(
    SMALL,
    name="soaked",
    qualifying=msgspec.structs.replace(SMALL.qualifying, variant_blocks=0),
    race=msgspec.structs.replace(SMALL.race, closes_after_ms=1_000, problems=4, batch_problems=6),
)
AGENTS = ("expert", "subtask")
LOOK_S, READY_S, RACE_S = 0.5, 60.0, 90.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One race: the most memory of all processes while it ran, and what stood open when it was settled."""

    race: int
    most_mb: float
    own_mb: float  # the validator's own process
    processes: int
    threads: int
    files: int  # open descriptors of the validator's own process


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """What a validator holds that has nothing to do, what `arena validator status` takes beside it, and its races."""

    resting_mb: float
    status_s: float
    races: list[Seen]


def soak(base: Path, catalogue: Path, races: int) -> Soaked:
    """Two validators, one after the other: one without agents, one that races. Raises TimeoutError when races stop."""
    idle = make_run(base, catalogue, policy=SOAKED, names=("nobody",))
    with running_validator(idle) as process:
        _wait(idle, process, '"event":"ready"', READY_S)
        time.sleep(5)
        resting_mb = sum(map(_held_mb, _family(idle, process)))
        status_s = _status_s(idle)
    run = make_run(base, catalogue, policy=SOAKED, names=AGENTS)
    seen: list[Seen] = []
    with running_validator(run) as process:
        for race in range(1, races + 1):
            seen.append(_race(run, process, race))
    return Soaked(resting_mb=resting_mb, status_s=status_s, races=seen)


def growth_mb(seen: list[Seen]) -> float:
    """MB that a race adds, by least squares over the later two thirds: the first races fill caches."""
    later = seen[len(seen) // 3 :]
    middle = sum(one.race for one in later) / len(later)
    spread = sum((one.race - middle) ** 2 for one in later)
    return sum((one.race - middle) * one.most_mb for one in later) / spread if spread else 0.0


def _status_s(run: DemoRun) -> float:
    """Seconds of the command, whatever it says of the node."""
    started = time.monotonic()
    given = ("validator", "status", "--state-dir", str(run.folder))
    subprocess.run([sys.executable, "-m", "neurons.cli.app", *given], stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - started


def _race(run: DemoRun, process: subprocess.Popen[bytes], race: int) -> Seen:
    """Look until that many races are settled."""
    most, until = 0.0, time.monotonic() + RACE_S
    own = psutil.Process(process.pid)
    while _settled(run) < race:
        if process.poll() is not None or time.monotonic() > until:
            raise TimeoutError(f"race {race}: {(run.folder / 'validator.log').read_text()[-2_000:]}")
        most = max(most, sum(map(_held_mb, _family(run, process))))
        time.sleep(LOOK_S)
    family = list(_family(run, process))
    return Seen(
        race=race,
        most_mb=max(most, sum(map(_held_mb, family))),
        own_mb=_held_mb(own),
        processes=len(family),
        threads=own.num_threads(),
        files=own.num_fds(),
    )


def _settled(run: DemoRun) -> int:
    """How many races the validator's log says are settled."""
    lines = (run.folder / "validator.log").read_text(errors="replace").splitlines()
    races = [json.loads(line) for line in lines if '"event":"race"' in line]
    return len({one["race"] for one in races if one["stage"] == "settled"})


def _wait(run: DemoRun, process: subprocess.Popen[bytes], text: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while text not in (run.folder / "validator.log").read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            raise TimeoutError((run.folder / "validator.log").read_text()[-2_000:])
        time.sleep(LOOK_S)


def _family(run: DemoRun, process: subprocess.Popen[bytes]) -> Iterator[psutil.Process]:
    """The validator, all it started, and its Postgres, which is nobody's child; each once."""
    found: dict[int, psutil.Process] = {}
    roots = [process.pid]
    for path in run.folder.glob("*/**/postmaster.pid"):
        with contextlib.suppress(ValueError, FileNotFoundError, IndexError):
            roots.append(int(path.read_text().split()[0]))
    for pid in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            found |= {one.pid: one for one in (root, *root.children(recursive=True))}
    yield from found.values()


def _held_mb(process: psutil.Process) -> float:
    """Proportional memory; 0 of one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return float(process.memory_full_info().pss) / (1 << 20)
    return 0.0

"""Where a command's work runs: in this process, in processes beside it, or on a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import typer

from foundation.executors.port import Executor
from foundation.executors.processes import executor_of

PARALLEL_FROM = 2_000  # records from which starting processes pays


def processes_for(records: int) -> int:
    """One process a core where there are so many records that starting them pays, else 0."""
    return len(os.sched_getaffinity(0)) if records >= PARALLEL_FROM else 0


@contextlib.contextmanager
def open_executor(cluster: str, processes: int | None, records: int, *, state_dir: Path | None) -> Iterator[Executor]:
    """The cluster at that address, or `local`; where that is "", so many processes, with 0 this one, and with None as
    many as so many records are worth. `state_dir`: the command's own; a validator that runs over it is refused.

    Work that was lost is said on standard error and run again. Raises ArenaError V2207, V2060, V2208 for a cluster.
    """
    if cluster:
        from neurons.cluster.ray_executor import open_cluster

        with open_cluster(cluster, _say_lost, state_dir and state_dir.absolute()) as executor:
            yield executor
        return
    yield executor_of(processes_for(records) if processes is None else processes, _say_lost)


def absolute_policy(policy: str | None) -> str | None:
    """A shipped policy's name, or a file's path as it is called from anywhere."""
    return str(Path(policy).absolute()) if policy and Path(policy).exists() else policy


def _say_lost(lost: int) -> None:
    typer.echo(f"{lost} jobs were lost with their process or machine; they run again", err=True)

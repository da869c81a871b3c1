"""Rollouts on disk: one JSON line each, written as they end, so that a killed run samples nothing twice.

Promise: a line that was cut by a kill is dropped when the file is opened again; every other stands. Episodes without a
rollout (not one sequence, a fault of ours) stand as a line that says so, and are not tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from training.model import Rollout
from training.rollout import Job


class EpisodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One episode. `rollout` None: there is none, for the reason in `why`."""

    problem_id: str
    sample: int
    seed: int
    rollout: Rollout | None = None
    why: str = ""


class EpisodeFile:
    """The episodes of one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            path.write_bytes(whole)
        decoder = msgspec.json.Decoder(EpisodeLine)
        self._lines = {(one.problem_id, one.sample, one.seed): one for one in map(decoder.decode, whole.splitlines())}

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Jobs without a line."""
        return [job for job in jobs if (job.problem.problem_id, job.sample, job.seed) not in self._lines]

    def add(self, line: EpisodeLine) -> None:
        """Keep an episode."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self._lines[line.problem_id, line.sample, line.seed] = line

    def rollouts(self) -> tuple[Rollout, ...]:
        """The rollouts, by problem and sample."""
        found = (self._lines[key].rollout for key in sorted(self._lines))
        return tuple(rollout for rollout in found if rollout is not None)

    def without(self) -> dict[str, int]:
        """How many episodes have no rollout, by reason."""
        return dict(Counter(line.why for line in self._lines.values() if line.rollout is None))


def collect(
    jobs: Sequence[Job],
    file: EpisodeFile,
    run: Callable[[Sequence[Job]], Iterable[tuple[Job, Rollout | None]]],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run the jobs that have no line yet, and keep each as it ends."""
    missing = file.missing(jobs)
    done = len(jobs) - len(missing)
    for number, (job, rollout) in enumerate(run(missing), done + 1):
        why = "" if rollout else "not one sequence"
        file.add(
            EpisodeLine(problem_id=job.problem.problem_id, sample=job.sample, seed=job.seed, rollout=rollout, why=why)
        )
        if progress:
            progress(number, len(jobs))

"""Rollouts on disk: one JSON line each, written as they end, so that a killed run samples nothing twice.

A line that was cut by a kill is dropped when the file is opened again; every other stands. An episode that was
not one sequence of tokens has its result and no rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from foundation.progress import PhaseProgress
from harness.chat import Message
from training.model import EpisodeResult, Rollout
from training.rollouts.rollout import Job


class EpisodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One episode. `rollout` None: an endpoint without tokens, or turns that were not one growing sequence.

    `tools` is the `tools` array the model was given, JSON text.
    """

    result: EpisodeResult
    query: str
    messages: tuple[Message, ...]
    tools: str
    rollout: Rollout | None = None


RunJobs = Callable[[Sequence[Job]], Iterable[EpisodeLine]]  # whoever runs episodes


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
        self._lines = {_key(line.result): line for line in map(decoder.decode, whole.splitlines())}

    def claim(self, owner: str) -> None:
        """Say whose episodes these are. Raises ArenaError V2124 when those here are another policy's, or were run under
        other conditions."""
        kept = self._path.with_suffix(".owner")
        if self._lines and (not kept.exists() or kept.read_text(encoding="utf-8") != owner):
            raise ArenaError("V2124", f"{self._path} holds episodes of another model, or of other conditions")
        kept.write_text(owner, encoding="utf-8")

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Jobs without a line."""
        return [job for job in jobs if (job.problem.problem_id, job.sample, job.seed) not in self._lines]

    def add(self, line: EpisodeLine) -> None:
        """Keep an episode."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self._lines[_key(line.result)] = line

    def lines(self) -> tuple[EpisodeLine, ...]:
        """The episodes, by problem and sample."""
        return tuple(self._lines[key] for key in sorted(self._lines))


def collect(
    jobs: Sequence[Job],
    file: EpisodeFile,
    run: RunJobs,
    progress: PhaseProgress | None = None,
) -> None:
    """Run the jobs that have no line yet, and keep each as it ends."""
    missing = file.missing(jobs)
    for number, line in enumerate(run(missing), len(jobs) - len(missing) + 1):
        file.add(line)
        if progress:
            progress(number, len(jobs))


def _key(result: EpisodeResult) -> tuple[str, int, int]:
    return result.problem_id, result.sample, result.seed

"""Evaluation episodes of a model behind a chat endpoint, run in whatever process or machine they are sent to.

Promise: what runs there is what would run here (`RunContext.ask_all`), over the same index and policy, or the work ends
with V2008. A key of the endpoint is never sent: each machine reads its own environment. A lost batch is run again as a
whole; a batch in which the endpoint failed gives the episodes that ended, then the failure.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from foundation.codes.names import HOST_UNLIKE, WORKER_DIED
from foundation.errors import ArenaError, Failure
from foundation.executors.port import Executor
from harness.inference.port import Upstream
from neurons.cli.training.run_inputs import open_bench, open_endpoint, open_settings
from training.evaluation.run_eval import EvaluationPlan, RunJobs
from training.model import Decode
from training.rollouts.episode_file import EpisodeLine
from training.rollouts.rollout import Job
from training.run_context import RunContext


class EndpointEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, over what; calling it runs a batch of jobs, all at once. Picklable."""

    catalogue: Path | None
    policy: str | None
    state_dir: Path | None
    profile: str
    prompt: str | None
    catalogue_sha256: str
    policy_sha256: str
    url: str
    model: str
    decode: Decode

    def __call__(self, jobs: Sequence[Job]) -> tuple[list[EpisodeLine], Failure | None]:
        """The episodes in the order of the jobs, and why some are missing. Raises ArenaError V2008, V2010, V2011."""
        bench, upstream, _ = _opened(self)
        lines, failure = [], None
        try:
            for line in bench.ask_all(jobs, upstream, self.model, self.decode, len(jobs)):
                lines.append(line)
        except ArenaError as error:
            failure = error.failure
        order = {(job.problem.problem_id, job.sample, job.seed): place for place, job in enumerate(jobs)}
        lines.sort(key=lambda line: order[line.result.problem_id, line.result.sample, line.result.seed])
        return lines, failure


def by_executor(plan: EvaluationPlan, episodes: EndpointEpisodes, executor: Executor) -> RunJobs:
    """Batches of `plan.parallel` episodes, each in one process or machine at a time; episodes come in order."""

    def run(jobs: Sequence[Job]) -> Iterable[EpisodeLine]:
        for lines, failure in executor.map(episodes, _batches(jobs, plan.parallel), died=WORKER_DIED):
            yield from lines
            if failure is not None:
                raise ArenaError(failure.code, failure.detail)

    return run


def _batches(jobs: Sequence[Job], size: int) -> Iterator[list[Job]]:
    coming = iter(jobs)
    while batch := list(itertools.islice(coming, size)):
        yield batch


@functools.lru_cache(maxsize=1)
def _opened(episodes: EndpointEpisodes) -> tuple[RunContext, Upstream, contextlib.ExitStack]:
    """The context and the endpoint, opened once and held, with what serves it, until the process ends."""
    settings = open_settings(episodes.catalogue, episodes.policy, episodes.state_dir)
    bench = open_bench(settings, tool_profile=episodes.profile, prompt=episodes.prompt)
    found = bench.catalogue.content_sha256, bench.policy.policy_sha256
    if found != (episodes.catalogue_sha256, episodes.policy_sha256):
        raise ArenaError(HOST_UNLIKE, f"{os.uname().nodename}: another index or policy")
    held = contextlib.ExitStack()
    return bench, held.enter_context(open_endpoint("model", episodes.url)), held

"""Episodes of an agent file, of a model behind an endpoint or of a sampling server, run in whatever process or machine
they are sent to.

What runs there is what would run here, over the same index, policy, jail and codec, or the work ends with V2008: the
results are the same bytes. Keys of endpoints are never sent: each machine reads its own environment. A lost job is run
again as a whole; a batch in which the endpoint failed gives the episodes that ended, then the failure.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from foundation.codes import HOST_UNLIKE, WORKER_DIED
from foundation.errors import ArenaError, Failure
from foundation.executors import Executor
from neurons.practice.opening import open_bench, open_endpoint
from neurons.practice.run import Asked, RunRow, row_of
from neurons.settings.settings import Settings, resolve
from neurons.worker.ports import episode_bytes, open_local_ports
from problems.model import Problem
from problems.titles import AcceptedTitles, TitleMatcher, cut_titles
from training.model import Decode
from training.models.render import Qwen3Codec
from training.recipe import Recipe
from training.rollouts.rollout import EpisodeLine, Job, RunJobs
from training.run_context import RunContext

Batch = tuple[list[EpisodeLine], Failure | None]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The settings under which a machine opens its ports, by name as they are called from anywhere, and what has to be
    the same there as at home: the hashes of index and policy and, for agents, the jail."""

    flags: tuple[tuple[str, object], ...]
    alike: tuple[str, ...]

    def settings(self) -> Settings:
        """The settings on this machine. Raises ArenaError V2030."""
        return resolve(dict(self.flags)).settings

    def require_alike(self, *found: str) -> None:
        """Raises ArenaError V2008 for what is another one here."""
        for own, home in zip(found, self.alike, strict=True):
            if own != home:
                raise ArenaError(HOST_UNLIKE, f"{os.uname().nodename}: {own[:24]}, where the work is {home[:24]}")


def alike_of(ports: EvaluatePorts | RunContext) -> tuple[str, ...]:
    """What has to be the same of ports or a context, beside the release: index, policy and, of an agent's, the jail."""
    shared = ports.catalogue.content_sha256, ports.policy.policy_sha256
    if isinstance(ports, RunContext):
        return shared
    return *shared, f"{ports.sandbox.level.name} {ports.sandbox.level.guest_sha256}"


class AgentEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """The agent file, and where its ports are opened; calling it runs a problem, unjudged. Picklable."""

    source: str
    place: Place

    def __call__(self, job: tuple[Problem, TitleMatcher]) -> Evaluation:
        """Raises ArenaError V2008 on a machine that is unlike, and what opening the ports and `evaluate` raise."""
        problem, titles = job
        return evaluate(self.source, problem, dataclasses.replace(_ported(self.place), titles=titles, judges=()))


def run_elsewhere(episodes: AgentEpisodes, asked: Sequence[Asked], executor: Executor) -> Iterator[RunRow]:
    """Each problem's row, in the order of the problems. Raises the first ArenaError, and V2005 for a problem that is
    lost again and again."""
    jobs = [
        (problem, cut_titles(ports.titles, (problem,)) if isinstance(ports.titles, AcceptedTitles) else ports.titles)
        for problem, ports in asked
    ]
    memory_bytes = max((episode_bytes(ports.policy.limits) for _, ports in asked), default=0)
    found = executor.map(episodes, jobs, died=WORKER_DIED, memory_bytes=memory_bytes)
    for (problem, ports), evaluation in zip(asked, found, strict=False):
        yield row_of(problem, ports, evaluation)


class ModelEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, over what: the model at `url`, or with a recipe by tokens, of the sampler that it names beside the
    model itself. Calling it runs a batch of jobs, all at once. Picklable. The recipe's tokenizer is a folder that every
    machine sees."""

    place: Place
    decode: Decode
    url: str = ""
    model: str = ""
    recipe: Recipe | None = None
    codec_sha256: str = ""

    def __call__(self, jobs: Sequence[Job]) -> Batch:
        """The episodes in the order of the jobs, and why some are missing. Raises ArenaError V2008, V2010,
        V2124."""
        lines: list[EpisodeLine] = []
        failure = None
        run = _opened(self)
        try:
            for line in run(jobs):
                lines.append(line)
        except ArenaError as error:
            failure = error.failure
        return lines, failure


def by_executor(parallel: int, episodes: Callable[[Sequence[Job]], Batch], executor: Executor) -> RunJobs:
    """Batches of `parallel` episodes, each in one process or machine at a time; episodes come in order."""

    def run(jobs: Sequence[Job]) -> Iterable[EpisodeLine]:
        coming = iter(jobs)
        batches = iter(lambda: list(itertools.islice(coming, parallel)), [])
        for lines, failure in executor.map(episodes, batches, died=WORKER_DIED):
            yield from lines
            if failure is not None:
                raise ArenaError(failure.code, failure.detail)

    return run


def stage_episodes(recipe: Recipe, place: Place) -> ModelEpisodes:
    """What the rollouts of a rejection or teacher stage are."""
    if recipe.stage == "teacher" or recipe.teacher:
        return ModelEpisodes(place=place, url=recipe.teacher, model=recipe.teacher_model, decode=recipe.decode)

    folder = Path(recipe.tokenizer or recipe.model).absolute()
    recipe = msgspec.structs.replace(recipe, tokenizer=str(folder))
    codec_sha256 = Qwen3Codec(folder).identity_sha256
    return ModelEpisodes(place=place, decode=recipe.decode, recipe=recipe, codec_sha256=codec_sha256)


@functools.lru_cache(maxsize=1)
def _ported(place: Place) -> EvaluatePorts:
    """The ports of agents, opened once for this process."""
    ports = open_local_ports(place.settings())
    place.require_alike(*alike_of(ports))
    return ports


@functools.lru_cache(maxsize=1)
def _opened(episodes: ModelEpisodes) -> RunJobs:
    """What runs jobs on this machine, opened once for this process."""
    bench = open_bench(episodes.place.settings())
    episodes.place.require_alike(*alike_of(bench))
    if episodes.recipe is None:
        upstream = open_endpoint("model", episodes.url)
        return lambda jobs: bench.ask_all(jobs, upstream, episodes.model, episodes.decode, len(jobs))
    from training.samplers.vllm import outside_sampler

    codec = Qwen3Codec(Path(episodes.recipe.tokenizer))
    if codec.identity_sha256 != episodes.codec_sha256:
        raise ArenaError(HOST_UNLIKE, f"{os.uname().nodename}: another tokenizer or template")
    sampler = outside_sampler(episodes.recipe, codec)
    if sampler is None:
        raise ArenaError("V2124", "the recipe names no sampler: the model itself samples where it is trained")
    return lambda jobs: bench.sample(jobs, sampler, codec, episodes.decode, len(jobs))

"""Episodes of a model behind an endpoint or a sampling server, run in whatever process or machine they are sent to.

What runs there is what would run here (`RunContext.ask_all`, `RunContext.sample`), over the same index, policy
and codec, or the work ends with V2008. A key of the endpoint is never sent: each machine reads its own environment. A
lost batch is run again as a whole; a batch in which the endpoint failed gives the episodes that ended, then the
failure.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from foundation.codes.names import HOST_UNLIKE, WORKER_DIED
from foundation.errors import ArenaError, Failure
from foundation.executors.port import Executor
from harness.inference.port import Upstream
from neurons.cluster.choice import absolute_policy
from neurons.practice.opening import open_bench, open_endpoint, open_settings
from training.model import ChatCodec, Decode, Sampler
from training.recipe import Recipe
from training.rollouts.rollout import EpisodeLine, Job, RunJobs
from training.run_context import RunContext

Batch = tuple[list[EpisodeLine], Failure | None]


class BenchInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine opens its context from, and what has to be the same in it."""

    catalogue: Path | None
    policy: str | None
    state_dir: Path | None
    profile: str = ""
    prompt: str | None = None
    catalogue_sha256: str
    policy_sha256: str

    def open(self) -> RunContext:
        """The context on this machine. Raises ArenaError V2008, V2010, V2011."""
        settings = open_settings(self.catalogue, self.policy, self.state_dir)
        bench = open_bench(settings, tool_profile=self.profile, prompt=self.prompt)
        found = bench.catalogue.content_sha256, bench.policy.policy_sha256
        if found != (self.catalogue_sha256, self.policy_sha256):
            raise ArenaError(HOST_UNLIKE, f"{os.uname().nodename}: another index or policy")
        return bench


def inputs_of(
    bench: RunContext,
    *,
    catalogue: Path | None,
    policy: str | None,
    state_dir: Path | None,
    profile: str = "",
    prompt: str | None = None,
) -> BenchInputs:
    """The flags that `bench` was opened under, as they are called from anywhere."""
    return BenchInputs(
        catalogue=catalogue and catalogue.absolute(),
        policy=absolute_policy(policy),
        state_dir=state_dir and state_dir.absolute(),
        profile=profile,
        prompt=prompt,
        catalogue_sha256=bench.catalogue.content_sha256,
        policy_sha256=bench.policy.policy_sha256,
    )


class EndpointEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, over what; calling it runs a batch of jobs, all at once. Picklable."""

    inputs: BenchInputs
    url: str
    model: str
    decode: Decode

    def __call__(self, jobs: Sequence[Job]) -> Batch:
        """The episodes in the order of the jobs, and why some are missing. Raises as `BenchInputs.open`."""
        bench, upstream, _ = _asked(self)
        lines, failure = _until_failed(bench.ask_all(jobs, upstream, self.model, self.decode, len(jobs)))
        order = {(job.problem.problem_id, job.sample, job.seed): place for place, job in enumerate(jobs)}
        lines.sort(key=lambda line: order[line.result.problem_id, line.result.sample, line.result.seed])
        return lines, failure


class SampledEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Rollouts by tokens, of the sampler that a recipe names beside the model itself; calling it runs a batch of jobs,
    all at once. Picklable. The recipe's tokenizer is a folder that every machine sees."""

    inputs: BenchInputs
    recipe: Recipe
    codec_sha256: str

    def __call__(self, jobs: Sequence[Job]) -> Batch:
        """The episodes in the order of the jobs, and why some are missing. Raises as `BenchInputs.open`."""
        bench, sampler, codec = _sampled(self)
        return _until_failed(bench.sample(jobs, sampler, codec, self.recipe.decode, len(jobs)))


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


def stage_episodes(recipe: Recipe, inputs: BenchInputs) -> EndpointEpisodes | SampledEpisodes:
    """What the rollouts of a rejection or teacher stage are."""
    if recipe.stage == "teacher":
        return EndpointEpisodes(inputs=inputs, url=recipe.teacher, model=recipe.teacher_model, decode=recipe.decode)
    from training.models.render import Qwen3Codec

    folder = Path(recipe.tokenizer or recipe.model).absolute()
    recipe = msgspec.structs.replace(recipe, tokenizer=str(folder))
    return SampledEpisodes(inputs=inputs, recipe=recipe, codec_sha256=Qwen3Codec(folder).identity_sha256)


def _until_failed(coming: Iterable[EpisodeLine]) -> Batch:
    lines: list[EpisodeLine] = []
    try:
        for line in coming:
            lines.append(line)
    except ArenaError as error:
        return lines, error.failure
    return lines, None


@functools.lru_cache(maxsize=1)
def _asked(episodes: EndpointEpisodes) -> tuple[RunContext, Upstream, contextlib.ExitStack]:
    """The context and the endpoint, opened once and held, with what serves it, until the process ends."""
    bench, held = episodes.inputs.open(), contextlib.ExitStack()
    return bench, held.enter_context(open_endpoint("model", episodes.url, episodes.inputs.state_dir)), held


@functools.lru_cache(maxsize=1)
def _sampled(episodes: SampledEpisodes) -> tuple[RunContext, Sampler, ChatCodec]:
    """The context, the sampler and the codec, opened once and held until the process ends."""
    from training.models.render import Qwen3Codec
    from training.samplers.vllm import outside_sampler

    bench, codec = episodes.inputs.open(), Qwen3Codec(Path(episodes.recipe.tokenizer))
    if codec.identity_sha256 != episodes.codec_sha256:
        raise ArenaError(HOST_UNLIKE, f"{os.uname().nodename}: another tokenizer or template")
    sampler = outside_sampler(episodes.recipe, codec)
    if sampler is None:
        raise ArenaError("V2124", "the recipe names no sampler: the model itself samples where it is trained")
    return bench, sampler, codec

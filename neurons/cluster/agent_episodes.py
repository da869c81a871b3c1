"""Evaluations of one agent file, run in whatever process or machine they are sent to.

What runs there is what `arena run` does here, in the same jail, over the same index, policy and titles, or the
work ends with V2008: a body is the same bytes. Keys of endpoints are never sent: each machine reads its own
environment. Rows come in the order of the problems.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from foundation.codes.names import HOST_UNLIKE, WORKER_DIED
from foundation.errors import ArenaError
from foundation.executors.port import Executor
from neurons.practice.opening import miner_settings
from neurons.practice.run import Asked, RunRow, row_of
from neurons.worker.ports import episode_bytes, open_local_ports
from problems.model import Problem
from problems.titles import AcceptedTitles, TitleMatcher, cut_titles

Job = tuple[int, Problem, TitleMatcher]  # its place among the problems first


class AgentEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """The agent file, and the flags under which ports are opened; calling it runs a problem. Picklable. Several
    `model_urls` are dealt: each problem begins with another one, and turns to the next where that one fails."""

    source: str
    policy: str | None
    catalogue: Path | None
    state_dir: Path | None
    model_urls: tuple[str, ...]
    model: str | None
    alike: tuple[str, str, str]  # what `alike` says of the ports at home
    is_judged: bool = True

    def __call__(self, job: Job) -> Evaluation:
        """Raises ArenaError V2008 on a machine that is unlike, and what opening the ports and `evaluate` raise."""
        place, problem, titles = job
        ports, _ = _opened(self)
        upstreams = tuple(ports.upstreams)
        if len(self.model_urls) > 1:
            first = place % len(upstreams)
            upstreams = upstreams[first:] + upstreams[:first]
        judges = ports.judges if self.is_judged else ()
        return evaluate(
            self.source, problem, dataclasses.replace(ports, titles=titles, upstreams=upstreams, judges=judges)
        )


def run_elsewhere(
    episodes: AgentEpisodes,
    asked: Sequence[Asked],
    executor: Executor,
    *,
    time_limit_s: float,
    clock: Callable[[], float],
) -> Iterator[RunRow]:
    """Each problem's row, in the order of the problems. `clock` gives seconds, monotonic.

    After `time_limit_s` (0: no limit) no further problem is handed out; those get no row. Raises the first ArenaError,
    and V2005 for a problem that is lost again and again.
    """
    begun_s = clock()

    def jobs() -> Iterator[Job]:
        for place, (problem, ports) in enumerate(asked):
            if time_limit_s and clock() - begun_s >= time_limit_s:
                return
            titles = ports.titles
            yield place, problem, cut_titles(titles, (problem,)) if isinstance(titles, AcceptedTitles) else titles

    memory_bytes = max((episode_bytes(ports.policy.limits) for _, ports in asked), default=0)
    found = executor.map(episodes, jobs(), died=WORKER_DIED, memory_bytes=memory_bytes)
    for (problem, ports), evaluation in zip(asked, found, strict=False):
        yield row_of(problem, ports, evaluation)


def alike(ports: EvaluatePorts) -> tuple[str, str, str]:
    """What has to be the same on every machine, beside the release: index, policy and jail."""
    level = ports.sandbox.level
    return ports.catalogue.content_sha256, ports.policy.policy_sha256, f"{level.name} {level.guest_sha256}"


@functools.lru_cache(maxsize=1)
def _opened(episodes: AgentEpisodes) -> tuple[EvaluatePorts, contextlib.ExitStack]:
    """The ports, opened once and held until the process ends."""
    found = miner_settings(
        episodes.policy, episodes.catalogue, episodes.state_dir, episodes.model_urls, episodes.model
    ).settings
    held = contextlib.ExitStack()
    ports = held.enter_context(open_local_ports(found))
    for name, own, home in zip(("index", "policy", "jail"), alike(ports), episodes.alike, strict=True):
        if own != home:
            raise ArenaError(HOST_UNLIKE, f"{os.uname().nodename}: {name} {own[:24]}, where the work is {home[:24]}")
    return ports, held

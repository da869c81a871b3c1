"""What a run works with beside its recipe: problems by pool, catalogue, titles, policy, and who may be sampled on.

Promise: a problem of another pool than `train`, or of a held-out problem's leak cluster, can't be sampled on or learnt
from here: it is refused at launch, again when a job is made, and when another run's episodes are read (paper section 6,
stage 2). Rows of a corpus were held against the partition when the corpus was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from arena.evaluate import EvaluatePorts, evaluate
from arena.policy import Policy
from harness.catalogue.port import Catalogue
from harness.inference.port import Upstream
from harness.tools.registry import profile_schemas
from problems.canonical import text_hash
from problems.clusters import find_clusters
from problems.model import Problem
from problems.titles import TitleMatcher
from training.agents import distilled_source
from training.episode_file import EpisodeLine
from training.guards import GuardStopError, require_train_pool
from training.hosted import HostedSandbox
from training.model import ChatCodec, Decode, Sampler
from training.rollout import Job, RolloutPorts, messages_of, read_result, read_rollout, rollout_policy, run_jobs


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """Ports and problems of a run. `held_out` are never sampled on; `progress` gets (phase, done, of)."""

    policy: Policy
    catalogue: Catalogue
    titles: TitleMatcher
    problems: tuple[Problem, ...] = ()  # train
    dev: tuple[Problem, ...] = ()
    held_out: tuple[Problem, ...] = ()  # evaluation sets and suites, as far as they are known here
    partition_sha256: str = ""
    code_commit: str = ""
    source: str = field(default_factory=distilled_source)
    progress: Callable[[str, int, int], None] | None = None

    @property
    def train_ids(self) -> frozenset[str]:
        """The problems that may be sampled on and learnt from."""
        return frozenset(problem.problem_id for problem in self.problems)

    @property
    def tools(self) -> str:
        """The schemas every episode's model is given, JSON text."""
        return profile_schemas(self.policy.tool_profile)

    def sample(
        self, jobs: Sequence[Job], sampler: Sampler, codec: ChatCodec, decode: Decode, parallel: int
    ) -> list[EpisodeLine]:
        """Episodes of a policy that speaks tokens, in the order of the jobs."""
        ports = RolloutPorts(
            policy=self.policy, catalogue=self.catalogue, titles=self.titles, codec=codec, source=self.source
        )
        return [
            EpisodeLine(
                result=read_result(job, evaluation),
                query=job.problem.query,
                messages=messages_of(evaluation.body),
                tools=self.tools,
                rollout=read_rollout(job, evaluation),
            )
            for job, evaluation in run_jobs(jobs, sampler, decode, ports, parallel=parallel)
        ]

    def ask(self, job: Job, upstream: Upstream, model: str, decode: Decode) -> EpisodeLine:
        """One episode of a policy behind an endpoint. Raises ArenaError U3001..U3004 when it does not answer."""
        evaluation = evaluate(
            self.source,
            job.problem,
            EvaluatePorts(
                policy=rollout_policy(self.policy, model, decode),
                catalogue=self.catalogue,
                titles=self.titles,
                sandbox=HostedSandbox(frozenset([text_hash(self.source)])),
                upstreams=[upstream],
                judges=(),
            ),
        )
        return EpisodeLine(
            result=read_result(job, evaluation),
            query=job.problem.query,
            messages=messages_of(evaluation.body),
            tools=self.tools,
        )

    def ask_all(
        self, jobs: Sequence[Job], upstream: Upstream, model: str, decode: Decode, parallel: int
    ) -> Iterator[EpisodeLine]:
        """Such an episode for each job, as they end, `parallel` at a time. The first failure is raised once what was
        under way has ended; nothing more is asked."""
        failed: BaseException | None = None
        with ThreadPoolExecutor(parallel) as pool:
            running = [pool.submit(self.ask, job, upstream, model, decode) for job in jobs]
            for future in as_completed(running):
                if future.cancelled():
                    continue
                error = future.exception()
                if error is None:
                    yield future.result()
                elif failed is None:
                    failed = error
                    for other in running:
                        other.cancel()
        if failed is not None:
            raise failed

    def require_split(self) -> None:
        """Raises GuardStopError for a train problem that shares a leak cluster with one of `dev` or `held_out`."""
        kept_out = {problem.problem_id: problem for problem in (*self.dev, *self.held_out)}
        both = self.train_ids & kept_out.keys()
        if both:
            raise GuardStopError("split", f"problem {min(both)} is held out, and a problem to train on")
        for members in find_clusters((*self.problems, *kept_out.values())).problems_of.values():
            inside = sorted(self.train_ids.intersection(members))
            if inside and len(inside) < len(members):
                outside = min(set(members) - self.train_ids)
                raise GuardStopError("split", f"problem {inside[0]} shares a leak cluster with {outside}, held out")

    def require_train(self, jobs: Sequence[Job]) -> None:
        """Raises GuardStopError for a job on a problem that is not of the train pool."""
        require_train_pool((job.problem.problem_id for job in jobs), self.train_ids)

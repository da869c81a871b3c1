"""What a run works with beside its recipe: problems by pool, catalogue, titles, policy, and which problems may be
sampled.

A stage does not start on problems unless something says which others are held out: the problems themselves, or
the bank's partition with its key, which tells the pool of each. A problem of another pool than `train`, or of the leak
cluster of a held-out one that is known here, is refused at launch, again when a job is made, and when another run's
episodes are read (paper section 6, stage 2). A corpus is refused when it was made under another partition than the one
in use, or for another pool, or holds a row of a held-out problem.

It cannot know a held-out problem that was not named, where there is no partition with its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from arena.evaluate import EvaluatePorts, Evaluation, evaluate
from arena.policy import Policy
from foundation.canonical import text_hash
from foundation.errors import ArenaError
from foundation.long_work import Progress
from harness.catalogue.port import Catalogue
from harness.chat import served_tools
from harness.inference.port import Upstream
from harness.tools.registry import profile_schemas
from problems.clusters import find_clusters
from problems.model import Pool, Problem
from problems.partition import OpenPartition, touched_pools
from problems.titles import TitleMatcher
from training.agents import distilled_source
from training.corpus.gates import Guard
from training.corpus.model import CorpusPool, Lineage, Trace
from training.guards import GuardStopError
from training.model import Decode, Sampler
from training.models.render import Qwen3Codec
from training.rollouts import rollout


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Ports and problems of a run. `held_out` are never sampled on; `progress` gets (phase, done, of)."""

    policy: Policy
    catalogue: Catalogue
    titles: TitleMatcher
    problems: tuple[Problem, ...] = ()  # train
    dev: tuple[Problem, ...] = ()
    held_out: tuple[Problem, ...] = ()  # evaluation sets and suites, as far as they are known here
    partition: OpenPartition | None = None  # the bank's, with its key: then it says what is held out
    partition_sha256: str = ""  # of the manifest in use; "" where none was named
    code_commit: str = ""
    source: str = field(default_factory=distilled_source)
    progress: Progress | None = None

    @property
    def train_ids(self) -> frozenset[str]:
        """The problems that may be sampled on and learnt from."""
        return frozenset(problem.problem_id for problem in self.problems)

    @property
    def tools(self) -> str:
        """The schemas every episode's model is given, JSON text."""
        return served_tools(profile_schemas(self.policy.tool_profile))

    def run(
        self, job: rollout.Job, upstream: Upstream, model: str, decode: Decode, *, is_last: bool = False
    ) -> Evaluation:
        """One episode of our agent file, with `upstream` as its model. Raises ArenaError for a fault of ours."""
        rules = rollout.rollout_policy(self.policy, model, decode)
        return self.evaluate(self.source, job.problem, rules, upstream, is_last=is_last)

    def evaluate(
        self, source: str, problem: Problem, policy: Policy, upstream: Upstream, *, is_last: bool
    ) -> Evaluation:
        """One episode of an agent file of ours in this process, without judges. Raises ArenaError for a fault of
        ours."""
        ports = EvaluatePorts(
            policy=policy,
            catalogue=self.catalogue,
            titles=self.titles,
            sandbox=rollout.InProcessSandbox(frozenset([text_hash(source)])),
            upstreams=[upstream],
            judges=(),
            is_last=is_last,
        )
        return evaluate(source, problem, ports)

    def sample(
        self, jobs: Sequence[rollout.Job], sampler: Sampler, codec: Qwen3Codec, decode: Decode, parallel: int
    ) -> Iterator[rollout.EpisodeLine]:
        """Episodes of a policy that speaks tokens, in the order of the jobs, `parallel` of them under way.

        Raises ArenaError when the sampler can't answer; then only what is under way is ended.
        """

        def sampled(job: rollout.Job) -> rollout.EpisodeLine:
            evaluation = self.run(job, rollout.TokenUpstream(sampler, codec, decode, job.seed), sampler.version, decode)
            return rollout.read_line(job, evaluation, self.tools, rollout=rollout.read_rollout(evaluation))

        return rollout.for_each(jobs, sampled, parallel)

    def ask(self, job: rollout.Job, upstream: Upstream, model: str, decode: Decode) -> rollout.EpisodeLine:
        """One episode of a policy behind an endpoint. Raises ArenaError U3001..U3004 when it does not answer."""
        return rollout.read_line(
            job, self.run(job, rollout.OwnEndpoint(upstream), model, decode, is_last=True), self.tools
        )

    def ask_all(
        self, jobs: Sequence[rollout.Job], upstream: Upstream, model: str, decode: Decode, parallel: int
    ) -> Iterator[rollout.EpisodeLine]:
        """Such an episode for each job, `parallel` at a time. A failure is raised once what was under way has ended."""
        return rollout.for_each(jobs, lambda job: self.ask(job, upstream, model, decode), parallel)

    def require_known(self) -> None:
        """Raises ArenaError V2120 for problems to learn from where nothing says which others are held out."""
        if self.problems and not self.held_out and self.partition is None:
            raise ArenaError(
                "V2120",
                f"{len(self.problems)} problems to train on, and neither held-out problems nor a partition",
                fix="name them with --held-out (evaluation sets, suites s1 to s3), or give the bank's --partition",
            )

    def require_split(self) -> None:
        """Raises GuardStopError for a problem of another pool than it is used as, by the partition where there is one,
        and for a train problem that shares a leak cluster with one of `dev` or `held_out`."""
        self._require_pools(self.problems, "train")
        self._require_pools(self.dev, "dev")
        kept_out = {problem.problem_id: problem for problem in (*self.dev, *self.held_out)}
        both = self.train_ids & kept_out.keys()
        if both:
            raise GuardStopError("split", f"problem {min(both)} is held out, and a problem to train on")
        for members in find_clusters((*self.problems, *kept_out.values())).values():
            inside = sorted(self.train_ids.intersection(members))
            if inside and len(inside) < len(members):
                outside = min(set(members) - self.train_ids)
                raise GuardStopError("split", f"problem {inside[0]} shares a leak cluster with {outside}, held out")

    def partition_in_use(self, corpora: Sequence[tuple[str, CorpusPool, Lineage]]) -> str:
        """The partition that problems and corpora (name, pool it is taken for, lineage) stand under.

        It is the one named here, else the first corpus' own; "" for none.

        Raises GuardStopError for a corpus of another pool, or made under another partition.
        """
        used = self.partition_sha256 or next((lineage.partition_sha256 for _, _, lineage in corpora), "")
        for name, pool, lineage in corpora:
            if lineage.rules.pool != pool:
                raise GuardStopError("split", f"{name} is a corpus of the {lineage.rules.pool} pool, not of {pool}")
            if lineage.partition_sha256 != used:
                raise GuardStopError(
                    "split",
                    f"{name} was made under partition {lineage.partition_sha256[:12] or 'none'}, in use is "
                    f"{used[:12] or 'none'}: build it again under the one in use, or name its own",
                )
        return used

    def require_clean(self, traces: Iterable[Trace], pool: CorpusPool) -> None:
        """Raises GuardStopError for rows of a corpus of `pool` that touch a held-out problem known here."""
        held: dict[Pool, tuple[Problem, ...]] = {"eval": self.held_out}
        if pool == "train":
            held["dev"] = self.dev
        if self.partition is None and not any(held.values()):
            return
        try:
            Guard(None, held, partition=self.partition, admits=pool).require_clean(traces)
        except ArenaError as error:
            raise GuardStopError("split", f"rows of a corpus: {error.failure.detail}") from error

    def _require_pools(self, problems: Sequence[Problem], pool: Pool) -> None:
        if self.partition is None:
            return
        for problem in problems:
            touched = touched_pools(problem, self.partition)
            if any(one != pool for one in touched) or (pool != "train" and not touched):
                found = " and ".join(touched) or "train"  # what touches nothing frozen is `train`
                raise GuardStopError("split", f"problem {problem.problem_id} is of {found}, and taken for {pool}")

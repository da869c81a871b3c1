"""An agent file as what `arena eval` evaluates: gated, then run in the jail, with the model that `arena run` asks."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from neurons.cli.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from arena.evaluate import EvaluatePorts, Evaluation
    from neurons.node.settings import Settings
    from neurons.practice.local_run import Asked, RunRow
    from training.evaluation.run_eval import EvaluationPlan
    from training.rollouts.rollout import EpisodeLine, Job, RunJobs
    from training.run_context import RunContext


class AgentPlace(NamedTuple):
    """Where episodes run, and the flags that a cluster's machines open their ports under, as they were given."""

    workers: int
    cluster: str
    catalogue: Path | None
    state_dir: Path | None
    model_urls: tuple[str, ...]


@contextlib.contextmanager
def open_agent(
    path: Path, settings: Settings, plan: EvaluationPlan, bench: RunContext, where: AgentPlace
) -> Iterator[tuple[EvaluationPlan, RunContext, RunJobs]]:
    """Plan and context for the agent in `path`, and what runs its episodes: the cluster, so many of the validator's
    workers, or for 0 threads of this process. Ends the command for a file that the gate rejects. Raises ArenaError
    A1001 and A1009 for a file that can't be read, U3001 and U3005 for an endpoint, V2207, V2060, V2208 for a cluster.
    """
    from foundation.codes.names import JUDGE_FAILED
    from foundation.errors import ArenaError, Failure
    from neurons.cli.miner.check import read_agent, report_of, show_report
    from neurons.node.public_inputs import policy_of
    from neurons.node.wiring import open_local_ports
    from neurons.practice.pool_run import run_in_pool
    from neurons.practice.problem_choice import open_setups
    from neurons.worker.capacity import usable_memory_bytes, worker_count
    from training.evaluation.run_eval import agent_plan, by_agent

    raw = read_agent(path)
    try:
        source = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArenaError("A1001", f"byte {raw[error.start]:#04x} at offset {error.start}") from error
    report = report_of(raw, settings)
    if report.outcome == "reject":
        show_report(path, raw, report)
        raise typer.Exit(EXIT_FAILED)
    at_once = worker_count(plan.parallel, usable_memory_bytes(), bench.policy.limits)
    is_elsewhere = bool(where.workers or where.cluster)
    with contextlib.ExitStack() as stack:
        ports = stack.enter_context(open_local_ports(settings, at_once=1 if is_elsewhere else at_once))
        under = dataclasses.replace(bench, policy=ports.policy, source=source)
        run = by_agent(source, ports, at_once)
        if where.cluster:
            run = _by_rows(ports, _of_cluster(source, settings, ports, where))
        elif where.workers:
            setups = stack.enter_context(open_setups(settings, policy_of(settings), where.workers, True))
            unjudged = Failure(code=JUDGE_FAILED, detail="nobody judges it")
            pool = partial(run_in_pool, source, setups=setups, time_limit_s=0, clock=time.monotonic, unjudged=unjudged)
            run = _by_rows(ports, pool)
        yield agent_plan(plan, ports.policy), under, run


def _of_cluster(
    source: str, settings: Settings, ports: EvaluatePorts, where: AgentPlace
) -> Callable[[Sequence[Asked]], Iterator[RunRow]]:
    from neurons.cluster.agent_episodes import AgentEpisodes, alike, run_elsewhere
    from neurons.cluster.choice import absolute_policy, open_executor
    from neurons.node.public_inputs import DEFAULT_POLICY

    episodes = AgentEpisodes(
        source=source,
        policy=absolute_policy(settings.policy or DEFAULT_POLICY),
        catalogue=where.catalogue and where.catalogue.absolute(),
        state_dir=where.state_dir and where.state_dir.absolute(),
        model_urls=where.model_urls,
        model=settings.models or None,
        alike=alike(ports),
        is_judged=False,
    )

    def run(asked: Sequence[Asked]) -> Iterator[RunRow]:
        with open_executor(where.cluster, 0, 0, state_dir=where.state_dir) as executor:
            yield from run_elsewhere(episodes, asked, executor, time_limit_s=0, clock=time.monotonic)

    return run


def _by_rows(ports: EvaluatePorts, rows_of: Callable[[Sequence[Asked]], Iterator[RunRow]]) -> RunJobs:
    """The episodes that `by_agent` gives, in the order of the jobs, of evaluations made elsewhere; scored here, over
    `ports`. A problem that ends its workers again and again stops the run: a report has all of its set."""
    from arena.evaluate import RanEpisode, settle
    from foundation.errors import ArenaError
    from harness.tools.registry import profile_schemas
    from training.evaluation.run_eval import line_of

    tools, at_home = profile_schemas(ports.policy.tool_profile), dataclasses.replace(ports, judges=())

    def run(jobs: Sequence[Job]) -> Iterator[EpisodeLine]:
        waiting: deque[Job] = deque(jobs)
        done: dict[str, Evaluation] = {}
        for row in rows_of([(job.problem, ports) for job in jobs]):
            if row.failure is not None:
                raise ArenaError(row.failure.code, row.failure.detail)
            assert row.evaluation is not None
            done[row.problem.problem_id] = row.evaluation
            while waiting and (own := done.pop(waiting[0].problem.problem_id, None)) is not None:
                job, ran = waiting.popleft(), RanEpisode(body=own.body, sandbox=own.sandbox, cost=own.cost)
                yield line_of(job, settle(ran, job.problem, at_home), tools)

    return run

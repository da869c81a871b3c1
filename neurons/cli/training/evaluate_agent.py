"""An agent file as what `arena eval` evaluates: gated, then run in the jail, with the model that `arena run` asks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from neurons.cli.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from neurons.node.settings import Settings
    from training.evaluation.run_eval import EvaluationPlan
    from training.rollouts.episode_file import RunJobs
    from training.run_context import RunContext


@contextlib.contextmanager
def open_agent(
    path: Path, settings: Settings, plan: EvaluationPlan, bench: RunContext
) -> Iterator[tuple[EvaluationPlan, RunContext, RunJobs]]:
    """Plan and context for the agent in `path`, and what runs its episodes. Ends the command for a file that the gate
    rejects. Raises ArenaError A1001 and A1009 for a file that can't be read, U3001 and U3005 for an endpoint."""
    from foundation.errors import ArenaError
    from neurons.cli.miner.check import read_agent, report_of, show_report
    from neurons.node.wiring import open_local_ports
    from neurons.worker.capacity import usable_memory_bytes, worker_count
    from training.evaluation.agents import agent_plan, by_agent

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
    with open_local_ports(settings, at_once=at_once) as ports:
        under = dataclasses.replace(bench, policy=ports.policy, source=source)
        yield agent_plan(plan, ports.policy), under, by_agent(source, ports, at_once)

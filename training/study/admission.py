"""The arena's gate before a study's records: no agent is recorded that a validator would not have let race.

What the gate holds for a person's review is recorded as accepted here, where no person decides; its findings stand in
`gate.json` beside the log, with the reports of all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arena.gate.isolation import inspect_isolated
from arena.gate.knowledge import make_knowledge
from arena.gate.report import GateReport
from arena.policy import GateRules
from harness.agents.registry import published_sources
from problems.model import Problem
from training.agents import distilled_source
from training.guards import GuardStopError


def require_admitted(
    sources: Mapping[str, str], rules: GateRules, published: Sequence[Problem]
) -> dict[str, GateReport]:
    """The gate's report on each source, by its name, as a validator asks for it; `published` are the problems whose
    texts anyone may know. Raises GuardStopError for a source that it rejects, naming agent and rule."""
    knowledge = make_knowledge(
        (), [problem.query for problem in published], (*published_sources(), distilled_source()), rules
    )
    reports: dict[str, GateReport] = {}
    for name, source in sources.items():
        report = inspect_isolated(source, rules, knowledge)
        if report.failure is not None:
            raise GuardStopError("gate", f"the gate refuses the agent {name}: {report.failure.detail}")
        reports[name] = report
    return reports

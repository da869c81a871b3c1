"""What a guest is told beside its problem under SN15's present contract: the binding and the policy view.

It holds no answer, clock or random value. The tools themselves stand in the run's schemas, which the guest
puts into `policy_view` (`sn15.environment` of the guest), because canonical bytes hold no floating-point default.
"""

from __future__ import annotations

import msgspec

from harness.limits import EpisodeLimits
from problems.model import Problem

ENVIRONMENT = "environment"  # the tool profile's name
TOOL_CONTRACT = "arena_tools_v1"  # of these tools; an agent sends it back as it got it
CALLS_PER_TURN = 16  # as SN15's session registry has it


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What each turn's envelope repeats."""

    session_id: str
    tool_contract_version: str = TOOL_CONTRACT


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The request and its limits, as SN15's `policy_view` has them; the guest adds `tools`."""

    query: str
    max_steps: int
    tool_contract_version: str = TOOL_CONTRACT
    max_calls_per_turn: int = CALLS_PER_TURN


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`problem_data["environment"]`, without the tools."""

    binding: Binding
    policy_view: PolicyView
    schema_version: str = "oro.generated_environment_problem.v1"


class EnvironmentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem's public view with its environment."""

    problem_id: str
    category: str
    query: str
    environment: Environment


def environment_problem(problem: Problem, limits: EpisodeLimits) -> EnvironmentProblem:
    """What an agent of SN15's present contract may see of a problem. A problem is run once in a guest, so its id binds
    the session."""
    return EnvironmentProblem(
        problem_id=problem.problem_id,
        category=problem.bucket,
        query=problem.query,
        environment=Environment(
            binding=Binding(session_id=problem.problem_id),
            policy_view=PolicyView(query=problem.query, max_steps=limits.steps),
        ),
    )

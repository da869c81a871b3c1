"""The shipped agents, run from source through the real recorder, gateway and tools; only the jail is left out."""

from __future__ import annotations

from typing import Any

from harness.agents.registry import cheater_source, reference_agent
from harness.trace import EvaluationBody
from problems.model import Problem
from tests.harness.agent_stand import is_success, play, problems
from tests.harness.jail_stand import reference_sandbox

COUNTS = (4, 3, 3)


def run(source: str, problem: Problem, **changed: Any) -> EvaluationBody:
    return play(source, problem, reference_sandbox(source), **changed).body


def test_the_baseline_is_agentic_and_solves_most_problems() -> None:
    source = reference_agent("baseline").source
    bodies = [run(source, problem) for problem in problems(*COUNTS)]
    assert all(body.is_agentic and body.stop == "terminated" and body.failure is None for body in bodies)
    solved = [is_success(body, problem) for body, problem in zip(bodies, problems(*COUNTS), strict=True)]
    assert sum(solved) >= 0.6 * len(problems(*COUNTS))


def test_the_subtask_agent_finds_products_but_none_of_its_calls_is_the_models() -> None:
    bodies = [run(reference_agent("subtask").source, problem) for problem in problems(*COUNTS)]
    for body, problem in zip(bodies, problems(*COUNTS), strict=True):
        assert not body.is_agentic
        assert body.totals.code_calls == body.totals.tool_calls > 2
        assert body.totals.steps >= 1
        assert len(body.recommended or ()) == len(problem.rewards)


def test_the_echoers_calls_are_told_apart_from_the_models() -> None:
    body = run(reference_agent("echoer").source, problems(*COUNTS)[0])
    assert not body.is_agentic
    # the call that ends the run has no value of its own, so nothing in it can be dictated
    assert (body.totals.tool_calls, body.totals.echoed_calls, body.totals.llm_calls) == (3, 2, 1)


def test_the_cheaters_ids_are_worthless_even_when_they_are_right() -> None:
    problem = problems(*COUNTS)[0]
    source = cheater_source([problem.rewards[0].product_id] * 3)
    body = run(source, problem)
    assert body.recommended == (problem.rewards[0].product_id,)
    assert not is_success(body, problem)

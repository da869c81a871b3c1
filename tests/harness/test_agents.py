"""The shipped agents, run from source through the real recorder, gateway and tools; only the jail is left out."""

from __future__ import annotations

import ast
import functools
import json
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.canonical import text_hash
from harness.agents.registry import (
    cheater_source,
    reference_agent,
    reference_agents,
)
from harness.catalogue.port import Catalogue
from harness.inference.client import OpenAIUpstream
from harness.inference.gateway import Gateway
from harness.inference.port import InferenceRules
from harness.inference.scripted import MODELS, start_scripted_server
from harness.limits import EpisodeLimits
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, SandboxLevel
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import make_toolbox
from harness.trace import EvaluationBody
from problems.model import Problem
from problems.outcome import OutcomeScore
from problems.score import score
from problems.synthesis import synthesize
from problems.title_index import TitleIndex
from problems.titles import LexicalTitles
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.inference_stand import OtherServer, answer
from tests.problems.stand import synthetic_shelf

GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"


def _shelf() -> TitleIndex:
    return synthetic_shelf(3_000, 5)


@functools.cache
def _problems() -> tuple[Problem, ...]:
    return synthesize(_shelf(), seed=23, counts={"product": 4, "shop": 3, "voucher": 3})


class DirectSandbox:
    """Runs an agent in this process: for our own sources only, and only in this test."""

    level = SandboxLevel(
        name="reference-agents-only", layers=(), guest_sha256="0" * 64, python_version="3", may_race=False
    )

    def run(self, job: GuestJob, host: Host) -> GuestExit:
        from arena_sdk import ToolError, _link  # type: ignore[attr-defined]

        def transport(method: str, params: dict[str, object]) -> object:
            try:
                return host.call(method, json.loads(json.dumps(params)))
            except GuestCallError as refused:
                raise ToolError(refused.code, refused.message) from refused

        _link.connect(transport, schemas=job.tools, models=job.models)
        module = types.ModuleType("agent")
        exec(compile(job.source, "agent.py", "exec"), module.__dict__)
        try:
            module.agent_main(json.loads(job.problem))
        except EpisodeOver:
            return GuestExit(end="stopped")
        return GuestExit(end="final", claim="null")


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogue_of(_shelf().products, tmp_path_factory.mktemp("agents"))


@pytest.fixture(scope="module")
def scripted() -> Iterator[str]:
    with start_scripted_server() as server:
        yield server.base_url


@pytest.fixture(autouse=True)
def _sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GUEST))


def run(
    source: str, problem: Problem, catalogue: Catalogue, base_url: str, models: tuple[str, ...] = MODELS
) -> EvaluationBody:
    toolbox = make_toolbox("sn15", catalogue, problem)
    upstream = OpenAIUpstream("test", base_url, "", 10_000)
    gateway = Gateway(
        InferenceRules(models=models, attempts=2), [upstream], toolbox.schemas, EpisodeLimits(), lambda _: None
    )
    rules = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256=catalogue.content_sha256, models=models)
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=DirectSandbox())
    return run_episode(source, problem, ports, rules).body


def is_success(body: EvaluationBody, problem: Problem, catalogue: Catalogue) -> bool:
    outcome = score(problem, body.recommended or (), catalogue.product, LexicalTitles(), unsurfaced=body.unsurfaced)
    assert isinstance(outcome, OutcomeScore)
    return outcome.is_success


def test_the_baseline_is_agentic_and_solves_most_problems(catalogue: Catalogue, scripted: str) -> None:
    source = reference_agent("baseline").source
    bodies = [run(source, problem, catalogue, scripted) for problem in _problems()]
    assert all(body.is_agentic and body.stop == "terminated" and body.failure is None for body in bodies)
    solved = [is_success(body, problem, catalogue) for body, problem in zip(bodies, _problems(), strict=True)]
    assert sum(solved) >= 0.6 * len(_problems())


def test_the_baseline_runs_unchanged_against_another_endpoint(catalogue: Catalogue) -> None:
    calls = [
        {"id": "a", "function": {"name": "recommend_product", "arguments": {"product_ids": "1"}}},
        {"id": "b", "type": "function", "function": {"name": "terminate", "arguments": '{"status":"failure"}'}},
    ]
    with OtherServer(answer("I think first."), answer("Then this.", tool_calls=calls)) as server:
        body = run(
            reference_agent("baseline").source, _problems()[0], catalogue, server.base_url, models=("other-model",)
        )
    assert body.stop == "terminated"
    assert body.recommended == ("1",) and body.unsurfaced == ("1",)
    assert body.totals.llm_calls == 2


def test_the_subtask_agent_finds_products_but_none_of_its_calls_is_the_models(
    catalogue: Catalogue, scripted: str
) -> None:
    bodies = [run(reference_agent("subtask").source, problem, catalogue, scripted) for problem in _problems()]
    for body, problem in zip(bodies, _problems(), strict=True):
        assert not body.is_agentic
        assert body.totals.code_calls == body.totals.tool_calls > 2
        assert body.totals.steps >= 1
        assert len(body.recommended or ()) == len(problem.rewards)


def test_the_echoers_calls_are_told_apart_from_the_models(catalogue: Catalogue, scripted: str) -> None:
    body = run(reference_agent("echoer").source, _problems()[0], catalogue, scripted)
    assert not body.is_agentic
    # the call that ends the run has no value of its own, so nothing in it can be dictated
    assert (body.totals.tool_calls, body.totals.echoed_calls, body.totals.llm_calls) == (3, 2, 1)


def test_the_cheaters_ids_are_worthless_even_when_they_are_right(catalogue: Catalogue, scripted: str) -> None:
    problem = _problems()[0]
    source = cheater_source([problem.rewards[0].product_id] * 3)
    body = run(source, problem, catalogue, scripted)
    assert body.recommended == (problem.rewards[0].product_id,)
    assert not is_success(body, problem, catalogue)


# -- the registry


def test_every_reference_agent_parses_and_defines_agent_main() -> None:
    for agent in reference_agents():
        tree = ast.parse(agent.source)
        assert any(isinstance(node, ast.FunctionDef) and node.name == "agent_main" for node in tree.body)
        assert agent.sha256 == text_hash(agent.source)


def test_an_answer_table_carries_the_ids_it_is_given() -> None:
    source = cheater_source(["300000001", "300000002", "300000003", "300000004"])
    (table,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ANSWERS"
    )
    assert list(table.values()) == ["300000001", "300000002", "300000003", "300000004"]
    with pytest.raises(ValueError, match="at least 3"):
        cheater_source(["1", "2"])

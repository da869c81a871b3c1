"""Qualifying without a node: the suite s1, its catalogue, and our own agents run on problems in this process."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable
from pathlib import Path

import msgspec

from arena.evaluate import EvaluatePorts, episode_rules, score_body
from arena.policies import DEMO
from harness.catalogue.port import Catalogue
from harness.catalogue.synthetic import generate
from harness.inference.client import read_reply
from harness.inference.gateway import Gateway
from harness.inference.port import ModelReply
from harness.inference.scripted.model import complete
from harness.sandbox.port import EpisodeOver, GuestCallError, GuestExit, GuestJob, Host, SandboxLevel
from harness.session import EpisodePorts, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EvaluationBody
from neurons.settings.inputs import SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED
from problems.model import OutcomeScore, Problem, Product
from problems.suites import load_shipped
from problems.titles import TitleMatcher
from tests.harness.catalogue_stand import catalogue_of

GUEST = Path(__file__).parents[2] / "harness" / "sandbox" / "guest"
SUITE = load_shipped("s1")
POLICY = msgspec.structs.replace(DEMO, name="test")


def suite_products() -> tuple[Product, ...]:
    """The catalogue that the shipped suites are asked of."""
    return tuple(generate(SYNTHETIC_DOCUMENTS, SYNTHETIC_SEED))


class ScriptedUpstream:
    """The scripted model without its server."""

    name = "scripted"

    def complete(self, request: str) -> ModelReply:
        return read_reply(msgspec.json.encode(complete(msgspec.json.decode(request))))

    def probe(self) -> bool:
        return True


class DirectSandbox:
    """Runs an agent in this process: for sources written in these tests, which touch nothing but the SDK."""

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

        _link.transport, _link.schemas, _link.models = transport, job.tools, job.models
        module = types.ModuleType("agent")
        exec(compile(job.source, "agent.py", "exec"), module.__dict__)
        try:
            module.agent_main(json.loads(job.problem))
        except EpisodeOver:
            return GuestExit(end="stopped")
        return GuestExit(end="final", claim="null")


class Ground:
    """A catalogue on which agents are run; `guest` must be on the import path."""

    def __init__(self, products: Iterable[Product], folder: Path) -> None:
        self.catalogue: Catalogue = catalogue_of(products, folder)

    def run(self, source: str, problem: Problem) -> EvaluationBody:
        """The body of one episode."""
        toolbox = Toolbox(POLICY.tool_profile, self.catalogue)
        gateway = Gateway(POLICY.inference, [ScriptedUpstream()], toolbox.schemas, POLICY.limits, lambda _: None)
        ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=DirectSandbox())
        return run_episode(source, problem, ports, episode_rules(POLICY, self.catalogue.content_sha256)).body

    def solves(self, source: str, problem: Problem, titles: TitleMatcher) -> bool:
        """Whether the agent's answer is a success, as `arena.evaluate` scores it."""
        ports = EvaluatePorts(
            policy=POLICY, catalogue=self.catalogue, titles=titles, sandbox=DirectSandbox(), upstreams=(), judges=()
        )
        body = self.run(source, problem)
        assert body.failure is None, body.failure
        outcome = score_body(body, problem, ports)
        assert isinstance(outcome, OutcomeScore)
        return outcome.is_success

    def count(self, source: str, asked: Iterable[tuple[Problem, TitleMatcher]]) -> int:
        """How many of the problems an agent solves."""
        return sum(self.solves(source, problem, titles) for problem, titles in asked)

"""Agents: gate, contract, and a run on problems of each bucket in the best jail there is, with the scripted model."""

from __future__ import annotations

import ast
import functools
import os
import tempfile
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from arena.gate.inspection import inspect
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.rules import what_to_change
from arena.policies import SN15_2026_08, SN15_ENVIRONMENT
from arena.policy import Policy
from foundation.codes import lookup, owner_of
from foundation.errors import ArenaError
from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway
from harness.inference.scripted.model import MODELS, ScriptedUpstream
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from problems.model import BUCKETS, OutcomeScore, Problem
from problems.score import score
from problems.synthesis import synthesize
from problems.titles import LexicalTitles
from tests.compat.rows import Finding, Kind
from tests.harness.catalogue_stand import catalogue_of
from tests.harness.jail_stand import best_sandbox
from tests.problems.stand import synthetic_shelf

PROBLEMS = int(os.environ.get("COMPAT_PROBLEMS", "3"))  # at most one of each bucket
SECONDS = 60  # of an agent's own time for one problem
NATIVE, MAY_2026, ENVIRONMENT, NONE = "native", "SN15 of May 2026", "SN15 environment", "none known"


def contract_of(source: str) -> str:
    """Which contract a file is written for, by what it imports and the paths and keys that it names."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return NONE
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    if any(text.endswith("/environment/call") for text in texts):
        return ENVIRONMENT
    if any(module == "src.agent" or module.startswith("src.agent.") for module in modules):
        return MAY_2026
    if any("/search/find_product" in text for text in texts):
        return MAY_2026
    return NATIVE if any(module.split(".")[0] == "arena_sdk" for module in modules) else NONE


def examine(path: Path) -> Finding:
    """The gate's verdict first; what it rejects is not run."""
    data = path.read_bytes()
    source = data.decode("utf-8", "replace")
    contract = contract_of(source)
    policy = _policy_for(contract)
    report = inspect(data, policy.gate, _knowledge())
    if report.rejections:
        first = report.rejections[0]
        change = what_to_change(first.rule, first.detail)
        told = f"gate reject: {first.rule}, line {first.line}: {first.detail}; {change}"
        return Finding(ran=f"gate; {contract}", result=told, is_red=True)
    ends: Counter[str] = Counter()
    solved, is_red = 0, False
    problems = _problems()[:PROBLEMS]
    for problem in problems:
        end, is_solved, is_fault = _run(source, problem, policy)
        ends[end] += 1
        solved += is_solved
        is_red = is_red or is_fault
    told = ", ".join(f"{count} x {end}" for end, count in ends.items())
    ran = f"gate; {contract}; {len(problems)} problems, {best_sandbox().level.name}"
    return Finding(ran=ran, result=f"gate {report.outcome}; {told}; {solved} solved", is_red=is_red)


def _run(source: str, problem: Problem, policy: Policy) -> tuple[str, bool, bool]:
    """How one episode ended with whose fault it is, whether it was solved, and whether it is a fault."""
    toolbox = Toolbox(policy.tool_profile, _catalogue())
    limits = replace(policy.limits, agent_time_ms=SECONDS * 1000)
    gateway = Gateway(policy.inference, [ScriptedUpstream()], toolbox.schemas, limits, lambda _: None)
    rules = EpisodeRules(
        policy_sha256=policy.policy_sha256,
        catalogue_sha256=_catalogue().content_sha256,
        limits=limits,
        models=policy.inference.models,
    )
    ports = EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=best_sandbox())
    try:
        body = run_episode(source, problem, ports, rules).body
    except ArenaError as error:
        return f"{error.failure.code} ({owner_of(error.failure.code).value})", False, True
    outcome = score(problem, body.recommended or (), _catalogue().product, LexicalTitles(), unsurfaced=body.unsurfaced)
    is_solved = body.failure is None and isinstance(outcome, OutcomeScore) and outcome.is_success
    if body.failure is None:
        return body.stop, is_solved, False
    code = body.failure.code
    return f"{code} ({owner_of(code).value}: {body.failure.detail[:80] or lookup(code).title})", False, True


def _policy_for(contract: str) -> Policy:
    policy = SN15_ENVIRONMENT if contract == ENVIRONMENT else SN15_2026_08
    return replace(policy, inference=replace(policy.inference, models=MODELS))


@functools.cache
def _knowledge() -> GateKnowledge:
    ids = [product.product_id for product in synthetic_shelf(3_000, 5).products]
    return make_knowledge(ids, [problem.query for problem in _problems()], [], SN15_2026_08.gate)


@functools.cache
def _problems() -> tuple[Problem, ...]:
    return tuple(synthesize(synthetic_shelf(3_000, 5), seed=23, counts=dict.fromkeys(BUCKETS, 1)))


@functools.cache
def _catalogue() -> Catalogue:
    return catalogue_of(synthetic_shelf(3_000, 5).products, Path(tempfile.mkdtemp(prefix="compat-")))


KIND = Kind(folder="agents", patterns=("*.py",), examine=lambda path: (examine(path),))

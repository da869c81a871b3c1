"""Whole episodes with the scripted model: one small shelf, its problems, and one way to run an agent on them."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway, Ledger
from harness.inference.port import InferenceRules, Upstream
from harness.inference.scripted.model import MODELS, ScriptedUpstream
from harness.limits import EpisodeLimits
from harness.sandbox.port import Sandbox
from harness.session import Episode, EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EvaluationBody
from problems.model import OutcomeScore, Problem
from problems.score import score
from problems.synthesis import synthesize
from problems.titles import LexicalTitles
from tests.harness.catalogue_stand import catalogue_of
from tests.problems.stand import synthetic_shelf


@functools.cache
def problems(product: int = 1, shop: int = 1, voucher: int = 1) -> tuple[Problem, ...]:
    counts = {"product": product, "shop": shop, "voucher": voucher}
    return synthesize(synthetic_shelf(3_000, 5), seed=23, counts=counts)


@functools.cache
def catalogue() -> Catalogue:
    return catalogue_of(synthetic_shelf(3_000, 5).products, Path(tempfile.mkdtemp(prefix="arena-agents-")))


def play(
    source: str,
    problem: Problem,
    sandbox: Sandbox,
    *,
    profile: str = "sn15",
    models: tuple[str, ...] = MODELS,
    ledger: Ledger | None = None,
    upstream: Upstream | None = None,
) -> Episode:
    """One episode; without `upstream` the scripted model answers."""
    toolbox = Toolbox(profile, catalogue())
    rules = InferenceRules(models=models, attempts=2, is_call_required_allowed=profile == "environment")
    gateway = Gateway(
        rules, [upstream or ScriptedUpstream()], toolbox.schemas, EpisodeLimits(), lambda _: None, ledger=ledger
    )
    chosen = EpisodeRules(policy_sha256="0" * 64, catalogue_sha256=catalogue().content_sha256, models=models)
    return run_episode(source, problem, EpisodePorts(toolbox=toolbox, gateway=gateway, sandbox=sandbox), chosen)


def is_success(body: EvaluationBody, problem: Problem) -> bool:
    outcome = score(problem, body.recommended or (), catalogue().product, LexicalTitles(), unsurfaced=body.unsurfaced)
    assert isinstance(outcome, OutcomeScore)
    return outcome.is_success

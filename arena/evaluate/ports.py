"""The ports of one evaluation, bundled: what a miner's computer, a validator, the demo and training all pass in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from arena.policy import Policy
from foundation.errors import Failure
from harness.catalogue.port import Catalogue
from harness.inference.ledger import Ledger
from harness.inference.port import CompletionJournal, Upstream
from harness.sandbox.port import Sandbox
from judge.port import Judge
from problems.scoring.title_matching import TitleMatcher


@dataclass(frozen=True, kw_only=True)
class EvaluatePorts:
    """Everything `evaluate` touches outside its arguments."""

    policy: Policy
    catalogue: Catalogue
    titles: TitleMatcher
    sandbox: Sandbox
    upstreams: Sequence[Upstream]
    dedicated: Mapping[str, Sequence[Upstream]] = field(default_factory=dict)  # models with their own
    judges: Sequence[Judge]
    unjudged: Failure | None = None  # why nobody's trace of this problem is judged now; None: it is
    sleep: Callable[[float], None] = time.sleep  # seconds, between attempts at an upstream
    journal: CompletionJournal | None = None  # of this agent and problem, where a fault may restart the episode
    ledger: Ledger | None = None  # gets one entry per model request
    is_last: bool = False  # the policy allows no attempt after this one

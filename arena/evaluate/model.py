"""What one evaluation returns, wherever it ran: miner's computer, validator, demo or training."""

from __future__ import annotations

from typing import Literal

import msgspec

from foundation.errors import Failure
from harness.sandbox.port import SandboxLevel
from harness.trace import EvaluationBody
from judge.verdict import UnscoredVerdict, Verdict
from problems.scoring.outcome import OutcomeScore, UnscoredOutcome

EvaluationStatus = Literal["scored", "unjudged", "unscored"]


class EpisodeCost(msgspec.Struct, frozen=True, kw_only=True):
    """Host facts of the episode; never in the body. `jail_ms` is the time until the agent's guest was ready."""

    episode_ms: int = 0
    jail_ms: int = 0
    agent_time_ms: int = 0
    model_ms: int = 0
    tool_ms: int = 0
    output_tail: str = ""


class RanEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that came to its end and is neither scored nor judged."""

    body: EvaluationBody
    sandbox: SandboxLevel
    cost: EpisodeCost


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Body, outcome, verdict or why not, status, fault. `score_e4` is outcome (0 or 1) x coefficient."""

    body: EvaluationBody
    outcome: OutcomeScore | UnscoredOutcome
    verdict: Verdict | UnscoredVerdict | None
    status: EvaluationStatus
    failure: Failure | None
    sandbox: SandboxLevel
    cost: EpisodeCost

    @property
    def score_e4(self) -> int | None:
        """Ten-thousandths, or None while outcome or verdict is missing."""
        if not isinstance(self.outcome, OutcomeScore):
            return None
        if not self.outcome.is_success:
            return 0
        return self.verdict.coefficient_e4 if isinstance(self.verdict, Verdict) else None

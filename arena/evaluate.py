"""The one path from an agent and a problem to an evaluation, and what it is recorded as.

Everything that evaluates an agent calls `evaluate`; with the same agent, problem, policy and model replies it returns
the same body, byte for byte. An agent's fault is part of the result. A fault of ours raises ArenaError, so that no
caller can mistake it for a score.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from arena.policy import Policy
from arena.records.model import AttemptRecord, Conditions, Context, EvaluationRecord, Payload, Subject, VerdictRecord
from foundation.errors import Failure
from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway, Ledger
from harness.inference.journal import MemoryJournal
from harness.inference.port import Upstream
from harness.sandbox.port import Sandbox, SandboxLevel
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EvaluationBody
from judge.panel import judge_body
from judge.render import Judge, shown_bytes
from judge.verdict import UnscoredVerdict, Verdict
from problems.model import OutcomeScore, Problem, UnscoredOutcome
from problems.score import score
from problems.titles import TitleMatcher

EvaluationStatus = Literal["scored", "unjudged", "unscored"]


class EpisodeCost(msgspec.Struct, frozen=True, kw_only=True):
    """Host facts of the episode; never in the body. `jail_ms` is the time until the agent's guest was ready."""

    episode_ms: int = 0
    jail_ms: int = 0
    agent_time_ms: int = 0
    model_ms: int = 0
    tool_ms: int = 0
    output_tail: str = ""


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
    sleep: Callable[[float], None] = time.sleep  # seconds, between attempts at an upstream
    journal: MemoryJournal | None = None  # of this agent and problem, where a fault may restart the episode
    ledger: Ledger | None = None  # gets one entry per model request
    is_last: bool = False  # the policy allows no attempt after this one


def evaluate(source: str, problem: Problem, ports: EvaluatePorts) -> Evaluation:
    """Evaluate the agent file `source` on `problem`: body, outcome, verdict or why not, status, fault.

    Raises ArenaError V2xxx or U3xxx when this host or an upstream failed; nothing is scored then, for no fault of ours
    is ever a 0.
    """
    policy = ports.policy
    toolbox = Toolbox(policy.tool_profile, ports.catalogue)
    gateway = Gateway(
        policy.inference,
        ports.upstreams,
        toolbox.schemas,
        policy.limits,
        ports.sleep,
        dedicated=ports.dedicated,
        ledger=ports.ledger,
        journal=ports.journal,
        is_last=ports.is_last,
    )
    episode_ports = EpisodePorts(
        toolbox=toolbox, gateway=gateway, sandbox=ports.sandbox, shown_bytes=shown_bytes, journal=ports.journal
    )
    episode = run_episode(source, problem, episode_ports, episode_rules(policy, ports.catalogue.content_sha256))
    body = episode.body
    # A run that ended in the agent's own fault recommended nothing that counts.
    recommended = body.recommended if body.recommended is not None and body.failure is None else ()
    outcome = score(problem, recommended, ports.catalogue.product, ports.titles, unsurfaced=body.unsurfaced)
    verdict: Verdict | UnscoredVerdict | None = None
    if isinstance(outcome, OutcomeScore):
        verdict = judge_body(body, policy.rubric, ports.judges)
    status: EvaluationStatus = "scored" if isinstance(verdict, Verdict) else "unjudged"
    failure = verdict.failure if isinstance(verdict, UnscoredVerdict) else None
    if body.failure is not None:
        failure = body.failure
    if isinstance(outcome, UnscoredOutcome):
        status, failure = "unscored", outcome.failure
    return Evaluation(
        body=body,
        outcome=outcome,
        verdict=verdict,
        status=status,
        failure=failure,
        sandbox=ports.sandbox.level,
        cost=EpisodeCost(
            episode_ms=episode.episode_ms,
            jail_ms=episode.exit.start_ms,
            agent_time_ms=episode.exit.agent_time_ms,
            model_ms=episode.model_ms,
            tool_ms=episode.tool_ms,
            output_tail=episode.exit.output_tail,
        ),
    )


def episode_rules(policy: Policy, catalogue_sha256: str) -> EpisodeRules:
    """The harness' frozen slice of the policy."""
    return EpisodeRules(
        policy_sha256=policy.policy_sha256,
        catalogue_sha256=catalogue_sha256,
        limits=policy.limits,
        models=policy.inference.models,
        is_surfaced_rule_on=policy.is_surfaced_rule_on,
        agentic_min_e4=policy.agentic_min_e4,
    )


def records_of(
    evaluation: Evaluation,
    *,
    attempt_id: str,
    subject: Subject,
    context: Context,
    conditions: Conditions,
    body_sha256: str,
) -> list[Payload]:
    """The records of an evaluation. Of `conditions`, the sandbox is the one that the episode ran in."""
    body = evaluation.body
    records: list[Payload] = [
        AttemptRecord(
            attempt_id=attempt_id,
            subject=subject,
            context=context,
            ended="evaluated",
            body_sha256=body_sha256,
            failure=body.failure,
        ),
        EvaluationRecord(
            attempt_id=attempt_id,
            subject=subject,
            context=context,
            conditions=msgspec.structs.replace(conditions, sandbox=evaluation.sandbox),
            body_sha256=body_sha256,
            stop=body.stop,
            failure=body.failure,
            is_agentic=body.is_agentic,
            totals=body.totals,
            outcome=evaluation.outcome,
        ),
    ]
    if evaluation.verdict is not None:
        records.append(VerdictRecord(subject=subject, context=context, verdict=evaluation.verdict))
    return records

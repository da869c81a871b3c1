"""The one path from an agent and a problem to an evaluation, what it is recorded as, and its trace judged again.

Everything that evaluates an agent calls `evaluate`; with the same agent, problem, policy and model replies it returns
the same body, byte for byte. An agent's fault is part of the result. A fault of ours raises ArenaError, so that no
caller can mistake it for a score. A replay judges recorded traces under another rubric or panel: its rows stand in a
file of their own, beside the log and never in it, so no roll can count them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from arena.policy import Policy
from arena.records.model import (
    AttemptRecord,
    Conditions,
    Context,
    EvaluationRecord,
    Payload,
    Subject,
    VerdictRecord,
)
from foundation.canonical import content_hash
from foundation.errors import Failure
from harness.catalogue.port import Catalogue
from harness.inference.gateway import Gateway, Ledger
from harness.inference.journal import MemoryJournal
from harness.inference.port import Upstream
from harness.sandbox.port import Sandbox, SandboxLevel
from harness.session import EpisodePorts, EpisodeRules, run_episode
from harness.tools.registry import Toolbox
from harness.trace import EvaluationBody
from judge.budget import Spending
from judge.panel import judge_body
from judge.render import Judge, shown_bytes
from judge.rubric import Rubric
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
    journal: MemoryJournal | None = None  # of this agent and problem, where a fault may restart the episode
    ledger: Ledger | None = None  # gets one entry per model request
    is_last: bool = False  # the policy allows no attempt after this one


def evaluate(source: str, problem: Problem, ports: EvaluatePorts) -> Evaluation:
    """Evaluate the agent file `source` on `problem`: body, outcome, verdict or why not, status, fault.

    Raises ArenaError V2xxx or U3xxx when this host or an upstream failed; nothing is scored then, for no fault of ours
    is ever a 0.
    """
    return settle(run(source, problem, ports), problem, ports)


def run(source: str, problem: Problem, ports: EvaluatePorts) -> RanEpisode:
    """The first half: the agent runs. Raises as `evaluate`."""
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
    episode = run_episode(
        source,
        problem,
        EpisodePorts(
            toolbox=toolbox, gateway=gateway, sandbox=ports.sandbox, shown_bytes=shown_bytes, journal=ports.journal
        ),
        episode_rules(policy, ports.catalogue.content_sha256),
    )
    return RanEpisode(
        body=episode.body,
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


def settle(ran: RanEpisode, problem: Problem, ports: EvaluatePorts) -> Evaluation:
    """The second half, in which nothing of the agent runs: score and judge. Raises ArenaError as `evaluate`."""
    body = ran.body
    outcome = score_body(body, problem, ports)
    verdict: Verdict | UnscoredVerdict | None = None
    if isinstance(outcome, OutcomeScore):
        if ports.unjudged is None:
            verdict = judge_body(body, ports.policy.rubric, ports.judges)
        else:
            verdict = UnscoredVerdict(
                body_sha256=body.body_hash(), rubric_id=ports.policy.rubric.rubric_id, failure=ports.unjudged
            )
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
        sandbox=ran.sandbox,
        cost=ran.cost,
    )


def score_body(body: EvaluationBody, problem: Problem, ports: EvaluatePorts) -> OutcomeScore | UnscoredOutcome:
    """The outcome of a body. A run that ended in the agent's own fault recommended nothing that counts."""
    recommended = body.recommended if body.recommended is not None and body.failure is None else ()
    return score(problem, recommended, ports.catalogue.product, ports.titles, unsurfaced=body.unsurfaced)


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


REPLAY_VERSION = 1


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True, tag="replay", tag_field="kind"):
    """A verdict given again. `counted` is the newest one in the log; `is_success` None: the outcome is not scored."""

    version: int = REPLAY_VERSION
    validator: str
    seq: int
    body_sha256: str
    race_id: str
    agent_version_id: str
    problem_id: str
    is_success: bool | None
    rubric_sha256: str
    counted: Verdict | UnscoredVerdict | None
    replayed: Verdict | UnscoredVerdict
    spent: Spending = Spending()


class AgentReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's replayed traces of one race earn on average, before and after; ten-thousandths. Traces that lack
    one of the two verdicts are left out of both."""

    race_id: str
    agent_version_id: str
    traces: int
    score_e4: int
    replayed_e4: int


class ReplayComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Replayed verdicts beside the counted ones. `tops` is by race: the best agent before and after."""

    rows: int
    owed: int
    unlike: int  # another quality than the counted one
    mean_change_e4: int | None
    agents: tuple[AgentReplay, ...]
    tops: dict[str, tuple[str, str]]
    spent: Spending


def rubric_sha256(rubric: Rubric) -> str:
    """What tells replays under different rubrics apart."""
    return content_hash(rubric)


def replay_row(
    validator: str,
    seq: int,
    record: EvaluationRecord,
    rubric: Rubric,
    counted: Verdict | UnscoredVerdict | None,
    replayed: Verdict | UnscoredVerdict,
    spent: Spending,
) -> ReplayRow:
    """The row of one record's replay."""
    return ReplayRow(
        validator=validator,
        seq=seq,
        body_sha256=record.body_sha256,
        race_id=record.context.race_id,
        agent_version_id=record.subject.agent_version_id,
        problem_id=record.context.problem_id,
        is_success=record.outcome.is_success if isinstance(record.outcome, OutcomeScore) else None,
        rubric_sha256=rubric_sha256(rubric),
        counted=counted,
        replayed=replayed,
        spent=spent,
    )


def settled_keys(rows: Iterable[ReplayRow]) -> set[tuple[str, str]]:
    """(body, rubric) of what was replayed and is not owed."""
    return {(row.body_sha256, row.rubric_sha256) for row in rows if isinstance(row.replayed, Verdict)}


def compare_replay(rows: Sequence[ReplayRow]) -> ReplayComparison:
    """The comparison over rows of one rubric; of several on one record the last counts."""
    last = list({(row.validator, row.seq): row for row in rows}.values())
    spent = Spending()
    changes: list[int] = []
    scores: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        spent = spent.plus(row.spent)
    for row in last:
        before, after = row.counted, row.replayed
        if isinstance(before, Verdict) and isinstance(after, Verdict):
            changes.append(after.quality_e4 - before.quality_e4)
            if row.is_success is not None:
                earned = (before.coefficient_e4, after.coefficient_e4) if row.is_success else (0, 0)
                scores[row.race_id, row.agent_version_id].append(earned)
    agents = tuple(
        AgentReplay(
            race_id=race_id,
            agent_version_id=agent,
            traces=len(pairs),
            score_e4=sum(before for before, _ in pairs) // len(pairs),
            replayed_e4=sum(after for _, after in pairs) // len(pairs),
        )
        for (race_id, agent), pairs in sorted(scores.items())
    )
    races = sorted({one.race_id for one in agents})
    ranked = {race: [one for one in agents if one.race_id == race] for race in races}
    return ReplayComparison(
        rows=len(last),
        owed=sum(isinstance(row.replayed, UnscoredVerdict) for row in last),
        unlike=sum(map(bool, changes)),
        mean_change_e4=sum(changes) // len(changes) if changes else None,
        agents=agents,
        tops={
            race: (
                max(found, key=lambda one: one.score_e4).agent_version_id,
                max(found, key=lambda one: one.replayed_e4).agent_version_id,
            )
            for race, found in ranked.items()
        },
        spent=spent,
    )

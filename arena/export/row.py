"""A view's row: what every form says about a trajectory. Facts, conversation, tools, and what stands beside the log.

`row_of` is pure and total; a fact that does not exist is None (an outcome that could not be scored, a verdict that is
owed), never 0. The names of facts are the columns of Parquet, the `metadata` of chat rows and samples and the `info` of
rollouts; FORMATS.md says what they mean. Names and price tables are those that stand in the export beside the log.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from arena.export.conversation import Conversation, converse
from arena.export.model import Trajectory
from arena.policy import Policy
from foundation.canonical import text_hash
from harness.limits import completion_cost
from harness.tools.registry import PROFILES, profile_schemas
from harness.trace import Completion
from judge.verdict import Opinion, UnscoredVerdict, Verdict
from problems.model import Pool
from problems.outcome import Axis, OutcomeScore

_COUNT_MAX = 2**53 - 1  # of a canonical integer; sums of hostile counts must still fit a column
AXES = ("title", "price", "service", "sku", "attribute")
UNKNOWN_TOOLS = "[]"


class TrajectoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory's facts."""

    # where it stands
    validator: str
    seq: int
    content_sha256: str
    body_sha256: str
    verdict_seq: int
    recorded_ms: int
    recorded_day: str
    attempt_id: str
    # which problem
    stage: str
    race_id: str
    suite: str
    problem_id: str
    pool: Pool
    cluster_id: str
    cluster_commitment: str
    batch_sha256: str
    partition_sha256: str
    bucket: str
    query: str
    # whose agent
    agent_version_id: str
    agent_sha256: str
    miner_hotkey: str
    commitment_block: int
    commitment_sha256: str
    # under which conditions
    policy_sha256: str
    scoring_pipeline: str
    code_commit: str
    sandbox_level: str
    guest_sha256: str
    guest_python: str
    tool_profile: str
    tools_sha256: str
    catalogue_sha256: str
    models: str
    # how it went
    stop: str
    failure_code: str
    recommended: str | None
    unsurfaced: int
    is_agentic: bool
    is_linear: bool
    is_model_written: bool
    steps: int
    tool_calls: int
    llm_calls: int
    echoed_calls: int
    code_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_micro_usd: int
    # what it was worth
    unscored_code: str
    title_matcher: str | None = None
    is_success: bool | None = None
    is_gt_exact: bool | None = None
    is_one_shop: bool | None = None
    is_within_budget: bool | None = None
    rule_e4: int | None = None
    reward_e4: int | None = None
    slots: int | None = None
    slots_found: int | None = None
    slots_exact: int | None = None
    title_hits: int | None = None
    title_total: int | None = None
    price_hits: int | None = None
    price_total: int | None = None
    service_hits: int | None = None
    service_total: int | None = None
    sku_hits: int | None = None
    sku_total: int | None = None
    attribute_hits: int | None = None
    attribute_total: int | None = None
    # how it reasoned
    rubric_id: str
    quality_e4: int | None = None
    coefficient_e4: int | None = None
    spread_e4: int | None = None
    unjudged_code: str
    # what stands in the export beside the log, and the episode's cost and times: None where not known
    agent_name: str | None
    priced_micro_usd: int | None
    episode_ms: int | None
    model_ms: int | None
    agent_ms: int | None


_NAMES = frozenset(TrajectoryFacts.__struct_fields__)


class ViewContext(msgspec.Struct, frozen=True, kw_only=True):
    """What views show beside the log."""

    names: dict[str, str] = {}  # agent version id -> the name it was submitted under
    policies: dict[str, Policy] = {}  # by hash


class ViewRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a form writes of one trajectory. `tools` is an OpenAI `tools` array, JSON text."""

    facts: TrajectoryFacts
    conversation: Conversation
    tools: str
    opinions: tuple[Opinion, ...]


def row_of(trajectory: Trajectory, context: ViewContext = ViewContext()) -> ViewRow:  # noqa: B008 - frozen
    """The row of a trajectory."""
    conversation = converse(trajectory.body)
    return ViewRow(
        facts=_facts_of(trajectory, conversation, context),
        conversation=conversation,
        tools=tools_of(trajectory.body.tool_profile, trajectory.body.tools_sha256),
        opinions=trajectory.verdict.opinions if isinstance(trajectory.verdict, Verdict) else (),
    )


@functools.lru_cache(maxsize=64)
def tools_of(profile: str, tools_sha256: str) -> str:
    """The schemas of a profile, JSON text; `[]` where this release does not have those the record names by hash."""
    schemas = profile_schemas(profile) if profile in PROFILES else UNKNOWN_TOOLS
    return schemas if text_hash(schemas) == tools_sha256 else UNKNOWN_TOOLS


def _episode_facts(trajectory: Trajectory, context: ViewContext) -> dict[str, object]:
    """Name, cost and times of an episode; each None where it is not known."""
    host, recorded = trajectory.content.host, trajectory.evaluation.totals.cost_micro_usd
    completions = [event for event in trajectory.body.events if isinstance(event, Completion)]
    policy = context.policies.get(trajectory.evaluation.conditions.policy_sha256)
    is_priced = not completions or (policy is not None and is_whole_cost(policy, completions, recorded))
    is_timed = host.episode_ms > 0  # a record without times has 0 in all three
    return {
        "agent_name": context.names.get(trajectory.evaluation.subject.agent_version_id),
        "priced_micro_usd": recorded if is_priced else None,
        "episode_ms": host.episode_ms if is_timed else None,
        "model_ms": host.model_ms if is_timed else None,
        "agent_ms": host.agent_time_ms if is_timed else None,
    }


def is_whole_cost(policy: Policy, completions: Sequence[Completion], recorded_micro_usd: int) -> bool:
    """Whether the recorded cost (micro-USD) is that of every completion.

    A policy prices models under the names that agents ask for, and a record names them as the endpoint does: the cost
    is whole where every model of the policy has a price, or where the completions, priced by the names recorded, come
    to it.
    """
    priced = {price.model for price in policy.limits.prices}
    if priced.issuperset(policy.inference.models):
        return True
    costs = (completion_cost(policy.limits, one.model, one.prompt_tokens, one.completion_tokens) for one in completions)
    return priced.issuperset(one.model for one in completions) and sum(costs) == recorded_micro_usd


def _facts_of(trajectory: Trajectory, conversation: Conversation, context: ViewContext) -> TrajectoryFacts:
    """The facts of a trajectory, whose conversation was made already: its parts' fields by name, and what follows."""
    evaluation, body, verdict = trajectory.evaluation, trajectory.body, trajectory.verdict
    conditions = evaluation.conditions
    outcome = evaluation.outcome if isinstance(evaluation.outcome, OutcomeScore) else None
    judged = verdict if isinstance(verdict, Verdict) else None
    values: dict[str, object] = {}
    own = (evaluation.subject, evaluation.context, conditions, evaluation.totals)
    for source in (outcome, judged, body, *own, evaluation, trajectory):
        if source is not None:
            values |= {name: getattr(source, name) for name in source.__struct_fields__ if name in _NAMES}
    values |= {
        "recorded_ms": trajectory.content.recorded_ms,
        "recorded_day": _day_of(trajectory.content.recorded_ms),
        "sandbox_level": conditions.sandbox.name,
        "guest_sha256": conditions.sandbox.guest_sha256,
        "guest_python": conditions.sandbox.python_version,
        "models": ",".join(dict.fromkeys(turn.model for turn in conversation.completions)),
        "failure_code": evaluation.failure.code if evaluation.failure is not None else "",
        "recommended": None if body.recommended is None else ",".join(body.recommended),
        "unsurfaced": len(body.unsurfaced),
        "is_linear": conversation.is_linear,
        "is_model_written": conversation.is_model_written,
        "unscored_code": "" if isinstance(evaluation.outcome, OutcomeScore) else evaluation.outcome.failure.code,
        "rubric_id": verdict.rubric_id if verdict is not None else "",
        "unjudged_code": verdict.failure.code if isinstance(verdict, UnscoredVerdict) else "",
    }
    if outcome is not None:
        values["title_matcher"] = outcome.titles
        values["slots"] = len(outcome.slots)
        values["slots_found"] = sum(slot.is_found for slot in outcome.slots)
        values["slots_exact"] = sum(slot.is_answer for slot in outcome.slots)
        for axis in AXES:  # summed over slots
            met: list[Axis] = [getattr(slot, axis) for slot in outcome.slots]
            values[f"{axis}_hits"] = min(sum(one.hits for one in met), _COUNT_MAX)
            values[f"{axis}_total"] = min(sum(one.total for one in met), _COUNT_MAX)
    values |= _episode_facts(trajectory, context)
    return TrajectoryFacts(**values)  # type: ignore[arg-type]  # by name


def _day_of(recorded_ms: int) -> str:
    """The UTC day of a time in unix milliseconds, YYYY-MM-DD; the calendar's first or last day beyond its ends."""
    try:
        return datetime.fromtimestamp(recorded_ms // 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "0001-01-01" if recorded_ms < 0 else "9999-12-31"

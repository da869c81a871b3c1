"""A view's row: what every form says about a trajectory. Facts, conversation, tools, and what stands beside the log.

`row_of` is pure and total; a fact that does not exist is None (an outcome that could not be scored, a verdict that is
owed), never 0. The names of facts are the columns of Parquet, the `metadata` of chat rows and samples and the `info` of
rollouts; FORMATS.md says what they mean. `EpisodeFacts` adds what the log alone does not say: names and
price tables, which stand in the export beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from arena.export.conversation import Conversation, converse
from arena.export.model import Trajectory
from foundation.canonical import text_hash
from harness.limits import EpisodeLimits, completion_cost
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


class PriceTable(msgspec.Struct, frozen=True):
    """A policy's prices: the models that agents may ask for under it, and the limits that name the prices."""

    models: tuple[str, ...]
    limits: EpisodeLimits

    def whole_cost(self, completions: Sequence[Completion], recorded_micro_usd: int) -> int | None:
        """The recorded cost (micro-USD) where it is that of every completion, else None.

        A policy prices models under the names that agents ask for, and a record names them as the endpoint does: the
        cost is whole where every model of the policy has a price, or where the completions, priced by the names
        recorded, come to it.
        """
        priced = {price.model for price in self.limits.prices}
        if priced.issuperset(self.models):
            return recorded_micro_usd
        if not priced.issuperset(one.model for one in completions):
            return None
        costs = (
            completion_cost(self.limits, one.model, one.prompt_tokens, one.completion_tokens) for one in completions
        )
        return recorded_micro_usd if sum(costs) == recorded_micro_usd else None


class ViewContext(msgspec.Struct, frozen=True, kw_only=True):
    """What views show beside the log."""

    names: dict[str, str] = {}  # agent version id -> the name it was submitted under
    prices: dict[str, PriceTable] = {}  # by policy hash


class EpisodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode cost and took, and its agent's name: null where it is not known."""

    agent_name: str | None
    priced_micro_usd: int | None
    episode_ms: int | None
    model_ms: int | None
    agent_ms: int | None


class ViewRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a form writes of one trajectory. `tools` is an OpenAI `tools` array, JSON text."""

    facts: TrajectoryFacts
    episode: EpisodeFacts
    conversation: Conversation
    tools: str
    opinions: tuple[Opinion, ...]

    def details(self) -> dict[str, object]:
        """All facts by name."""
        return msgspec.structs.asdict(self.facts) | msgspec.structs.asdict(self.episode)


LOG_ALONE = ViewContext()


def row_of(trajectory: Trajectory, context: ViewContext = LOG_ALONE) -> ViewRow:
    """The row of a trajectory."""
    conversation = converse(trajectory.body)
    return ViewRow(
        facts=facts_of(trajectory, conversation),
        episode=episode_facts(trajectory, context),
        conversation=conversation,
        tools=tools_of(trajectory.body.tool_profile, trajectory.body.tools_sha256),
        opinions=trajectory.verdict.opinions if isinstance(trajectory.verdict, Verdict) else (),
    )


@functools.lru_cache(maxsize=64)
def tools_of(profile: str, tools_sha256: str) -> str:
    """The schemas of a profile, JSON text; `[]` where this release does not have those the record names by hash."""
    schemas = profile_schemas(profile) if profile in PROFILES else UNKNOWN_TOOLS
    return schemas if text_hash(schemas) == tools_sha256 else UNKNOWN_TOOLS


def episode_facts(trajectory: Trajectory, context: ViewContext) -> EpisodeFacts:
    """Name, cost and times of an episode; each None where it is not known."""
    host, recorded = trajectory.content.host, trajectory.evaluation.totals.cost_micro_usd
    completions = [event for event in trajectory.body.events if isinstance(event, Completion)]
    table = context.prices.get(trajectory.evaluation.conditions.policy_sha256)
    known = table.whole_cost(completions, recorded) if table else None
    is_timed = host.episode_ms > 0  # a record without times has 0 in all three
    return EpisodeFacts(
        agent_name=context.names.get(trajectory.evaluation.subject.agent_version_id),
        priced_micro_usd=known if completions else recorded,
        episode_ms=host.episode_ms if is_timed else None,
        model_ms=host.model_ms if is_timed else None,
        agent_ms=host.agent_time_ms if is_timed else None,
    )


def facts_of(trajectory: Trajectory, conversation: Conversation) -> TrajectoryFacts:
    """The facts of a trajectory, whose conversation was made already."""
    evaluation, body = trajectory.evaluation, trajectory.body
    subject, context, conditions = evaluation.subject, evaluation.context, evaluation.conditions
    totals = evaluation.totals
    judged = trajectory.verdict if isinstance(trajectory.verdict, Verdict) else None
    facts = TrajectoryFacts(
        validator=trajectory.validator,
        seq=trajectory.seq,
        content_sha256=trajectory.content_sha256,
        body_sha256=evaluation.body_sha256,
        verdict_seq=trajectory.verdict_seq,
        recorded_ms=trajectory.content.recorded_ms,
        recorded_day=_day_of(trajectory.content.recorded_ms),
        attempt_id=evaluation.attempt_id,
        stage=context.stage,
        race_id=context.race_id,
        suite=context.suite,
        problem_id=context.problem_id,
        pool=trajectory.pool,
        cluster_id=trajectory.cluster_id,
        cluster_commitment=context.cluster_commitment,
        batch_sha256=context.batch_sha256,
        partition_sha256=context.partition_sha256,
        bucket=body.bucket,
        query=body.query,
        agent_version_id=subject.agent_version_id,
        agent_sha256=subject.agent_sha256,
        miner_hotkey=subject.miner_hotkey,
        commitment_block=subject.commitment_block,
        commitment_sha256=subject.commitment_sha256,
        policy_sha256=conditions.policy_sha256,
        scoring_pipeline=conditions.scoring_pipeline,
        code_commit=conditions.code_commit,
        sandbox_level=conditions.sandbox.name,
        guest_sha256=conditions.sandbox.guest_sha256,
        guest_python=conditions.sandbox.python_version,
        tool_profile=body.tool_profile,
        tools_sha256=body.tools_sha256,
        catalogue_sha256=body.catalogue_sha256,
        models=",".join(dict.fromkeys(turn.model for turn in conversation.completions)),
        stop=evaluation.stop,
        failure_code=evaluation.failure.code if evaluation.failure is not None else "",
        recommended=None if body.recommended is None else ",".join(body.recommended),
        unsurfaced=len(body.unsurfaced),
        is_agentic=evaluation.is_agentic,
        is_linear=conversation.is_linear,
        is_model_written=conversation.is_model_written,
        steps=totals.steps,
        tool_calls=totals.tool_calls,
        llm_calls=totals.llm_calls,
        echoed_calls=totals.echoed_calls,
        code_calls=totals.code_calls,
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens,
        cost_micro_usd=totals.cost_micro_usd,
        unscored_code="" if isinstance(evaluation.outcome, OutcomeScore) else evaluation.outcome.failure.code,
        rubric_id="" if trajectory.verdict is None else trajectory.verdict.rubric_id,
        quality_e4=judged.quality_e4 if judged else None,
        coefficient_e4=judged.coefficient_e4 if judged else None,
        spread_e4=judged.spread_e4 if judged else None,
        unjudged_code=trajectory.verdict.failure.code if isinstance(trajectory.verdict, UnscoredVerdict) else "",
    )
    if not isinstance(evaluation.outcome, OutcomeScore):
        return facts
    return msgspec.structs.replace(facts, **_outcome(evaluation.outcome))


def _outcome(score: OutcomeScore) -> dict[str, bool | int | str | None]:
    """The facts of an outcome. Axes are summed over slots."""
    facts: dict[str, bool | int | str | None] = {
        "title_matcher": score.titles,
        "is_success": score.is_success,
        "is_gt_exact": score.is_gt_exact,
        "is_one_shop": score.is_one_shop,
        "is_within_budget": score.is_within_budget,
        "rule_e4": score.rule_e4,
        "reward_e4": score.reward_e4,
        "slots": len(score.slots),
        "slots_found": sum(slot.is_found for slot in score.slots),
        "slots_exact": sum(slot.is_answer for slot in score.slots),
    }
    for axis in AXES:
        met: list[Axis] = [getattr(slot, axis) for slot in score.slots]
        facts[f"{axis}_hits"] = min(sum(one.hits for one in met), _COUNT_MAX)
        facts[f"{axis}_total"] = min(sum(one.total for one in met), _COUNT_MAX)
    return facts


def _day_of(recorded_ms: int) -> str:
    """The UTC day of a time in unix milliseconds, YYYY-MM-DD; the calendar's first or last day beyond its ends."""
    try:
        return datetime.fromtimestamp(recorded_ms // 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "0001-01-01" if recorded_ms < 0 else "9999-12-31"

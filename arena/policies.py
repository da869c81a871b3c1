"""The rule sets this release ships, as values. A policy is data: nothing here runs, and its hash names it for ever.

`paper` follows the paper's section 4, and values of ours where it is silent (docs/architecture.md#the-mechanism); every
other policy is written as a difference from it.
"""

from __future__ import annotations

from msgspec.structs import replace

from arena.gate.rules import GateRules
from arena.policy import (
    AdmissionRules,
    CooldownRules,
    GuestRules,
    Policy,
    PromotionRules,
    QualifyingRules,
    RaceRules,
    WeightRules,
)
from harness.inference.port import InferenceRules
from harness.limits import EpisodeLimits
from judge.rubric import REASONING_1_PROMPT_SHA256, Rubric

# Open-weight models with native tool calls; ids as their publishers write them.
OPEN_MODELS: tuple[str, ...] = (
    "Qwen/Qwen3-4B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-235B-A22B-Instruct-2507",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "deepseek-ai/DeepSeek-V3.1",
    "moonshotai/Kimi-K2-Instruct-0905",
    "openai/gpt-oss-20b",
    "openai/gpt-oss-120b",
    "zai-org/GLM-4.6",
)
JUDGE_MODELS: tuple[str, ...] = (
    "Qwen/Qwen3-235B-A22B-Instruct-2507",
    "deepseek-ai/DeepSeek-V3.1",
    "zai-org/GLM-4.6",
)
TOY_MODELS: tuple[str, ...] = ("scripted-toy",)  # which does what its prompt asks for (docs/agents.md)

_BLOCKS_PER_HOUR = 300  # 12 s a block

# The shipped baseline (`harness/agents`), without a preference of models: it searches, and the first model drives it.
CONTROL_SHA256 = "9e3001199bd8d7f95c72853bc136892a0a29911ecebef5b3cd622f056584ba00"

# The same with a prompt that asks for nothing: whom the sample agents can beat.
_HASTY_SHA256 = "33d53e4bb3a7f16dad4e293e87a226f081ce75c6890d864b71743236afe351a1"

PAPER = Policy(
    name="paper",
    version=3,
    limits=EpisodeLimits(
        agent_time_ms=60_000, result_bytes=8 << 20, trace_bytes=1 << 20, body_bytes=16 << 20, host_work=1_150_000_000
    ),
    inference=InferenceRules(models=OPEN_MODELS, served_bytes=131_072),
    rubric=Rubric(rubric_id="reasoning/1", models=JUDGE_MODELS, prompt_sha256=REASONING_1_PROMPT_SHA256),
    gate=GateRules(version="gate/1", remnant_phrases=100, class_e4=6_000),
    admission=AdmissionRules(rule="agreed"),
    qualifying=QualifyingRules(variant_blocks=5, worker_ms=1_500_000),
    race=RaceRules(
        control_sha256=CONTROL_SHA256,
        refused_attempts=3,
        qualifying_grace_ms=4 * 3_600_000,
        worker_ms=5_400_000,
        body_bytes=256 << 20,
        seats=20,
    ),
    promotion=PromotionRules(kind="evidence"),
)

SN15_2026_08 = replace(
    PAPER,
    name="sn15-2026-08",
    version=1,
    gate=GateRules(version="gate/1", similarity_review_e4=7_500, remnant_phrases=100),
    cooldown=CooldownRules(
        accepted_blocks=18 * _BLOCKS_PER_HOUR,
        integrity_blocks=18 * _BLOCKS_PER_HOUR,
        security_blocks=1 * _BLOCKS_PER_HOUR,
    ),
    qualifying=replace(PAPER.qualifying, validators_required=2, validators_asked=3, worker_ms=0),
    race=replace(PAPER.race, qualifying_grace_ms=3_600_000, worker_ms=0, body_bytes=0, seats=0),
    promotion=PromotionRules(kind="window", window_races=3, elimination_e4=6_500),
    admission=replace(PAPER.admission, is_commitment_enough=True),  # that subnet's clients sign no file
    # 25 steps of the default loop, as SN15's own agent has them; completions are bounded there by time alone
    limits=replace(PAPER.limits, completions=200, agent_time_ms=300_000),
)

# The same subnet by its contract of late 2026: `problem_data["environment"]`, and a call asked for in every turn.
SN15_ENVIRONMENT = replace(
    SN15_2026_08,
    name="sn15-environment",
    tool_profile="environment",
    inference=replace(PAPER.inference, is_call_required_allowed=True),
)

AGENTIC = replace(PAPER, name="agentic", race=replace(PAPER.race, lambda_e4=3_000))

WINNER = replace(PAPER, name="winner", weights=WeightRules(kind="winner_takes_all", top_e4=10_000))

DEMO = replace(
    PAPER,
    name="demo",
    version=4,
    inference=replace(PAPER.inference, models=TOY_MODELS),
    rubric=replace(PAPER.rubric, models=("scripted-judge",)),
    cooldown=CooldownRules(accepted_blocks=2, integrity_blocks=2, security_blocks=1),
    qualifying=replace(PAPER.qualifying, problems=12, score_min_e4=1_000),
    admission=AdmissionRules(is_commitment_enough=True),  # a first trial may come with any client
    race=replace(
        PAPER.race,
        closes_after_ms=15_000,
        qualifying_grace_ms=120_000,
        beacon_grace_ms=60_000,
        run_ms=600_000,
        problems=24,
        batch_problems=30,
        validators_per_problem=1,
        results_required=1,
        lease_ms=30_000,
        control_sha256=_HASTY_SHA256,
    ),
    promotion=PromotionRules(kind="evidence", evidence_alone=20, evidence_races=1),  # two short races crown one
    guest=GuestRules(is_racing_level_required=False),
)

POLICIES: dict[str, Policy] = {
    policy.name: policy for policy in (PAPER, SN15_2026_08, SN15_ENVIRONMENT, AGENTIC, WINNER, DEMO)
}

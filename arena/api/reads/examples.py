"""Examples for the OpenAPI document: one value of each answer, as a small network would give it."""

from __future__ import annotations

from arena.api.reads.answers import (
    AgentDetail,
    AgentRace,
    DayRow,
    ListedAgent,
    PairResult,
    ProblemRow,
    PromotionBasis,
    RaceDetail,
    RaceRow,
    ShownFinding,
    SourceAccess,
    SuiteProblem,
    SuiteRow,
    TrajectoryRow,
    ValidatorRow,
)
from arena.api.reads.pages import ListPage, write_cursor
from arena.records.model import Standing

_AGENT, _OTHER, _BODY = "a1" * 32, "b2" * 32, "c3" * 32
_MINER = "5FHneW46xGXgs5mUiveU4sbTyGBzmstUspZC92UhjJM694ty"
_VALIDATOR = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
_RACE = RaceRow(
    number=12,
    race_id="race-009657",
    stage="settled",
    moment="published",
    closes_ms=1_781_031_600_000,
    opens_ms=1_781_118_000_000,
    agents=2,
    episodes=540,
    top_agent_version_id=_AGENT,
    is_promotion=True,
)
_STANDING = Standing(
    rank=1,
    agent_version_id=_AGENT,
    miner_hotkey=_MINER,
    race_score_e4=6_125,
    low_e4=5_240,
    high_e4=6_980,
    success_e4=6_900,
    mean_quality_e4=7_000,
    product_of_means_e4=6_100,
    agentic_share_e4=9_600,
    problems=90,
    missing=0,
    crown_score_e4=6_125,
    wins=21,
    losses=9,
)
_SOURCE = SourceAccess(
    is_public=True, opens="published", opens_ms=1_781_118_000_000, href=f"/v1/agents/{_AGENT}/source"
)
_AGENT_ROW = ListedAgent(
    agent_version_id=_AGENT,
    miner_hotkey=_MINER,
    name="careful-shopper",
    state="qualified",
    agent_sha256=_OTHER,
    commitment_block=5_120_400,
    suite_episodes=30,
    race_episodes=270,
    best_rank=1,
    promoted_in=("race-009657",),
    source=_SOURCE,
)
_RESULT = PairResult(
    agent_version_id=_AGENT,
    validator=_VALIDATOR,
    seq=4_021,
    is_success=True,
    is_agentic=True,
    coefficient_e4=9_125,
    body_sha256=_BODY,
)
RACES = ListPage[RaceRow](items=(_RACE,), next=write_cursor("races", (12,)))
DETAIL = RaceDetail(
    race=_RACE,
    policy_sha256="d4" * 32,
    seed="e5" * 32,
    beacon_round=28_000_000,
    closing_block=5_127_600,
    settling_block=5_133_600,
    problems=90,
    decision=PromotionBasis(
        rule="margin",
        margin_e4=300,
        decay_ms=604_800_000,
        incumbent_agent_version_id=_OTHER,
        incumbent_since_ms=1_780_945_200_000,
        text="6125 against 5700 of the agent before (ten-thousandths); 21 problems better, 9 worse",
    ),
)
LEADERBOARD = ListPage[Standing](items=(_STANDING,))
AGENTS = ListPage[ListedAgent](items=(_AGENT_ROW,))
AGENT = AgentDetail(
    agent=_AGENT_ROW,
    versions=(_AGENT,),
    races=(AgentRace(race_id="race-009657", standing=_STANDING),),
    findings=(ShownFinding(rule="entropy", outcome="review", severity="integrity", line=40, detail="80 characters"),),
)
PROBLEMS = ListPage[ProblemRow](
    items=(ProblemRow(problem_id="p_5d41402abc4b2a76", pool="train", is_drawn=True, is_void=False, results=(_RESULT,)),)
)
TRAJECTORIES = ListPage[TrajectoryRow](
    items=(
        TrajectoryRow(
            problem_id="p_5d41402abc4b2a76",
            pool="train",
            result=_RESULT,
            href=f"/v1/trajectories/{_VALIDATOR}/4021",
        ),
    )
)
SUITES = ListPage[SuiteRow](items=(SuiteRow(suite="s1", problems=30, episodes=900),))
SUITE_PROBLEMS = ListPage[SuiteProblem](
    items=(SuiteProblem(problem_id="p_7d793037a0760186", category="product", query="a blue rain coat under 900 pesos"),)
)
VALIDATORS = ListPage[ValidatorRow](
    items=(
        ValidatorRow(
            validator=_VALIDATOR,
            records=9_120,
            head="f6" * 32,
            episodes=3_020,
            last_recorded_ms=1_781_118_050_000,
            code="agent-arena 0.1.0",
            scoring="scoring/1",
            signed_hours=161,
            hours=168,
            races_run=14,
            races=14,
        ),
    )
)
DAYS = ListPage[DayRow](
    items=(
        DayRow(day="2026-06-09", episodes=570, suite_episodes=30, race_episodes=540, scored=560, solved=310, agents=3),
    )
)

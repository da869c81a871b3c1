"""A weight on the agentic share over races of recorded episodes: what decides, and the command."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from studies.reweighting import FieldRules, RecordedOutcome, sweep

SMALL = FieldRules(miners=8, problems=10, races=25, seeds=4)


def episodes(agent: str, solved: int, *, is_agentic: bool, coefficient_e4: int) -> list[RecordedOutcome]:
    """Twenty episodes, of which the first `solved` succeeded."""
    return [
        RecordedOutcome(
            agent=agent,
            problem_id=f"p{number:02}",
            is_success=number < solved,
            is_agentic=is_agentic,
            coefficient_e4=coefficient_e4,
        )
        for number in range(20)
    ]


def shares(found: Sequence[RecordedOutcome], lambdas_e4: Sequence[int]) -> dict[tuple[str, int], int]:
    """The agentic share in the last race by scoring and lambda."""
    return {(one.scoring, one.lambda_e4): one.agentic_e4[-1] for one in sweep(found, lambdas_e4, SMALL)}


def test_the_weight_that_turns_a_field_is_where_the_better_subtask_agent_loses_its_lead() -> None:
    """All but always solved by code against half by the model: the model's wins from lambda = 1 - 10/19 on."""
    field = [
        *episodes("code", 19, is_agentic=False, coefficient_e4=3_875),
        *episodes("model", 10, is_agentic=True, coefficient_e4=10_000),
    ]
    found = shares(field, (0, 3_000, 7_000, 10_000))
    assert found["outcome", 0] < 3_000 and found["outcome", 3_000] < 3_000
    assert found["outcome", 7_000] > 7_000 and found["outcome", 10_000] > 7_000
    assert found["judged", 0] > 7_000  # the coefficient had turned it already


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from([0, 4_000, 10_000]))
def test_every_race_has_one_winner_and_the_same_seed_gives_the_same_course(first: int, other: int, weight: int) -> None:
    field = [
        *episodes("code", first, is_agentic=False, coefficient_e4=5_000),
        *episodes("model", other, is_agentic=True, coefficient_e4=9_000),
    ]
    rules = FieldRules(miners=3, problems=5, races=6, seeds=2)
    courses = sweep(field, (weight,), rules)
    assert courses == sweep(field, (weight,), rules)
    for one in courses:
        assert sum(one.winners.values()) == rules.races * rules.seeds and len(one.agentic_e4) == rules.races
        assert all(0 <= share <= 10_000 for share in (*one.agentic_e4, one.success_e4))

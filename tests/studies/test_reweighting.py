"""A weight on the agentic share over races of recorded episodes: what decides."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from arena.race.scores import ProblemScore
from studies.reweighting import FieldRules, Scores, by_outcome, course_of


def scores(agent: str, solved: int, *, is_agentic: bool, coefficient_e4: int) -> Scores:
    """Twenty episodes, of which the first `solved` succeeded."""
    return {
        (agent, f"p{number:02}"): ProblemScore(
            problem_id=f"p{number:02}",
            state="scored",
            score_e4=coefficient_e4 if number < solved else 0,
            is_success=number < solved,
            is_agentic=is_agentic,
        )
        for number in range(20)
    }


def test_the_weight_that_turns_a_field_is_where_the_better_subtask_agent_loses_its_lead() -> None:
    """All but always solved by code against half by the model: the model's wins from lambda = 1 - 10/19 on."""
    code = scores("code", 19, is_agentic=False, coefficient_e4=3_875)
    judged = {**code, **scores("model", 10, is_agentic=True, coefficient_e4=10_000)}
    rules = FieldRules(miners=8, problems=10, races=25, seeds=4)
    shares = [course_of(by_outcome(judged), weight, rules).agentic_e4[-1] for weight in (0, 3_000, 7_000, 10_000)]
    assert max(shares[:2]) < 3_000 and min(shares[2:]) > 7_000
    assert course_of(judged, 0, rules).agentic_e4[-1] > 7_000  # the coefficient had turned it already


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from([0, 4_000, 10_000]))
def test_every_race_has_one_winner_and_the_same_seed_gives_the_same_course(first: int, other: int, weight: int) -> None:
    code = scores("code", first, is_agentic=False, coefficient_e4=5_000)
    field = {**code, **scores("model", other, is_agentic=True, coefficient_e4=9_000)}
    rules = FieldRules(miners=3, problems=5, races=6, seeds=2)
    found = course_of(field, weight, rules)
    assert found == course_of(field, weight, rules)
    assert sum(found.winners.values()) == rules.races * rules.seeds and len(found.agentic_e4) == rules.races
    assert all(0 <= share <= 10_000 for share in (*found.agentic_e4, found.success_e4))

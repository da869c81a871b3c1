"""Two sybils and a gambler among honest miners: the same winner and weights as with agents there that do nothing.

More seeds, races and problems: `tests/prove/test_provoked_faults.py`.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.policies import AGENTIC, EVIDENCE, PAPER, SN15_2026_08
from tests.simulation.provoked import Scene, difference, run, small

POLICIES = (PAPER, SN15_2026_08, AGENTIC, EVIDENCE)


@pytest.mark.parametrize("rules", POLICIES, ids=lambda rules: rules.name)
@pytest.mark.parametrize(("validators", "refused"), [(1, 0), (1, 2), (5, 2)])
def test_provoked_faults_change_nothing_for_honest_miners(rules, validators, refused):
    scene = Scene(policy=small(rules, 20), validators=validators, seed=1, races=2, refused=refused)
    ends = run(scene)
    assert [end.state for end in ends] == ["settled"] * scene.races
    assert difference(ends, run(replace(scene, is_provoking=False))) == ()
    assert all(len(end.void) <= (refused if validators == 1 else 0) for end in ends)


@pytest.mark.parametrize("validators", [1, 3])
@pytest.mark.parametrize("gamble_e4", [1_000, 5_000, 10_000])
def test_a_gambler_wins_no_more_than_what_is_forgiven(validators, gamble_e4):
    """Its first tries are the same either way, so the difference is what throwing them away is worth."""
    scene = Scene(policy=small(PAPER, 60), validators=validators, seed=2, races=1, faults_e4=0, has_others=False)
    (fair,) = run(replace(scene, gamble_e4=0))
    (gamble,) = run(replace(scene, gamble_e4=gamble_e4))
    assert gamble.gambler_e4 <= fair.gambler_e4 + validators * 10_000 // 60 + 1

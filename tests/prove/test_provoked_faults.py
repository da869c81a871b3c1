"""Many seeds of races in which miners provoke faults, under every policy: some twenty minutes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.policies import AGENTIC, EVIDENCE, PAPER, SN15_2026_08
from tests.simulation.provoked import Scene, difference, run, small


@pytest.mark.prove
@pytest.mark.parametrize("rules", [PAPER, SN15_2026_08, AGENTIC, EVIDENCE], ids=lambda rules: rules.name)
@pytest.mark.parametrize("validators", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_provoked_faults_change_nothing_for_honest_miners(rules, validators, seed):
    for refused in (0, 3):
        for gamble_e4 in (3_000, 10_000):
            scene = Scene(
                policy=small(rules, 40),
                validators=validators,
                seed=seed,
                races=5,
                refused=refused,
                gamble_e4=gamble_e4,
            )
            ends = run(scene)
            assert [end.state for end in ends] == ["settled"] * scene.races
            assert difference(ends, run(replace(scene, is_provoking=False))) == ()

"""Every attack of the corpus in every place, against both judges."""

from __future__ import annotations

import pytest

from judge.scripted import ScriptedJudge
from tests.judge.test_attack_corpus import ATTACKS, PLACES, ObedientJudge, lifted


@pytest.mark.prove
@pytest.mark.parametrize("place", PLACES)
def test_no_attack_lifts_a_quality_anywhere(place: str) -> None:
    for judge in (ScriptedJudge(), ObedientJudge()):
        assert lifted(place, judge, range(len(ATTACKS))) == []

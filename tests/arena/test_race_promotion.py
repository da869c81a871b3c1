"""Promotion: the decaying margin and SN15's window; and what follows for the top and its weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.policies import SN15_2026_08
from arena.policy import PromotionRules
from arena.race.settle import settle
from arena.race.weights import beats_margin, weighted_scores
from arena.records.model import SettlementRecord, Top
from tests.arena.race_stand import batch, candidate, drawn_of, inputs, policy, solves

ABC = (candidate("a"), candidate("b"), candidate("c"))
SCORES = {"a": 8, "b": 5, "c": 2}
DRAWN = drawn_of(policy(), batch())
DAY_MS = 86_400_000


def ids(record: SettlementRecord) -> list[str]:
    return [row.agent_version_id for row in record.standings]


# -- promotion
MARGIN = PromotionRules()


@pytest.mark.parametrize(
    ("challenger", "days", "is_promoted"),
    [
        (5_149, 0, False),
        (5_150, 0, True),
        (5_075, 3.5, True),
        (5_074, 3.5, False),
        (5_001, 7, True),
        (5_000, 30, False),
    ],
)
def test_a_challenger_needs_the_margin_that_is_left(challenger, days, is_promoted):
    assert beats_margin(challenger, 5_000, MARGIN, round(days * DAY_MS)) is is_promoted


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 30), st.integers(0, 30))
def test_waiting_never_makes_promotion_harder_and_a_lower_score_never_promotes(challenger, top, early, later):
    early, later = sorted((early, later))
    if beats_margin(challenger, top, MARGIN, early * DAY_MS):
        assert challenger > top
        assert beats_margin(challenger, top, MARGIN, later * DAY_MS)


def top_at(days: float) -> Top:
    return Top(agent_version_id="v-b", miner_hotkey="hk-b", promoted_ms=1_000_000 - round(days * DAY_MS))


def test_the_incumbent_keeps_the_top_share_within_the_margin_and_loses_it_later():
    def outcomes(agent, problem_id, _):
        place = DRAWN.index(problem_id)
        return True, 9_000 if agent == "v-a" or place > 0 else 7_000  # v-b: 1 x .9125, 9 x 1: 0.88 % behind

    early = settle(inputs(ABC[:2], outcomes, incumbent=top_at(0)))
    late = settle(inputs(ABC[:2], outcomes, incumbent=top_at(6)))
    assert ids(early) == ids(late) == ["v-a", "v-b"]
    assert (early.top_agent_version_id, early.is_promotion) == ("v-b", False)
    assert (late.top_agent_version_id, late.is_promotion) == ("v-a", True)
    assert early.uids != late.uids


def test_an_incumbent_that_does_not_race_is_succeeded_by_the_best():
    record = settle(inputs((ABC[0], ABC[2]), solves(SCORES), incumbent=top_at(0)))
    assert (record.top_agent_version_id, record.is_promotion) == ("v-a", True)


# -- window (sn15)
def test_a_debut_divides_its_lead_by_the_window():
    scores = {"v-new": 9_000, "v-old": 6_000}
    past = settle(inputs((candidate("old"), candidate("x")), solves({"old": 9, "x": 3})))
    assert weighted_scores(scores, [past, past], 3) == {"v-new": 9_000, "v-old": 9_000 - 1_000}
    assert weighted_scores({"v-new": 9_000, "v-old": 3_000}, [], 3) == {"v-new": 9_000, "v-old": 7_000}


def test_the_window_policy_crowns_by_weighted_and_eliminates_by_raw_score():
    rules = replace(policy(), promotion=SN15_2026_08.promotion)
    field = tuple(candidate(name) for name in "abcdefghij")
    shares = {name: 10 - place for place, name in enumerate("abcdefghij")}
    record = settle(inputs(field, solves(shares), rules=rules))
    gone = [row.agent_version_id for row in record.standings if row.is_eliminated]
    assert gone == ["v-e", "v-f", "v-g", "v-h", "v-i", "v-j"]
    assert [row.race_score_e4 for row in record.standings[:2]] == [10_000, 9_000]
    assert [row.crown_score_e4 for row in record.standings[:2]] == [8_666, 8_333]  # anchor 8,000 + a third of the lead

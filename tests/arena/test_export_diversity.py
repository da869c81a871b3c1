"""Diversity by day: integers that a reader can work out by hand, in parts or at once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.export.model import Diversity, Trajectory
from arena.export.writing.diversity import DiversityFold, day_of, entropy_mbit
from tests.arena.trajectory_stand import appending, narrating, replace, trajectory

BODIES = (appending(), narrating(), replace(appending(), events=()))


def folded(trajectories: list[Trajectory]) -> DiversityFold:
    fold = DiversityFold()
    for one in trajectories:
        fold.add(one)
    return fold


def test_a_day_worked_out_by_hand() -> None:
    rows = [
        trajectory(1, BODIES[0], agent="a1", hotkey="5one"),
        trajectory(2, BODIES[0], agent="a1", hotkey="5one"),
        trajectory(3, BODIES[1], agent="a2", hotkey="5one"),
        trajectory(4, BODIES[2], agent="a3", hotkey="5two"),
    ]
    assert folded(rows).days() == (
        Diversity(
            day="2026-09-21",
            trajectories=4,
            teams=2,
            agents=3,
            top_agent_share_e4=5_000,
            shape_entropy_mbit=1_500,  # shapes 2, 1, 1
            agentic_share_e4=7_500,
        ),
    )


def test_shares_are_rounded_down_and_days_come_in_order() -> None:
    rows = [trajectory(1, day=2), trajectory(2, BODIES[1]), trajectory(3), trajectory(4)]
    first, second = folded(rows).days()
    assert (first.day, first.trajectories, first.agentic_share_e4) == ("2026-09-21", 3, 6_666)
    assert (second.day, second.trajectories, second.shape_entropy_mbit) == ("2026-09-23", 1, 0)


def test_nothing_has_no_days() -> None:
    assert DiversityFold().days() == ()


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a1", "a2"]), st.integers(0, 2)), max_size=12), st.data())
def test_order_and_parts_do_not_matter(drawn: list[tuple[int, str, int]], data: st.DataObject) -> None:
    rows = [trajectory(n, BODIES[b], agent=a, day=d) for n, (d, a, b) in enumerate(drawn)]
    whole = folded(rows).days()
    mixed = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    parts = folded(mixed[:cut])
    parts.merge(folded(mixed[cut:]))
    assert parts.days() == whole


@given(st.lists(st.integers(1, 10**6), max_size=40))
def test_entropy_is_shannons(counts: list[int]) -> None:
    total = sum(counts)
    bits = -sum(count / total * math.log2(count / total) for count in counts)
    assert abs(entropy_mbit(counts) - bits * 1000) <= 0.5 + 1e-6


@pytest.mark.parametrize(("counts", "mbit"), [([], 0), ([7], 0), ([1, 1], 1_000), ([3] * 8, 3_000), ([3, 1], 811)])
def test_entropies_known_by_heart(counts: list[int], mbit: int) -> None:
    assert entropy_mbit(counts) == mbit


def test_a_day_begins_at_midnight_utc_and_every_time_has_one() -> None:
    assert day_of(1_790_035_199_999) == "2026-09-21"
    assert day_of(1_790_035_200_000) == "2026-09-22"
    assert day_of(2**53 - 1) == "9999-12-31"
    assert day_of(-(2**53)) == "0001-01-01"

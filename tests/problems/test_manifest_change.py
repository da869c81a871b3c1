"""Manifest changes: one whole manifest and what came after it are every manifest in between."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation.errors import ArenaError
from problems.partition import OpenPartition, apply_changes, change_between, extend, freeze, manifest_bytes
from problems.synthesis import ProblemMaker
from problems.title_index import TitleIndex
from tests.problems.stand import make_catalogue

KEY = bytes(range(32))
MAKER = ProblemMaker(TitleIndex(make_catalogue(300)))
OLD, NEW = (MAKER.make(seed=seed, counts={"product": 6, "shop": 2}) for seed in (1, 2))
FIRST = freeze(OLD, (), seed=7, key=KEY, eval_counts={"product": 1}, dev_counts={})
replace = msgspec.structs.replace


def grown(manifest, problems):
    return extend(OpenPartition(manifest, KEY), problems).manifest


def joined(one, two, problem_id: str):
    """A problem that asks for both: their clusters become one, where they are of one pool."""
    return replace(one, problem_id=problem_id, bucket="shop", rewards=(*one.rewards, *two.rewards))


BRIDGES = [joined(OLD[a], OLD[b], f"p_bridge_{a}_{b}") for a, b in ((0, 1), (2, 3), (4, 5), (0, 5), (1, 4))]
ENTERING = [*NEW, *BRIDGES]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from(range(len(ENTERING))), unique=True, min_size=1, max_size=4), max_size=5))
def test_any_history_is_read_back_byte_for_byte_from_its_changes(steps):
    history = [FIRST]
    for places in steps:
        successor = grown(history[-1], [ENTERING[place] for place in places])
        if successor is not history[-1]:
            history.append(successor)
    changes = [change_between(older, newer) for older, newer in itertools.pairwise(history)]
    for place, manifest in enumerate(history):
        assert manifest_bytes(apply_changes(FIRST, changes[:place])) == manifest_bytes(manifest)


def test_clusters_that_were_joined_are_named_as_gone():
    change = change_between(FIRST, grown(FIRST, BRIDGES))
    assert change.gone and not {row.cluster for row in change.rows} & set(change.gone)


def test_changes_out_of_order_left_out_or_altered_are_refused():
    second = grown(FIRST, NEW[:1])
    third = grown(second, NEW[1:2])
    one, two = change_between(FIRST, second), change_between(second, third)
    altered = replace(one.rows[0], pool="dev")
    for changes in ((two,), (two, one), (one, one), (one, replace(two, rows=())), (replace(one, rows=(altered,)),)):
        with pytest.raises(ArenaError, match="P4021"):
            apply_changes(FIRST, changes)


def test_a_manifest_that_is_no_direct_successor_has_no_change():
    second = grown(FIRST, NEW[:1])
    third = grown(second, NEW[1:2])
    for older, newer in ((FIRST, third), (third, second), (FIRST, replace(second, seed=9))):
        with pytest.raises(ArenaError, match="P4021"):
            change_between(older, newer)

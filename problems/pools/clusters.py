"""Clusters: which problems could give one another's answer away.

Two problems share a leak cluster when an answer of one is of the same product class as an answer of the other,
or when a chain of such problems joins them (paper A.4). Only answers count, so paraphrase, reordering, another retailer
of the same product, a unit spelled otherwise and a new voucher all stay inside. Clusters and their names do not depend
on the order of the problems.

The name of a cluster is the smallest digest among its own answers' title keys. A problem that touches no other never
changes a name; where a new problem joins clusters, the joined one takes the smallest name of all. What must never move
is frozen in a manifest (`problems.pools.partition`), which keeps the names it has given. Names can be guessed from a
public catalogue: outside the validators they travel only as keyed commitments.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from foundation.errors import ArenaError
from problems.model import Problem, RewardItem
from problems.pools.disjoint_sets import DisjointSets
from problems.pools.product_classes import NO_CATALOGUE, ProductClasses
from problems.pools.title_keys import title_key


class Clusters(msgspec.Struct, frozen=True, kw_only=True):
    """The leak clusters of some problems. `problems_of` lists their ids, sorted, by the cluster's name (sha256 hex)."""

    problems_of: dict[str, tuple[str, ...]]

    @property
    def name_of(self) -> dict[str, str]:
        """The cluster of each problem id."""
        return {problem_id: name for name, ids in self.problems_of.items() for problem_id in ids}


def cluster_id(problem: Problem) -> str:
    """The name (sha256 hex) of the cluster a problem makes on its own; a larger cluster has its members' smallest."""
    marks = (mark for item in problem.rewards for mark in _own_marks(item, NO_CATALOGUE))
    return min(hashlib.sha256(f"leak cluster\n{mark}".encode(errors="surrogatepass")).hexdigest() for mark in marks)


def answer_marks(problem: Problem, classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """Everything that names one of the problem's answers: `id ...` of each product, `title ...` per title key of its
    class. Two problems with a mark in common share an answer's class; an empty title marks nothing.
    """
    return frozenset(mark for item in problem.rewards for mark in item_marks(item, classes))


def item_marks(item: RewardItem, classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """The marks of one answer, as `answer_marks`."""
    return _own_marks(item, classes) | {f"id {item.product_id}"}


def _own_marks(item: RewardItem, classes: ProductClasses) -> frozenset[str]:
    keys = classes.keys_of(item.product_id, item.title) - {title_key("")}
    return frozenset(f"title {key}" for key in keys) or frozenset({f"id {item.product_id}"})


def find_clusters(problems: Iterable[Problem], classes: ProductClasses = NO_CATALOGUE) -> Clusters:
    """The leak clusters of a bank. Without `classes` only equal title keys and equal product ids join.

    Raises ArenaError P4007 when two problems share an id.
    """
    sets, own_name = DisjointSets(), {}
    for problem in problems:
        if problem.problem_id in own_name:
            raise ArenaError("P4007", problem.problem_id)
        own_name[problem.problem_id] = cluster_id(problem)
        sets.join((f"problem {problem.problem_id}", *answer_marks(problem, classes)))
    members: dict[str, list[str]] = defaultdict(list)
    for problem_id in own_name:
        members[sets.name_of(f"problem {problem_id}")].append(problem_id)
    return Clusters(problems_of={min(own_name[one] for one in ids): tuple(sorted(ids)) for ids in members.values()})

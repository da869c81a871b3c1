"""The leak guard, measured: do disguised problems fall into their source's cluster, and do unrelated ones stay out?

Disguises are matched by the title classes of their answers alone; ids, words of the query and the voucher do not count.
Two problems are *unrelated* when no answer title of one resembles one of the other (`lexical/1`); a problem is
*falsely merged* when it shares an answer class with an unrelated one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from problems.clusters import NO_CATALOGUE, ProductClasses, answer_marks
from problems.model import Problem
from problems.titles import resemble
from tests.problems.disguises import disguises


class GuardFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Disguises made and put beside their source by the classes, by kind."""

    made: dict[str, int]
    in_cluster: dict[str, int]


def measure_guard(problems: Sequence[Problem], *, seed: int, classes: ProductClasses = NO_CATALOGUE) -> GuardFigures:
    """Disguise every problem in each way and count."""
    rng = Random(f"leak guard {seed}")
    pairs = [(kind, source, one) for source in problems for kind, one in disguises(source, rng).items()]
    made, in_cluster = defaultdict[str, int](int), defaultdict[str, int](int)
    for kind, source, one in pairs:
        made[kind] += 1
        in_cluster[kind] += not title_marks(source, classes).isdisjoint(title_marks(one, classes))
    return GuardFigures(made=dict(made), in_cluster=dict(in_cluster))


def title_marks(problem: Problem, classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """The marks of the problem's answers without their product ids."""
    nameless = tuple(msgspec.structs.replace(item, product_id="") for item in problem.rewards)
    return answer_marks(msgspec.structs.replace(problem, rewards=nameless), classes) - {"id "}


def falsely_merged(problems: Iterable[Problem], classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """The ids of the problems that share an answer class with a problem none of whose answers resembles theirs."""
    by_mark: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        for mark in title_marks(problem, classes):
            by_mark[mark].append(problem)
    false: set[str] = set()
    for sharing in by_mark.values():
        for left, right in itertools.combinations(sharing, 2):
            titles = ([title for item in problem.rewards for title in item.title] for problem in (left, right))
            if not any(resemble(mine, theirs) for mine, theirs in itertools.product(*titles)):
                false |= {left.problem_id, right.problem_id}
    return frozenset(false)

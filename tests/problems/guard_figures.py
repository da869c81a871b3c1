"""The leak guard, measured: do disguised problems fall into their source's cluster, and do unrelated ones stay out?

Disguises are matched by the title classes of their answers alone; ids of products and problems, words of the
query and the voucher are not looked at. The review net is measured on the same problems, separately. Two problems are
*unrelated* when no answer title of one resembles one of the other (`lexical/1`, the matcher that decides rewards); a
problem is *falsely merged* when it shares an answer class with an unrelated one. All shares are integers in
ten-thousandths.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random

import msgspec

from problems.clusters import NO_CATALOGUE, ProductClasses, answer_marks, find_clusters, similar_pairs
from problems.model import Problem
from problems.titles import resemble
from tests.problems.disguises import DISGUISE_KINDS, DisguiseKind, disguises


class GuardRow(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of disguise: how many were made, how many the classes and the net each put beside their source."""

    kind: DisguiseKind
    made: int
    in_cluster: int
    in_net: int


class GuardFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What `measure_guard` found."""

    problems: int
    rows: tuple[GuardRow, ...]
    falsely_merged: int  # problems that share an answer class with an unrelated one
    clusters: int  # of the problems without their disguises
    net_pairs: int  # pairs the net lists among problems and disguises
    net_right: int  # of these, of one source or of one cluster

    @property
    def in_cluster_e4(self) -> int:
        """Disguises found by classes, of all."""
        return _share_e4(sum(row.in_cluster for row in self.rows), sum(row.made for row in self.rows))

    @property
    def net_recall_e4(self) -> int:
        """Disguises the net lists beside their source, of all."""
        return _share_e4(sum(row.in_net for row in self.rows), sum(row.made for row in self.rows))

    @property
    def net_precision_e4(self) -> int:
        """Pairs that are the same thing in fact, of those the net lists."""
        return _share_e4(self.net_right, self.net_pairs)

    @property
    def falsely_merged_e4(self) -> int:
        """Falsely merged problems, of all."""
        return _share_e4(self.falsely_merged, self.problems)


def measure_guard(
    problems: Sequence[Problem],
    *,
    seed: int,
    classes: ProductClasses = NO_CATALOGUE,
    prices_php: Mapping[str, float] | None = None,
) -> GuardFigures:
    """Disguise every problem in each way and count. `prices_php` (by product id) lets plain problems get a voucher."""
    rng = Random(f"leak guard {seed}")
    made = {problem.problem_id: disguises(problem, rng, prices_php) for problem in problems}
    source_of = {problem.problem_id: problem.problem_id for problem in problems}
    for source, kinds in made.items():
        source_of.update({disguised.problem_id: source for disguised in kinds.values()})
    everything = [*problems, *(one for kinds in made.values() for one in kinds.values())]
    marks = {one.problem_id: title_marks(one, classes) for one in everything}
    cluster_of = find_clusters(problems, classes).name_of
    listed = similar_pairs(everything)
    beside = {frozenset((pair.left, pair.right)) for pair in listed}
    rows = []
    for kind in DISGUISE_KINDS:
        pairs = [(source, kinds[kind].problem_id) for source, kinds in made.items() if kind in kinds]
        rows.append(
            GuardRow(
                kind=kind,
                made=len(pairs),
                in_cluster=sum(not marks[source].isdisjoint(marks[one]) for source, one in pairs),
                in_net=sum(frozenset(pair) in beside for pair in pairs),
            )
        )
    return GuardFigures(
        problems=len(problems),
        rows=tuple(rows),
        falsely_merged=len(falsely_merged(problems, classes)),
        clusters=len(set(cluster_of.values())),
        net_pairs=len(listed),
        net_right=sum(cluster_of[source_of[pair.left]] == cluster_of[source_of[pair.right]] for pair in listed),
    )


def title_marks(problem: Problem, classes: ProductClasses = NO_CATALOGUE) -> frozenset[str]:
    """The marks of the problem's answers without their product ids."""
    nameless = msgspec.structs.replace(
        problem, rewards=tuple(msgspec.structs.replace(item, product_id="") for item in problem.rewards)
    )
    return answer_marks(nameless, classes) - {"id "}


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


def guard_table(figures: GuardFigures) -> str:
    """The figures as a plain table for people."""
    lines = [f"{'disguise':<12}{'made':>6}{'cluster':>10}{'net':>8}"]
    for row in figures.rows:
        shares = (_percent(_share_e4(count, row.made)) for count in (row.in_cluster, row.in_net))
        lines.append("{:<12}{:>6}{:>10}{:>8}".format(row.kind, row.made, *shares))
    total = sum(row.made for row in figures.rows)
    whole = (_percent(figures.in_cluster_e4), _percent(figures.net_recall_e4))
    lines.append("{:<12}{:>6}{:>10}{:>8}".format("all", total, *whole))
    lines.append(
        f"{figures.problems} problems in {figures.clusters} clusters, falsely merged "
        f"{_percent(figures.falsely_merged_e4)}; pairs in the net {figures.net_pairs}, "
        f"right {_percent(figures.net_precision_e4)}"
    )
    return "\n".join(lines)


def _share_e4(part: int, whole: int) -> int:
    return 10_000 * part // whole if whole else 0


def _percent(share_e4: int) -> str:
    return f"{share_e4 / 100:.1f} %"

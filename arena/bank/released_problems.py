"""Problems to train on: those of one pool that races have released, with what they ask and what answers them.

A problem comes out when a release names it, of the pool asked for, and its batch is the one that was released,
byte for byte. No problem of another pool comes out, and none that shares a leak cluster with one of another pool,
whether that one was released, is in a waiting batch, is held out by name or is in the bank's partition (paper, section
6 and A.4). Each problem left out is named with its reason. Pure; the same in any order of batches and releases.

It cannot know a held-out problem that is in no batch, release, list of names or partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from arena.bank.batch import OpenBatch, check_release
from arena.records.model import ReleaseRecord
from arena.visibility.rule import may_see
from foundation.errors import ArenaError
from problems.clusters import find_clusters
from problems.model import Pool, Problem
from problems.partition import OpenPartition, touched_pools

LearntPool = Literal["train", "dev"]  # the others are for evaluation, and never leave a bank as problems
Reason = Literal["held_out", "cluster", "partition"]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A released problem of the pool that stays behind. `held_out`: named so; `cluster`: it shares a leak cluster with
    another pool's problem; `partition`: the bank's partition gives it, or an answer of it, another pool."""

    problem_id: str
    reason: Reason


class ReleasedPool(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of one pool, by id, and what is missing from them. `batches_missing` are races whose release is here
    and whose batch is not; `titles` are races of these problems whose batch brought accepted titles of its own."""

    problems: tuple[Problem, ...]
    left_out: tuple[LeftOut, ...]
    races: tuple[str, ...]
    batches_missing: tuple[str, ...]
    titles: tuple[str, ...]


def released_pool(
    pool: LearntPool,
    releases: Iterable[ReleaseRecord],
    batches: Iterable[OpenBatch],
    *,
    held_out: Sequence[Problem] = (),
    partition: OpenPartition | None = None,
) -> ReleasedPool:
    """The problems of `pool` that `releases` name, out of `batches`. A release given twice counts once.

    Raises ArenaError P4010 for a batch that is not as its release says, P4009 when two problems share an id.
    """
    by_hash = {batch.batch_sha256: batch for batch in batches}
    released = sorted(set(releases), key=lambda one: (one.race_id, one.batch_sha256))
    wanted: dict[str, Problem] = {}
    missing, races, titles = [], [], []
    for release in released:
        batch = by_hash.get(release.batch_sha256)
        if batch is None:
            missing.append(release.race_id)
            continue
        checked = check_release(release, batch.public, batch)
        if not checked.is_ok:
            raise ArenaError("P4010", f"{release.race_id}: {checked.faults[0]}")
        taken = {
            one.problem_id
            for one in release.problems
            if may_see("public", "problem", "settled", pool=one.pool, pools=(pool,)).is_seen
        }
        for problem in (problem for problem in batch.problems if problem.problem_id in taken):
            if wanted.setdefault(problem.problem_id, problem) != problem:
                raise ArenaError("P4009", f"{problem.problem_id} in {release.race_id}, and another before it")
        if taken:
            races.append(release.race_id)
            titles += [release.race_id] if batch.titles is not None else []
    others = [  # of other pools, released or not
        problem
        for batch in by_hash.values()
        for problem, dealt in zip(batch.problems, batch.pools, strict=True)
        if dealt != pool
    ]
    opened: dict[str, set[Pool]] = defaultdict(set)  # the pools of each cluster, also of batches that are not here
    rows = [one for release in released for one in release.problems]
    for one in rows:
        opened[one.cluster_id].add(one.pool)
    crossing = {one.problem_id for one in rows if opened[one.cluster_id] != {pool}}
    crossing.update(problem.problem_id for problem in others)
    reasons = _reasons(pool, wanted, crossing, {one.problem_id for one in held_out}, partition)
    reasons |= dict.fromkeys(_leaking(wanted, reasons.keys(), (*others, *held_out)), "cluster")
    left_out = [LeftOut(problem_id=one, reason=reason) for one, reason in sorted(reasons.items())]
    return ReleasedPool(
        problems=tuple(problem for one, problem in sorted(wanted.items()) if one not in reasons),
        left_out=tuple(left_out),
        races=tuple(races),
        batches_missing=tuple(missing),
        titles=tuple(titles),
    )


def _reasons(
    pool: LearntPool,
    wanted: Mapping[str, Problem],
    crossing: Collection[str],
    named: Collection[str],
    partition: OpenPartition | None,
) -> dict[str, Reason]:
    """Why problems stay behind, each looked at alone: by its name, as another pool's, by the partition."""
    found: dict[str, Reason] = {}
    for one, problem in wanted.items():
        if one in named:
            found[one] = "held_out"
        elif one in crossing:
            found[one] = "cluster"
        elif partition is not None:
            touched = touched_pools(problem, partition) or ("train",)  # what touches nothing frozen is `train`
            if set(touched) != {pool}:
                found[one] = "partition"
    return found


def _leaking(wanted: Mapping[str, Problem], behind: Collection[str], known: Iterable[Problem]) -> set[str]:
    """The wanted problems that share a leak cluster with one that stays behind, or with a `known` one, by answers."""
    kept = {one: problem for one, problem in wanted.items() if one not in behind}
    others = {one.problem_id: one for one in (*known, *wanted.values()) if one.problem_id not in kept}
    found: set[str] = set()
    for members in find_clusters((*kept.values(), *others.values())).values():
        if not others.keys().isdisjoint(members):
            found.update(kept.keys() & set(members))
    return found

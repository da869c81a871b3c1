"""The partition: leak clusters dealt to pools once, frozen, and only ever added to.

Suites are `never_touch`; the evaluation set is 75 problems (28 product, 24 shop, 23 voucher) of whole
clusters, drawn by seed and key; `dev` is drawn after it; the rest is `train` (paper A.4). The deal does not depend on
the order of the problems. What is frozen never moves: a new problem goes where its answers already are, and one that
would join two pools is refused (P4020), `train` included, for a model has seen it. A problem that touches nothing
frozen is `train`.

The public form is the manifest (`problems.pools.manifest`); with the 32-byte key it is an `OpenPartition`, which can
tell the pool of a problem. Whoever has the key can find every answer in the catalogue: it stays where the problems are.
"""

from __future__ import annotations

import hmac
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from foundation.errors import ArenaError
from problems.model import BUCKETS, POOLS, Bucket, Pool, Problem
from problems.pools.clusters import answer_marks, cluster_id, find_clusters
from problems.pools.disjoint_sets import DisjointSets
from problems.pools.manifest import PartitionManifest, PoolRow, commitment_of, token_of
from problems.pools.product_classes import NO_CATALOGUE, ProductClasses
from problems.pools.review_net import content_words
from problems.pools.title_keys import title_key

EVAL_COUNTS: Mapping[Bucket, int] = {"product": 28, "shop": 24, "voucher": 23}  # paper, figure 3: 75 problems
DEV_COUNTS: Mapping[Bucket, int] = {"product": 20, "shop": 20, "voucher": 20}


class PartitionRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that enters no pool, because it would join the `pools`."""

    problem_id: str
    pools: tuple[Pool, ...]


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest with new problems in it: their pools by id, and what was refused, by id."""

    manifest: PartitionManifest
    pools: dict[str, Pool]
    refused: tuple[PartitionRefusal, ...] = ()


class OpenPartition:
    """A manifest together with its key. Raises ArenaError P4023 when the key is another manifest's."""

    def __init__(self, manifest: PartitionManifest, key: bytes) -> None:
        if not hmac.compare_digest(commitment_of(key), manifest.key_commitment):
            raise ArenaError("P4023", f"manifest {manifest.sha256[:12]}…")
        self.manifest, self.key = manifest, key
        self._answers = {token: row for row in manifest.rows for token in row.answers}
        self._problems = {token: row for row in manifest.rows for token in row.problems}
        self._queries: dict[str, set[Pool]] = defaultdict(set)
        for row in manifest.rows:
            for token in row.queries:
                self._queries[token].add(row.pool)

    def token(self, mark: str) -> str:
        """The token (hex) of a mark under this partition's key."""
        return token_of(self.key, mark)

    def row_of(self, token: str) -> PoolRow | None:
        """The frozen cluster of an answer's or a problem's token."""
        return self._answers.get(token) or self._problems.get(token)

    def row_name(self, token: str) -> str | None:
        """The frozen cluster's own token, for an answer's or a problem's token."""
        row = self.row_of(token)
        return None if row is None else row.cluster

    def is_entered(self, problem: Problem) -> bool:
        """Whether the problem is in the manifest by its id, with each of its answers."""
        marks = {_problem_mark(problem.problem_id), *answer_marks(problem)}
        return all(self.row_of(self.token(mark)) is not None for mark in marks)

    def query_pools(self, query: str) -> frozenset[Pool]:
        """The pools that hold a query of the same content words in any order."""
        return frozenset(pool for mark in _query_marks(query) for pool in self._queries.get(self.token(mark), ()))


def freeze(
    problems: Iterable[Problem],
    suites: Iterable[Problem],
    *,
    seed: int,
    key: bytes,
    classes: ProductClasses = NO_CATALOGUE,
    eval_counts: Mapping[Bucket, int] = EVAL_COUNTS,
    dev_counts: Mapping[Bucket, int] = DEV_COUNTS,
) -> PartitionManifest:
    """Deal a bank's clusters to the pools. A problem of `suites` may be in `problems` too; it stays a suite's.

    `key` is 32 random bytes that stay with the bank, `seed` is published. Raises ArenaError P4022 when the bank has too
    few problems of a bucket outside the suites' clusters, P4007 when two problems share an id, ValueError for a key of
    another length.
    """
    reserved = {problem.problem_id: problem for problem in suites}
    bank = [problem for problem in problems if reserved.get(problem.problem_id) != problem]
    everything = [*reserved.values(), *bank]
    clusters = find_clusters(everything, classes).problems_of
    bucket_of = {problem.problem_id: problem.bucket for problem in everything}
    pools: dict[str, Pool] = {
        name: "never_touch" for name, ids in clusters.items() if not reserved.keys().isdisjoint(ids)
    }
    draws: tuple[tuple[Pool, Mapping[Bucket, int]], ...] = (("eval", eval_counts), ("dev", dev_counts))
    for pool, wanted in draws:
        ranked = sorted(clusters.keys() - pools.keys(), key=lambda name: token_of(key, f"draw {seed} {pool} {name}"))
        buckets = {name: Counter(bucket_of[one] for one in clusters[name]) for name in ranked}
        left = Counter({bucket: wanted.get(bucket, 0) for bucket in BUCKETS})
        for name in ranked:  # the first clusters that fit whole into what is still wanted
            if all(count <= left[bucket] for bucket, count in buckets[name].items()):
                left -= buckets[name]
                pools[name] = pool
        if left.total():
            missing = ", ".join(f"{count} {bucket}" for bucket, count in left.items() if count)
            raise ArenaError("P4022", f"{missing} missing for {pool}")
    by_id = {problem.problem_id: problem for problem in everything}
    rows = [
        _row(key, name, pools.get(name, "train"), [by_id[one] for one in ids], classes)
        for name, ids in clusters.items()
    ]
    return PartitionManifest(
        serial=1,
        seed=seed,
        key_commitment=commitment_of(key),
        headline=tuple(sorted(token for row in rows if row.pool == "eval" for token in row.problems)),
        rows=tuple(sorted(rows, key=lambda row: row.cluster)),
    )


def pool_of(problem: Problem, partition: OpenPartition, classes: ProductClasses = NO_CATALOGUE) -> Pool:
    """The pool a problem belongs to: that of the frozen cluster it touches, `train` when it touches none.

    Raises ArenaError P4020 naming the pools when it would join two.
    """
    pools = touched_pools(problem, partition, classes)
    if len(pools) > 1:
        raise ArenaError("P4020", f"{problem.problem_id} joins {' and '.join(pools)}")
    return pools[0] if pools else "train"


def touched_pools(
    problem: Problem, partition: OpenPartition, classes: ProductClasses = NO_CATALOGUE
) -> tuple[Pool, ...]:
    """The pools that hold the problem or one of its answers' classes, in the order of `POOLS`."""
    marks = {_problem_mark(problem.problem_id), *answer_marks(problem, classes)}
    return _in_order(row.pool for mark in marks if (row := partition.row_of(partition.token(mark))))


def extend(partition: OpenPartition, problems: Iterable[Problem], classes: ProductClasses = NO_CATALOGUE) -> Extension:
    """The partition with new problems in it, as a new manifest; the same manifest when there is nothing new.

    They enter in the order of their ids, whatever order they come in, each seeing those before it: one that would join
    two pools is refused (P4020 names the case) and leaves no trace. Clusters of one pool may be joined; the joined one
    keeps a frozen name and lists the others. Raises ArenaError P4007 when two of the problems share an id.
    """
    ordered = sorted(problems, key=lambda problem: problem.problem_id)
    for left, right in itertools.pairwise(ordered):
        if left.problem_id == right.problem_id:
            raise ArenaError("P4007", left.problem_id)
    before = partition.manifest
    pool_of_row = {row.cluster: row.pool for row in before.rows}
    sets, placed = DisjointSets(), dict[str, str]()
    parts: dict[str, list[PoolRow]] = {row.cluster: [row] for row in before.rows}
    pools: dict[str, Pool] = {}
    refused = []
    for problem in ordered:
        row = _row(partition.key, cluster_id(problem), "train", [problem], classes)
        tokens = (*row.answers, *row.problems)
        touched = {name for token in tokens if (name := placed.get(token) or partition.row_name(token))}
        joined = _in_order(pool_of_row[name] for name in touched)
        if len(joined) > 1:
            refused.append(PartitionRefusal(problem_id=problem.problem_id, pools=joined))
            continue
        pool: Pool = joined[0] if joined else "train"
        name = min(touched, default=row.cluster)
        pool_of_row.setdefault(name, pool)
        parts.setdefault(name, []).append(row)
        placed.update(dict.fromkeys(tokens, name))
        sets.join(touched)
        pools[problem.problem_id] = pool
    groups: dict[str, list[str]] = defaultdict(list)
    for name in parts:
        groups[sets.name_of(name)].append(name)
    frozen = {row.cluster for row in before.rows}
    merged = (
        _merged(pool_of_row[name], frozen, [part for one in sorted(names) for part in parts[one]])
        for name, names in groups.items()
    )
    rows = tuple(sorted(merged, key=lambda row: row.cluster))
    after = before
    if rows != before.rows:
        after = msgspec.structs.replace(before, serial=before.serial + 1, previous_sha256=before.sha256, rows=rows)
    return Extension(manifest=after, pools=pools, refused=tuple(refused))


def contaminated(
    partition: OpenPartition,
    *,
    problem: Problem | None = None,
    query: str = "",
    titles: Iterable[str] = (),
    product_ids: Iterable[str] = (),
    classes: ProductClasses = NO_CATALOGUE,
) -> tuple[Pool, ...]:
    """The pools that a training row touches, whatever is known of it: its problem, its query, its answers.

    Empty when it touches none. A row may be trained on when this is empty or `("train",)`. A query counts when its
    content words are those of a frozen query; a problem or an answer counts by its class.
    """
    pools: set[Pool] = set()
    if problem is not None:
        pools.update(touched_pools(problem, partition, classes), partition.query_pools(problem.query))
    if query:
        pools |= partition.query_pools(query)
    marks = {f"title {key}" for title in titles for key in classes.keys_of("", (title,)) if key != title_key("")}
    for product_id in product_ids:
        marks |= {f"id {product_id}", *(f"title {key}" for key in classes.keys_of(product_id))}
    pools.update(row.pool for mark in marks if (row := partition.row_of(partition.token(mark))))
    return _in_order(pools)


def _row(key: bytes, name: str, pool: Pool, members: Sequence[Problem], classes: ProductClasses) -> PoolRow:
    marks = {mark for problem in members for mark in answer_marks(problem, classes)}
    return PoolRow(
        cluster=token_of(key, f"cluster {name}"),
        pool=pool,
        answers=_tokens(key, marks),
        problems=_tokens(key, {_problem_mark(problem.problem_id) for problem in members}),
        queries=_tokens(key, {mark for problem in members for mark in _query_marks(problem.query)}),
    )


def _merged(pool: Pool, frozen: Collection[str], parts: Sequence[PoolRow]) -> PoolRow:
    """One row of all the parts, under the smallest frozen name among them, else the smallest."""
    if len(parts) == 1:
        return parts[0]
    known = sorted({part.cluster for part in parts if part.cluster in frozen})
    name = known[0] if known else min(part.cluster for part in parts)
    return PoolRow(
        cluster=name,
        pool=pool,
        answers=tuple(sorted({token for part in parts for token in part.answers})),
        problems=tuple(sorted({token for part in parts for token in part.problems})),
        queries=tuple(sorted({token for part in parts for token in part.queries})),
        absorbed=tuple(sorted({*known[1:], *(token for part in parts for token in part.absorbed)})),
    )


def _tokens(key: bytes, marks: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(token_of(key, mark) for mark in marks))


def _problem_mark(problem_id: str) -> str:
    return f"problem {problem_id}"


def _query_marks(query: str) -> frozenset[str]:
    """One mark, or none when the query says nothing in particular."""
    words = content_words(query)
    return frozenset({f"query {' '.join(sorted(words))}"} if words else ())


def _in_order(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    held = set(pools)
    return tuple(pool for pool in POOLS if pool in held)

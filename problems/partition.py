"""The partition: leak clusters dealt to pools once, frozen, and only ever added to.

Suites are `never_touch`; the evaluation set is 75 problems (28 product, 24 shop, 23 voucher) of whole
clusters, drawn by seed and key; `dev` is drawn after it; the rest is `train` (paper A.4). The deal does not depend on
the order of the problems. What is frozen never moves: a new problem goes where its answers already are, and one that
would join two pools is refused, `train` included, for a model has seen it. A problem that touches nothing
frozen is `train`.

The public form is the manifest (`problems.partition`); with the 32-byte key it is an `OpenPartition`, which can
tell the pool of a problem. A holder of the key can find every answer in the catalogue: it stays where the problems are.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from foundation.canonical import content_hash
from foundation.errors import ArenaError
from problems.clusters import (
    NO_CATALOGUE,
    DisjointSets,
    ProductClasses,
    answer_marks,
    cluster_id,
    content_words,
    find_clusters,
    title_key,
)
from problems.model import BUCKETS, POOLS, Bucket, Pool, Problem

EVAL_COUNTS: Mapping[Bucket, int] = {"product": 28, "shop": 24, "voucher": 23}  # paper, figure 3: 75 problems
DEV_COUNTS: Mapping[Bucket, int] = {"product": 20, "shop": 20, "voucher": 20}


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest with new problems in it, and their pools by id: one that was refused has none."""

    manifest: PartitionManifest
    pools: dict[str, Pool]


class OpenPartition:
    """A manifest together with its key. Raises ArenaError P4026 when the key is another manifest's."""

    def __init__(self, manifest: PartitionManifest, key: bytes) -> None:
        if not hmac.compare_digest(commitment_of(key), manifest.key_commitment):
            raise ArenaError("P4026", f"manifest {manifest.sha256[:12]}…")
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

    `key` is 32 random bytes that stay with the bank, `seed` is published. Raises ArenaError P4011 when the bank has too
    few problems of a bucket outside the suites' clusters, P4009 when two problems share an id, ValueError for a key of
    another length.
    """
    reserved = {problem.problem_id: problem for problem in suites}
    bank = [problem for problem in problems if reserved.get(problem.problem_id) != problem]
    everything = [*reserved.values(), *bank]
    clusters = find_clusters(everything, classes)
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
            raise ArenaError("P4011", f"{missing} missing for {pool}")
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


def touched_pools(problem: Problem, partition: OpenPartition) -> tuple[Pool, ...]:
    """The pools that hold the problem or one of its answers' classes, in the order of `POOLS`."""
    marks = {_problem_mark(problem.problem_id), *answer_marks(problem)}
    return _in_order(row.pool for mark in marks if (row := partition.row_of(partition.token(mark))))


def extend(partition: OpenPartition, problems: Iterable[Problem], classes: ProductClasses = NO_CATALOGUE) -> Extension:
    """The partition with new problems in it, as a new manifest; the same manifest when there is nothing new.

    They enter in the order of their ids, whatever order they come in, each seeing those before it: one that would join
    two pools is refused and leaves no trace. Clusters of one pool may be joined; the joined one
    keeps a frozen name and lists the others. Raises ArenaError P4009 when two of the problems share an id.
    """
    ordered = sorted(problems, key=lambda problem: problem.problem_id)
    for left, right in itertools.pairwise(ordered):
        if left.problem_id == right.problem_id:
            raise ArenaError("P4009", left.problem_id)
    before = partition.manifest
    pool_of_row = {row.cluster: row.pool for row in before.rows}
    sets = DisjointSets()
    placed = {token: row.cluster for row in before.rows for token in (*row.answers, *row.problems)}
    parts: dict[str, list[PoolRow]] = {row.cluster: [row] for row in before.rows}
    pools: dict[str, Pool] = {}
    for problem in ordered:
        row = _row(partition.key, cluster_id(problem), "train", [problem], classes)
        tokens = (*row.answers, *row.problems)
        touched = {placed[token] for token in tokens if token in placed}
        joined = _in_order(pool_of_row[name] for name in touched)
        if len(joined) > 1:
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
    return Extension(manifest=after, pools=pools)


def pools_of_answers(
    partition: OpenPartition,
    titles: Iterable[str],
    product_ids: Iterable[str],
    classes: ProductClasses = NO_CATALOGUE,
) -> tuple[Pool, ...]:
    """The pools that hold one of these answers' classes, in the order of `POOLS`: what a training row touches."""
    marks = {f"title {key}" for title in titles for key in classes.keys_of("", (title,)) if key != title_key("")}
    for product_id in product_ids:
        marks |= {f"id {product_id}", *(f"title {key}" for key in classes.keys_of(product_id))}
    return _in_order(row.pool for mark in marks if (row := partition.row_of(partition.token(mark))))


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

    def together(field: str) -> tuple[str, ...]:
        return tuple(sorted({token for part in parts for token in getattr(part, field)}))

    names = sorted({part.cluster for part in parts})
    known = [name for name in names if name in frozen]
    name = known[0] if known else names[0]
    fields = {field: together(field) for field in ("answers", "problems", "queries")}
    absorbed = tuple(sorted({*known[1:], *together("absorbed")}))
    return PoolRow(cluster=name, pool=pool, absorbed=absorbed, **fields)


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


FORMAT = 1
KEY_BYTES = 32
RULES = "title-key/1"  # how answers are named; another rule is another manifest
_TOKEN = re.compile(r"[0-9a-f]{64}")
_SEED_END = 2**53


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One frozen cluster. All fields but the pool are tokens (64 hex digits), each list sorted."""

    cluster: str
    pool: Pool
    answers: tuple[str, ...]  # every mark of its problems' answers (`problems.clusters.answer_marks`)
    problems: tuple[str, ...]
    queries: tuple[str, ...] = ()  # the content words of its problems' queries
    absorbed: tuple[str, ...] = ()  # clusters of the same pool that a later problem joined to this one


class PartitionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The pools of a bank, public form. Raises ArenaError P4010 when it is not disjoint, sorted and well formed."""

    format: int = FORMAT
    rules: str = RULES
    serial: int  # 1 when frozen, one more for each extension
    previous_sha256: str = ""
    seed: int  # of the draw; without the key it says nothing
    key_commitment: str
    headline: tuple[str, ...]  # the evaluation set itself: later problems of its clusters are `eval`, but not in it
    rows: tuple[PoolRow, ...]

    def __post_init__(self) -> None:
        """Refuse what is not sound."""
        if (self.format, self.rules) != (FORMAT, RULES):
            raise ArenaError("P4010", f"format: {self.format} {self.rules} is not {FORMAT} {RULES}")
        if self.serial < 1 or not 0 <= self.seed < _SEED_END or (self.serial == 1) != (self.previous_sha256 == ""):
            raise ArenaError("P4010", "serial, seed or previous_sha256: out of range")
        lists = [getattr(row, field) for row in self.rows for field in ("answers", "problems", "queries", "absorbed")]
        lists += [self.headline, tuple(row.cluster for row in self.rows)]
        if not all(map(_TOKEN.fullmatch, (*itertools.chain(*lists), self.key_commitment))):
            raise ArenaError("P4010", "token: 64 lower-case hex digits are expected")
        if not all(tokens == tuple(sorted(set(tokens))) for tokens in lists):
            raise ArenaError("P4010", "rows: not in ascending order, or one token stands twice")
        if not all(row.answers and row.problems for row in self.rows):
            raise ArenaError("P4010", "rows: a cluster without answers or problems")
        names = [token for row in self.rows for token in (row.cluster, *row.absorbed)]
        held = [*itertools.chain(*(row.answers for row in self.rows)), *(t for row in self.rows for t in row.problems)]
        if len({*names}) < len(names) or len({*held}) < len(held):
            raise ArenaError("P4010", "rows: one answer, problem or cluster stands in two")
        evaluated = {token for row in self.rows if row.pool == "eval" for token in row.problems}
        if not evaluated.issuperset(self.headline):
            raise ArenaError("P4010", "headline: holds a problem that is not in the pool eval")

    @property
    def sha256(self) -> str:
        """The content hash (hex) by which records and batches name this manifest."""
        return content_hash(self)

    @property
    def problem_counts(self) -> dict[Pool, int]:
        """How many problems each pool has."""
        return {pool: sum(len(row.problems) for row in self.rows if row.pool == pool) for pool in POOLS}


def token_of(key: bytes, mark: str) -> str:
    """The token (hex) of a text under the manifest's key: an HMAC under a key of its own, derived from both."""
    text = mark.encode(errors="surrogatepass")
    own_key = hmac.digest(key, b"agent-arena/partition-opening/1\n" + text, "sha256")
    return hmac.digest(own_key, text, "sha256").hex()


def commitment_of(key: bytes) -> str:
    """What the manifest says of its key. Raises ValueError for a key that has not 32 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a partition key has {KEY_BYTES} bytes, not {len(key)}")
    return hashlib.sha256(b"agent-arena/partition-key/1\n" + key).hexdigest()

"""The leak guard: no trace of a held-out problem, or of one in its leak cluster, enters a corpus.

The partition manifest decides (paper A.4). A trace of the arena carries the pool and cluster its race
released, signed; yet an agent may answer its problem with the product that another one holds out, so the answer of
every trace is held against what is known here: ids and title classes. A trace from elsewhere carries no pool, so it is
matched by its query too, and kept out where its problem cannot be known: a missing row costs less than a leak. What
such a row says of its own pool can only keep it out. Pure, picklable, the same in any order; no switch turns it off,
and only the one pool it admits is let in. Asked at every join (`require_clean`) and again by the writer of a corpus.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from foundation.canonical import content_hash
from foundation.errors import ArenaError
from problems.clusters import NO_CATALOGUE, SIMILARITY_MIN_E4, ProductClasses, answer_marks, content_words, title_key
from problems.model import Pool, Problem
from problems.partition import OpenPartition, PartitionManifest, pools_of_answers
from problems.titles import title_words
from training.corpus.gates import RECOMMEND, calls_of, recommended_ids
from training.corpus.model import CorpusPool, RejectCode, Trace

TRAINED: CorpusPool = "train"
WITHIN_MIN_E4 = 9_000  # of a held-out query's content words, the share that a longer text has to hold
_WORDS_MIN = 4  # a shorter query is in too many texts
TITLE_MIN_E4 = 7_000  # from which two titles count as one product: `lexical/1`, the matcher that decides rewards
_NAMED = 5  # places in an error


Leak = tuple[RejectCode, str]  # `pool`: not one of the pool admitted; `leak`: it touches a held-out problem; and why


class Guard:
    """Knows what is held out. Calling it gives the reject codes of a trace, none for one that may enter."""

    def __init__(
        self,
        manifest: PartitionManifest | None = None,
        held_out: Mapping[Pool, Iterable[Problem]] = {},
        *,
        partition: OpenPartition | None = None,
        classes: ProductClasses = NO_CATALOGUE,
        admits: CorpusPool = TRAINED,
    ) -> None:
        """`admits` is the pool whose traces may enter: `train`, or `dev` for a corpus that is never learnt. `manifest`
        is the bank's public one; `partition` the same with its key, where the operator has it.

        `held_out` are the problems of `eval`, `dev` and `never_touch` (the second set among them) that are known;
        without them and without the key no trace from outside the arena is let in. `classes` are the catalogue's.
        Raises ValueError where they hold problems of the training pool.
        """
        self._manifest = partition.manifest if partition is not None and manifest is None else manifest
        self._partition, self._classes, self._admits = partition, classes, admits
        clusters = () if self._manifest is None else self._manifest.rows
        self._pool_of_cluster = {name: row.pool for row in clusters for name in (row.cluster, *row.absorbed)}
        self._ids: dict[str, Pool] = {}
        self._marks: dict[str, Pool] = {}
        self._queries, self._titles = _Net(SIMILARITY_MIN_E4), _Net(TITLE_MIN_E4)
        if TRAINED in held_out:
            raise ValueError("problems of the training pool are not held out")
        for pool in sorted(held_out):
            for problem in held_out[pool]:
                self._ids[problem.problem_id] = pool
                self._marks.update(dict.fromkeys(answer_marks(problem, classes), pool))
                self._queries.add(content_words(problem.query), pool)
                for title in {title for item in problem.rewards for title in item.title}:
                    self._titles.add(title_words(title), pool)

    @property
    def partition_sha256(self) -> str:
        """What a lineage names: the manifest's hash, or a hash of the held-out problems where there is no manifest."""
        if self._manifest is not None:
            return self._manifest.sha256
        return content_hash([sorted(self._ids.items()), sorted(self._marks.items())])

    def __call__(self, trace: Trace) -> tuple[RejectCode, ...]:
        """The reject codes of a trace."""
        return tuple(leak[0] for leak in [self.find(trace)] if leak)

    def find(self, trace: Trace) -> Leak | None:
        """Why a trace may not enter, None for one that may."""
        facts = trace.facts
        if facts.pool not in (None, self._admits) or facts.suite is not None:
            return "pool", f"it is of {facts.pool or facts.suite}"
        if trace.source.kind == "arena" and facts.pool is None:
            return "pool", "no release says which pool it is of"
        if (pool := self._ids.get(facts.problem_id or "")) is not None:
            return "leak", f"its problem is held out for {pool}"
        pool = self._pool_of_cluster.get(facts.cluster_id or "")
        if pool not in (None, self._admits):
            return "leak", f"its cluster is held out for {pool}"
        ids = answered(trace)
        titles = _titles(trace, ids)
        pools = self._pools_of_answer(ids, titles)
        is_vouched = trace.source.kind == "arena" and facts.cluster_id is not None
        if is_vouched:
            pools -= {TRAINED}  # a row of `dev` may name what is trained on; the other way round it may not
        if pools:
            return "leak", f"its answer is held out for {min(pools)}"
        if is_vouched:
            return None
        # its cluster is unproven, and its answer not held out: it is compared by its query, by resemblance
        if self._partition is None and not self._ids:
            return "leak", "no held-out problems are known to hold it against"
        # a row can name another query than the one its model read
        said = (message.content for message in trace.messages if message.role == "user")
        asked = tuple(dict.fromkeys(text for text in (trace.query, *said) if text))
        if not asked and not ids:
            return "leak", "neither its query nor its answer is known"
        if self._partition is not None:
            pools = set[Pool]().union(*map(self._partition.query_pools, asked)) - {self._admits}
            if pools:
                return "leak", f"its query is held out for {min(pools)}"
        near = [self._titles.nearest(title_words(title)) for title in titles]
        near += [self._queries.nearest(words) or self._queries.within(words) for words in map(content_words, asked)]
        resembled = next((pool for pool in near if pool is not None), None)
        if resembled is None:
            return None
        return "leak", f"its answer or query resembles one held out for {resembled}"

    def require_clean(self, traces: Iterable[Trace]) -> None:
        """Raises ArenaError V2099 when one of the traces may not enter, naming the first places."""
        found = [f"{trace.source.place}: {leak[1]}" for trace in traces if (leak := self.find(trace))]
        if found:
            raise ArenaError("V2099", f"{len(found)} in all; {'; '.join(found[:_NAMED])}")

    def _pools_of_answer(self, ids: Sequence[str], titles: Sequence[str]) -> set[Pool]:
        """The pools, but the admitted one, that hold out a problem which one of these products answers."""
        marks = {f"id {one}" for one in ids} | {f"title {title_key(title)}" for title in titles}
        for one in ids:
            marks |= {f"title {key}" for key in self._classes.keys_of(one)}
        pools = {self._marks[mark] for mark in marks & self._marks.keys()}
        if self._partition is not None:
            pools.update(pools_of_answers(self._partition, titles, ids, self._classes))
        return pools - {self._admits}


class _Net:
    """Word sets of what is held out, and which of them another set resembles (Jaccard, ten-thousandths)."""

    def __init__(self, similarity_min_e4: int) -> None:
        self._similarity_min_e4 = similarity_min_e4
        self._held: list[tuple[frozenset[str], Pool]] = []
        self._by_word: dict[str, list[int]] = defaultdict(list)

    def add(self, words: frozenset[str], pool: Pool) -> None:
        for word in words:
            self._by_word[word].append(len(self._held))
        self._held.append((words, pool))

    def nearest(self, words: frozenset[str]) -> Pool | None:
        """The pool of the first set that resembles this one."""
        for theirs, pool, count in self._sharing(words):
            if 10_000 * count >= self._similarity_min_e4 * (len(words) + len(theirs) - count):
                return pool
        return None

    def within(self, words: frozenset[str]) -> Pool | None:
        """The pool of the first set that stands nearly whole in this one: a query among other text."""
        for theirs, pool, count in self._sharing(words):
            if len(theirs) >= _WORDS_MIN and 10_000 * count >= WITHIN_MIN_E4 * len(theirs):
                return pool
        return None

    def _sharing(self, words: frozenset[str]) -> Iterator[tuple[frozenset[str], Pool, int]]:
        """Every held set with a word in common, and how many."""
        shared = Counter(number for word in words for number in self._by_word.get(word, ()))
        for number, count in sorted(shared.items()):
            yield *self._held[number], count


def answered(trace: Trace) -> tuple[str, ...]:
    """The ids a trace recommends: those its source names, and those of every recommend_product call."""
    calls = [call for call in calls_of(trace) if call.name == RECOMMEND]
    called = [one for call in calls for one in recommended_ids(call.arguments, is_strict=False)]
    return tuple(dict.fromkeys([*(trace.facts.recommended or ()), *called]))


def _titles(trace: Trace, ids: Sequence[str]) -> tuple[str, ...]:
    """Titles that results of the trace give the products it recommends."""
    wanted, titles = set(ids), dict[str, None]()
    for message in trace.messages:
        if message.role == "tool" and any(one in message.content for one in wanted):
            for product in _products(message.content):
                one, title = product.get("product_id"), product.get("title")
                if isinstance(one, str) and one in wanted and isinstance(title, str):
                    titles[title] = None
    return tuple(titles)


def _products(content: str) -> Iterator[dict[str, object]]:
    """The objects of a result, however deep lists of them lie."""
    try:
        waiting = [msgspec.json.decode(content)]
    except (msgspec.DecodeError, RecursionError):
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += [one for one in value.values() if isinstance(one, list | dict)]
        elif isinstance(value, list):
            waiting += value

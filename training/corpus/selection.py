"""The whole filter: shards of traces in, a decision on every trace and the rows of the corpus out.

The same set of traces gives the same corpus, in whatever order or shards it comes and on any number of processes or
machines. `appraise` reads everything once and puts a kilobyte a trace on disk; `decide` sees only these appraisals, and
`kept_rows` reads again those shards that hold something to keep. Memory holds a few shards and a few bytes a trace;
what is compared as possible duplicates lies on disk. A trace that is not kept has a `Rejection` with every per-trace
rule it breaks, or the one set-level rule.

Set-level rules come after the per-trace ones, over the traces those let pass: exact duplicates, near duplicates,
ranking within each problem by A.3's structural signals (the judge's coefficient gates the pool and has no say in it),
and the seeded draw of a size-matched corpus.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import sqlite3
import struct
import tempfile
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from foundation.errors import ArenaError
from foundation.executors.port import HERE, Executor
from foundation.progress import PhaseProgress
from training.corpus.appraisal import (
    Appraised,
    AppraisedShard,
    Guard,
    Task,
    appraise_shard,
    codes_under,
)
from training.corpus.duplicates import likenesses, sorted_on_disk
from training.corpus.model import (
    Appraisal,
    CorpusRow,
    Fingerprint,
    Quarantined,
    RejectCode,
    Rejection,
    Rules,
    Signals,
    Trace,
)

Shard = Callable[
    [], Iterable[Trace | Quarantined]
]  # read twice: the same rows each time; picklable for other processes

_DIED = "V2052"
Shape = tuple[str, ...]
_REPEATS_FREE = 2  # asking twice is no loop
_SHAPES_MAX = 64  # shapes compared pairwise when more tie; the first by name


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision a trace, in the order of what was appraised: its rank within its problem, or why it is out."""

    rules: Rules
    ranks: Sequence[int]  # from 1; 0 for a trace that is not kept
    codes: list[tuple[RejectCode, ...]]

    @property
    def kept(self) -> int:
        """How many traces are kept."""
        return sum(rank > 0 for rank in self.ranks)


def appraise(
    shards: Sequence[Shard],
    task: Task,
    guard: Guard,
    *,
    executor: Executor = HERE,
    progress: PhaseProgress | None = None,
) -> Appraised:
    """Read every shard once, where `executor` runs it.

    `progress` gets shards done and in all. Raises what a shard raises when it is read, ArenaError V2120 for a
    tokenizer, V2027 for a full disk, and V2052 for a shard that is lost again and again.
    """
    try:
        appraised = Appraised()
        work = functools.partial(_appraise_packed, task, guard)
        for done, packed in enumerate(executor.map(work, enumerate(shards), died=_DIED), 1):
            appraised.add(_UNPACK_SHARD.decode(packed))
            if progress:
                progress(done, len(shards))
    except OSError as wrong:
        raise ArenaError("V2027", f"{tempfile.gettempdir()}: {wrong.strerror}") from None
    return appraised


def decide(traces: Sequence[Appraisal], rules: Rules, *, progress: PhaseProgress | None = None) -> Decision:
    """The decision on every trace. A function of the set: order and shards do not count. Reads each a few times.

    What is sorted and compared lies where the system puts what is temporary. `progress` gets the steps of the
    comparison of duplicates, two a trace. Raises ArenaError V2027 when the disk does not take it.
    """
    names: dict[tuple[RejectCode, ...], tuple[RejectCode, ...]] = {}
    codes = [names.setdefault(found, found) for found in (codes_under(one, rules) for one in traces)]
    ranks = array("I", bytes(4 * len(codes)))
    problems: dict[str, array[int]] = defaultdict(functools.partial(array, "I"))
    try:
        for index in _without_duplicates(traces, codes, rules, progress):
            problems[traces[index].problem].append(index)
        for members in problems.values():
            most = len(members) if "ranked_out" in rules.off else rules.per_problem_max
            taken = choose([traces[index] for index in members], most)
            for rank, place in enumerate(taken, start=1):
                ranks[members[place]] = rank
            for index in members:
                if not ranks[index]:
                    codes[index] = ("ranked_out",)
        if (rules.rows is not None or rules.tokens is not None) and "sampled_out" not in rules.off:
            # a trace's lot is the same whatever else is in the set
            lots = (
                (hashlib.sha256(f"{rules.seed} {one.trace_id} {one.place}".encode()).digest(), _INDEX.pack(index))
                for index, one in ((index, traces[index]) for index, rank in enumerate(ranks) if rank)
            )
            rows = tokens = 0
            for _, packed in sorted_on_disk(lots):
                (index,) = _INDEX.unpack(packed)
                rows, tokens = rows + 1, tokens + (traces[index].tokens or 0)
                if (rules.rows is not None and rows > rules.rows) or (
                    rules.tokens is not None and tokens > rules.tokens
                ):
                    codes[index], ranks[index] = ("sampled_out",), 0
    except (OSError, sqlite3.Error) as wrong:
        raise ArenaError("V2027", f"{tempfile.gettempdir()}: {wrong}") from None
    return Decision(rules=rules, ranks=ranks, codes=codes)


def rejections(traces: Sequence[Appraisal], decision: Decision) -> Iterator[Rejection]:
    """Why each trace that is not in the corpus is not, in the order of `traces`."""
    for one, codes in zip(traces, decision.codes, strict=True):
        if codes:
            yield Rejection(trace_id=one.trace_id, place=one.place, codes=codes)


def kept_rows(
    shards: Sequence[Shard], traces: Sequence[Appraisal], decision: Decision, *, executor: Executor = HERE
) -> Iterator[CorpusRow]:
    """The rows of the corpus, shard by shard. Raises ArenaError V2027 when a shard does not read as it did before."""
    kept = ((traces[index], rank) for index, rank in enumerate(decision.ranks) if rank)
    under_way: deque[tuple[int, dict[int, tuple[Appraisal, int]]]] = deque()

    def jobs() -> Iterator[tuple[Shard, frozenset[int]]]:
        for number, group in itertools.groupby(kept, key=lambda pair: pair[0].shard):
            under_way.append((number, {one.ordinal: (one, rank) for one, rank in group}))
            yield shards[number], frozenset(under_way[-1][1])

    for packed in executor.map(_read_packed, jobs(), died=_DIED):
        number, wanted = under_way.popleft()
        again = _UNPACK_TRACES.decode(packed)
        for ordinal, trace in again:
            one, rank = wanted[ordinal]
            if trace.trace_id != one.trace_id:
                raise ArenaError("V2027", f"{one.place} changed while it was read; build again")
            yield CorpusRow(trace=trace, signals=one.signals, tokens=one.tokens, rank=rank)
        if len(again) != len(wanted):
            raise ArenaError("V2027", f"shard {number} changed while it was read; build again")


_UNPACK_TRACES = msgspec.msgpack.Decoder(list[tuple[int, Trace]])
_UNPACK_SHARD = msgspec.msgpack.Decoder(AppraisedShard)
_INDEX = struct.Struct(">I")


def _appraise_packed(task: Task, guard: Guard, job: tuple[int, Shard]) -> bytes:
    number, shard = job
    return msgspec.msgpack.encode(appraise_shard(number, shard(), task, guard))


def _read_packed(job: tuple[Shard, frozenset[int]]) -> bytes:
    shard, ordinals = job
    traces = enumerate(row for row in shard() if isinstance(row, Trace))
    return msgspec.msgpack.encode([pair for pair in traces if pair[0] in ordinals])


def _without_duplicates(
    traces: Sequence[Appraisal],
    codes: list[tuple[RejectCode, ...]],
    rules: Rules,
    progress: PhaseProgress | None,
) -> Iterator[int]:
    """Indexes of traces that break no rule of their own, best first, less their duplicates, which get their code."""
    passing = codes.count(())
    keys = ((sort_bytes(traces[index]), _INDEX.pack(index)) for index, found in enumerate(codes) if not found)
    order = (index for _, packed in sorted_on_disk(keys) for index in _INDEX.unpack(packed))
    if {"duplicate", "near_duplicate"} <= set(rules.off):
        yield from order
        return

    def offered() -> Iterator[tuple[int, Fingerprint]]:
        for done, index in enumerate(order, 1):
            fingerprint = traces[index].fingerprint
            if fingerprint is None:
                raise ValueError("a trace that passes has no fingerprint: it was appraised for other rules")
            yield index, fingerprint
            if progress:
                progress(done, 2 * passing)

    near_e4 = None if "near_duplicate" in rules.off else rules.near_duplicate_e4
    for done, (index, likeness) in enumerate(likenesses(offered(), near_e4), passing + 1):
        if likeness is None or likeness in rules.off:
            yield index
        else:
            codes[index] = (likeness,)
        if progress:
            progress(done, 2 * passing)


def merit(signals: Signals) -> tuple[int, ...]:
    """What sorts the better trace first, equal where A.3's signals tie: no long stretch of identical calls, since a
    loop also makes a trace deep; then verification, distinct search queries, depth."""
    loops = max(0, signals.longest_repeat - _REPEATS_FREE)
    return (loops, -signals.has_verification, -signals.reformulations, -signals.depth)


def sort_bytes(candidate: Appraisal) -> bytes:
    """A total order, as bytes: by merit, then by identity."""
    trace_id, place = candidate.identity
    numbers = struct.pack(">4Q", *(part + 2**63 for part in merit(candidate.signals)))  # none below zero
    return numbers + f"{trace_id}\0{place}".encode("utf-8", "surrogatepass")


def choose(candidates: Sequence[Appraisal], most: int) -> list[int]:
    """Indexes of the taken candidates of one problem, best first, at most `most`.

    All of them, by merit and identity, where there is room. Else, of candidates that tie, the one whose shape differs
    most from the shapes taken before; for the first two places, the two of the tied that differ most from each other.
    """
    order = sorted(range(len(candidates)), key=lambda i: sort_bytes(candidates[i]))
    if most >= len(order):
        return order
    taken: list[int] = []
    while len(taken) < most:
        _, group = next(itertools.groupby(order, key=lambda i: merit(candidates[i].signals)))
        tied = list(group)
        chosen = tied[0] if len(tied) == 1 else _most_different(candidates, tied, taken, most)
        taken.append(chosen)
        order.remove(chosen)
    return taken


def shape_distance_e4(left: Shape, right: Shape) -> int:
    """0 for equal shapes to 10,000: one minus the Jaccard index of their bags of adjacent pairs, ends included."""
    bags = [Counter(zip(("", *shape), (*shape, ""), strict=True)) for shape in (left, right)]
    shared, either = (bags[0] & bags[1]).total(), (bags[0] | bags[1]).total()
    return 10_000 - 10_000 * shared // either


def _most_different(candidates: Sequence[Appraisal], tied: Sequence[int], taken: Sequence[int], most: int) -> int:
    """Of the tied, in order: the farthest from what is taken; with nothing taken and room for two, the first of the
    farthest pair."""
    first_of: dict[Shape, int] = {}
    for i in tied:
        first_of.setdefault(candidates[i].signals.shape, i)
    shapes = sorted(first_of)[:_SHAPES_MAX]
    if taken:
        before = [candidates[i].signals.shape for i in taken]
        return first_of[max(shapes, key=lambda one: min(shape_distance_e4(one, other) for other in before))]
    if most < 2 or len(shapes) < 2:
        return tied[0]
    pairs = [(one, other) for number, one in enumerate(shapes) for other in shapes[number + 1 :]]
    one, other = max(pairs, key=lambda pair: shape_distance_e4(*pair))
    return min(first_of[one], first_of[other], key=lambda i: candidates[i].identity)

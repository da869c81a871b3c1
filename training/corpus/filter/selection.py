"""The whole filter: shards of traces in, a decision on every trace and the rows of the corpus out.

Promise: the same set of traces gives the same corpus, in whatever order or shards it comes and on any number of
processes. Memory holds about a kilobyte a trace, not the traces: `appraise` reads everything once, `decide` sees only
appraisals, and `kept_rows` reads again those shards that hold something to keep. A trace that is not kept has a
`Rejection` with every per-trace rule it breaks, or the one set-level rule.

Set-level rules come after the per-trace ones, over the traces those let pass: exact duplicates, near duplicates,
ranking within each problem, and the seeded draw of a size-matched corpus.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from foundation.errors import ArenaError
from foundation.progress import PhaseProgress
from training.corpus.filter.duplicates import KeptTraces
from training.corpus.filter.funnel import Funnel, TokenWork
from training.corpus.filter.ranking import RankedTrace, choose, sort_key
from training.corpus.filter.tallies import funnel_of
from training.corpus.filter.tokens import add_counts, cache_path, open_counter
from training.corpus.filter.trace_features import (
    Appraisal,
    Clock,
    Guard,
    ShardAppraisals,
    Task,
    appraise_shard,
    codes_under,
    with_trace,
)
from training.corpus.model import CorpusRow, Quarantined, RejectCode, Rejection, Rules, Trace
from training.corpus.processes import spread

Shard = Callable[[], Iterable[Trace | Quarantined]]  # read twice: the same rows each time; picklable for processes


class Appraised(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read once. `traces` are in the order of shards."""

    traces: list[Appraisal]
    quarantined: dict[str, int]  # rows that could not be converted, by code
    work: TokenWork


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision a trace, in the order of `Appraised.traces`: its rank within its problem, or why it is out."""

    rules: Rules
    ranks: list[int]  # from 1; 0 for a trace that is not kept
    codes: list[tuple[RejectCode, ...]]

    @property
    def kept(self) -> int:
        """How many traces are kept."""
        return sum(rank > 0 for rank in self.ranks)


class CorpusSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The filter's answer under one set of rules."""

    appraised: Appraised
    decision: Decision
    funnel: Funnel


def select(
    shards: Sequence[Shard], task: Task, guard: Guard, *, workers: int = 1, clock_ns: Clock = time.perf_counter_ns
) -> CorpusSelection:
    """Read, decide by the task's first rules, and count. `kept_rows` then gives the rows."""
    appraised = appraise(shards, task, guard, workers=workers, clock_ns=clock_ns)
    decision = decide(appraised.traces, task.arms[0])
    return CorpusSelection(appraised=appraised, decision=decision, funnel=funnel(appraised, decision))


def appraise(
    shards: Sequence[Shard],
    task: Task,
    guard: Guard,
    *,
    workers: int = 1,
    clock_ns: Clock = time.perf_counter_ns,
    progress: PhaseProgress | None = None,
) -> Appraised:
    """Read every shard once, in `workers` processes. Tokens counted anew go into the task's cache.

    `progress` gets shards done and in all.

    Raises what a shard raises when it is read, ArenaError V2140, V2141, V2027 for tokenizer and cache, and V2145 when
    a process died.
    """
    work = functools.partial(_appraise_packed, task, guard, clock_ns)
    traces: list[Appraisal] = []
    quarantined: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = {}
    works = []
    try:
        for packed in spread(work, list(enumerate(shards)), workers):
            one = _UNPACK.decode(packed)
            traces += one.traces
            counts |= one.counts
            works.append(one.work)
            for code, count in one.quarantined.items():
                quarantined[code] += count
            if progress:
                progress(len(works), len(shards))
    finally:  # what was counted before an error stays counted
        if task.cache is not None and counts:
            add_counts(cache_path(task.cache, open_counter(task.tokenizer).identity), counts)
    total = TokenWork(
        counter=next((one.counter for one in works if one.counter), ""),
        counted=sum(one.counted for one in works),
        from_cache=sum(one.from_cache for one in works),
        tokens=sum(one.tokens for one in works),
        text_bytes=sum(one.text_bytes for one in works),
        elapsed_ms=sum(one.elapsed_ms for one in works),
    )
    return Appraised(traces=traces, quarantined=dict(quarantined), work=total)


def decide(traces: Sequence[Appraisal], rules: Rules) -> Decision:
    """The decision on every trace. A function of the set: order and shards do not count."""
    codes = [codes_under(one, rules) for one in traces]
    left = [index for index, found in enumerate(codes) if not found]
    left.sort(key=lambda index: sort_key(_candidate(traces[index])))
    left = _drop(codes, left, _duplicates(traces, left, rules))
    ranks = [0] * len(traces)
    problems: dict[str, list[int]] = defaultdict(list)
    for index in left:
        problems[traces[index].problem].append(index)
    outranked: dict[int, RejectCode] = {}
    for members in problems.values():
        most = len(members) if "ranked_out" in rules.off else rules.per_problem_max
        taken = choose([_candidate(traces[index]) for index in members], most)
        for rank, place in enumerate(taken, start=1):
            ranks[members[place]] = rank
        outranked.update((index, "ranked_out") for index in members if not ranks[index])
    left = _drop(codes, left, outranked)
    if rules.rows is not None and "sampled_out" not in rules.off:
        # a trace's lot is the same whatever else is in the set
        lots = {
            i: hashlib.sha256(f"{rules.seed} {traces[i].trace_id} {traces[i].place}".encode()).digest() for i in left
        }
        for index in sorted(left, key=lots.__getitem__)[rules.rows :]:
            codes[index], ranks[index] = ("sampled_out",), 0
    return Decision(rules=rules, ranks=ranks, codes=codes)


def funnel(appraised: Appraised, decision: Decision) -> Funnel:
    """The report's values for one decision."""
    return funnel_of(
        appraised.traces,
        [rank > 0 for rank in decision.ranks],
        decision.codes,
        decision.rules,
        sum(appraised.quarantined.values()),
    )


def rejections(traces: Sequence[Appraisal], decision: Decision) -> Iterator[Rejection]:
    """Why each trace that is not in the corpus is not, in the order of `traces`."""
    for one, codes in zip(traces, decision.codes, strict=True):
        if codes:
            yield Rejection(trace_id=one.trace_id, place=one.place, codes=codes)


def kept_rows(
    shards: Sequence[Shard], traces: Sequence[Appraisal], decision: Decision, *, workers: int = 1
) -> Iterator[CorpusRow]:
    """The rows of the corpus, shard by shard. Raises ArenaError V2142 when a shard does not read as it did before."""
    wanted: dict[int, dict[int, Appraisal]] = defaultdict(dict)
    rank_of: dict[tuple[int, int], int] = {}
    for one, rank in zip(traces, decision.ranks, strict=True):
        if rank:
            wanted[one.shard][one.ordinal] = one
            rank_of[one.shard, one.ordinal] = rank
    jobs = [(shards[number], frozenset(found)) for number, found in sorted(wanted.items())]
    for (number, found), packed in zip(sorted(wanted.items()), spread(_read_packed, jobs, workers), strict=True):
        again = _UNPACK_TRACES.decode(packed)
        for ordinal, trace in again:
            one = found[ordinal]
            if trace.trace_id != one.trace_id:
                raise ArenaError("V2142", f"{trace.source.place} is no longer {one.place}")
            yield CorpusRow(trace=trace, signals=one.signals, tokens=one.tokens, rank=rank_of[number, ordinal])
        if len(again) != len(found):
            raise ArenaError("V2142", f"{len(found) - len(again)} traces of shard {number} are gone")


_UNPACK = msgspec.msgpack.Decoder(ShardAppraisals)
_UNPACK_TRACES = msgspec.msgpack.Decoder(list[tuple[int, Trace]])


def _appraise_packed(task: Task, guard: Guard, clock_ns: Clock, job: tuple[int, Shard]) -> bytes:
    number, shard = job
    return msgspec.msgpack.encode(appraise_shard(number, shard(), task, guard, clock_ns))


def _read_packed(job: tuple[Shard, frozenset[int]]) -> bytes:
    shard, ordinals = job
    return msgspec.msgpack.encode(list(with_trace(shard(), ordinals)))


def _candidate(one: Appraisal) -> RankedTrace:
    return RankedTrace(signals=one.signals, identity=one.identity)


def _duplicates(traces: Sequence[Appraisal], best_first: Sequence[int], rules: Rules) -> dict[int, RejectCode]:
    """The duplicates among the traces left, offered best first."""
    found: dict[int, RejectCode] = {}
    if {"duplicate", "near_duplicate"} <= set(rules.off):
        return found
    kept = KeptTraces(rules.near_duplicate_e4)
    for index in best_first:
        fingerprint = traces[index].fingerprint
        if fingerprint is None:
            raise ValueError("a trace that passes has no fingerprint: it was appraised for other rules")
        if kept.is_exact(fingerprint):
            if "duplicate" not in rules.off:
                found[index] = "duplicate"
        elif "near_duplicate" not in rules.off and kept.is_near(fingerprint):
            found[index] = "near_duplicate"
        else:
            kept.add(fingerprint)
    return found


def _drop(codes: list[tuple[RejectCode, ...]], left: Sequence[int], out: Mapping[int, RejectCode]) -> list[int]:
    for index, code in out.items():
        codes[index] = (code,)
    return [index for index in left if index not in out]

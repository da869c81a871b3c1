"""The whole filter: shards of traces in, a decision on every trace and the rows of the corpus out.

The same set of traces gives the same corpus, in whatever order or shards it comes and on any number of processes or
machines. `appraise` reads everything once and puts a kilobyte a trace on disk; `decide` sees only these appraisals, and
`kept_rows` reads again those shards that hold something to keep. Memory holds a few shards and some tens of bytes a
trace; what is compared as possible duplicates lies on disk. A trace that is not kept has a `Rejection` with every
per-trace rule it breaks, or the one set-level rule.

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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foundation.durable_files import coded
from foundation.errors import ArenaError
from foundation.executors import HERE, Executor
from foundation.long_work import Progress, Spool, no_progress
from training.corpus import model
from training.corpus.duplicates import fingerprint, likenesses, sorted_on_disk
from training.corpus.gates import RECOMMEND, codes_by_rules, gates, query_of
from training.corpus.tokens import TokenCounter, open_counter, render

Guard = Callable[[model.Trace], Sequence[model.RejectCode]]  # `pool` and `leak`, or nothing; picklable


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are appraised. `arms` are all the rules that will be decided by; the first is the corpus' own.

    Nothing counts tokens where every arm has `tokens` switched off. `tokenizer` None is the stand-in counter.
    `known_ids`: what the search server can return, for traces that do not record what it returned.
    """

    arms: tuple[model.Rules, ...]
    tokenizer: Path | None = None
    known_ids: frozenset[str] | None = None


AppraisedShard = tuple[list[msgspec.Raw], list[model.Quarantined]]  # appraisals in order, packed; rows not readable


class Appraisals(Sequence[model.Appraisal]):
    """The appraisals of a run in the order of its shards, on disk, and what the shards say beside them."""

    def __init__(self) -> None:
        """Raises OSError when the disk does not take it."""
        self._spool, self._unread = Spool(), Spool()
        self.unread: tuple[model.UnreadCount, ...] = ()

    def add(self, shard: AppraisedShard) -> None:
        """Add the next shard. Raises OSError when the disk is full."""
        traces, unread = shard
        for packed in traces:
            self._spool.add(bytes(packed))
        for one in unread:
            self._unread.add(msgspec.msgpack.encode(one))
        counts = (model.UnreadCount(code=one.code, count=1, example=one.place, detail=one.detail) for one in unread)
        self.unread = added_up([*self.unread, *counts])

    def unread_rows(self) -> Iterator[model.Quarantined]:
        """Every row that could not be read."""
        return (_UNREAD.decode(self._unread.get(number)) for number in range(len(self._unread)))

    def __len__(self) -> int:
        return len(self._spool)

    def __getitem__(self, index: Any) -> Any:  # one by its number: nobody asks for a stretch
        return _APPRAISAL.decode(self._spool.get(index))


_APPRAISAL, _UNREAD = msgspec.msgpack.Decoder(model.Appraisal), msgspec.msgpack.Decoder(model.Quarantined)
_CHARS_PER_TOKEN = 16  # more than any text has but one of blanks
_VERIFYING = frozenset({"check_product_match", "view_product_information", "view_product"})


def added_up(counts: Iterable[model.UnreadCount]) -> tuple[model.UnreadCount, ...]:
    """One count a code, sorted; its example is the first place by number, whatever the order."""
    found: dict[str, model.UnreadCount] = {}
    for one in sorted(counts, key=lambda one: (len(one.example), one.example)):
        known = found.get(one.code)
        found[one.code] = one if known is None else msgspec.structs.replace(known, count=known.count + one.count)
    return tuple(found[code] for code in sorted(found))


def codes_under(appraisal: model.Appraisal, rules: model.Rules) -> tuple[model.RejectCode, ...]:
    """Every per-trace rule a trace breaks, sorted; `tokens` only where it breaks no other (paper, A.2 rule 4)."""
    own = codes_by_rules(appraisal.coefficient_e4, appraisal.is_success, rules, is_unjudged=appraisal.is_unjudged)
    codes = {*appraisal.codes, *own}.difference(rules.off)
    if not codes and "tokens" not in rules.off and appraisal.tokens is not None and appraisal.tokens > rules.tokens_max:
        return ("tokens",)
    return tuple(sorted(codes))


def appraise_shard(
    number: int, rows: Iterable[model.Trace | model.Quarantined], task: Task, guard: Guard
) -> AppraisedShard:
    """Read one shard once. Raises ArenaError V2120 when the tokenizer cannot be used."""
    every = gates(task.known_ids)
    unread: list[model.Quarantined] = []
    done: list[msgspec.Raw] = []
    for row in rows:
        if isinstance(row, model.Quarantined):
            unread.append(row)
            continue
        facts = row.facts
        codes = {code for code, breaks in every.items() if breaks(row)}.union(guard(row))
        appraisal = model.Appraisal(
            shard=number,
            ordinal=len(done),
            trace_id=row.trace_id,
            place=row.source.place,
            codes=tuple(sorted(codes)),
            coefficient_e4=facts.coefficient_e4,
            tokens=None,
            problem=_problem_of(row),
            bucket=facts.bucket or "",
            day=facts.day or "",
            agent=facts.agent or "",
            team=facts.team or "",
            signals=signals_of(row),
            turns=sum(message.role == "assistant" for message in row.messages),
            fingerprint=None,
            is_unjudged=model.JUDGE in row.missing,
            is_success=facts.is_success,
        )
        if open_arms := [rules for rules in task.arms if not codes_under(appraisal, rules)]:
            is_counted = any("tokens" not in rules.off for rules in open_arms)
            most = max(rules.tokens_max for rules in open_arms)
            tokens = tokens_of(row, open_counter(task.tokenizer), most) if is_counted else None
            appraisal = msgspec.structs.replace(appraisal, fingerprint=fingerprint(row), tokens=tokens)
        done.append(msgspec.Raw(msgspec.msgpack.encode(appraisal)))
    return done, unread


def tokens_of(trace: model.Trace, counter: TokenCounter, tokens_max: int) -> int:
    """The tokens of a trace; of one far over `tokens_max` those of its beginning, so that no row takes minutes."""
    text = render(trace)
    tokens = counter.count(head := text[: _CHARS_PER_TOKEN * tokens_max])
    return counter.count(text) if tokens <= tokens_max and len(head) < len(text) else tokens


def _problem_of(trace: model.Trace) -> str:
    """The problem a trace is of: its id, else a hash of its query, case and spacing aside."""
    if trace.facts.problem_id is not None:
        return trace.facts.problem_id
    query = " ".join(trace.query.casefold().split())
    return "query " + hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def signals_of(trace: model.Trace) -> model.Signals:
    """The signals of one trace (A.3)."""
    turns = [message for message in trace.messages if message.role == "assistant"]
    thoughts = sum(bool(turn.reasoning) or "<think>" in turn.content for turn in turns)
    calls = [call for turn in turns for call in turn.calls]
    runs = itertools.groupby((call.name, "".join(call.arguments.split())) for call in calls)  # spacing aside
    last_recommend = max((i for i, call in enumerate(calls) if call.name == RECOMMEND), default=len(calls))
    return model.Signals(
        depth=thoughts + len(calls),
        reformulations=len({query for call in calls if (query := query_of(call))}),
        has_verification=any(call.name in _VERIFYING for call in calls[:last_recommend]),
        longest_repeat=max((len(list(run)) for _, run in runs), default=0),
        shape=tuple(call.name for call in calls),
    )


Shard = Callable[
    [], Iterable[model.Trace | model.Quarantined]
]  # read twice: the same rows each time; picklable for other processes

_DIED = "V2052"
Shape = tuple[str, ...]
_REPEATS_FREE = 2  # asking twice is no loop


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision a trace, in the order of what was appraised: its rank within its problem, or why it is out."""

    rules: model.Rules
    ranks: Sequence[int]  # from 1; 0 for a trace that is not kept
    codes: list[tuple[model.RejectCode, ...]]

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
    progress: Progress = no_progress,
) -> Appraisals:
    """Read every shard once, where `executor` runs it.

    `progress` is told of shards. Raises what a shard raises when it is read, ArenaError V2120 for a
    tokenizer, V2027 for a full disk, and V2052 for a shard that is lost again and again.
    """
    with coded(tempfile.gettempdir(), "V2027"):
        appraised = Appraisals()
        work = functools.partial(_appraise_packed, task, guard)
        for done, packed in enumerate(executor.map(work, enumerate(shards), died=_DIED), 1):
            appraised.add(_UNPACK_SHARD.decode(packed))
            progress("filter", done, len(shards))
    return appraised


def decide(traces: Sequence[model.Appraisal], rules: model.Rules, *, progress: Progress = no_progress) -> Decision:
    """The decision on every trace. A function of the set: order and shards do not count. Reads each a few times.

    What is sorted and compared lies where the system puts what is temporary. `progress` is told of the steps of
    the comparison of duplicates, two a trace. Raises ArenaError V2027 when the disk does not take it.
    """
    names: dict[tuple[model.RejectCode, ...], tuple[model.RejectCode, ...]] = {}
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


def rejections(traces: Sequence[model.Appraisal], decision: Decision) -> Iterator[model.Rejection]:
    """Why each trace that is not in the corpus is not, in the order of `traces`."""
    for one, codes in zip(traces, decision.codes, strict=True):
        if codes:
            yield model.Rejection(trace_id=one.trace_id, place=one.place, codes=codes)


def kept_rows(
    shards: Sequence[Shard], traces: Sequence[model.Appraisal], decision: Decision, *, executor: Executor = HERE
) -> Iterator[model.CorpusRow]:
    """The rows of the corpus, shard by shard. Raises ArenaError V2027 when a shard does not read as it did before."""
    kept = (traces[index] for index, rank in enumerate(decision.ranks) if rank)
    jobs = (
        (shards[number], frozenset(one.ordinal for one in group))
        for number, group in itertools.groupby(kept, key=lambda one: one.shard)
    )
    expected = ((traces[index], rank) for index, rank in enumerate(decision.ranks) if rank)
    for packed in executor.map(_read_packed, jobs, died=_DIED):
        for trace in _UNPACK_TRACES.decode(packed):
            one, rank = next(expected)
            if trace.trace_id != one.trace_id:
                raise ArenaError("V2027", f"{one.place} changed while it was read; build again")
            yield model.CorpusRow(trace=trace, signals=one.signals, tokens=one.tokens, rank=rank)
    if left := next(expected, None):
        raise ArenaError("V2027", f"{left[0].place} is gone since it was read; build again")


_UNPACK_TRACES = msgspec.msgpack.Decoder(list[model.Trace])
_UNPACK_SHARD = msgspec.msgpack.Decoder(AppraisedShard)
_INDEX = struct.Struct(">I")


def _appraise_packed(task: Task, guard: Guard, job: tuple[int, Shard]) -> bytes:
    number, shard = job
    return msgspec.msgpack.encode(appraise_shard(number, shard(), task, guard))


def _read_packed(job: tuple[Shard, frozenset[int]]) -> bytes:
    shard, ordinals = job
    traces = enumerate(row for row in shard() if isinstance(row, model.Trace))
    return msgspec.msgpack.encode([trace for ordinal, trace in traces if ordinal in ordinals])


def _without_duplicates(
    traces: Sequence[model.Appraisal], codes: list[tuple[model.RejectCode, ...]], rules: model.Rules, progress: Progress
) -> Iterator[int]:
    """Indexes of traces that break no rule of their own, best first, less their duplicates, which get their code."""
    passing = codes.count(())
    keys = ((sort_bytes(traces[index]), _INDEX.pack(index)) for index, found in enumerate(codes) if not found)
    order = (index for _, packed in sorted_on_disk(keys) for index in _INDEX.unpack(packed))
    if {"duplicate", "near_duplicate"} <= set(rules.off):
        yield from order
        return

    def offered() -> Iterator[tuple[int, model.Fingerprint]]:
        for done, index in enumerate(order, 1):
            fingerprint = traces[index].fingerprint
            if fingerprint is None:
                raise ValueError("a trace that passes has no fingerprint: it was appraised for other rules")
            yield index, fingerprint
            progress("compare", done, 2 * passing)

    near_e4 = None if "near_duplicate" in rules.off else rules.near_duplicate_e4
    for done, (index, likeness) in enumerate(likenesses(offered(), near_e4), passing + 1):
        if likeness is None or likeness in rules.off:
            yield index
        else:
            codes[index] = (likeness,)
        progress("compare", done, 2 * passing)


def merit(signals: model.Signals) -> tuple[int, ...]:
    """What sorts the better trace first, equal where A.3's signals tie: no long stretch of identical calls, since a
    loop also makes a trace deep; then verification, distinct search queries, depth."""
    loops = max(0, signals.longest_repeat - _REPEATS_FREE)
    return (loops, -signals.has_verification, -signals.reformulations, -signals.depth)


def sort_bytes(candidate: model.Appraisal) -> bytes:
    """A total order, as bytes: by merit, then by trace id and place."""
    numbers = struct.pack(">4Q", *(part + 2**63 for part in merit(candidate.signals)))  # none below zero
    return numbers + f"{candidate.trace_id}\0{candidate.place}".encode("utf-8", "surrogatepass")


def choose(candidates: Sequence[model.Appraisal], most: int) -> list[int]:
    """Indexes of the taken candidates of one problem, best first, at most `most`.

    All of them, by merit and identity, where there is room. Else, of candidates that tie, the first, and then the one
    whose shape differs most from the shapes taken before.
    """
    order = sorted(range(len(candidates)), key=lambda i: sort_bytes(candidates[i]))
    if most >= len(order):
        return order
    taken: list[int] = []

    def difference(index: int) -> int:
        shape = candidates[index].signals.shape
        return min((shape_distance_e4(shape, candidates[other].signals.shape) for other in taken), default=0)

    while len(taken) < most:
        _, tied = next(itertools.groupby(order, key=lambda i: merit(candidates[i].signals)))
        chosen = max(tied, key=difference)
        taken.append(chosen)
        order.remove(chosen)
    return taken


def shape_distance_e4(left: Shape, right: Shape) -> int:
    """0 for equal shapes to 10,000: one minus the Jaccard index of their bags of adjacent pairs, ends included."""
    bags = [Counter(zip(("", *shape), (*shape, ""), strict=True)) for shape in (left, right)]
    shared, either = (bags[0] & bags[1]).total(), (bags[0] | bags[1]).total()
    return 10_000 - 10_000 * shared // either

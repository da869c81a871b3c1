"""What the filter keeps of a trace after reading it once: everything it decides by, and none of its text; and where.

An `Appraisal` is about a kilobyte whatever the size of the trace; decisions under several sets of rules need no second
reading. Tokens are counted only where every other per-trace rule of some arm lets the trace pass.

A journal with a path is taken up again by a run of the same identity, up to the last shard that was written whole (each
has its checksum). One run at a time has it. A journal without a path goes with the process.

```
identity, 64 hex digits, line feed
a shard:  bytes and crc32 of the rest;  bytes of the head, head (MessagePack);  its appraisals, one after another
```
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

import msgspec

from foundation.errors import ArenaError
from training.corpus.duplicates import Fingerprint, TextReading, fingerprints, read
from training.corpus.gates import (
    calls_of,
    check_rules,
    coefficient,
    coefficient_of,
    failed,
    gates,
    is_unjudged,
    outcome_of,
    query_of,
)
from training.corpus.model import Quarantined, RejectCode, Rules, Signals, TokenWork, Trace, UnreadCount
from training.corpus.ranking import signals_of
from training.corpus.tokens import TokenCounter, cache_path, open_counter, read_counts, render, text_key

Guard = Callable[[Trace], Sequence[RejectCode]]  # `pool` and `leak`, or nothing; picklable
Clock = Callable[[], int]  # nanoseconds

_BATCH = 256  # readings held while their MinHash waits


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are appraised. `arms` are all the rules that will be decided by; the first is the corpus' own.

    `counts_tokens` False is for arms that all have `tokens` switched off. `tokenizer` None is the stand-in counter;
    `cache` None keeps no counts. `known_ids`: what the search server can return, for traces that do not record what it
    returned. `category_of`: product id -> category, for the coverage of the long tail.
    """

    arms: tuple[Rules, ...]
    counts_tokens: bool = True
    tokenizer: Path | None = None
    cache: Path | None = None
    known_ids: frozenset[str] | None = None
    category_of: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError("there are no rules to decide by")
        for rules in self.arms:
            check_rules(rules)
            if not self.counts_tokens and "tokens" not in rules.off:
                raise ValueError("the token budget is on, and nothing counts tokens")


class Appraisal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One trace, read. `codes` are all per-trace codes but `coefficient`, `failed` and `tokens`, which depend on the
    rules."""

    shard: int
    ordinal: int  # within the shard, from 0
    trace_id: str
    place: str
    codes: tuple[RejectCode, ...]
    coefficient_e4: int | None
    tokens: int | None
    problem: str  # its id, or a hash of the query where the source has none
    bucket: str
    day: str
    agent: str
    team: str
    signals: Signals
    turns: int
    queries: tuple[int, ...]  # 64-bit hashes of the distinct search queries
    categories: tuple[str, ...]  # of the recommended products
    fingerprint: Fingerprint | None  # of a trace that some arm lets pass
    is_unjudged: bool = False  # its source has no judge: the coefficient is not asked of it
    is_success: bool | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """What a tie is broken by, last."""
        return self.trace_id, self.place


class ShardAppraisals(msgspec.Struct, frozen=True, array_like=True):
    """One shard, read: its traces in order, rows quarantined, by code, and the tokens counted anew, by `text_key`."""

    traces: list[Appraisal]
    quarantined: tuple[UnreadCount, ...]
    counts: dict[str, int]
    work: TokenWork


def added_up(counts: Iterable[UnreadCount]) -> list[UnreadCount]:
    """One count a code, sorted; its example is the first place by number, whatever the order."""
    found: dict[str, UnreadCount] = {}
    for one in counts:
        known = found.get(one.code, UnreadCount(code=one.code, count=0, example=one.example))
        example = min(known.example, one.example, key=lambda place: (len(place), place))
        found[one.code] = UnreadCount(code=one.code, count=known.count + one.count, example=example)
    return [found[code] for code in sorted(found)]


def codes_under(appraisal: Appraisal, rules: Rules) -> tuple[RejectCode, ...]:
    """Every per-trace rule a trace breaks, sorted; `tokens` only where it breaks no other (paper, A.2 rule 4)."""
    codes = set(appraisal.codes)
    if not appraisal.is_unjudged and (code := coefficient_of(appraisal.coefficient_e4, rules)) is not None:
        codes.add(code)
    if (code := outcome_of(appraisal.is_success, rules)) is not None:
        codes.add(code)
    codes.difference_update(rules.off)
    if not codes and "tokens" not in rules.off and appraisal.tokens is not None and appraisal.tokens > rules.tokens_max:
        return ("tokens",)
    return tuple(sorted(codes))


def appraise_shard(
    number: int, rows: Iterable[Trace | Quarantined], task: Task, guard: Guard, clock_ns: Clock
) -> ShardAppraisals:
    """Read one shard once. Raises ArenaError V2140, V2141 when the tokenizer cannot be used."""
    tally = _TokenTally(task, clock_ns)
    every = tuple(gate for gate in gates(task.known_ids) if gate not in (coefficient, failed))
    category_of = task.category_of or {}
    quarantined: list[UnreadCount] = []
    done: list[Appraisal] = []
    waiting: list[tuple[int, TextReading]] = []
    ordinal = 0
    for row in rows:
        if isinstance(row, Quarantined):
            quarantined = added_up([*quarantined, UnreadCount(code=row.code, count=1, example=row.place)])
            continue
        facts = row.facts
        codes = {code for gate in every if (code := gate(row, task.arms[0])) is not None}.union(guard(row))
        queries = {query for call in calls_of(row) if (query := query_of(call))}
        digests = [hashlib.blake2b(one.encode("utf-8", "surrogatepass"), digest_size=8).digest() for one in queries]
        appraisal = Appraisal(
            shard=number,
            ordinal=ordinal,
            trace_id=row.trace_id,
            place=row.source.place,
            codes=tuple(sorted(codes)),
            coefficient_e4=facts.coefficient_e4,
            tokens=None,
            problem=problem_key(row),
            bucket=facts.bucket or "",
            day=facts.day or "",
            agent=facts.agent or "",
            team=facts.team or "",
            signals=signals_of(row),
            turns=sum(message.role == "assistant" for message in row.messages),
            queries=tuple(sorted(int.from_bytes(digest, "big") for digest in digests)),
            categories=tuple(sorted({category_of[one] for one in facts.recommended or () if one in category_of})),
            fingerprint=None,
            is_unjudged=is_unjudged(row),
            is_success=facts.is_success,
        )
        ordinal += 1
        open_arms = [rules for rules in task.arms if not codes_under(appraisal, rules)]
        if open_arms:
            waiting.append((len(done), read(row)))
            if task.counts_tokens and any("tokens" not in rules.off for rules in open_arms):
                appraisal = msgspec.structs.replace(appraisal, tokens=tally.count(row))
        done.append(appraisal)
        if len(waiting) == _BATCH:
            _put_fingerprints(done, waiting)
    _put_fingerprints(done, waiting)
    return ShardAppraisals(traces=done, quarantined=tuple(quarantined), counts=tally.counts, work=tally.work())


def with_trace(rows: Iterable[Trace | Quarantined], wanted: Collection[int]) -> Iterator[tuple[int, Trace]]:
    """The traces of a shard that stand at the wanted ordinals, with these; stops reading after the last."""
    left, ordinal = len(wanted), 0
    if not left:
        return
    for row in rows:
        if isinstance(row, Quarantined):
            continue
        if ordinal in wanted:
            yield ordinal, row
            left -= 1
            if not left:
                return
        ordinal += 1


def problem_key(trace: Trace) -> str:
    """The problem a trace is of: its id, else a hash of its query, case and spacing aside."""
    if trace.facts.problem_id is not None:
        return trace.facts.problem_id
    query = " ".join(trace.query.casefold().split())
    return "query " + hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _put_fingerprints(done: list[Appraisal], waiting: list[tuple[int, TextReading]]) -> None:
    found = fingerprints([reading for _, reading in waiting])
    for (index, _), fingerprint in zip(waiting, found, strict=True):
        done[index] = msgspec.structs.replace(done[index], fingerprint=fingerprint)
    waiting.clear()


class _TokenTally:
    """Counts tokens of one shard's traces, each text once, and what that cost. Opens the tokenizer when first asked."""

    def __init__(self, task: Task, clock_ns: Clock) -> None:
        self._task, self._clock_ns = task, clock_ns
        self._counter: TokenCounter | None = None
        self._known: Mapping[str, int] = {}
        self.counts: dict[str, int] = {}
        self._cached = self._text_bytes = self._elapsed_ns = 0

    def count(self, trace: Trace) -> int:
        """The tokens of a trace under the task's tokenizer."""
        if self._counter is None:
            self._counter = open_counter(self._task.tokenizer)
            if self._task.cache is not None:
                self._known = read_counts(cache_path(self._task.cache, self._counter.identity))
        text = render(trace)
        key = text_key(text)
        known = self._known.get(key, self.counts.get(key))
        if known is not None:
            self._cached += 1
            return known
        started = self._clock_ns()
        self.counts[key] = tokens = self._counter.count(text)
        self._elapsed_ns += self._clock_ns() - started
        self._text_bytes += len(text.encode("utf-8", "surrogatepass"))
        return tokens

    def work(self) -> TokenWork:
        """What it cost."""
        return TokenWork(
            counter="" if self._counter is None else self._counter.identity,
            counted=len(self.counts),
            from_cache=self._cached,
            tokens=sum(self.counts.values()),
            text_bytes=self._text_bytes,
            elapsed_ms=self._elapsed_ns // 1_000_000,
        )


NO_IDENTITY = "0" * 64

_SHARD, _HEAD = struct.Struct("<QI"), struct.Struct("<I")
_PACK = msgspec.msgpack.Encoder().encode
_TRACE = msgspec.msgpack.Decoder(Appraisal).decode


class ShardHead(msgspec.Struct, frozen=True, array_like=True):
    """A shard beside its appraisals. `sizes` are their bytes, in order; the rest as in `ShardAppraisals`."""

    sizes: list[int]
    quarantined: tuple[UnreadCount, ...]
    counts: dict[str, int]
    work: TokenWork


_HEADS = msgspec.msgpack.Decoder(ShardHead)


def pack_shard(shard: ShardAppraisals) -> bytes:
    """A shard as the journal holds it; made where the shard was read."""
    rows = [_PACK(one) for one in shard.traces]
    head = _PACK(ShardHead([len(row) for row in rows], shard.quarantined, shard.counts, shard.work))
    return b"".join((_HEAD.pack(len(head)), head, *rows))


class StoredAppraisals(Sequence[Appraisal]):
    """Appraisals that lie in a file."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._starts, self._sizes = array("Q"), array("I")

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> Appraisal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Appraisal]: ...
    def __getitem__(self, index: int | slice) -> Appraisal | list[Appraisal]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        return _TRACE(os.pread(self._file, self._sizes[index], self._starts[index]))

    def __iter__(self) -> Iterator[Appraisal]:
        return map(self.__getitem__, range(len(self)))

    def extend(self, start: int, sizes: Sequence[int]) -> None:
        """Appraisals of these sizes stand from `start` on, one after another."""
        for size in sizes:
            self._starts.append(start)
            self._sizes.append(size)
            start += size


class AppraisalJournal:
    """One run's appraisals. Raises ArenaError V2027 when the file cannot be used, or another run is using it."""

    def __init__(self, path: Path | None = None, identity: str = NO_IDENTITY) -> None:
        self._path = path
        try:
            if path is None:
                with tempfile.TemporaryFile() as file:
                    self._file = os.dup(file.fileno())
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            self.traces = StoredAppraisals(self._file)
            weakref.finalize(self.traces, os.close, self._file)  # they may be read after the journal is gone
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArenaError("V2027", f"{path}: another build is using it") from None
        except OSError as wrong:
            raise ArenaError("V2027", f"{path}: {wrong.strerror}") from None
        self._heads: list[int] = []  # where each shard's head stands
        self._end = len(identity) + 1
        head = identity.encode() + b"\n"
        if os.pread(self._file, len(head), 0) != head:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, head, 0)
        while len(begin := os.pread(self._file, _SHARD.size, self._end)) == _SHARD.size:
            size, checksum = _SHARD.unpack(begin)
            packed = os.pread(self._file, size, self._end + _SHARD.size)
            if len(packed) != size or zlib.crc32(packed) != checksum:
                break  # a kill cut it short, or the disk changed it: read again
            self._index(packed)
        os.ftruncate(self._file, self._end)

    @property
    def folder(self) -> Path | None:
        """The folder it lies in: the place for what else a build puts on disk. None for one without a path."""
        return self._path and self._path.parent

    @property
    def shards(self) -> int:
        """How many shards it holds."""
        return len(self._heads)

    def add(self, packed: bytes) -> None:
        """Put the next shard down. Raises ArenaError V2027 when the disk does not take it."""
        try:
            with open(self._file, "wb", closefd=False) as file:
                file.seek(self._end)
                file.write(_SHARD.pack(len(packed), zlib.crc32(packed)))
                file.write(packed)
        except OSError as wrong:
            raise ArenaError("V2027", f"{self._path or tempfile.gettempdir()}: {wrong.strerror}") from None
        self._index(packed)

    def heads(self) -> Iterator[ShardHead]:
        """What each shard says beside its appraisals."""
        for start in self._heads:
            (size,) = _HEAD.unpack(os.pread(self._file, _HEAD.size, start))
            yield _HEADS.decode(os.pread(self._file, size, start + _HEAD.size))

    def discard(self) -> None:
        """Take the file away: what it was for is done. The appraisals can still be read by whoever has them."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _index(self, packed: bytes) -> None:
        start = self._end + _SHARD.size
        (size,) = _HEAD.unpack_from(packed)
        self._heads.append(start)
        self.traces.extend(start + _HEAD.size + size, _HEADS.decode(packed[_HEAD.size : _HEAD.size + size]).sizes)
        self._end = start + len(packed)

"""What the filter keeps of a trace after reading it once: everything it decides by, and none of its text; and where.

An `Appraisal` is about a kilobyte whatever the size of the trace; decisions under several sets of rules need no second
reading. Tokens are counted only where every other per-trace rule of some arm lets the trace pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from training.corpus.disk import ShardHead, TokenCounts, added_up
from training.corpus.duplicates import TextReading, fingerprints, read
from training.corpus.gates import check_rules, codes_by_rules, gates, is_unjudged
from training.corpus.model import Appraisal, Quarantined, RejectCode, Rules, TokenWork, Trace, UnreadCount
from training.corpus.ranking import signals_of
from training.corpus.tokens import TokenCounter, cache_path, open_counter, render, text_key

Guard = Callable[[Trace], Sequence[RejectCode]]  # `pool` and `leak`, or nothing; picklable
Clock = Callable[[], int]  # nanoseconds

_BATCH = 256  # readings held while their MinHash waits


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are appraised. `arms` are all the rules that will be decided by; the first is the corpus' own.

    `counts_tokens` False is for arms that all have `tokens` switched off. `tokenizer` None is the stand-in counter;
    `cache` None keeps no counts. `known_ids`: what the search server can return, for traces that do not record what it
    returned.
    """

    arms: tuple[Rules, ...]
    counts_tokens: bool = True
    tokenizer: Path | None = None
    cache: Path | None = None
    known_ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError("there are no rules to decide by")
        for rules in self.arms:
            check_rules(rules)
            if not self.counts_tokens and "tokens" not in rules.off:
                raise ValueError("the token budget is on, and nothing counts tokens")


def codes_under(appraisal: Appraisal, rules: Rules) -> tuple[RejectCode, ...]:
    """Every per-trace rule a trace breaks, sorted; `tokens` only where it breaks no other (paper, A.2 rule 4)."""
    own = codes_by_rules(appraisal.coefficient_e4, appraisal.is_success, rules, is_unjudged=appraisal.is_unjudged)
    codes = {*appraisal.codes, *own}.difference(rules.off)
    if not codes and "tokens" not in rules.off and appraisal.tokens is not None and appraisal.tokens > rules.tokens_max:
        return ("tokens",)
    return tuple(sorted(codes))


def appraise_shard(
    number: int, rows: Iterable[Trace | Quarantined], task: Task, guard: Guard, clock_ns: Clock
) -> bytes:
    """Read one shard once: a `PackedShard`, as the journal takes it.

    Raises ArenaError V2141 when the tokenizer cannot be used.
    """
    tally = _TokenTally(task, clock_ns)
    every = gates(task.known_ids)
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
    head = ShardHead(tuple(quarantined), tally.counts, tally.work())
    return msgspec.msgpack.encode((done, head))


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
        self._known: TokenCounts | None = None
        self.counts: dict[str, int] = {}
        self._cached = self._text_bytes = self._elapsed_ns = 0

    def count(self, trace: Trace) -> int:
        """The tokens of a trace under the task's tokenizer."""
        if self._counter is None:
            self._counter = open_counter(self._task.tokenizer)
            if self._task.cache is not None:
                self._known = TokenCounts(cache_path(self._task.cache, self._counter.identity))
        text = render(trace)
        key = text_key(text)
        known = self.counts.get(key)
        if known is None and self._known is not None:
            known = self._known.get(key)
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

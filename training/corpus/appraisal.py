"""What the filter keeps of a trace after reading it once: everything it decides by, and none of its text; and where.

An `Appraisal` is about a kilobyte whatever the size of the trace; decisions under several sets of rules need no second
reading. Tokens are counted only where every other per-trace rule of some arm lets the trace pass.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from training.corpus.duplicates import Spool, fingerprint
from training.corpus.gates import RECOMMEND, check_rules, codes_by_rules, gates, is_unjudged, query_of
from training.corpus.model import Appraisal, Quarantined, RejectCode, Rules, Signals, Trace, UnreadCount
from training.corpus.tokens import open_counter, render

Guard = Callable[[Trace], Sequence[RejectCode]]  # `pool` and `leak`, or nothing; picklable


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are appraised. `arms` are all the rules that will be decided by; the first is the corpus' own.

    Nothing counts tokens where every arm has `tokens` switched off. `tokenizer` None is the stand-in counter.
    `known_ids`: what the search server can return, for traces that do not record what it returned.
    """

    arms: tuple[Rules, ...]
    tokenizer: Path | None = None
    known_ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError("there are no rules to decide by")
        for rules in self.arms:
            check_rules(rules)


class AppraisedShard(msgspec.Struct, frozen=True, array_like=True):
    """A shard that was read: its appraisals in order, each packed, and the rows that could not be read."""

    traces: list[msgspec.Raw]
    unread: tuple[UnreadCount, ...]


class Appraised(Sequence[Appraisal]):
    """The appraisals of a run in the order of its shards, on disk, and what the shards say beside them."""

    def __init__(self) -> None:
        """Raises OSError when the disk does not take it."""
        self._spool = Spool()
        self.unread: tuple[UnreadCount, ...] = ()

    def add(self, shard: AppraisedShard) -> None:
        """Add the next shard. Raises OSError when the disk is full."""
        for packed in shard.traces:
            self._spool.add(bytes(packed))
        self.unread = added_up([*self.unread, *shard.unread])

    def __len__(self) -> int:
        return len(self._spool)

    def __getitem__(self, index: Any) -> Any:  # one by its number: nobody asks for a stretch
        return _APPRAISAL.decode(self._spool.get(index))


_APPRAISAL = msgspec.msgpack.Decoder(Appraisal)
_VERIFYING = frozenset({"check_product_match", "view_product_information", "view_product"})


def added_up(counts: Iterable[UnreadCount]) -> tuple[UnreadCount, ...]:
    """One count a code, sorted; its example is the first place by number, whatever the order."""
    found: dict[str, UnreadCount] = {}
    for one in sorted(counts, key=lambda one: (len(one.example), one.example)):
        known = found.get(one.code)
        found[one.code] = one if known is None else msgspec.structs.replace(known, count=known.count + one.count)
    return tuple(found[code] for code in sorted(found))


def codes_under(appraisal: Appraisal, rules: Rules) -> tuple[RejectCode, ...]:
    """Every per-trace rule a trace breaks, sorted; `tokens` only where it breaks no other (paper, A.2 rule 4)."""
    own = codes_by_rules(appraisal.coefficient_e4, appraisal.is_success, rules, is_unjudged=appraisal.is_unjudged)
    codes = {*appraisal.codes, *own}.difference(rules.off)
    if not codes and "tokens" not in rules.off and appraisal.tokens is not None and appraisal.tokens > rules.tokens_max:
        return ("tokens",)
    return tuple(sorted(codes))


def appraise_shard(number: int, rows: Iterable[Trace | Quarantined], task: Task, guard: Guard) -> AppraisedShard:
    """Read one shard once. Raises ArenaError V2120 when the tokenizer cannot be used."""
    every = gates(task.known_ids)
    unread: list[UnreadCount] = []
    done: list[msgspec.Raw] = []
    for row in rows:
        if isinstance(row, Quarantined):
            unread.append(UnreadCount(code=row.code, count=1, example=row.place))
            continue
        facts = row.facts
        codes = {code for gate in every if (code := gate(row)) is not None}.union(guard(row))
        appraisal = Appraisal(
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
            is_unjudged=is_unjudged(row),
            is_success=facts.is_success,
        )
        if open_arms := [rules for rules in task.arms if not codes_under(appraisal, rules)]:
            is_counted = any("tokens" not in rules.off for rules in open_arms)
            tokens = open_counter(task.tokenizer).count(render(row)) if is_counted else None
            appraisal = msgspec.structs.replace(appraisal, fingerprint=fingerprint(row), tokens=tokens)
        done.append(msgspec.Raw(msgspec.msgpack.encode(appraisal)))
    return AppraisedShard(done, added_up(unread))


def _problem_of(trace: Trace) -> str:
    """The problem a trace is of: its id, else a hash of its query, case and spacing aside."""
    if trace.facts.problem_id is not None:
        return trace.facts.problem_id
    query = " ".join(trace.query.casefold().split())
    return "query " + hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def signals_of(trace: Trace) -> Signals:
    """The signals of one trace (A.3)."""
    turns = [message for message in trace.messages if message.role == "assistant"]
    thoughts = sum(bool(turn.reasoning) or "<think>" in turn.content for turn in turns)
    calls = [call for turn in turns for call in turn.calls]
    runs = itertools.groupby((call.name, "".join(call.arguments.split())) for call in calls)  # spacing aside
    last_recommend = max((i for i, call in enumerate(calls) if call.name == RECOMMEND), default=len(calls))
    return Signals(
        depth=thoughts + len(calls),
        reformulations=len({query for call in calls if (query := query_of(call))}),
        has_verification=any(call.name in _VERIFYING for call in calls[:last_recommend]),
        longest_repeat=max((len(list(run)) for _, run in runs), default=0),
        shape=tuple(call.name for call in calls),
    )

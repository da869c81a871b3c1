"""Counting for the funnel: appraisals and a decision in, the funnel's values out. Pure, integers only."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from arena.export.writing.diversity import entropy_mbit
from training.corpus.filter.funnel import (
    CodeCount,
    Coverage,
    Distribution,
    Distributions,
    Diversity,
    Funnel,
    Slice,
)
from training.corpus.filter.tokens import lengths_of
from training.corpus.filter.trace_features import Appraisal
from training.corpus.model import RejectCode, Rules

CODES: tuple[RejectCode, ...] = get_args(RejectCode)  # in the order they are applied
EXAMPLES = 5
RARE_E4 = 10  # a value is rare when at most 0.1 % of the traces have it, or one alone

_Codes = Sequence[tuple[RejectCode, ...]]


def funnel_of(
    traces: Sequence[Appraisal], is_kept: Sequence[bool], codes: _Codes, rules: Rules, quarantined: int
) -> Funnel:
    """The funnel of a decision; `is_kept` and `codes` stand beside `traces`."""
    kept = [one for one, stays in zip(traces, is_kept, strict=True) if stays]
    has_categories = any(one.categories for one in traces)
    before, after = _distributions(traces), _distributions(kept)
    broken: dict[RejectCode, list[str]] = defaultdict(list)
    for one, found in zip(traces, codes, strict=True):
        for code in found:
            broken[code].append(one.place)
    alone = Counter(found[0] for found in codes if len(found) == 1)
    return Funnel(
        rules=rules,
        traces=len(traces),
        quarantined=quarantined,
        kept=len(kept),
        codes=tuple(
            CodeCount(
                code=code,
                count=len(broken[code]),
                alone=alone[code],
                # drawn by a hash of the place: a sample, and the same one in any order
                examples=tuple(sorted(broken[code], key=lambda place: (zlib.crc32(place.encode()), place))[:EXAMPLES]),
            )
            for code in CODES
            if code in broken
        ),
        removed=_in_order(Counter(min(found, key=CODES.index) for found in codes if found)),
        days=_slices(traces, is_kept, codes, lambda one: one.day),
        buckets=_slices(traces, is_kept, codes, lambda one: one.bucket),
        agents=_slices(traces, is_kept, codes, lambda one: one.agent),
        before=before,
        after=after,
        diversity_before=_diversity(traces),
        diversity_after=_diversity(kept),
        queries=_coverage(traces, kept, lambda one: one.queries),
        categories=_coverage(traces, kept, lambda one: one.categories) if has_categories else None,
        tools=_coverage(traces, kept, lambda one: set(one.signals.shape)),
        lengths=lengths_of(before.tokens.counts, rules.tokens_max),
    )


def _slices(
    traces: Sequence[Appraisal], is_kept: Sequence[bool], codes: _Codes, name_of: Callable[[Appraisal], str]
) -> tuple[Slice, ...]:
    counts: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    found_in: dict[str, Counter[RejectCode]] = defaultdict(Counter)
    for one, stays, found in zip(traces, is_kept, codes, strict=True):
        name = name_of(one)
        counts[name] += 1
        kept[name] += stays
        found_in[name].update(found)
    return tuple(
        Slice(name=name, traces=counts[name], kept=kept[name], codes=_in_order(found_in[name]))
        for name in sorted(counts)
    )


def _in_order(counts: Counter[RejectCode]) -> tuple[tuple[RejectCode, int], ...]:
    return tuple((code, counts[code]) for code in CODES if counts[code])


def _distributions(traces: Iterable[Appraisal]) -> Distributions:
    turns: Counter[int] = Counter()
    calls: Counter[int] = Counter()
    queries: Counter[int] = Counter()
    tokens: Counter[int | None] = Counter()
    coefficients: Counter[int | None] = Counter()
    for one in traces:
        turns[one.turns] += 1
        calls[len(one.signals.shape)] += 1
        queries[one.signals.reformulations] += 1
        tokens[one.tokens] += 1
        coefficients[one.coefficient_e4] += 1
    return Distributions(
        turns=_distribution(turns),
        tool_calls=_distribution(calls),
        queries=_distribution(queries),
        tokens=_distribution(tokens),
        coefficient_e4=_distribution(coefficients),
    )


def _distribution(counts: Counter[int] | Counter[int | None]) -> Distribution:
    known = tuple(sorted((value, count) for value, count in counts.items() if value is not None))
    return Distribution(counts=known, missing=sum(counts.values()) - sum(count for _, count in known))


def _diversity(traces: Sequence[Appraisal]) -> Diversity:
    agents = Counter(one.agent for one in traces)
    shapes = Counter(one.signals.shape for one in traces)
    return Diversity(
        teams=len({one.team for one in traces if one.team}),
        agents=len(agents.keys() - {""}),
        problems=len({one.problem for one in traces}),
        top_agent_share_e4=max(agents.values(), default=0) * 10_000 // max(1, len(traces)),
        shape_entropy_mbit=entropy_mbit(list(shapes.values())),
    )


def _coverage(
    traces: Sequence[Appraisal], kept: Sequence[Appraisal], values_of: Callable[[Appraisal], Iterable[int | str]]
) -> Coverage:
    seen: Counter[int | str] = Counter()
    for one in traces:
        seen.update(values_of(one))
    most = max(1, len(traces) * RARE_E4 // 10_000)
    rare = {value for value, count in seen.items() if count <= most}
    after = {value for one in kept for value in values_of(one)}
    return Coverage(before=len(seen), after=len(after), rare_before=len(rare), rare_after=len(rare & after))

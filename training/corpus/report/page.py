"""The funnel report as one HTML page: all of it in one file, drawn here, nothing fetched, no script.

Pure and deterministic; the same funnel and lineage give the same bytes. The page holds counts and places,
never a trace's text.
"""

from __future__ import annotations

import msgspec
from markupsafe import Markup

from foundation.canonical import content_hash
from foundation.codes import lookup
from training.charts import Bar, Column, Mark, bars, histogram
from training.corpus.corpus_card import MEANING, unjudged_text
from training.corpus.filter.funnel import Distribution, Funnel, Slice
from training.corpus.model import Lineage
from training.corpus.report.measures import (
    MEASURES,
    Measure,
    coverages,
    groups,
    has_split,
    largest_first,
    main_loss,
    percent,
    share_e4,
    slice_name,
    split_of,
    steps,
)
from training.corpus.report.templates import read_template

SLICES_MAX = 40
_NAME_CHARS = 16
_UNNAMED = "not recorded"


def render_page(lineage: Lineage, funnel: Funnel) -> str:
    """The page of a corpus."""
    total = funnel.traces
    left = [Bar(label="read", parts=(("after", total),), numbers=f"{total:,}", title=f"{total:,} traces read")]
    for one in steps(funnel):
        numbers = f"{one.left:,}   −{one.removed:,}"
        title = f"{one.code}: {one.meaning}; {one.removed:,} removed here, {one.left:,} left"
        parts = (("after", one.left), ("lost", one.removed))
        left.append(Bar(label=one.code, parts=parts, numbers=numbers, title=title))
    measures = []
    for measure in MEASURES:
        before, after = getattr(funnel.before, measure.name), getattr(funnel.after, measure.name)
        quantiles = [
            (name, [measure.text(one.quantile(share)) for share in (500, 5_000, 9_500)])
            for name, one in (("before", before), ("after", after))
        ]
        measures.append((measure, _measure(measure, before, after), quantiles, before.missing))
    variety = (funnel.diversity_before, funnel.diversity_after)
    return read_template("page.html.j2").render(
        funnel=funnel,
        lineage=lineage,
        identity=content_hash(lineage),
        percent=percent,
        lengths=_lengths(funnel),
        lengths_text=_lengths_text(funnel),
        steps=Markup(bars(left, name="traces left after each rule", whole=total)),
        meaning=MEANING,
        unjudged=unjudged_text(funnel),
        titles={one.code: lookup(one.code).title for one in funnel.unread},
        measures=measures,
        slices=[
            _slices("day", funnel.days),
            _slices("bucket", funnel.buckets),
            _slices("agent version", funnel.agents),
        ],
        split=_split(funnel) if has_split(funnel) else None,
        split_counts=split_of(funnel),
        coverages=coverages(funnel),
        coverage_plot=_coverage(funnel),
        diversity=[
            ("teams", *(f"{one.teams:,}" for one in variety)),
            ("agent versions", *(f"{one.agents:,}" for one in variety)),
            ("problems", *(f"{one.problems:,}" for one in variety)),
            (
                "share of the most frequent agent version",
                *(f"{one.top_agent_share_e4 / 100:.1f} %" for one in variety),
            ),
            ("entropy of tool-call shapes", *(f"{one.shape_entropy_mbit / 1_000:.2f} bit" for one in variety)),
        ],
        rules=msgspec.json.format(msgspec.json.encode(funnel.rules), indent=2).decode(),
    )


def _lengths(funnel: Funnel) -> Markup:
    found = funnel.lengths
    columns = [
        Column(
            low=one.from_tokens,
            high=one.to_tokens,
            heights=(one.traces,),
            kinds=("over" if one.from_tokens >= found.tokens_max else "after",),
            title=f"{one.from_tokens:,} to {one.to_tokens:,} tokens: {one.traces:,} traces",
        )
        for one in found.bins
    ]
    mark = Mark(at=found.tokens_max, label=f"budget {found.tokens_max:,}")
    name = "traces by length in tokens"
    return Markup(histogram(columns, name=name, text_x=_plain, text_y=_plain, mark=mark))


def _lengths_text(funnel: Funnel) -> str:
    found, counts = funnel.lengths, funnel.before.tokens
    if not found.counted:
        return "No trace was counted: none passed every other rule, or nothing counts tokens."
    near = sum(count for value, count in counts.counts if found.tokens_max * 8 <= value * 10 <= found.tokens_max * 10)
    text = (
        f"{found.counted:,} traces that no other rule rejects were counted. Half of them have at most "
        f"{counts.quantile(5_000):,} tokens, 95 % at most {counts.quantile(9_500):,}, the longest "
        f"{counts.counts[-1][0]:,}. {found.over:,} ({percent(found.over, found.counted)}) are over the budget; "
        f"{near:,} ({percent(near, found.counted)}) use more than four fifths of it."
    )
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _measure(measure: Measure, before: Distribution, after: Distribution) -> Markup | None:
    found = groups(before, after, measure.width_min)
    if not found:
        return None
    columns = []
    for one in found:
        width = one.high - one.low
        span = measure.text(one.low) if width == 1 else f"{measure.text(one.low)} to {measure.text(one.high)}"
        shares = [f"{share / 100:.1f} %" for share in (one.before_e4, one.after_e4)]
        title = f"{span}: {one.before:,} before ({shares[0]}), {one.after:,} after ({shares[1]})"
        heights = (one.before_e4, one.after_e4)
        columns.append(Column(low=one.low, high=one.high, heights=heights, kinds=("before", "after"), title=title))
    name = f"{measure.title}, before and after the filter"
    return Markup(
        histogram(columns, name=name, text_x=measure.text, text_y=lambda value: f"{value / 100:g} %", height=190)
    )


def _slices(title: str, slices: tuple[Slice, ...]) -> dict[str, object]:
    """The largest slices as bars, all of them as rows; days stay in their order."""
    shown, others = largest_first(slices, SLICES_MAX)
    if title == "day":
        shown = tuple(sorted(shown, key=lambda one: one.name))
    rows = [
        Bar(
            label=_short(slice_name(one)),
            parts=(("after", one.kept), ("lost", one.traces - one.kept)),
            numbers=f"{one.kept:,} of {one.traces:,}, {percent(one.kept, one.traces)}",
            title=f"{slice_name(one, is_whole=True) or _UNNAMED}: {one.kept:,} of {one.traces:,};"
            f" broken most: {main_loss(one) or 'none'}",
        )
        for one in shown
    ]
    return {
        "title": title,
        "plot": Markup(bars(rows, name=f"kept and rejected by {title}")) if rows else None,
        "others": others,
        "rows": [
            (
                slice_name(one, is_whole=True) or _UNNAMED,
                one.traces,
                one.kept,
                ", ".join(f"{code} {count:,}" for code, count in one.codes),
            )
            for one in shown
        ],
    }


def _split(funnel: Funnel) -> Markup:
    rows = []
    counted: list[tuple[str, Funnel | Slice]] = [("all", funnel)]
    for label, one in counted + [(_short(one.name), one) for one in funnel.buckets]:
        model, recorded, guessed = split_of(one)
        numbers = f"{percent(model, one.traces)} agentic"
        title = f"{label}: {model:,} by the model, {recorded:,} sub-task by record, {guessed:,} sub-task by the guess"
        kinds = (("after", model), ("lost", recorded), ("guess", guessed))
        parts = tuple((kind, share_e4(count, one.traces)) for kind, count in kinds)
        rows.append(Bar(label=label, parts=parts, numbers=numbers, title=title))
    return Markup(bars(rows, name="agentic and sub-task traces", whole=10_000))


def _coverage(funnel: Funnel) -> Markup:
    rows = []
    for name, one in coverages(funnel):
        for label, after, before in (
            (name, one.after, one.before),
            (f"rare {name}", one.rare_after, one.rare_before),
        ):
            parts = (("after", share_e4(after, before)), ("before", 10_000 - share_e4(after, before) if before else 0))
            numbers = f"{after:,} of {before:,}, {percent(after, before)}"
            rows.append(Bar(label=label, parts=parts, numbers=numbers, title=f"{label}: {numbers} still there"))
    return Markup(bars(rows, name="distinct values still there after the filter", whole=10_000))


def _short(name: str) -> str:
    if not name:
        return _UNNAMED
    return name if len(name) <= _NAME_CHARS + 4 else f"{name[:_NAME_CHARS]}…"


def _plain(value: int) -> str:
    return f"{value:,}"

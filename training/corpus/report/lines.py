"""The funnel report for a terminal: sections of rows, as plain lines or as tables of `rich`.

Both show the same rows, and no row is left out of the plain form but by the limits that a section names. What
a source calls itself (an agent, a day) is shown on one line, without control characters.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from foundation.codes import lookup
from judge.neutral import neutral_name
from training.corpus.corpus_card import MEANING, unjudged_text
from training.corpus.filter.funnel import Funnel, Slice, TokenWork
from training.corpus.report.measures import (
    MEASURES,
    coverages,
    has_split,
    largest_first,
    main_loss,
    percent,
    slice_name,
    split_of,
    steps,
)

if TYPE_CHECKING:
    from rich.console import Group

AGENTS_MAX = 12
_BAR_CHARS = 30
_COLUMNS = 80
_NAME_CHARS = 24
_UNNAMED = "not recorded"


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table: `rows` have as many cells as `header`; a header that starts with ">" names a column of numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def sections(funnel: Funnel, work: TokenWork | None = None) -> tuple[Section, ...]:
    """The report, the lengths first: a budget is believed after they were looked at."""
    found = [
        _lengths(funnel, work),
        Section(
            title="Funnel, in the order rules are applied",
            header=("after", ">left", ">removed", ">of all"),
            rows=(
                ("read", f"{funnel.traces:,}", "", percent(funnel.traces, funnel.traces)),
                *(
                    (one.code, f"{one.left:,}", f"-{one.removed:,}", percent(one.left, funnel.traces))
                    for one in steps(funnel)
                ),
            ),
            note="; ".join(
                said
                for count, said in (
                    (funnel.quarantined, f"{funnel.quarantined:,} further rows could not be read"),
                    (funnel.unjudged, unjudged_text(funnel)),
                )
                if count
            ),
        ),
        Section(
            title="Rows that could not be read",
            header=("code", ">rows", "what is wrong", "the first"),
            rows=tuple(
                (one.code, f"{one.count:,}", lookup(one.code).title, _name(one.example)) for one in funnel.unread
            ),
        ),
        Section(
            title="Why traces are out; one may break several rules",
            header=("code", ">broke it", ">only that", "why"),
            rows=tuple((one.code, f"{one.count:,}", f"{one.alone:,}", MEANING[one.code]) for one in funnel.codes),
            note="examples of each stand on the page" if funnel.codes else "",
        ),
    ]
    if has_split(funnel):
        found.append(_split(funnel))
    quantiles = [(share, side) for share in (5_000, 9_500) for side in (funnel.before, funnel.after)]
    found.append(
        Section(
            title="Before and after",
            header=("measure", ">median before", ">after", ">95 % before", ">after "),
            rows=tuple(
                (one.title, *(one.text(getattr(side, one.name).quantile(share)) for share, side in quantiles))
                for one in MEASURES
            ),
        )
    )
    found.append(_variety(funnel))
    slices = (
        ("By day", funnel.days, 0),
        ("By bucket", funnel.buckets, 0),
        ("By agent version", *largest_first(funnel.agents, AGENTS_MAX)),
    )
    header = ("name", ">traces", ">kept", ">share", "broken most")
    for title, shown, others in slices:
        rows = tuple(
            (_name(slice_name(one)), f"{one.traces:,}", f"{one.kept:,}", percent(one.kept, one.traces), main_loss(one))
            for one in shown
        )
        note = f"{others:,} more in funnel.json" if others else ""
        found.append(Section(title=title, header=header, rows=rows, note=note))
    return tuple(one for one in found if one.rows)


def plain_text(found: Sequence[Section]) -> str:
    """Aligned lines without any mark-up, in 80 columns: where a table is wider, its widest words go on below."""
    blocks = []
    for section in found:
        is_number = [name.startswith(">") for name in section.header]
        header = tuple(name.removeprefix(">") for name in section.header)
        widths = [max(len(row[index]) for row in (header, *section.rows)) for index in range(len(header))]
        widest = max(range(len(widths)), key=widths.__getitem__)
        widths[widest] = max(_NAME_CHARS, widths[widest] - max(0, sum(widths) + 2 * len(widths) - _COLUMNS))
        lines = [section.title]
        for row in (header, *section.rows) if any(header) else section.rows:
            for cells in _folded(row, widest, widths[widest]):
                aligned = [
                    cell.rjust(width) if right else cell.ljust(width)
                    for cell, width, right in zip(cells, widths, is_number, strict=True)
                ]
                lines.append(f"  {'  '.join(aligned)}".rstrip())
        if section.note:
            lines.append(f"  {section.note}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _folded(row: Sequence[str], column: int, width: int) -> Iterator[tuple[str, ...]]:
    """The row, and below it the rest of a column whose words don't fit."""
    first, *further = textwrap.wrap(row[column], width) or [""]
    yield (*row[:column], first, *row[column + 1 :])
    for part in further:
        yield tuple(part if place == column else "" for place in range(len(row)))


def rich_tables(found: Sequence[Section]) -> Group:
    """The same for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    tables = []
    for section in found:
        table = Table(
            box=SIMPLE_HEAD,
            title=Text(section.title, style="bold"),
            title_justify="left",
            caption=Text(section.note, style="dim") if section.note else None,
            caption_justify="left",
            show_header=any(section.header),
            pad_edge=False,
        )
        for name in section.header:
            is_number = name.startswith(">")
            table.add_column(name.removeprefix(">"), justify="right" if is_number else "left", no_wrap=is_number)
        for row in section.rows:
            table.add_row(*(Text(cell, style="cyan" if "█" in cell else "") for cell in row))
        tables.append(table)
    return Group(*tables)


def _lengths(funnel: Funnel, work: TokenWork | None) -> Section:
    found = funnel.lengths
    most = max([1, *(one.traces for one in found.bins)])
    rows = [
        (
            f"{one.from_tokens:,}",
            f"{one.traces:,}",
            "█" * -(-one.traces * _BAR_CHARS // most) + (" over" if one.from_tokens >= found.tokens_max else ""),
        )
        for one in found.bins
    ]
    note = f"{found.counted:,} counted, {found.over:,} over the budget of {found.tokens_max:,}"
    if work is not None and work.counter:
        note += f"; {work.counted:,} by {work.counter[:16]}, {work.from_cache:,} from the cache"
        note += f"; {work.traces_per_s:,} traces/s a process" if work.counted else ""
    rows = rows if found.counted else []
    return Section(title="Length in tokens", header=(">from", ">traces", ""), rows=tuple(rows), note=note)


def _split(funnel: Funnel) -> Section:
    rows = []
    counted: list[tuple[str, Funnel | Slice]] = [("all", funnel)]
    for name, one in counted + [(_name(one.name), one) for one in funnel.buckets]:
        model, recorded, guessed = split_of(one)
        rows.append((name, percent(model, one.traces), f"{model:,}", f"{recorded:,}", f"{guessed:,}"))
    header = ("bucket", ">agentic", ">by the model", ">sub-task", ">guessed sub-task")
    return Section(title="Who wrote the calls", header=header, rows=tuple(rows))


def _variety(funnel: Funnel) -> Section:
    both = (funnel.diversity_before, funnel.diversity_after)
    rows: list[tuple[str, ...]] = [
        ("teams", *(f"{one.teams:,}" for one in both)),
        ("agent versions", *(f"{one.agents:,}" for one in both)),
        ("problems", *(f"{one.problems:,}" for one in both)),
        ("share of the top agent", *(f"{one.top_agent_share_e4 / 100:.1f} %" for one in both)),
        ("shape entropy, bit", *(f"{one.shape_entropy_mbit / 1_000:.2f}" for one in both)),
    ]
    for name, one in coverages(funnel):
        rows.append((f"distinct {name}", f"{one.before:,}", f"{one.after:,}"))
        rows.append((f"rare {name}", f"{one.rare_before:,}", f"{one.rare_after:,}"))
    return Section(title="Variety and the long tail", header=("", ">before", ">after"), rows=tuple(rows))


def _name(name: str) -> str:
    shown = neutral_name(name)
    if len(shown) <= _NAME_CHARS:
        return shown or _UNNAMED
    return f"{shown[:10]}…{shown[-12:]}"

"""The funnel report: as lines for a terminal, and as one HTML page without scripts, where nothing is fetched.

Pure and deterministic: one derivation for both forms, so they never disagree. Counts and places, never a trace's text.
What a source calls itself (an agent, a day) is shown on one line, without control characters.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator, Sequence
from importlib.resources import files

import msgspec
from jinja2 import Template
from markupsafe import Markup

from arena.view.page import page_templates
from foundation.canonical import content_hash
from foundation.codes import lookup
from judge.neutral import neutral_name
from training.charts import Bar, Column, Mark, bars, histogram
from training.corpus.corpus_files import MEANING, unjudged_text
from training.corpus.funnel import Coverage, Funnel, Slice
from training.corpus.model import Lineage, TokenWork

_TITLE_CHARS, _ID_CHARS = 11, 8  # together they fit where an id alone is cut
STRUCTURE_CODES = ("subtask", "subtask_guess")  # axis-B: by recorded emitters, and by the heuristic


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of `Distributions`. `divisor` turns its integers into what is shown; no bin is below `width_min`."""

    name: str
    title: str
    divisor: int = 1
    width_min: int = 1

    def text(self, value: int | None) -> str:
        """A value as people read it; "-" for none."""
        if value is None:
            return "-"
        if self.divisor == 1:
            return f"{value:,}"
        digits = 2 if value * 100 % self.divisor == 0 else 4  # never rounded past a threshold
        return f"{value / self.divisor:.{digits}f}"


MEASURES = (
    Measure(name="turns", title="assistant turns"),
    Measure(name="tool_calls", title="tool calls"),
    Measure(name="queries", title="distinct search queries"),
    Measure(name="tokens", title="tokens"),
    Measure(name="coefficient_e4", title="reasoning coefficient", divisor=10_000, width_min=100),
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the funnel: what a code removed first, and how many were left then."""

    code: str
    meaning: str
    removed: int
    left: int


def steps(funnel: Funnel) -> tuple[Step, ...]:
    """The funnel from all traces down to the kept ones, in the order the codes are applied."""
    left, found = funnel.traces, []
    for code, removed in funnel.removed:
        left -= removed
        found.append(Step(code=code, meaning=MEANING[code], removed=removed, left=left))
    return tuple(found)


def percent(part: int, whole: int) -> str:
    """A share as people read it: `36.3 %`, `<0.1 %` for what is there and small, "-" of nothing."""
    if not whole:
        return "-"
    if part and part * 1_000 < whole:
        return "<0.1 %"
    return f"{part * 100 / whole:.1f} %"


def split_of(one: Funnel | Slice) -> tuple[int, int, int]:
    """Traces whose model wrote its own calls (axis-A), that did not by record (axis-B), that did not by the guess.

    Says nothing where the split is switched off (`has_split`): all then count as the first.
    """
    counts = {code.code: code.count for code in one.codes} if isinstance(one, Funnel) else dict(one.codes)
    recorded, guessed = counts.get("subtask", 0), counts.get("subtask_guess", 0)
    return one.traces - recorded - guessed, recorded, guessed


def has_split(funnel: Funnel) -> bool:
    """Whether the agentic split was made at all."""
    return not set(STRUCTURE_CODES) <= set(funnel.rules.off)


def coverages(funnel: Funnel) -> tuple[tuple[str, Coverage], ...]:
    """The long tail by what it is of; categories only where they are known."""
    found = [("search queries", funnel.queries), ("tools", funnel.tools)]
    if funnel.categories is not None:
        found.insert(1, ("product categories", funnel.categories))
    return tuple(found)


def largest_first(slices: tuple[Slice, ...], most: int) -> tuple[tuple[Slice, ...], int]:
    """The slices with most traces, and how many are not among them."""
    ordered = sorted(slices, key=lambda one: (-one.traces, one.name))
    return tuple(ordered[:most]), max(0, len(ordered) - most)


def slice_name(one: Slice, *, is_whole: bool = False) -> str:
    """What a slice is called; an agent version by its own name and the first signs of its id, or whole."""
    if not one.title or is_whole:
        return f"{one.title} {one.name}".strip()
    title = one.title if len(one.title) <= _TITLE_CHARS else f"{one.title[: _TITLE_CHARS - 1]}…"
    return f"{title} {one.name[:_ID_CHARS]}"


def main_loss(one: Slice) -> str:
    """The rule most of a slice's traces break, with how many; "" where none does."""
    if not one.codes:
        return ""
    code, count = max(one.codes, key=lambda pair: pair[1])
    return f"{code} {count:,}"


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


def sections(funnel: Funnel, work: TokenWork | None = None, *, is_whole: bool = False) -> tuple[Section, ...]:
    """The report, the lengths first: a budget is believed after they were looked at. `is_whole`: names are not cut."""
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
            (
                slice_name(one, is_whole=True) or _UNNAMED if is_whole else _name(slice_name(one)),
                f"{one.traces:,}",
                f"{one.kept:,}",
                percent(one.kept, one.traces),
                main_loss(one),
            )
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


def render_page(lineage: Lineage, funnel: Funnel) -> str:
    """The page of a corpus: the lengths and the funnel as charts, and the report's tables."""
    total = funnel.traces
    left = [Bar(label="read", parts=(("after", total),), numbers=f"{total:,}", title=f"{total:,} traces read")]
    for one in steps(funnel):
        numbers = f"{one.left:,}   −{one.removed:,}"
        title = f"{one.code}: {one.meaning}; {one.removed:,} removed here, {one.left:,} left"
        left.append(
            Bar(label=one.code, parts=(("after", one.left), ("lost", one.removed)), numbers=numbers, title=title)
        )
    return read_template("page.html.j2").render(
        funnel=funnel,
        lineage=lineage,
        identity=content_hash(lineage),
        lengths=_lengths_plot(funnel),
        steps=Markup(bars(left, name="traces left after each rule", whole=total)),
        sections=sections(funnel, is_whole=True),
        rules=msgspec.json.format(msgspec.json.encode(funnel.rules), indent=2).decode(),
    )


def _lengths_plot(funnel: Funnel) -> Markup:
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
    text = "{:,}".format
    return Markup(histogram(columns, name="traces by length in tokens", text_x=text, text_y=text, mark=mark))


@functools.cache
def read_template(name: str) -> Template:
    """The template of that file name in `training/corpus`: everything put in is escaped, and nothing may be missing.
    What all pages of traces share is imported from `parts.html.j2` of `arena.view`."""
    text = files("training.corpus").joinpath(name).read_text("utf-8")
    return page_templates().from_string(text)

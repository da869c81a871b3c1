"""What the report makes of a funnel's integers: rebinned distributions, shares, and words for them. Pure.

One derivation for every form of the report, so the terminal, the JSON file and the page never disagree.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from training.corpus.corpus_card import MEANING
from training.corpus.filter.funnel import Coverage, Distribution, Funnel, Slice

BINS_MAX = 28
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


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Traces with values of `low` to below `high`, before and after the filter, in ten-thousandths of each set."""

    low: int
    high: int
    before: int
    after: int
    before_e4: int
    after_e4: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the funnel: what a code removed first, and how many were left then."""

    code: str
    meaning: str
    removed: int
    left: int


def groups(before: Distribution, after: Distribution, width_min: int = 1) -> tuple[Group, ...]:
    """Both distributions over the same bins of a round width, at most `BINS_MAX` of them; none for no values."""
    values = [value for value, _ in (*before.counts, *after.counts)]
    if not values:
        return ()
    low, high = min(values), max(values)
    width = max(width_min, _round_width(high - low + 1))
    first, last = low // width, high // width
    sums = (Counter[int](), Counter[int]())
    for binned, distribution in zip(sums, (before, after), strict=True):
        for value, count in distribution.counts:
            binned[value // width] += count
    return tuple(
        Group(
            low=number * width,
            high=(number + 1) * width,
            before=sums[0][number],
            after=sums[1][number],
            before_e4=share_e4(sums[0][number], before.traces),
            after_e4=share_e4(sums[1][number], after.traces),
        )
        for number in range(first, last + 1)
    )


def steps(funnel: Funnel) -> tuple[Step, ...]:
    """The funnel from all traces down to the kept ones, in the order the codes are applied."""
    left, found = funnel.traces, []
    for code, removed in funnel.removed:
        left -= removed
        found.append(Step(code=code, meaning=MEANING[code], removed=removed, left=left))
    return tuple(found)


def share_e4(part: int, whole: int) -> int:
    """Ten-thousandths; 0 of nothing."""
    return part * 10_000 // whole if whole else 0


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


def _round_width(span: int) -> int:
    """The least of 1, 2, 5, 10, 20, ... that cuts `span` into at most `BINS_MAX` bins, at any offset."""
    width = 1
    while True:
        for factor in (1, 2, 5):
            if -(-span // (width * factor)) < BINS_MAX:
                return width * factor
        width *= 10

"""A document as one self-contained HTML file.

One file, no script, nothing loaded from anywhere; all text is escaped. The same document gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, get_args

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from training.evaluation.failures import MEANINGS
from training.evaluation.statistics import Estimate, Method
from training.report.claims import Endings, reasons_of
from training.report.document import Document, Family
from training.report.figures import make_figures
from training.report.published import BENCHMARK_HARNESS, OWN_HARNESS

TEMPLATE = "page.html.j2"
METHODS: Mapping[Method, tuple[str, str]] = {  # how an interval was taken -> its letter, and what it is
    "wilson": ("w", "Wilson's score interval of a share, where each problem counts 0 or 1"),
    "newcombe": ("n", "Newcombe's score interval of a difference, where each problem counts 0 or 1 in both"),
    "bootstrap": ("b", "percentile bootstrap, where several samples of each problem are averaged"),
    "unseen": ("u", "Wilson's interval, where every problem came out the same"),
}


def render_page(document: Document) -> str:
    """The HTML of a document."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(share=_share, interval=_interval, p=p_text, points=_points)
    environment.filters["signed"] = lambda share: f"{100 * share:+.1f}"
    environment.filters["thousandths"] = lambda value: "–" if value is None else f"{value / 10:.1f}%"
    environment.filters.update(
        # tokens: 0 where a model was asked is a number that nobody counted; a model without a price comes to 0
        count=lambda value: "–" if value is None else f"{value:,.0f}" if value else "not counted",
        dollars=lambda micro: "–" if micro is None else f"{micro / 1_000_000:.6f}" if micro else "no price",
        duration=_duration,
        small_p=small_p_text,
        meanings=lambda reasons: "; ".join(f"{one}: {MEANINGS[one]}" for one in reasons if one in MEANINGS),
    )
    groups: dict[str, list[Any]] = {}
    for row in document.published:
        groups.setdefault(row.group, []).append(row)
    by_set: dict[str, list[Endings]] = {}
    for one in document.endings:
        by_set.setdefault(one.set, []).append(one)
    template = environment.from_string(files("training.report").joinpath(TEMPLATE).read_text("utf-8"))
    return template.render(
        document=document,
        figures=[(figure, Markup(figure.svg)) for figure in make_figures(document)],  # made by us, escaped there
        groups=groups,
        endings=[(place, found, reasons_of(found)) for place, found in by_set.items()],
        methods=METHODS,
        families={family: [test for test in document.tests if test.family == family] for family in get_args(Family)},
        harnesses=(BENCHMARK_HARNESS, OWN_HARNESS),
    )


def p_text(value: float) -> str:
    """A p value as it is printed: three decimals, or that it is below .001."""
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def small_p_text(value: float) -> str:
    """As `p_text`, and below .001 its power of ten: what a permutation's number of draws can give."""
    return f"{value:.0e}".replace("e-0", "e-") if 0 < value < 0.001 else p_text(value)


def _duration(ms: float | None) -> str:
    if ms is None:
        return "–"
    return f"{ms / 1_000:.1f} s" if ms >= 1_000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    value, low, high = map(_share, (estimate.value, estimate.low, estimate.high))
    return Markup("{}<small>[{}, {}] {}</small>").format(value, low, high, METHODS[estimate.method][0])


def _points(estimate: Estimate) -> str:
    """A difference in percentage points, with the letter of its interval."""
    value, low, high = (100 * one for one in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] {METHODS[estimate.method][0]}"

"""A report as one value, and as one HTML file: rows with their conditions, tests between them, ends of training.

Pure; nothing is measured here. Every number of ours points to its conditions by a letter. A row is tested against the
first of its conditions and against the one before it; every test made is shown, with its p value as it is and corrected
for the number of all of them (Holm 1979), and the difference with its interval whichever way it points. What each seed
came to stands beside the rate of all of them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
from markupsafe import Markup

from arena.view.page import page_templates
from foundation.errors import ArenaError
from training.evaluation.report import (
    Estimate,
    EvalReport,
    EvaluationConditions,
    Method,
    PairedTest,
    compare,
    share_difference,
)
from training.run import LINEAGE, RECIPE, read_lineage

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

OWN_HARNESS = "7-tool ORO ShoppingBench harness, production-strict, the paper's 75 held-out problems"
BENCHMARK_HARNESS = "the ShoppingBench paper's own harness and test set, as Table 1 quotes it"


class TrainedRun(msgspec.Struct, frozen=True, kw_only=True):
    """How the training of one run ended. `lineage_sha256` is "" for one that is not finished."""

    label: str
    steps: int = 0
    stopped_by: str = ""  # the guard that ended it
    lineage_sha256: str = ""
    code_commit: str = ""


def read_run(folder: Path) -> TrainedRun:
    """A run's folder. Raises ArenaError V2124 for a folder that is not a run, V2166 for an unreadable lineage."""
    if not (folder / RECIPE).exists():
        raise ArenaError("V2124", f"{folder} is not the folder of a run")
    if not (folder / LINEAGE).exists():
        return TrainedRun(label=folder.name)
    lineage = read_lineage(folder / LINEAGE)
    return TrainedRun(
        label=folder.name,
        steps=lineage.steps,
        stopped_by=lineage.stopped_by,
        lineage_sha256=lineage.sha256,
        code_commit=lineage.versions.code_commit,
    )


class PaperRow(msgspec.Struct, frozen=True):
    """One row of the paper's Table 1, as printed: what ours are laid beside, and never tested against.

    Shares are in thousandths of the whole; None where the table prints none. It prints no intervals.
    """

    label: str
    group: str
    harness: str
    asr_e3: int | None  # on the 75
    second_e3: int | None  # on the second set of 90
    notes: str
    pass_at_1_e3: int | None = None
    pass_at_8_e3: int | None = None


_BASELINES = ("Published baselines from the ShoppingBench paper", BENCHMARK_HARNESS)
_FRONTIER = ("Frontier closed-source baselines", OWN_HARNESS)
_MINERS = ("Top miner of the paper's leaderboard", OWN_HARNESS)
_STACK = ("SFT stack progression of the paper", OWN_HARNESS)
TABLE_1 = (
    PaperRow("Qwen3-4B base", *_BASELINES, 180, None, "Paper baseline"),
    PaperRow("Qwen3-4B + paper SFT (synthetic)", *_BASELINES, 436, None, "Synthetic GPT-4.1 trajectories"),
    PaperRow("Qwen3-4B + paper SFT+GRPO", *_BASELINES, 487, None, "Paper bar this work is measured against"),
    PaperRow("GPT-5.5", *_FRONTIER, 387, 344, ""),
    PaperRow("Claude Sonnet 4.6", *_FRONTIER, 640, None, "Frontier teacher; sourced rollouts for Stage 3"),
    PaperRow("rejection_v2", *_STACK, 347, 256, "Rejection-sampled re-SFT"),
    PaperRow("opd_sonnet", *_STACK, 347, 333, "Continued teacher-SFT"),
    PaperRow("opd_rebal", *_STACK, 400, 333, "Voucher-balanced teacher corpus"),
    PaperRow("opd_renderers (final SFT stack)", *_STACK, 427, 356, "Final reported model", 348, 533),
    PaperRow("+ KTO (β = 0.02, 1 ep)", *_STACK, 427, None, "No net lift on parity eval; bucket-level redistribution"),
    PaperRow("+ KTO (β = 0.01, 2 ep)", *_STACK, 351, None, "Negative result; over-optimised"),
    PaperRow("+ Dr. GRPO v19 (per-step tool-match)", *_STACK, None, None, "rule_score 0.02 → 0.42"),
    PaperRow("agent_23175", *_MINERS, 773, None, "Multi-LLM ensemble; 90-set: about 65%"),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of ours, under the letter of its conditions, and the end of its training where a run is given."""

    report: EvalReport
    letter: str
    ending: str = ""  # that a guard ended its training, and when
    trained_commit: str = ""


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """`second` against `first` on the same problems.

    `difference` is second minus first in success, over problems, with its 95 % interval; `paired` the exact
    McNemar test on the first sample of each problem; `holm` its p value corrected for all tests.
    """

    first: str
    second: str
    conditions: str
    difference: Estimate
    paired: PairedTest
    holm: float


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report shows; `conditions` by their letters."""

    title: str
    published: tuple[PaperRow, ...] = TABLE_1
    rows: tuple[Row, ...]
    tests: tuple[Test, ...]
    conditions: dict[str, EvaluationConditions]
    runs: tuple[TrainedRun, ...]


def make_document(reports: Sequence[EvalReport], runs: Sequence[TrainedRun], *, title: str) -> Document:
    """The document of these reports, in the order given, the base first.

    Raises ValueError for two reports of one label under one set of conditions.
    """
    groups: dict[bytes, list[EvalReport]] = {}
    for report in reports:
        groups.setdefault(msgspec.json.encode(report.conditions, order="sorted"), []).append(report)
    alphabet = itertools.chain(_LETTERS, ("".join(pair) for pair in itertools.product(_LETTERS, repeat=2)))
    by_letter = dict(zip(alphabet, groups.values(), strict=False))
    letters = {id(report): letter for letter, alike in by_letter.items() for report in alike}
    places = Counter((report.label, letters[id(report)]) for report in reports)
    if twice := [label for (label, _), count in places.items() if count > 1]:
        raise ValueError(f"{twice[0]} stands twice under the same conditions")
    pairs = [
        (letter, first, second)
        for letter, alike in by_letter.items()
        for place, second in enumerate(alike)
        for first in ([alike[0]] if place == 1 else [alike[0], alike[place - 1]] if place else [])
        if first.scored.keys() & second.scored.keys()
    ]
    paired = [compare(first, second) for _, first, second in pairs]
    tests = [
        Test(
            first=first.label,
            second=second.label,
            conditions=letter,
            difference=share_difference(first, second),
            paired=result,
            holm=p_value,
        )
        for (letter, first, second), result, p_value in zip(
            pairs, paired, holm([one.p_value for one in paired]), strict=True
        )
    ]
    trained = {one.lineage_sha256: one for one in runs if one.lineage_sha256}
    return Document(
        title=title,
        rows=tuple(_row(one, letters[id(one)], trained.get(one.lineage_sha256)) for one in reports),
        tests=tuple(tests),
        conditions={letter: alike[0].conditions for letter, alike in by_letter.items()},
        runs=tuple(runs),
    )


def _row(report: EvalReport, letter: str, run: TrainedRun | None) -> Row:
    if run is None:
        return Row(report=report, letter=letter)
    ending = f"stopped after {run.steps} steps: {run.stopped_by.split(':')[0]}" if run.stopped_by else ""
    return Row(report=report, letter=letter, ending=ending, trained_commit=run.code_commit)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given; each in [0, 1]."""
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


METHODS: Mapping[Method, tuple[str, str]] = {  # how an interval was taken -> its letter, and what it is
    "wilson": ("w", "Wilson's score interval of a share, where each problem counts 0 or 1"),
    "bootstrap": ("b", "percentile bootstrap: of differences, and where several samples of each problem are averaged"),
    "unseen": ("u", "Wilson's interval, where every problem came out the same"),
}


def render_page(document: Document) -> str:
    """The HTML of a document."""
    environment = page_templates().overlay()
    environment.filters = environment.filters | dict(
        share=_share,
        interval=_interval,
        p=p_text,
        points=_points,
        thousandths=lambda value: "–" if value is None else f"{value / 10:.1f}%",
        # tokens: 0 where a model was asked is a number that nobody counted; a model without a price comes to 0
        count=lambda value: "–" if value is None else f"{value:,.0f}" if value else "not counted",
        dollars=lambda micro: "–" if micro is None else f"{micro / 1_000_000:.6f}" if micro else "no price",
        seconds=lambda ms: "–" if ms is None else f"{ms / 1_000:.3g} s",
    )
    groups = {name: [*rows] for name, rows in itertools.groupby(document.published, key=lambda row: row.group)}
    template = environment.from_string(files("training.report").joinpath("page.html.j2").read_text("utf-8"))
    harnesses = (BENCHMARK_HARNESS, OWN_HARNESS)
    return template.render(document=document, groups=groups, methods=METHODS, harnesses=harnesses).lstrip()


def p_text(value: float) -> str:
    """A p value as it is printed: three decimals, or that it is below .001."""
    return "< .001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


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

"""The results of a study's rows, the tests between them, and the page that shows both as Markdown.

A result is one JSON file a row, without weights. A test is made when all of its rows are finished; Holm's correction is
over all tests of `hypotheses.toml`, those not made yet counted as p = 1. Comparisons that were named later
(`later.toml`) are made in the same way, corrected among themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import msgspec
import numpy as np

from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from studies.shopping.models import file_name
from studies.shopping.plan import BASE, CONTROLS, SET_NAMES, Rules, SetKey, StudyPlan, read_toml
from training.evaluation.report import Estimate, EvalReport, compare
from training.report.document import TABLE_1, holm, p_text

STAGES = {"sft": "", "rejection": "rejection_v2", "teacher": "opd_renderers (final SFT stack)"}  # recipe: in Table 1
STAGES |= {"kto": "+ KTO (β = 0.02, 1 ep)", "grpo_v17": "", "grpo_v18": ""}
STAGES |= {"grpo_v19": "+ Dr. GRPO v19 (per-step tool-match)"}
EDITION = "second-edition"  # of the rules that a row is made under: scoring, gate, judge, filter

# What Student's t exceeds in either direction in 5 % of cases, for 1 to 9 degrees of freedom (any table of it)
STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `lineage` leads from its checkpoint back to the first stage, none for a control; its recipes have
    `{study}` for the study's folder. `seconds` is by part."""

    row: str
    edition: str = "first-edition"  # e7db7247: its rules made the rows that do not say
    plan_sha256: str
    code_commit: str
    lineage: tuple[dict[str, Any], ...] = ()  # `training.run.RunLineage`; earlier rows keep the recipe as text
    reports: tuple[EvalReport, ...]
    seconds: dict[str, float]

    def report(self, place: str, temperature: float) -> EvalReport | None:
        """The report on the set of that name at that temperature, None without one."""
        every = {(one.conditions.set.name, one.conditions.decode.temperature): one for one in self.reports}
        return every.get((place, temperature))


class Results:
    """A folder of results, all of one edition; none is read or added to it that was made under other rules."""

    def __init__(self, folder: Path, plan: StudyPlan) -> None:
        self._folder, self._plan = folder, plan

    def read(self) -> dict[str, RowResult]:
        """The finished rows, those of the plan first and in its order.

        Raises ArenaError V2124 for rows of two editions, or rows of this edition made under another plan.
        """
        every = (msgspec.json.decode(path.read_bytes(), type=RowResult) for path in self._folder.glob("*.json"))
        order = {label: place for place, label in enumerate(self._plan.labels)}
        found = {one.row: one for one in sorted(every, key=lambda one: (order.get(one.row, len(order)), one.row))}
        editions = sorted({one.edition for one in found.values()})
        if len(editions) > 1:
            raise ArenaError("V2124", f"{self._folder} holds rows of {', '.join(editions)}: never in one test")
        for label, one in found.items():
            if one.edition == EDITION and one.plan_sha256 != self._plan.plan_sha256:
                raise ArenaError("V2124", f"{self._folder}: {label} was made under another plan: name another folder")
        return found

    def add(self, result: RowResult) -> None:
        """Write a row's result. Raises ArenaError V2124 in a folder of another edition."""
        if any(one.edition != result.edition for one in self.read().values()):
            raise ArenaError("V2124", f"{self._folder} holds rows of another edition: name another folder")
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._folder / f"{file_name(result.row)}.json", msgspec.json.encode(result) + b"\n")


class Hypothesis(Rules, frozen=True, kw_only=True):
    """`better` solves more than `worse`: rows without their seed. `better` against `control` is shown beside.

    `decode` names another decoding of the plan than the tests' ("": theirs), for a row that has no other.
    """

    name: str
    better: str
    worse: str
    control: str = ""
    decode: str = ""


class Hypotheses(Rules, frozen=True, kw_only=True):
    """All tests of a study. `p_value` and `beside` name decodings of the plan."""

    alpha: float
    set: SetKey
    p_value: str
    beside: str
    seeds: tuple[int, ...]
    draws_seed: int
    hypotheses: tuple[Hypothesis, ...]


class Later(Rules, frozen=True, kw_only=True):
    """What was written when rows had been seen: comparisons beside the tests, limits of the numbers, a line each, and
    what arms have in common with their control."""

    comparisons: tuple[Hypothesis, ...] = ()
    limits: tuple[str, ...] = ()
    matched: dict[str, str] = {}


def sign_flip_p(differences: Sequence[float], seed: int, flips: int = 100_000) -> float:
    """Two-sided p value of the mean of `differences`, one a problem, by a permutation of their signs (Fisher 1935).

    It counts the data among the draws, so it is never 0, and is conditional on the seeds that were run.
    """
    values = np.asarray(differences, dtype=np.float64)
    dice, seen, extreme = np.random.default_rng(seed), abs(values.sum()), 0
    for first in range(0, flips, 1_000):
        signs = dice.integers(0, 2, size=(min(1_000, flips - first), values.size), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ values) >= seen - 1e-9).sum())
    return (1 + extreme) / (1 + flips)


def seed_interval(differences: Sequence[Sequence[float]], seed: int) -> tuple[float, float, float]:
    """Mean of (seeds, problems) differences with its 95 % percentile interval, seeds and problems both drawn anew: of
    few seeds it is too narrow."""
    values = np.asarray(differences, dtype=np.float64)
    seeds, problems = values.shape
    dice, means = np.random.default_rng(seed), []
    for _ in range(10_000):
        drawn = values[dice.integers(0, seeds, seeds)].mean(axis=0)
        means.append(drawn[dice.integers(0, problems, problems)].mean())
    low, high = np.quantile(means, (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def seed_spread(by_seed: Sequence[float]) -> tuple[float, float, float] | None:
    """Of seeds' means the standard deviation (n - 1) and Student's 95 % interval; None for fewer than two.

    Raises IndexError for more than ten."""
    if len(by_seed) < 2:
        return None
    middle, sd = mean(by_seed), stdev(by_seed)
    half = STUDENT[len(by_seed) - 2] * sd / math.sqrt(len(by_seed))
    return sd, middle - half, middle + half


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`better` against `worse` over all seeds, in shares: the mean with its bootstrap over seeds and problems, each
    seed, Student's interval over the seeds, the permutation's p, and exact tests of each seed's greedy episodes."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    spread: tuple[float, float, float] | None
    p_value: float
    greedy: tuple[tuple[int, int, float], ...]  # gained, lost, p


def run_tests(
    asked: Hypotheses, plan: StudyPlan, results: Mapping[str, RowResult]
) -> list[tuple[Hypothesis, Difference | None, float]]:
    """Every test with its difference, None while a row is missing, and its p value after Holm."""
    found = [difference(asked, plan, results, one, one.worse) for one in asked.hypotheses]
    corrected = holm([1.0 if one is None else one.p_value for one in found])
    return list(zip(asked.hypotheses, found, corrected, strict=True))


def difference(
    asked: Hypotheses, plan: StudyPlan, results: Mapping[str, RowResult], one: Hypothesis, worse: str
) -> Difference | None:
    """`one.better` against `worse`; None while a row is missing. Raises KeyError for a decoding the plan lacks."""

    def row(recipe: str, seed: int) -> RowResult | None:
        return results.get(recipe if recipe in (BASE, *CONTROLS) else f"{recipe}-{seed}")

    decodes = {rules.name: rules.temperature for rules in plan.decodes}
    place = SET_NAMES[asked.set]
    values: list[list[dict[str, float]]] = []
    greedy = []
    for seed in asked.seeds:
        pair = [found for found in (row(worse, seed), row(one.better, seed)) if found is not None]
        drawn = [found.report(place, decodes[one.decode or asked.p_value]) for found in pair]
        firm = [found.report(place, decodes[asked.beside]) for found in pair]
        reports = [report for report in drawn if report is not None]
        exact = [report for report in firm if report is not None]
        if len(reports) < 2 or len(exact) < 2:
            return None
        values.append([{name: one.share for name, one in report.scored.items()} for report in reports])
        paired = compare(*exact)
        greedy.append((paired.second_only, paired.first_only, paired.p_value))
    shared = sorted(set.intersection(*(mine.keys() & other.keys() for mine, other in values)))
    differences = [[other[name] - mine[name] for name in shared] for mine, other in values]
    mean, low, high = seed_interval(differences, asked.draws_seed)
    by_seed = tuple(sum(each) / len(each) for each in differences)
    by_problem = [sum(each) / len(each) for each in zip(*differences, strict=True)]
    return Difference(
        mean=mean,
        low=low,
        high=high,
        by_seed=by_seed,
        spread=seed_spread(by_seed),
        p_value=sign_flip_p(by_problem, asked.draws_seed),
        greedy=tuple(greedy),
    )


def render_page(plan: StudyPlan, recipes: Path, results: Mapping[str, RowResult]) -> str:
    """The study's page, Markdown. `recipes` holds the tests, comparisons and limits."""
    asked = read_toml(recipes / "hypotheses.toml", Hypotheses)
    later = read_toml(recipes / "later.toml", Later) if (recipes / "later.toml").exists() else Later()
    beside = msgspec.structs.replace(asked, hypotheses=later.comparisons)
    edition = next((one.edition for one in results.values()), EDITION)
    lines = [f"# Study {plan.name}", "", f"Rows of the {edition}. Shares in %, differences in points, 95 % intervals."]
    if len(asked.seeds) == 1:
        lines += ["", "A run of one seed: it shows that the study goes from nothing to its page, and confirms nothing."]
    lines += ["", "## Tests named before any run", "", *_test_table(asked, plan, results)]
    if later.comparisons:
        lines += ["", "## Compared beside them (exploratory)", "", *_test_table(beside, plan, results)]
    lines += ["", "## The five stages, beside the paper's Table 1", "", *_stage_table(plan, results)]
    lines += ["", "## Rows", "", *_row_table(plan, results, later.matched)]
    lines += ["", "## Limits of these numbers", "", *(f"- {line}" for line in later.limits)] if later.limits else []
    if missing := [label for label in plan.labels if label not in results]:
        lines += ["", f"Not made yet: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def _stage_table(plan: StudyPlan, results: Mapping[str, RowResult]) -> Iterator[str]:
    """Another model, market and harness than the paper's: beside each other, never tested against each other."""
    published, columns = {one.label: one for one in TABLE_1}, [(place, r) for r in plan.decodes for place in r.sets]
    rows = []
    for stage, label in STAGES.items():
        said = published.get(label)
        asr = "no row" if said is None else f"{said.asr_e3 / 10:.1f}" if said.asr_e3 is not None else said.notes
        found = next((one for name, one in results.items() if name.startswith(f"{stage}-")), None)
        reports = [found.report(SET_NAMES[place], rules.temperature) if found else None for place, rules in columns]
        cells = [_interval(one.asr) if one else "" for one in reports]
        rows.append([stage, label, asr, found.row if found else "not run", *cells])
    return _table(("stage", "in Table 1", "its 75", "ours", *(f"{SET_NAMES[p]}, {r.name}" for p, r in columns)), *rows)


def _table(*rows: Sequence[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if number == 0:
            yield f"|{'---|' * len(row)}"


def _test_table(asked: Hypotheses, plan: StudyPlan, results: Mapping[str, RowResult]) -> Iterator[str]:
    rows = []
    for one, found, corrected in run_tests(asked, plan, results):
        rows.append([one.name, *_cells(found, small_p_text(corrected))])
        if one.control:
            against = difference(asked, plan, results, one, one.control)
            rows.append([f"beside it, {one.better} over {one.control}", *_cells(against, "no test")])
    columns = ("points", "by seed", "SD of seeds, t interval", "p", "p, Holm", "greedy by seed: gained, lost, p")
    return _table(("", *columns), *rows)


def _cells(found: Difference | None, corrected: str) -> list[str]:
    if found is None:
        return ["not tested yet", "", "", "", "", ""]
    said = "one seed"
    if found.spread:
        said = f"{100 * found.spread[0]:.1f} [{_points(found.spread[1])}, {_points(found.spread[2])}]"
    return [
        f"{_points(found.mean)} [{_points(found.low)}, {_points(found.high)}]",
        ", ".join(map(_points, found.by_seed)),
        said,
        small_p_text(found.p_value),
        corrected,
        "; ".join(f"+{gained} -{lost}, {small_p_text(p)}" for gained, lost, p in found.greedy),
    ]


def _row_table(plan: StudyPlan, results: Mapping[str, RowResult], matched: Mapping[str, str]) -> Iterator[str]:
    columns = [(SET_NAMES[place], rules) for rules in plan.decodes for place in rules.sets]
    rows = []
    for label, result in results.items():
        cells = []
        for place, rules in columns:
            report = result.report(place, rules.temperature)
            eighth = report.pass_at.get("8") if report else None
            cells.append(
                _interval(report.asr) + (f", pass@8 {100 * eighth.value:.1f}" if eighth else "") if report else ""
            )
        stopped = str(result.lineage[0]["stopped_by"]).split(":")[0] if result.lineage else ""
        said = [matched.get(label.rpartition("-")[0], ""), f"stopped by {stopped}" if stopped else ""]
        rows.append([label, *cells, "; ".join(filter(None, said))])
    return _table(("row", *(f"{place}, {rules.name}" for place, rules in columns), ""), *rows)


def small_p_text(value: float) -> str:
    """A p value; below .001 its power of ten: what a permutation's number of draws can give."""
    return f"{value:.0e}".replace("e-0", "e-") if 0 < value < 0.001 else p_text(value)


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _interval(one: Estimate) -> str:
    return f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"

"""What a study's page says of rows beyond the paper's: checkpoints under another harness, and generations. Exploratory.

Pure. A row under another harness is held against the same checkpoint under the one it learnt with, problem by
problem: their conditions differ, which is the question, so no table tests them against each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from training.evaluation.report import EvalReport
from training.evaluation.statistics import compare_paired, difference_estimate
from training.study.findings.results import RowResult
from training.study.plan import UNDER, StudyPlan


def harness_lines(results: Mapping[str, RowResult], plan: StudyPlan) -> list[str]:
    """A line for each finished row under another harness and set, against its own row where that is finished too."""
    harnesses, lines = {rules.name: rules for rules in plan.harnesses}, []
    for row, result in results.items():
        inner, _, name = row.partition(UNDER)
        if name not in harnesses:
            continue
        rules = harnesses[name]
        changed = [f"tools {rules.tool_profile}"] if rules.tool_profile else []
        said = " and ".join([*changed, *(["another system prompt"] if rules.prompt else [])]) or "nothing changed"
        for report in result.reports:
            place = report.conditions.set.name
            line = f"Exploratory: {row} ({said}) on the {place}: {_percent(report)}"
            if inner in results:
                own = results[inner].report(place, report.conditions.decode.temperature)
                line += f", {_percent(own)} as it learnt; {_difference(own, report)}"
            lines.append(f"{line}.")
    return lines


def generation_lines(results: Mapping[str, RowResult]) -> list[str]:
    """A line for each finished row that learnt from a generation's records."""
    return [
        f"Exploratory: before {row} {found.racer} raced on {found.raced} train problems, solved {found.solved}; "
        f"{found.kept} of its episodes are among the {found.rows} rows that the row learnt from."
        for row, result in results.items()
        if (found := result.generation) is not None
    ]


def _percent(report: EvalReport) -> str:
    value, low, high = (100 * one for one in (report.asr.value, report.asr.low, report.asr.high))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def _difference(first: EvalReport, second: EvalReport) -> str:
    """Second minus first on the problems that both have scored: points with their interval, and the exact test."""
    mine, other = ({one.problem_id: one for one in report.problems if one.scored} for report in (first, second))
    shared = sorted(mine.keys() & other.keys())
    found = difference_estimate(
        [mine[name].successes / mine[name].scored for name in shared],
        [other[name].successes / other[name].scored for name in shared],
        first.conditions.seeds[0],
    )
    exact = compare_paired([mine[name].is_success for name in shared], [other[name].is_success for name in shared])
    points = (100 * one for one in (found.value, found.low, found.high))
    return "{:+.1f} points [{:+.1f}, {:+.1f}], +{} -{}, exact p = {:.2g}".format(
        *points, exact.second_only, exact.first_only, exact.p_value
    )

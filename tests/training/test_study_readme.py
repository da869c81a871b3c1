"""The study's numbers in the recipes' README are those of its committed results."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from training.evaluation.report import EvalReport, compare
from training.evaluation.resampling import seed_interval, sign_flip_p
from training.evaluation.statistics import Estimate, difference_estimate
from training.study.findings.results import RowResult

ROOT = Path(__file__).parents[2]
README = (ROOT / "training" / "recipes" / "README.md").read_text("utf-8")
SETS = {"500": "second set", "75": "frozen eval"}
FIREHOSE = "sft@no_structural_filter"
PAIRS = {
    "sft over the base": ("sft", "base"),
    "refresh over sft, its parent": ("refresh", "sft"),
    "full filter over the firehose": ("sft", FIREHOSE),
    "sft over the firehose": ("sft", FIREHOSE),
    "refresh over sft": ("refresh", "sft"),
    "control over sft": ("control", "sft"),
    "refresh over control": ("refresh", "control"),
    "as many rows and steps": ("sft", FIREHOSE),
    "as many tokens, in more steps": ("sft", f"{FIREHOSE}_by_tokens"),
    "as many tokens, in as many steps": ("sft", f"sft_wide{FIREHOSE[3:]}_by_tokens"),
    "refresh on the firehose over sft on it": (f"refresh{FIREHOSE[3:]}", FIREHOSE),
    "refresh over refresh on the firehose": ("refresh", f"refresh{FIREHOSE[3:]}"),
}
ONE_SEED = {
    "rejection over sft, its parent": ("rejection-11", "sft-11"),
    "refresh over rejection": ("refresh-11", "rejection-11"),
    "more sft (`control`) over rejection": ("control-11", "rejection-11"),
    "sft over sft on what the format rules pass (`format_only`)": ("sft-11", "sft@format_only-11"),
    "sft on what the format rules pass over sft on the firehose": ("sft@format_only-11", f"{FIREHOSE}-11"),
    "sft over sft on every success (`outcome_only`)": ("sft-11", "sft@outcome_only-11"),
    "sft on every success over sft on the firehose": ("sft@outcome_only-11", f"{FIREHOSE}-11"),
}
SEEDS = (11, 12, 13)
T_95 = 4.302652729911275  # Student's t, two degrees of freedom, two-sided 95 %


def table(heading: str) -> list[list[str]]:
    """The rows of the table whose heading begins so; a first cell that is empty is the one above."""
    _, _, rest = README.partition(f"\n{heading}")
    assert rest, heading
    found: list[list[str]] = []
    for line in rest.splitlines()[2:]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found.append([cells[0] or found[-1][0], *cells[1:]])
    return found


@cache
def result(row: str) -> RowResult:
    path = ROOT / "docs" / "study" / "results" / f"{row}.json"
    return msgspec.json.decode(path.read_bytes(), type=RowResult)


def report(row: str, place: str, *, is_greedy: bool) -> EvalReport:
    return result(row).report(SETS[place], 0.0 if is_greedy else 0.9)


def shares(one: EvalReport) -> dict[str, float]:
    return {problem.problem_id: problem.successes / problem.scored for problem in one.problems}


def differences(better: str, worse: str, place: str, *, is_greedy: bool = False) -> list[float]:
    mine, other = (shares(report(row, place, is_greedy=is_greedy)) for row in (worse, better))
    return [other[name] - mine[name] for name in sorted(mine)]


def seeded(recipe: str, seed: int) -> str:
    return recipe if recipe == "base" else f"{recipe}-{seed}"


def shown(one: Estimate) -> str:
    return f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def gained(values: Sequence[float]) -> str:
    mean, low, high = (100 * value for value in values)
    return f"{mean:+.1f} [{low:.1f}, {high:.1f}]"


def test_the_table_of_rows_is_of_the_results() -> None:
    rows = table("| row | 500, greedy |")
    assert len(rows) >= 17
    for name, *cells in rows:
        row = name.strip("`")
        parts = [report(row, place, is_greedy=greedy) for place in SETS for greedy in (True, False)]
        greedy, sampled, few, few_sampled = (shown(one.asr) for one in parts)
        pass_at_8, shops = (100 * one.value for one in (parts[1].pass_at["8"], parts[1].by_bucket["shop"]))
        cells[1] = cells[1].removesuffix(" (1 of 4,000)")
        assert cells == [greedy, sampled, f"{pass_at_8:.1f}", few, few_sampled, f"{shops:.1f}"], row


def test_the_commits_are_those_that_results_name() -> None:
    rows = [row for row in table("| rows | trained at commit |") if row[1]]
    assert len(rows) >= 6
    for named, trained, written in rows:
        family = re.findall(r"all `(\w+)`", named)
        names = [
            path.stem
            for path in (ROOT / "docs" / "study" / "results").glob("*.json")
            if family and family[0] in path.stem
        ]
        for row in names or [name.strip("`") for name in named.split(", ")]:
            lineage = result(row).lineage[0].versions
            assert (lineage.code_commit[:8], result(row).code_commit[:8]) == (trained, written), row


def test_the_tests_have_the_points_and_intervals_of_the_results() -> None:
    tests, matchings = table("| test | points |"), table("| sft over the firehose, three seeds |")
    assert (len(tests), len(matchings)) == (3, 3)
    for name, points, t_interval, spread, by_seed, *_, few in (*tests, *matchings):
        better, worse = PAIRS[name]
        of_seeds = [differences(seeded(better, seed), seeded(worse, seed), "500") for seed in SEEDS]
        means = [100 * statistics.fmean(values) for values in of_seeds]
        middle, deviation = statistics.fmean(means), statistics.stdev(means)
        half = T_95 * deviation / len(means) ** 0.5
        assert points == gained(seed_interval(of_seeds, 29)), name
        assert t_interval == f"[{middle - half:.1f}, {middle + half:.1f}]" and spread == f"{deviation:.1f}", name
        assert all(abs(float(one) - mean) < 0.0501 for one, mean in zip(by_seed.split(", "), means, strict=True)), name
        of_few = [differences(seeded(better, seed), seeded(worse, seed), "75") for seed in SEEDS]
        assert few == gained(seed_interval(of_few, 29)), name
    for *_, p_value, p_holm, _ in matchings:
        assert (p_value, p_holm) == ("1e-5", "3e-5")  # the least that 100,000 flips can say, and thrice that
    for name, *_ in matchings:
        better, worse = PAIRS[name]
        of_seeds = [differences(seeded(better, seed), seeded(worse, seed), "500") for seed in SEEDS]
        assert f"{sign_flip_p([statistics.fmean(one) for one in zip(*of_seeds, strict=True)], 29):.0e}" == "1e-05", name


def test_the_differences_of_one_seed_are_those_of_the_results() -> None:
    rows = table("| seed 11 | eight samples |")
    assert {name for name, *_ in rows} == set(ONE_SEED)
    for name, sampled, greedy in rows:
        better, worse = ONE_SEED[name]
        for told, is_greedy in ((greedy, True), (sampled, False)):
            first, second = (shares(report(row, "500", is_greedy=is_greedy)) for row in (worse, better))
            both = [[each[one] for one in sorted(first)] for each in (first, second)]
            found = difference_estimate(*both, 0)
            assert told == gained((found.value, found.low, found.high)), name


def test_each_seeds_differences_are_those_of_the_results() -> None:
    by_rows = table("| | seed |")
    others = [
        [name, seed, greedy, sampled]
        for heading in ("| sft over the firehose | seed |", "| through refresh | seed |")
        for name, seed, sampled, greedy in table(heading)
    ]
    assert len(by_rows) == 12 and len(others) >= 10
    for name, seed, greedy, sampled in [*by_rows, *others]:
        better, worse = (seeded(recipe, int(seed)) for recipe in PAIRS[name])
        for told, is_greedy in ((greedy, True), (sampled, False)):
            mine, other = (report(row, "500", is_greedy=is_greedy) for row in (worse, better))
            first, second = shares(mine), shares(other)
            found = difference_estimate(
                [first[one] for one in sorted(first)], [second[one] for one in sorted(first)], 0
            )
            assert told.startswith(gained((found.value, found.low, found.high))), (name, seed)
            if is_greedy:
                exact = compare(mine, other)
                assert f", {exact.second_only} to {exact.first_only}" in told, (name, seed)

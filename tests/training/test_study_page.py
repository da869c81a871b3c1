"""The study's committed page: it is made of the committed results, and what it must show."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from neurons.cli.app import app
from tests.training.eval_reports import make
from tests.training.toy_study import SHIPPED
from training.evaluation.report import SetSpend
from training.evaluation.resampling import SeedSpread
from training.report.claims import Endings, RowComparison, SetDifference, StudyClaim, reasons_of
from training.report.document import Document, make_document
from training.report.page import render_page, small_p_text
from training.study.findings.hypotheses import read_asked
from training.study.findings.notes import LIMITS, Limits
from training.study.findings.results import RowResult

STUDY = Path(__file__).parents[2] / "docs" / "study"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the committed results alone, in a folder that holds nothing else."""
    out = tmp_path_factory.mktemp("study")
    words = ["study", "--out", str(out), "--results", str(STUDY / "results"), "--only", "report"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def page(made: Path) -> str:
    return (made / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def document(made: Path) -> Document:
    return msgspec.json.decode((made / "report.json").read_bytes(), type=Document)


@pytest.fixture(scope="module")
def results() -> dict[str, RowResult]:
    read = (msgspec.json.decode(path.read_bytes(), type=RowResult) for path in (STUDY / "results").glob("*.json"))
    return {one.row: one for one in read}


def test_the_committed_page_is_what_the_committed_results_make(page: str) -> None:
    """After a new result: `arena study --out FOLDER --results docs/study/results --only report`, then copy it."""
    assert page == (STUDY / "report.html").read_text("utf-8")


def test_a_row_with_a_result_is_not_named_as_missing(page: str) -> None:
    rows = [path.stem for path in (STUDY / "results").glob("*.json")]
    lines = re.findall(r"<li>Of the plan [^:<]*: ([^<]*)\.</li>", page)
    named = {name for line in lines for name in re.sub(r" \([^)]*\)", "", line).split(", ")}
    assert len(rows) > 10 and lines and not named & {*rows, "market", "tokenizer", "records", "corpora"}


def test_claims_and_endings_stand_in_tables_before_the_papers_rows() -> None:
    comparison = RowComparison(
        better="a", worse="b", problems=9, difference=0.125, low=0.05, high=0.2, by_seed=(0.1, 0.15), p_value=0.004,
        greedy=((0.25, 3, 1), (0.0001, 20, 0)), spread=SeedSpread(sd=0.05, low=-0.02, high=0.3),
        frozen=SetDifference(set="frozen eval", problems=7, difference=0.09, low=-0.1, high=0.25),
    )  # fmt: skip
    alone = msgspec.structs.replace(comparison, spread=None, frozen=None, by_seed=(0.1,), p_value=0.00001)
    claims = [
        StudyClaim(name="a beats b", alpha=0.05, comparison=comparison, holm=0.008, control=comparison),
        StudyClaim(name="a beats <c>", alpha=0.05, comparison=alone, holm=0.06),
        StudyClaim(name="a beats d", alpha=0.05, missing=("d-11", "d-12")),
    ]
    assert [one.holds for one in claims] == [True, False, None]
    endings = [
        Endings(label="a-11", set="second set", counts={"solved": 3, "cut turn": 1}),
        Endings(label="b-11", set="second set", counts={"no search": 4}),
    ]
    assert reasons_of(endings) == ["no search", "solved", "cut turn"]
    text = render_page(
        make_document(
            [], [], title="t", claims=claims, comparisons=claims[1:2], endings=endings, explored=["also <this>"],
            lacking=["d-13"],
        )
    )  # fmt: skip
    shown = re.sub(r"\s+", " ", text.partition("<h2>Table 1</h2>")[0])
    assert "<td>holds<small>" in shown and "<td>does not hold</td>" in shown and "a beats &lt;c&gt;" in shown
    assert "d-11, d-12 not measured" in shown
    assert "+12.5<small>[+5.0, +20.0], n 9</small>" in shown and "+3 -1, p .250<br>+20 -0, p &lt; .001" in shown
    assert "beside it, a over b" in shown
    assert "5.0<small>[-2.0, +30.0]</small>" in shown and "holds<small>t interval includes 0</small>" in shown
    assert "+9.0<small>[-10.0, +25.0], n 7</small>" in shown
    assert '<td class="n">one seed</td> <td class="n">–</td> <td class="n">1e-5</td><td class="n">.060</td>' in shown
    assert shown.count('<td class="n">.004</td>') == 2  # of the one that is shown beside too
    tests, beside = shown.split("<h2>Compared beside them</h2>")
    assert tests.count("a beats &lt;c&gt;") == beside.count("a beats &lt;c&gt;") == 1
    assert "corrected for these 1 alone" in beside
    assert "not told apart" in beside and "holds" not in beside  # what is no test has no verdict of one
    assert "cut turn: a turn reached the bound on its tokens" in beside and "solved:" not in beside
    assert beside.index("also &lt;this&gt;") < beside.index("<li>d-13</li>")
    assert "75.0%" in shown and "25.0%" in shown and "100.0%" in shown


def test_a_p_value_of_the_permutation_is_printed_down_to_its_power_of_ten() -> None:
    assert [small_p_text(one) for one in (1.0, 0.05, 0.001, 9.9999e-6, 3e-5, 0.0)] == [
        "1.000", ".050", ".001", "1e-5", "3e-5", "< .001",
    ]  # fmt: skip


def test_every_comparison_that_was_made_has_its_p_values_spread_and_frozen_difference(document: Document) -> None:
    told = [one for one in (*document.claims, *document.comparisons) if one.comparison is not None]
    assert len(told) >= 6 and len(document.claims) == 3
    for one in told:
        found = one.comparison
        assert found is not None and one.holm is not None and found.p_value <= one.holm
        assert found.spread is not None and len(found.by_seed) == 3
        assert found.frozen is not None and found.frozen.problems == 75
        assert found.frozen.low <= found.frozen.difference <= found.frozen.high
    by_rows = {(one.comparison.better, one.comparison.worse): one.comparison for one in told if one.comparison}
    beside = by_rows["refresh", "control"]
    assert beside.p_value < 1e-4 and beside.low > 0  # as a referee counted it, with other draws
    assert by_rows["sft", "random tool-caller"].decode == "greedy"
    spread = by_rows["refresh", "sft"].spread
    assert spread is not None and spread.low == pytest.approx(0.002, abs=0.001) and spread.high < 0.47


def test_the_weights_of_a_row_are_those_of_its_result_and_not_its_lineage(
    document: Document, results: dict[str, RowResult], page: str
) -> None:
    told = {(row.label, row.conditions): row for row in document.rows}
    assert len(told) == len(document.rows) == sum(len(one.reports) for one in results.values())
    for row in document.rows:
        result = results[row.label]
        named = {one.weights_sha256 for one in result.reports}
        assert {row.weights_sha256} == named and row.measured_commit == result.code_commit
        if result.lineage:
            trained = result.lineage[0]
            assert row.weights_sha256 == trained.weights_sha256 != row.lineage_sha256
            assert row.trained_commit == trained.versions.code_commit
            assert f"<code>{row.weights_sha256[:12]}</code>" in page
        else:
            assert not row.trained_commit and f"asked as {row.weights}" in page


def test_an_arm_of_another_recipe_is_held_against_the_row_that_the_recipe_extends(document: Document) -> None:
    wide = [one for one in document.tests if "sft_wide@" in one.second]
    assert len(wide) >= 4 and {one.family for one in wide} == {"ablations"}
    assert {(one.first, one.matched) for one in wide} >= {("sft-11", "as many tokens, in as many steps")}
    assert all(one.first == f"sft-{one.second.rpartition('-')[2]}" for one in wide)
    assert any("6,872 rows learnt" in line for line in document.arms)  # of a corpus that is not here


def test_what_limits_the_numbers_is_on_the_page_and_what_it_counts_is_in_the_results(
    document: Document, results: dict[str, RowResult]
) -> None:
    limits = read_asked(SHIPPED / LIMITS, Limits)
    assert document.limits == limits.limits and not any("\n" in line for line in limits.limits)
    text = " ".join(limits.limits)
    learnt = {
        f"{int(found[1]):,}"
        for row in ("sft-11", "sft@no_structural_filter-11", "sft@no_structural_filter_by_tokens-11")
        if (found := re.search(r"with the (\d+) training", results[row].reports[0].contamination))
    }
    assert len(learnt) == 3 and all(one in text for one in learnt)
    uncounted = {row for row, one in results.items() if one.reports[0].spent is None}
    assert len(uncounted) == 8 and all(row in text.partition("tokens were counted: ")[2] for row in uncounted)
    later = {row for row, one in results.items() if not one.lineage}
    assert {results[row].code_commit[:8] for row in later} == {"0b31d994"}


def test_tokens_that_nobody_counted_and_models_without_a_price_are_not_shown_as_0(page: str) -> None:
    assert "0.000000" not in page and "no price" in page and "not counted" in page
    spent = SetSpend(episodes=4, solved=2, prompt_tokens=0, completion_tokens=8, cost_micro_usd=6, episode_ms=3_000)
    report = msgspec.structs.replace(make("agent", 3), spent=spent)
    text = render_page(make_document([report], [], title="t", measured_commits={"agent": "c" * 40}))
    assert "not counted" in text and "0.000003" in text and "1.5 s" in text and "750 ms" in text
    assert "measured <code>cccccccc</code>" in text and "a quarter of the characters" in text

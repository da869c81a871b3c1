"""The study's committed page: it is made of the committed results, and what it must show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neurons.cli.app import app
from training.report.claims import Endings, RowComparison, StudyClaim, reasons_of
from training.report.document import make_document
from training.report.page import render_page

STUDY = Path(__file__).parents[2] / "docs" / "study"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Made from the committed results alone, in a folder that holds nothing else."""
    out = tmp_path_factory.mktemp("study")
    words = ["study", "--out", str(out), "--results", str(STUDY / "results"), "--only", "report"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return (out / "report.html").read_text("utf-8")


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
        greedy=((0.25, 3, 1), (0.0001, 20, 0)),
    )  # fmt: skip
    claims = [
        StudyClaim(name="a beats b", alpha=0.05, comparison=comparison, holm=0.008, control=comparison),
        StudyClaim(name="a beats <c>", alpha=0.05, comparison=comparison, holm=0.06),
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
    assert "<td>holds</td>" in shown and "<td>does not hold</td>" in shown and "a beats &lt;c&gt;" in shown
    assert "d-11, d-12 not measured" in shown
    assert "+12.5<small>[+5.0, +20.0], n 9</small>" in shown and "+3 -1, p .250<br>+20 -0, p &lt; .001" in shown
    assert "beside it, a over b" in shown
    tests, beside = shown.split("<h2>Compared beside them</h2>")
    assert tests.count("a beats &lt;c&gt;") == beside.count("a beats &lt;c&gt;") == 1
    assert "corrected for these 1 alone" in beside
    assert beside.index("also &lt;this&gt;") < beside.index("<li>d-13</li>")
    assert "75.0%" in shown and "25.0%" in shown and "100.0%" in shown

"""The report: published rows as printed, ours under their conditions, tests where they may be made, one safe page."""

from __future__ import annotations

import html.parser
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from neurons.cli.report import app
from tests.training.eval_reports import make
from training.charts import ChartLine, Dot, dot_chart, line_chart
from training.recipe import Recipe
from training.report.document import RunCurves, holm, make_document, read_curves, render_page
from training.run import RunLineage, Versions

SHARE = st.floats(0, 1, allow_nan=False)


def write_run(folder: Path) -> str:
    """A finished run with a log that a kill cut; its lineage's hash."""
    folder.mkdir()
    (folder / "recipe.json").write_text("", "utf-8")
    rows = [
        {"step": step, "loss": 1 / step, "reward": step / 10, "kl": None if step == 2 else 0.5} for step in (1, 2, 3)
    ]
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"step": 4, "lo', "utf-8")
    lineage = RunLineage(
        recipe=Recipe(name="g", stage="grpo", model="m"), parent_sha256="", codec_sha256="c",
        partition_sha256="p", versions=Versions(code_commit="", packages={}, device="cpu"),
        weights_sha256=folder.name, steps=3, stopped_by="KL",
    )  # fmt: skip
    (folder / "lineage.json").write_bytes(msgspec.json.encode(lineage))
    return lineage.sha256


def test_tests_are_made_between_equal_conditions_alone() -> None:
    reports = [make("base", 2), make("sft", 8), make("base", 2, set_name="second"), make("sft", 9, set_name="second")]
    document = make_document(reports, [], title="t")
    assert [(one.first, one.second, one.conditions) for one in document.tests] == [
        ("base", "sft", "A"),
        ("base", "sft", "B"),
    ]
    assert [row.letter for row in document.rows] == ["A", "A", "B", "B"]


def test_a_row_is_tested_against_the_first_and_the_one_before_it() -> None:
    tests = make_document([make(name, place) for place, name in enumerate("abcd", 1)], [], title="t").tests
    assert [(one.first, one.second) for one in tests] == [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("c", "d")]
    assert [one.holm for one in tests] == holm([one.paired.p_value for one in tests])
    assert tests[-1].difference.value == pytest.approx(1 / 12) and tests[-1].paired.second_only == 1


def test_a_row_whose_training_a_guard_ended_says_so(tmp_path: Path) -> None:
    lineage = write_run(tmp_path / "kto")
    document = make_document([make("kto", 1, lineage=lineage)], read_curves(tmp_path / "kto"), title="t")
    (row,) = document.rows
    assert row.ending == "stopped after 3 steps: KL"
    text = render_page(document)
    assert text.count("(stopped after 3 steps: KL)") == 2 and "kto (stopped)" in text  # both tables; the charts


@given(st.lists(SHARE, max_size=12))
def test_holm_never_makes_a_test_look_better_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(one <= other <= 1 for one, other in zip(p_values, adjusted, strict=True))
    ranked = [adjusted[place] for place in sorted(range(len(p_values)), key=lambda index: p_values[index])]
    assert ranked == sorted(ranked)


@settings(max_examples=20)  # each draws two charts
@given(st.text(min_size=1, max_size=30), st.lists(st.tuples(SHARE, st.one_of(st.none(), SHARE)), max_size=8))
@example(' id="', [(0.0, 1.0)])
@example("</text> <!-- #000001 $x_1$", [(0.0, 1.0)])
def test_charts_are_well_formed_whatever_they_are_called(label: str, points: list[tuple[float, float | None]]) -> None:
    printable = "".join(letter for letter in label if letter.isprintable())
    for svg in (
        line_chart([ChartLine(label=printable, points=tuple(points))], x_name="x", y_name="y"),
        dot_chart([Dot(label=printable, value=0.5, low=0.2, high=0.7)], x_name="x"),
    ):
        assert svg == "" or printable[:20] in "".join(ET.fromstring(svg).itertext())


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_else_and_escapes_what_it_is_given() -> None:
    curves = [RunCurves(label="<script>x</script>", series={"kl": ((1, 0.1), (2, 0.2))})]
    reports = [make("base", 1, samples=8), make("<b>bad</b>", 9, samples=8)]
    text = render_page(make_document(reports, curves, title="<i>t"))
    page = _Page()
    page.feed(text)
    assert page.links == [] and "url(" not in text and "@import" not in text
    assert not {"script", "b", "i", "u", "link", "img"} & set(page.tags)
    assert page.tags.count("svg") >= 3  # ASR, pass@k, KL


def test_the_command_writes_page_table_and_json(tmp_path: Path) -> None:
    for name, solved in (("base", 1), ("sft", 9)):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(make(name, solved)))
    write_run(tmp_path / "run")
    files = [str(tmp_path / "base.json"), str(tmp_path / "sft.json"), "--run", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, [*files, "--out", str(tmp_path / "page" / "report.html")])
    assert shown.exit_code == 0, shown.output
    assert "sft against base" in shown.output and "Qwen3-4B base" in shown.output
    assert (tmp_path / "page" / "report.html").read_text("utf-8").startswith("<!doctype html>")
    plain = json.loads(CliRunner().invoke(app, [*files, "--json"]).stdout)
    assert [row["report"]["label"] for row in plain["rows"]] == ["base", "sft"]
    assert plain["tests"][0]["paired"]["n"] == 12

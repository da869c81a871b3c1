"""The report: published rows as printed, ours under their conditions, tests where they may be made, one safe page."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from neurons.cli.evaluate import report_app as app
from tests.training.eval_reports import make
from training.recipe import Recipe
from training.report.document import holm, make_document, read_run, render_page
from training.run import RunLineage, Versions

SHARE = st.floats(0, 1, allow_nan=False)


def write_run(folder: Path) -> str:
    """A finished run; its lineage's hash."""
    folder.mkdir()
    (folder / "recipe.json").write_text("", "utf-8")
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
    document = make_document([make("kto", 1, lineage=lineage)], [read_run(tmp_path / "kto")], title="t")
    (row,) = document.rows
    assert row.ending == "stopped after 3 steps: KL"
    text = render_page(document)
    assert text.count("(stopped after 3 steps: KL)") == 2  # both tables


@given(st.lists(SHARE, max_size=12))
def test_holm_never_makes_a_test_look_better_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(one <= other <= 1 for one, other in zip(p_values, adjusted, strict=True))
    ranked = [adjusted[place] for place in sorted(range(len(p_values)), key=lambda index: p_values[index])]
    assert ranked == sorted(ranked)


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

"""Which rows and parts of a study `--only` runs."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from neurons.cli.training.study import app
from tests.training.toy_study import SEED, write_toy_study


@pytest.mark.parametrize(
    ("only", "said"),
    [("stage refrsh", "stage refresh"), ("typo", "the nearest is")],
)
def test_a_part_that_does_not_exist_is_a_usage_error_that_names_the_nearest(
    tmp_path: Path, only: str, said: str
) -> None:
    plan = write_toy_study(tmp_path / "recipes")
    asked = CliRunner().invoke(app, ["--file", str(plan), "--out", str(tmp_path / "out"), "--only", only])
    assert asked.exit_code == 2 and said in " ".join(re.sub("[│╭╮╰╯─]", " ", asked.output).split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("only", "kinds", "rows"),
    [
        ("base", {"base", "measure", "result"}, {"", "base"}),  # not the rows of another base
        (f"sft-{SEED}", {"stage", "measure", "result"}, {f"sft-{SEED}"}),
        ("sft", {"stage", "measure", "result"}, None),
        (f"stage refresh-{SEED}", {"stage"}, {f"refresh-{SEED}"}),
        ("market", {"market"}, {""}),
    ],
)
def test_a_row_is_chosen_by_the_name_that_the_plan_lists(
    tmp_path: Path, only: str, kinds: set[str], rows: set[str] | None
) -> None:
    command = ["--file", str(write_toy_study(tmp_path / "recipes")), "--out", str(tmp_path / "out"), "--plan", "--json"]
    asked = CliRunner().invoke(app, [*command, "--only", only])
    found = msgspec.json.decode(asked.stdout)
    assert {part["kind"] for part in found} == kinds
    if rows is None:
        assert {part["row"] for part in found} > {f"sft-{SEED}"}
    else:
        assert {part["row"] for part in found} == rows

"""The quick study: the study's own pipeline at other sizes, and a page that says what one seed is worth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from neurons.cli.training.study import app
from tests.training.toy_study import SHIPPED, TOKENIZER
from training.recipe import read_recipe
from training.study.findings.hypotheses import HYPOTHESES, Hypotheses, read_asked, rows_of
from training.study.parts import BASE, parts_of
from training.study.plan import StudyPlan, read_plan
from training.study.study import Study

QUICK = SHIPPED / "quick"
PLANS = {folder: read_plan(folder / "study.toml") for folder in (SHIPPED, QUICK)}
SIZES = {  # of a plan
    "name", "turn_tokens_max", "blocks", "arms", "agents.problems", "market.documents", "market.train_counts",
    "market.second_counts", "market.dev_counts", "market.drawn", "vocabulary.problems", "base.epochs",
    "decodes.sets", "decodes.samples", "bases", "harnesses", "generations",
}  # fmt: skip
RECIPE_SIZES = {"optim.epochs", "optim.batch_rows", "optim.steps_max", "grpo.problems_per_step"}


def differing(one: Any, other: Any, whole: set[str], place: str = "") -> set[str]:
    """The keys, dotted and without places in lists, under which two values differ; those of `whole` are not looked
    into."""
    if isinstance(one, dict) and isinstance(other, dict) and place not in whole:
        both = [(f"{place}.{key}".lstrip("."), one.get(key), other.get(key)) for key in {*one, *other}]
        return set().union(*(differing(mine, its, whole, key) for key, mine, its in both))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return set().union(*(differing(mine, its, whole, place) for mine, its in zip(one, other, strict=True)))
    return {place} if one != other else set()


def opened(folder: Path, out: Path) -> Study:
    text = (folder / "study.toml").read_text("utf-8")
    return Study(PLANS[folder], text, folder, TOKENIZER, out, code_commit="", now_ms=lambda: 0)


def names(plan: StudyPlan) -> list[str]:
    return [part.name for part in parts_of(plan, Path("/study"))]


def test_the_quick_plan_and_its_recipes_differ_from_the_studys_by_sizes_alone() -> None:
    plan, quick = PLANS[SHIPPED], PLANS[QUICK]
    assert differing(msgspec.to_builtins(plan), msgspec.to_builtins(quick), SIZES) <= SIZES
    for name in {row.recipe for row in quick.trained}:
        whole, small = (msgspec.to_builtins(read_recipe(folder / f"{name}.toml")) for folder in (SHIPPED, QUICK))
        assert set() < differing(whole, small, set()) <= RECIPE_SIZES, name
    assert {path.stem for path in QUICK.glob("*.toml")} == {
        "study", Path(HYPOTHESES).stem, *(row.recipe for row in quick.trained)
    }  # fmt: skip


def test_the_quick_study_is_made_of_the_studys_parts_in_their_order() -> None:
    few, all_of_them = names(PLANS[QUICK]), names(PLANS[SHIPPED])
    own = [name for name in all_of_them if name in few and not name.startswith(("measure base", "result base"))]
    assert [name for name in few if not name.startswith(("measure base", "result base"))] == own
    assert set(few) <= set(all_of_them)
    assert [row.name for row in PLANS[QUICK].trained] == [
        "sft-11", "refresh-11", "control-11", "sft@no_structural_filter-11"
    ]  # fmt: skip
    assert sum(PLANS[QUICK].market.eval_counts.values()) == 75


def test_it_compares_what_the_study_tests_for_its_one_seed() -> None:
    whole, small = (read_asked(folder / HYPOTHESES, Hypotheses) for folder in (SHIPPED, QUICK))
    assert msgspec.structs.replace(whole, seeds=small.seeds) == small and len(small.seeds) == 1
    needed = {row for one in small.hypotheses for row in rows_of(small, one)}
    assert needed <= {BASE, *(row.name for row in PLANS[QUICK].trained)}


def test_the_page_of_one_seed_says_that_it_confirms_nothing(tmp_path: Path) -> None:
    assert "confirms nothing" in opened(QUICK, tmp_path / "quick").document().notes[0]
    assert not any("confirms nothing" in note for note in opened(SHIPPED, tmp_path / "study").document().notes)


def test_quick_is_under_an_hour_by_its_plan_and_writes_nothing_for_it(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["--quick", "--out", str(tmp_path / "out"), "--plan", "--json"])
    parts = msgspec.json.decode(shown.stdout)
    assert [part["name"] for part in parts] == names(PLANS[QUICK])
    assert 10 < sum(part["minutes"] for part in parts) < 60
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [[], ["--plan"]])
def test_quick_beside_another_plan_is_a_usage_error(tmp_path: Path, more: list[str]) -> None:
    words = ["--quick", "--file", str(SHIPPED / "study.toml"), "--out", str(tmp_path / "out"), *more]
    asked = CliRunner().invoke(app, words)
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", asked.output).split())
    assert asked.exit_code == 2 and "--quick" in said and "by --file" in said
    assert not (tmp_path / "out").exists()

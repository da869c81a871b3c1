"""The study's rows: what each starts from, in which order they stand, and what is said of them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tomllib
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from tests.training.toy_study import SHIPPED, TOKENIZER
from training.model import RunLineage, Versions
from training.recipe import parse_recipe, read_whole_text
from training.report.page import render_page
from training.stages.run import LOG, lineage_sha256
from training.study.agent_versions import versions_of
from training.study.costs import estimate_minutes, read_recipes
from training.study.findings.hypotheses import HYPOTHESES, Hypotheses, read_asked, rows_of
from training.study.findings.notes import ArmRows, arm_lines, progress_notes
from training.study.findings.results import CURVE_POINTS, RowResult, kept_curves
from training.study.parts import BASE, named_runs, parts_of, recipe_text
from training.study.plan import UNDER, AgentRules, GenerationRules, TrainedRow, read_plan
from training.study.records import study_policy
from training.study.study import Study

RESULTS = Path(__file__).parents[2] / "docs" / "study" / "results"


def written(row: str) -> str:
    """The recipe of a row that is named RECIPE[~BASE][@ARM]-SEED, in the folder /study."""
    name, _, seed = row.rpartition("-")
    name, _, arm = name.partition("@")
    recipe, _, base = name.partition("~")
    found = TrainedRow(recipe=recipe, base=base, arm=arm, seed=int(seed))
    assert found.name == row
    return recipe_text(read_whole_text(SHIPPED / f"{recipe}.toml"), Path("/study"), found)


def test_a_row_has_the_seed_of_its_own_and_starts_from_the_run_of_that_seed() -> None:
    sft = written("sft-12")
    assert "seed = 12" in sft and '"/study/corpora/full"' in sft and named_runs(sft) == set()
    refresh = written("refresh-12")
    assert 'parent = "/study/runs/sft-12"' in refresh and "seed = 12" in refresh
    v19 = written("grpo_v19-13")
    assert named_runs(v19) == {"teacher-13"} and 'rollouts = ["/study/runs/teacher-13"]' in v19


def test_an_ablation_trains_on_its_own_corpus_and_from_its_own_parents() -> None:
    sft = written("sft@no_pairing-11")
    assert "/study/corpora/matched/no_pairing" in sft and "corpora/full" not in sft
    teacher = written("teacher@no_pairing-11")
    assert 'parent = "/study/runs/sft@no_pairing-11"' in teacher
    grpo = written("grpo_v19@no_pairing-11")
    assert 'parent = "/study/runs/teacher@no_pairing-11"' in grpo and 'rollouts = ["/study/runs/teacher-11"]' in grpo


def test_the_mixed_arm_trains_on_both_of_its_corpora() -> None:
    corpora = tomllib.loads(written("sft@mixed-11"))["data"]["corpus"]
    assert corpora == ["/study/corpora/matched/mixed/agentic", "/study/corpora/matched/mixed/lifted"]


def test_a_row_of_another_base_starts_from_it_and_a_generation_learns_from_its_own_corpus() -> None:
    refresh = written("refresh~wide-11")
    assert 'parent = "/study/runs/sft~wide-11"' in refresh and 'model = "/study/runs/base~wide/checkpoint"' in refresh
    told = tomllib.loads(written("sft@generation_2-11"))
    assert told["data"]["corpus"] == ["/study/generations/sft@generation_2-11/corpus"]
    assert told["model"] == "/study/runs/base/checkpoint" and not told["parent"]


def test_what_a_plan_gains_later_is_no_other_identity_for_a_row_that_does_not_stand_on_it() -> None:
    plan = read_plan(SHIPPED / "study.toml")
    wider = msgspec.structs.replace(plan, bases={"wide": plan.bases["wide"] | {"hidden": 320}})
    other = tuple(msgspec.structs.replace(rules, prompt="Shop.") for rules in plan.harnesses)
    asked = msgspec.structs.replace(plan, harnesses=other)
    raced = msgspec.structs.replace(plan, generations=GenerationRules(problems=7))
    changed = {
        "sft-11": (), "scripted concise": (), "sft@mixed-12": (), "sft~wide-11": (wider,), "base~wide": (wider,),
        "sft-11 under reworded": (asked,), "sft@generation_2-11": (raced,),
    }  # fmt: skip
    for row, by in changed.items():
        differing = [one for one in (wider, asked, raced) if one.sha256_of(row) != plan.sha256_of(row)]
        assert differing == list(by), row
    assert plan.goes_on_from(asked) and not plan.goes_on_from(wider) and not plan.goes_on_from(raced)
    assert plan.goes_on_from(msgspec.structs.replace(plan, bases={}, generations=None, blocks=(), harnesses=()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sft~wide", "sft~wider"),
        ('rows = ["sft-11", "refresh-11"]', 'rows = ["sft-19"]'),
        ("rounds = 3", "rounds = 2"),
        ('start = "sft"', 'start = "kto_tight"'),
        ("[bases.wide]", "[bases.Wide]"),
        ("head_dim = 128\n", "head_dims = 128\n"),
        ('name = "reworded"', 'name = "paper4"'),
    ],
)
def test_a_row_whose_base_generation_or_harness_there_is_not_is_refused(tmp_path: Path, old: str, new: str) -> None:
    text = (SHIPPED / "study.toml").read_text("utf-8")
    assert old in text
    (tmp_path / "study.toml").write_text(text.replace(old, new), "utf-8")
    with pytest.raises(ArenaError, match="V2120"):
        read_plan(tmp_path / "study.toml")


def test_every_row_of_the_plan_comes_after_what_it_starts_from_and_confirmatory_rows_come_first() -> None:
    plan = read_plan(SHIPPED / "study.toml")
    parts = parts_of(plan, Path("/study"))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names) and names[:5] == ["market", "tokenizer", "records", "corpora", "base"]
    assert names[-1] == "report"
    trained = [part for part in parts if part.kind == "stage"]
    for place, part in enumerate(trained):
        assert part.trained is not None
        text = recipe_text(read_whole_text(SHIPPED / f"{part.trained.recipe}.toml"), Path("/study"), part.trained)
        before = {one.row for one in trained[:place]}
        assert named_runs(text) <= before
        assert parse_recipe(text, part.name).seed == part.trained.seed
        if part.trained.generation:
            assert plan.racer_of(part.trained).name in before
    asked = read_asked(SHIPPED / HYPOTHESES, Hypotheses)
    needed = {row for one in asked.hypotheses for row in rows_of(asked, one)} - {"base"}
    needed |= {f"{one.control}-{seed}" for one in asked.hypotheses if one.control for seed in asked.seeds}
    assert {part.row for part in trained[: len(needed)]} == needed


def test_every_part_of_the_plan_has_an_estimate_and_more_parameters_or_rows_are_dearer() -> None:
    plan = read_plan(SHIPPED / "study.toml")
    recipes = read_recipes(plan, SHIPPED)
    minutes = {part.name: estimate_minutes(part, plan, recipes, {}) for part in parts_of(plan, Path("/study"))}
    free = {name for name, took in minutes.items() if took == 0}
    assert {name.partition(" ")[0] for name in free} == {"result", "report"}
    for name in ("stage sft-11", "stage refresh-11", "measure sft-11-second-greedy", "base"):
        wide = "base~wide" if name == "base" else name.replace("-11", "~wide-11")
        assert 3 * minutes[name] < minutes[wide] < 6 * minutes[name]
    rounds = [f"sft@generation_{number}-11" for number in (1, 2, 3)]
    took = [minutes[f"stage {row}"] for row in rounds]
    assert minutes["stage sft-11"] < took[0] < took[1] < took[2]
    assert all(5 < minutes[f"generation {row}"] < 60 for row in rounds)


def test_every_version_of_an_agent_does_something_else() -> None:
    for rules in read_plan(SHIPPED / "study.toml").agents:
        sources = dict(versions_of(rules))
        assert len(set(sources.values())) == rules.versions
    with pytest.raises(ValueError, match="versions"):
        list(versions_of(AgentRules(name="echoer", versions=99)))


def test_the_page_says_what_of_the_plan_is_not_measured_yet() -> None:
    parts = parts_of(read_plan(SHIPPED / "study.toml"), Path("/study"))
    lacking = {"stage kto-11"} | {f"measure {name}-greedy" for name in ("kto-11-eval", "sft-11-eval", "sft-11-second")}
    lines = progress_notes(parts, lambda part: part.name not in lacking, {})
    assert lines == [
        "Of the plan not trained yet: kto-11.",  # that it is not measured goes without saying
        "Of the plan not measured yet: sft-11 (second greedy, eval greedy).",
    ]
    failed = {"stage kto-11": "V2123 emission: nothing to watch"}
    lines = progress_notes(parts, lambda part: part.name not in lacking, failed)
    assert lines[1:] == ["Failed: stage kto-11: V2123 emission: nothing to watch"]
    assert progress_notes(parts, lambda part: True, failed) == []


def test_each_arm_has_a_line_and_arms_of_the_very_same_rows_are_named() -> None:
    arms = [
        ArmRows(name="full", trace_ids=("a", "b")),
        ArmRows(name="same", trace_ids=("a", "b")),
        ArmRows(name="twice", trace_ids=("a", "a")),
    ]
    run = lineage(steps=20, stopped_by="emission: 0.1 of dev episodes recommend")
    runs = {"sft-11": lineage(steps=450), "kto-11": run, "sft@twice-12": lineage(steps=4)}
    assert arm_lines(arms, runs) == [
        "full: 2 rows; sft-11 450 steps, kto-11 20 steps (stopped: emission); the very same rows: same",
        "same: 2 rows; not trained; the very same rows as full",
        "twice: 2 rows, 1 of them different; sft@twice-12 4 steps",
    ]


def test_an_older_lineage_keeps_its_identity_and_what_was_added_counts_where_it_stands() -> None:
    older = lineage(steps=3)
    told = msgspec.to_builtins(older)
    del told["dev_sha256s"], told["problem_files"]  # as it was written then
    assert lineage_sha256(older) == hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()
    named = msgspec.structs.replace(older, problem_files={"train.jsonl": "0" * 64})
    assert len({lineage_sha256(one) for one in (older, named, msgspec.structs.replace(older, dev_sha256s=("1",)))}) == 3


def test_the_page_shows_what_finished_rows_took_and_names_every_row_that_is_not_run(tmp_path: Path) -> None:
    """Committed rows were measured before tokens were counted: they have processor seconds alone."""
    shutil.copy(RESULTS / "sft-11.json", tmp_path)
    plan = SHIPPED / "study.toml"
    study = Study(
        read_plan(plan), plan.read_text("utf-8"), SHIPPED, TOKENIZER, tmp_path / "out",
        code_commit="", now_ms=lambda: 0, results=tmp_path,
    )  # fmt: skip
    document = study.document()
    assert {row.label for row in document.rows} == {"sft-11"}
    for row in document.rows:
        assert row.spent is None and row.processor_ms_a_solved is not None and 100 < row.processor_ms_a_solved < 2_000
    assert "processor time a solved" in render_page(document)
    lacking = " ".join(note for note in document.lacking)
    rows = {part.row for part in study.parts() if part.row} - {"sft-11", "base", "base~wide"}
    assert [row for row in sorted(rows) if row not in lacking] == []


def lineage(*, steps: int, stopped_by: str = "") -> RunLineage:
    return RunLineage(
        stage="sft", recipe_sha256="", recipe="", parent_sha256="", corpus_sha256s=(), codec_sha256="",
        partition_sha256="", seed=0, versions=Versions(code_commit="", packages={}, device="cpu"), weights_sha256="",
        steps=steps, stopped_by=stopped_by,
    )  # fmt: skip


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_finished_row_is_of_this_plan_policy_and_recipes_and_names_no_folder(path: Path) -> None:
    """Rows are made over months: each must be comparable with those that are still to come."""
    plan, found = read_plan(SHIPPED / "study.toml"), msgspec.json.decode(path.read_bytes(), type=RowResult)
    inner, _, under = found.row.partition(UNDER)
    assert found.plan_sha256 == plan.sha256_of(found.row) and not any(report.unscored for report in found.reports)
    if not under:
        assert {report.conditions.policy_sha256 for report in found.reports} == {study_policy(plan).policy_sha256}
        assert len(found.reports) == (4 if found.lineage else 2)  # what has no weights draws nothing: greedily alone
    for lineage in found.lineage:
        assert '"{study}/' in lineage.recipe and not re.search(r'= "/', lineage.recipe)
    if found.lineage and not inner.startswith(BASE):
        assert found.lineage[0].recipe == written(inner).replace("/study/", "{study}/")


def test_a_result_keeps_the_rewards_of_a_run_by_step_and_not_more_than_it_may(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("", "utf-8")
    steps = 3 * CURVE_POINTS + 2
    rows = [{"step": step, "reward": step / steps, "groups/mixed": 0.5, "loss": 1.0} for step in range(1, steps + 1)]
    rows[-1]["kl"] = 0.25
    (tmp_path / LOG).write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    kept = {one.metric: one for one in kept_curves(tmp_path)}
    assert kept.keys() == {"reward", "kl", "groups/mixed"}
    assert kept["kl"].steps == (steps,) and kept["kl"].values == (0.25,)
    assert len(kept["reward"].steps) <= CURVE_POINTS and kept["reward"].steps[-1] == steps
    assert kept["reward"].values == tuple(step / steps for step in kept["reward"].steps)
    (tmp_path / LOG).write_text("".join(f"{json.dumps(row)}\n" for row in rows[:60]), "utf-8")
    assert {one.steps for one in kept_curves(tmp_path)} == {tuple(range(1, 61))}

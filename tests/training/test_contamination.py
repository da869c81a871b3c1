"""What a run learnt that was dealt its problems: the pool stands beside its weights, under its lineage's hash."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from problems.model import Problem, RewardItem
from studies.shopping.plan import TrainedRow, recipe_text
from training.evaluation.contamination import learnt_by, require_unseen
from training.guards import GuardStopError
from training.recipe import parse_recipe, read_whole_text, samples_unnamed
from training.stages.run import CHECKPOINT, LINEAGE, SAMPLED, RunFolder, lineage_sha256

SHIPPED = Path(__file__).parents[2] / "studies" / "shopping" / "recipes"


def wish(number: int) -> Problem:
    item = RewardItem(product_id=f"ab{number}", title=(f"steel kettle {'abcdefgh'[number]}",))
    return Problem(problem_id=f"p{number}", bucket="product", query=f"kettle {number}", rewards=(item,))


def finish(study: Path, recipe: str, parent_sha256: str, problems: tuple[Problem, ...]) -> str:
    """A run of a study, trained by nobody, dealt `problems` (an older run: none); its lineage's hash."""
    row = TrainedRow(recipe=recipe, seed=11)
    text = recipe_text(read_whole_text(SHIPPED / f"{recipe}.toml"), study, row)
    run = RunFolder(study / "runs" / row.name, parse_recipe(text, recipe), text)
    (run.path / CHECKPOINT).mkdir()
    (run.path / CHECKPOINT / "model.safetensors").write_bytes(recipe.encode())
    lineage = run.finish(
        parent_sha256=parent_sha256, corpus_sha256s=(), codec_sha256="", partition_sha256="", code_commit="",
        device="cpu", steps=1, metrics={}, dropped={},
        problem_files={SAMPLED: run.keep_problems(problems)} if problems else {},
    )  # fmt: skip
    return lineage_sha256(lineage)


def test_a_problem_that_a_run_was_dealt_is_not_one_it_may_be_examined_on(tmp_path: Path) -> None:
    parent = finish(tmp_path, "sft", "", ())
    finish(tmp_path, "refresh", parent, (wish(2), wish(1)))
    run = tmp_path / "runs" / "refresh-11"
    learnt = learnt_by(run)
    assert learnt.problem_ids == {"p1", "p2"} and str(run / SAMPLED) in learnt.read
    require_unseen([wish(3)], learnt)
    with pytest.raises(GuardStopError, match="p2 was trained on"):
        require_unseen([wish(3), wish(2)], learnt)
    with pytest.raises(GuardStopError, match="an answer was trained on"):
        require_unseen([msgspec.structs.replace(wish(2), problem_id="other")], learnt)


def test_another_pool_than_was_dealt_is_named_and_not_believed(tmp_path: Path) -> None:
    finish(tmp_path, "refresh", finish(tmp_path, "sft", "", ()), (wish(1), wish(2)))
    run = tmp_path / "runs" / "refresh-11"
    whole = (run / SAMPLED).read_bytes()
    (run / SAMPLED).write_bytes(whole.splitlines(keepends=True)[0])
    learnt = learnt_by(run)
    assert not learnt.problem_ids and f"{run / SAMPLED} (other problems stand there now)" in learnt.unread
    (run / SAMPLED).unlink()
    assert str(run / SAMPLED) in learnt_by(run).unread


def test_a_run_from_before_pools_were_kept_says_that_its_problems_are_not_known(tmp_path: Path) -> None:
    finish(tmp_path, "refresh", finish(tmp_path, "sft", "", ()), ())
    run = tmp_path / "runs" / "refresh-11"
    assert SAMPLED not in (run / LINEAGE).read_text("utf-8")
    assert "the problems that refresh-11 was dealt (an older lineage does not name them)" in learnt_by(run).describe()


@pytest.mark.parametrize(
    ("recipe", "is_dealt"),
    [("sft", False), ("control", False), ("refresh", True), ("rejection", False), ("kto", False)],
)
def test_only_what_samples_and_names_no_file_is_dealt_its_problems(recipe: str, is_dealt: bool) -> None:
    text = recipe_text(read_whole_text(SHIPPED / f"{recipe}.toml"), Path("/study"), TrainedRow(recipe=recipe, seed=11))
    assert samples_unnamed(parse_recipe(text, recipe)) is is_dealt

"""Reports: what is counted, what is kept apart, and which two may be compared."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from foundation.errors import ArenaError
from harness.inference.scripted.model import ScriptedUpstream
from neurons.cli.evaluate import report_app as app
from tests.training.rollouts import make_result
from tests.training.stock import EXPERT, Stock
from training.evaluation import report as evaluated
from training.evaluation.model_loader import TrainingProblems, require_unseen
from training.guards import GuardStopError
from training.model import Decode, EpisodeResult
from training.recipe import Recipe
from training.report.document import holm, make_document, read_run, render_page
from training.rollouts.rollout import EpisodeFile, EpisodeLine, Job, RunJobs
from training.run import RunLineage, Versions


def make(
    label: str, solved: int, *, samples: int = 2, set_name: str = "eval", lineage: str = ""
) -> evaluated.EvalReport:
    """A report in which the first `solved` of 12 problems are solved by every sample."""
    results = [
        make_result(problem_id=f"p{number:02d}", sample=sample, seed=sample, reward=float(number < solved))
        for number in range(12)
        for sample in range(samples)
    ]
    conditions = evaluated.EvaluationConditions(
        set=evaluated.SetName(name=set_name, sha256="s" * 64, problems=12),
        decode=Decode(),
        samples=samples,
        seeds=(0,),
        tool_profile="paper4",
        agent_sha256="a" * 64,
        prompt_sha256="prompthash" + "b" * 54,
        catalogue_sha256="c" * 64,
        policy_sha256="d" * 64,
    )
    return evaluated.make_report(
        label, results, conditions, lineage_sha256=lineage, contamination="held against nothing"
    )


GREEDY = Decode(temperature=0.0, top_p=1.0, turns_max=12)


def report(results: list[EpisodeResult]) -> evaluated.EvalReport:
    conditions = make("m", 1).conditions
    return evaluated.make_report("m", results, conditions, lineage_sha256="", contamination="")


def test_an_unscored_episode_is_counted_beside_the_numbers_and_never_in_them() -> None:
    scored = [make_result(problem_id="a", sample=0, reward=1.0), make_result(problem_id="b", sample=0, reward=0.0)]
    failed = [make_result(problem_id="a", sample=1, reward=None), make_result(problem_id="c", sample=0, reward=None)]
    found = report(scored + failed)
    assert found.asr.value == 0.5 and found.asr.n == 2
    assert (found.episodes, found.unscored) == (4, 2)
    assert found.rule == 0.5 and found.axes["title"] == 0.5 and found.axes["price"] is None
    with pytest.raises(ArenaError, match="V2124"):
        report(failed)


def test_only_reports_of_equal_conditions_are_compared() -> None:
    better, worse = make("m", 8), make("m", 0)
    assert evaluated.compare(better, worse).first_only == 8 and evaluated.compare(better, worse).p_value < 0.01
    other = msgspec.structs.replace(worse, conditions=msgspec.structs.replace(worse.conditions, tool_profile="sn15"))
    with pytest.raises(ValueError, match="same conditions"):
        evaluated.compare(better, other)


def test_a_learnt_problem_or_answer_is_contamination(stock: Stock) -> None:
    from problems.clusters import answer_marks

    held = stock.held
    require_unseen(held, TrainingProblems())
    for learnt in (
        TrainingProblems(problem_ids=frozenset([held[1].problem_id])),
        TrainingProblems(marks=frozenset([min(answer_marks(held[1]))])),
        TrainingProblems(marks=frozenset([f"id {held[1].rewards[0].product_id}"])),
    ):
        with pytest.raises(GuardStopError) as stop:
            require_unseen(held, learnt)
        assert stop.value.guard == "contamination" and held[1].problem_id in stop.value.failure.detail


def taken(stock: Stock, path: Path, run: RunJobs, lineage: str = "") -> evaluated.EvalReport:
    plan = evaluated.EvaluationPlan(label="x", set=evaluated.name_set("held", stock.held), decode=GREEDY, parallel=2)
    return evaluated.examine(
        plan, stock.held, EpisodeFile(path), run, stock.bench, lineage_sha256=lineage, contamination=""
    )


def test_an_evaluation_that_was_cut_short_goes_on_and_comes_to_the_same(stock: Stock, tmp_path: Path) -> None:
    asked: list[int] = []

    def run(jobs: Sequence[Job]) -> Iterable[EpisodeLine]:
        asked.append(len(jobs))
        return stock.bench.ask_all(jobs, ScriptedUpstream(), EXPERT, GREEDY, 2)

    whole = taken(stock, tmp_path / "a", run)
    assert whole.asr.value > 0.5 and whole.hallucinated == 0 and whole.conditions.tool_profile == "paper4"
    lines = (tmp_path / "a").read_bytes().splitlines(keepends=True)
    (tmp_path / "b").write_bytes(b"".join(lines[:2]) + lines[2][:20])  # as a kill leaves it
    (tmp_path / "b.owner").write_bytes((tmp_path / "a.owner").read_bytes())
    assert taken(stock, tmp_path / "b", run) == whole
    assert asked == [len(stock.held), len(stock.held) - 2]
    with pytest.raises(ArenaError, match="V2124"):  # episodes of another model
        taken(stock, tmp_path / "a", run, "b" * 64)


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_all_draws_with_a_success(samples: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    draws = list(itertools.combinations(range(samples), k))
    wanted = sum(any(place < correct for place in draw) for draw in draws) / len(draws)
    assert evaluated.pass_at_k(samples, correct, k) == pytest.approx(wanted)


def test_values_that_are_all_alike_leave_room_for_those_not_seen() -> None:
    half, same = evaluated.mean_estimate([0.5] * 75, 0), evaluated.difference_estimate([0.5] * 75, [0.5] * 75, 0)
    assert half.method == same.method == "unseen"
    assert half.low < half.value == 0.5 < half.high and half.high - half.low == pytest.approx(0.0487, abs=1e-4)
    assert -same.low == same.high == pytest.approx(0.0487, abs=1e-4)
    assert evaluated.difference_estimate([0.0, 0.5] * 5, [0.5, 0.5] * 5, 0).method == "bootstrap"


@pytest.mark.parametrize(
    ("first_only", "second_only", "p_value"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 2 / 32), (1, 9, 2 * 11 / 1024), (10, 0, 2 / 1024)],
)
def test_the_paired_test_is_exact(first_only: int, second_only: int, p_value: float) -> None:
    first = [True] * first_only + [False] * second_only + [True, False] * 7
    second = [False] * first_only + [True] * second_only + [True, False] * 7
    found = evaluated.compare_paired(first, second)
    assert (found.first_only, found.second_only, found.n) == (first_only, second_only, len(first))
    assert found.p_value == pytest.approx(p_value)


# -- the report: published rows as printed, ours under their conditions, tests where they may be made, one safe page


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

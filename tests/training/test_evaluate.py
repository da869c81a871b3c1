"""Reports: what is counted, what is kept apart, and which two may be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from foundation.errors import ArenaError
from harness.inference.scripted.server import ScriptedUpstream
from tests.training.eval_reports import make
from tests.training.rollouts import make_result
from tests.training.stock import EXPERT, Stock
from training.evaluation.model_loader import Learnt, require_unseen
from training.evaluation.report import (
    EvalReport,
    EvaluationPlan,
    compare,
    examine,
    make_report,
    name_set,
)
from training.guards import GuardStopError
from training.model import Decode, EpisodeResult
from training.rollouts.rollout import EpisodeFile, EpisodeLine, Job, RunJobs

GREEDY = Decode(temperature=0.0, top_p=1.0, turns_max=12)


def report(results: list[EpisodeResult]) -> EvalReport:
    conditions = make("m", 1).conditions
    return make_report("m", results, conditions, lineage_sha256="", contamination="")


def test_an_unscored_episode_is_counted_beside_the_numbers_and_never_in_them() -> None:
    scored = [make_result(problem_id="a", sample=0, reward=1.0), make_result(problem_id="b", sample=0, reward=0.0)]
    failed = [make_result(problem_id="a", sample=1, reward=None), make_result(problem_id="c", sample=0, reward=None)]
    found = report(scored + failed)
    assert found.asr.value == 0.5 and found.asr.n == 2
    assert (found.episodes, found.unscored) == (4, 2)
    assert found.rule == 0.5 and found.axes["title"] == 0.5 and found.axes["price"] is None
    with pytest.raises(ArenaError) as wrong:
        report(failed)
    assert wrong.value.failure.code == "V2124"


def test_only_reports_of_equal_conditions_are_compared() -> None:
    better, worse = make("m", 8), make("m", 0)
    assert compare(better, worse).first_only == 8 and compare(better, worse).p_value < 0.01
    other = msgspec.structs.replace(worse, conditions=msgspec.structs.replace(worse.conditions, tool_profile="sn15"))
    with pytest.raises(ValueError, match="same conditions"):
        compare(better, other)


def test_a_learnt_problem_or_answer_is_contamination(stock: Stock) -> None:
    from problems.clusters import answer_marks

    held = stock.held
    require_unseen(held, Learnt())
    for learnt in (
        Learnt(problem_ids=frozenset([held[1].problem_id])),
        Learnt(marks=frozenset([min(answer_marks(held[1]))])),
        Learnt(marks=frozenset([f"id {held[1].rewards[0].product_id}"])),
    ):
        with pytest.raises(GuardStopError) as stop:
            require_unseen(held, learnt)
        assert stop.value.guard == "contamination" and held[1].problem_id in stop.value.failure.detail


def plan(stock: Stock, **changes: object) -> EvaluationPlan:
    rest = {"label": "x", "set": name_set("held", stock.held), "decode": GREEDY, "parallel": 2} | changes
    return EvaluationPlan(**rest)  # type: ignore[arg-type]


def taken(stock: Stock, path: Path, run: RunJobs, lineage: str = "") -> EvalReport:
    return examine(
        plan(stock), stock.held, EpisodeFile(path), run, stock.bench, lineage_sha256=lineage, contamination=""
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

"""Evaluation reports made by hand."""

from __future__ import annotations

from tests.training.rollouts import make_result
from training.evaluation.report import EvalReport, EvaluationConditions, SetName, make_report
from training.model import Decode


def make(label: str, solved: int, *, samples: int = 2, set_name: str = "eval", lineage: str = "") -> EvalReport:
    """A report in which the first `solved` of 12 problems are solved by every sample."""
    results = [
        make_result(problem_id=f"p{number:02d}", sample=sample, seed=sample, reward=float(number < solved))
        for number in range(12)
        for sample in range(samples)
    ]
    conditions = EvaluationConditions(
        set=SetName(name=set_name, sha256="s" * 64, problems=12),
        decode=Decode(),
        samples=samples,
        seeds=(0,),
        tool_profile="paper4",
        agent_sha256="a" * 64,
        prompt_sha256="prompthash" + "b" * 54,
        catalogue_sha256="c" * 64,
        policy_sha256="d" * 64,
    )
    return make_report(label, results, conditions, lineage_sha256=lineage, contamination="held against nothing")

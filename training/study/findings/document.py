"""A study's page as one value: finished rows and reports that belong to no finished row yet, with what is said of them.

It reads what lies beside them (the tests that were written down, arms' trace ids, logs of runs) and measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from training.corpus.building import FULL
from training.evaluation.report import EvalReport
from training.model import RunLineage
from training.report.document import Document, controls_of, make_document
from training.report.series import RunCurves, read_curves
from training.study.corpora import MATCHED
from training.study.findings.beyond import generation_lines, harness_lines
from training.study.findings.hypotheses import (
    COMPARISONS,
    HYPOTHESES,
    Comparisons,
    Hypotheses,
    read_asked,
    run_tests,
)
from training.study.findings.notes import LIMITS, Limits, arm_lines, controls_by_recipe, endings_of, read_arms
from training.study.findings.results import RowResult
from training.study.measure import SET_NAMES
from training.study.parts import Part
from training.study.plan import UNDER, StudyPlan

_SAID = (
    "A study on a synthetic catalogue of {documents} products with short ids, titles of words alone, at most"
    " {title_chars_max} characters long, at most {options_max} options and attributes and no descriptions: its numbers"
    " say nothing of ShoppingBench.",
    "The tokenizer is Qwen3's frame around {tokens} base tokens learnt from the market's own texts.",
    "The base was pre-trained from scratch: two heads start in the shape of an induction circuit, then it learns to"
    " repeat random tokens, then transcripts of the random tool-caller alone. It is no Qwen3 checkpoint: {layers}"
    " layers of width {hidden}.",
    "A row's name ends with its training seed: the order of rows and what GRPO draws. @ names another corpus, ~"
    " another base. What was written down before any run: training/recipes/study/preregistration.md; what the numbers"
    " say, in words: training/recipes/README.md.",
    "The teacher is the concise scripted model, which uses the tools alone; the expert is another. Tools: {tools}."
    " Episodes: at most {turns} turns and {context} tokens, a turn at most {turn_tokens}.",
)
_ONE_SEED = (
    "A run of one seed: it shows that the study goes from nothing to its page, and confirms nothing. A test that holds"
    " below holds for this one training run; its interval is over problems, and another seed may give another one."
)


def study_document(
    plan: StudyPlan,
    finished: Mapping[str, RowResult],
    unfinished: Sequence[EvalReport],
    took_s: Mapping[str, float],
    parts: Sequence[Part],
    recipes: Path,
    folder: Path,
    lacking: Sequence[str],
) -> Document:
    """`took_s` says what finished parts took, by part; `lacking` what of the plan is open, a line each."""
    said = {
        "documents": plan.market.documents,
        "title_chars_max": plan.market.title_chars_max,
        "options_max": plan.market.options_max,
        "tokens": plan.vocabulary.tokens,
        "tools": plan.tool_profile,
        "turns": plan.turns_max,
        "turn_tokens": plan.turn_tokens_max,
        "context": plan.base.context,
        "layers": plan.base.layers,
        "hidden": plan.base.hidden,
    }
    labels = [part.row for part in parts if part.kind == "result"]
    asked = read_asked(recipes / HYPOTHESES, Hypotheses) if (recipes / HYPOTHESES).exists() else None
    beside = Comparisons()
    if (recipes / COMPARISONS).exists():
        beside = read_asked(recipes / COMPARISONS, Comparisons)
    limits = read_asked(recipes / LIMITS, Limits) if (recipes / LIMITS).exists() else Limits()
    trained = {row: one.lineage[0] for row, one in finished.items() if one.lineage and UNDER not in row}
    here = [curve for run in sorted((folder / "runs").glob("*/recipe.toml")) for curve in read_curves(run.parent)]
    known = {curve.lineage_sha256 for curve in here}
    elsewhere = (_ending(row, finished[row], lineage) for row, lineage in trained.items())
    return make_document(
        [*(report for result in finished.values() for report in result.reports), *unfinished],
        [*here, *(curve for curve in elsewhere if curve.lineage_sha256 not in known)],
        title=f"Study {plan.name}",
        notes=[
            *([_ONE_SEED] if asked and len(asked.seeds) == 1 else []),
            *(line.format_map(said) for line in _SAID),
        ],
        claims=run_tests(asked, plan, finished) if asked else (),
        comparisons=run_tests(replace(asked, hypotheses=beside.comparisons), plan, finished) if asked else (),
        limits=limits.limits,
        explored=[*harness_lines(finished, plan), *generation_lines(finished)],
        lacking=lacking,
        endings=endings_of(finished),
        arms=arm_lines(read_arms(folder / "corpora" / MATCHED, [FULL, *plan.arms]), trained),
        controls=controls_by_recipe(labels, recipes)
        | controls_of(labels)
        | {label: label for label in labels if UNDER in label},  # held against no row
        matched={label: words for label in labels if (words := limits.matched.get(label.rpartition("-")[0]))},
        measured_commits={row: one.code_commit for row, one in finished.items()},
        processor_s={
            (one.label, SET_NAMES[one.set], one.decode.temperature): took_s[part.name]
            for part in parts
            if (one := part.measurement) is not None and part.name in took_s
        },
    )


def _ending(row: str, result: RowResult, lineage: RunLineage) -> RunCurves:
    """A run whose folder is elsewhere: its end, its parent, and the curves that its result keeps."""
    return RunCurves(
        label=row,
        series=result.curves,
        steps=lineage.steps,
        stopped_by=lineage.stopped_by,
        lineage_sha256=result.reports[0].lineage_sha256,
        parent_sha256=lineage.parent_sha256,
        code_commit=lineage.versions.code_commit,
    )

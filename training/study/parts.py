"""The parts of a study, in the order they run: what each needs, and where it stands.

Promise: pure. The list follows from the plan and its recipes alone, so `--dry-run` shows what would run. A part's name
is its folder's or file's; a part is finished when its mark is in `done/`, and one that is not goes on where it was.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from training.study.measure import EXPERT_LABEL, RANDOM_LABEL, Measurement
from training.study.plan import MIXED, MIXED_PARTS, DecodeRules, StudyPlan

BASE = "base"
STUDY_MARK = "{study}"

Kind = Literal["market", "tokenizer", "records", "corpora", "base", "stage", "measure", "report"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `recipe` and `arm` are a stage's: its file's stem, and its ablation ("" for the study's own)."""

    name: str
    kind: Kind
    recipe: str = ""
    arm: str = ""
    measurement: Measurement | None = None


def parts_of(plan: StudyPlan, folder: Path, *, with_ablations: bool) -> tuple[Part, ...]:
    """All parts; those of the ablations only when asked for."""
    parts = [Part(name=kind, kind=kind) for kind in _GROUND]
    parts += [Part(name=f"stage {recipe}", kind="stage", recipe=recipe) for recipe in plan.recipes]
    labels: list[tuple[str, str | None]] = [
        (BASE, BASE),
        (RANDOM_LABEL, None),
        (EXPERT_LABEL, None),
        *((recipe, recipe) for recipe in plan.recipes),
    ]
    parts += _measured(plan.decodes, folder, labels)
    if with_ablations:
        arms: list[tuple[str, str]] = []
        if plan.arms:
            trained = ("full", *(arm for arm in plan.trained_arms or plan.arms if arm != "full"))
            arms += [(recipe, arm) for arm in trained for recipe in plan.arm_recipes]
            arms += [(recipe, arm) for arm in plan.headline_arms for recipe in plan.headline_recipes]
        parts += [
            Part(name=f"stage {run_name(recipe, arm)}", kind="stage", recipe=recipe, arm=arm) for recipe, arm in arms
        ]
        runs = [run_name(recipe, arm) for recipe, arm in arms]
        decodes = [rules for rules in plan.decodes if rules.name in plan.arm_decodes]
        parts += _measured(decodes, folder, [(run, run) for run in runs])
    return (*parts, Part(name="report", kind="report"))


def run_name(recipe: str, arm: str = "") -> str:
    """Name of a stage's folder; an ablation's carries its arm."""
    return f"{recipe}@{arm}" if arm else recipe


def run_folder(folder: Path, name: str) -> Path:
    """Where a run of that name stands."""
    return folder / "runs" / name


def recipe_text(text: str, folder: Path, arm: str = "", *, arm_start: str = "sft") -> str:
    """A recipe of the study with its folder put in; of an ablation: on that arm's corpus, and from its own parents.

    Recipes write `{study}` for the folder, `{study}/corpora/full` for the corpus and `{study}/runs/NAME` for a parent.
    The teacher is asked again for an arm, and answers the same; tool matches are read from the study's own. `arm_start`
    is the recipe an arm begins with: it takes the place of sft and rejection, which would sample for each arm anew.
    """
    if arm:
        matched = f"{STUDY_MARK}/corpora/matched/{arm}"
        folders = [f"{matched}/{part}" for part in MIXED_PARTS] if arm == MIXED else [matched]
        text = text.replace(f'"{STUDY_MARK}/corpora/full"', ", ".join(f'"{folder}"' for folder in folders))
        parent = tomllib.loads(text).get("parent", "")
        if parent:
            skipped = {f"{STUDY_MARK}/runs/{name}" for name in ("sft", "rejection")}
            moved = f"{STUDY_MARK}/runs/{arm_start}" if parent in skipped else parent
            text = text.replace(f'parent = "{parent}"', f'parent = "{moved}@{arm}"')
    return text.replace(STUDY_MARK, str(folder))


_GROUND: tuple[Kind, ...] = ("market", "tokenizer", "records", "corpora", "base")


def _measured(decodes: Sequence[DecodeRules], folder: Path, labels: list[tuple[str, str | None]]) -> list[Part]:
    found = [
        Measurement(label=label, run=None if run is None else str(run_folder(folder, run)), set=where, decode=rules)
        for rules in decodes
        for where in rules.sets
        for label, run in labels
    ]
    return [Part(name=f"measure {one.file_name}", kind="measure", measurement=one) for one in found]

"""The parts of a study, in the order they run: what each needs, and where it stands.

Promise: pure. The list follows from the plan and its recipes alone, so `--dry-run` shows what would run. A part's name
is its folder's or file's; a part is finished when its mark stands in `done/`, and one that is not goes on where it was.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from training.study.measure import EXPERT_LABEL, RANDOM_LABEL, Measurement
from training.study.plan import Plan

BASE = "base"
STUDY_MARK = "{study}"

Kind = Literal["market", "records", "corpora", "base", "stage", "measure", "report"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `recipe` and `arm` are a stage's: its file's stem, and its ablation ("" for the study's own)."""

    name: str
    kind: Kind
    recipe: str = ""
    arm: str = ""
    measurement: Measurement | None = None


def parts_of(plan: Plan, folder: Path, *, with_ablations: bool) -> tuple[Part, ...]:
    """All parts; those of the ablations only when asked for."""
    parts = [Part(name=kind, kind=kind) for kind in _GROUND]
    parts += [Part(name=f"stage {recipe}", kind="stage", recipe=recipe) for recipe in plan.recipes]
    labels: list[tuple[str, str | None]] = [
        (BASE, BASE),
        (RANDOM_LABEL, None),
        (EXPERT_LABEL, None),
        *((recipe, recipe) for recipe in plan.recipes),
    ]
    parts += _measured(plan, folder, labels)
    if with_ablations:
        arms = _arm_stages(plan)
        parts += [
            Part(name=f"stage {run_name(recipe, arm)}", kind="stage", recipe=recipe, arm=arm) for recipe, arm in arms
        ]
        parts += _measured(plan, folder, [(run_name(recipe, arm), run_name(recipe, arm)) for recipe, arm in arms])
    return (*parts, Part(name="report", kind="report"))


def run_name(recipe: str, arm: str = "") -> str:
    """Name of a stage's folder; an ablation's carries its arm."""
    return f"{recipe}@{arm}" if arm else recipe


def run_folder(folder: Path, name: str) -> Path:
    """Where a run of that name stands."""
    return folder / "runs" / name


def recipe_text(text: str, folder: Path, arm: str = "") -> str:
    """A recipe of the study with its folder put in; of an ablation: on that arm's corpus, and from its own parents.

    Recipes write `{study}` for the folder, `{study}/corpora/full` for the corpus and `{study}/runs/NAME` for a parent.
    The teacher is asked again for an arm, and answers the same; tool matches are read from the study's own.
    """
    if arm:
        text = text.replace(f"{STUDY_MARK}/corpora/full", f"{STUDY_MARK}/corpora/matched/{arm}")
        parent = tomllib.loads(text).get("parent", "")
        if parent:
            line, moved = f'parent = "{parent}"', f'parent = "{_parent_of_arm(parent)}@{arm}"'
            text = text.replace(line, moved)
    return text.replace(STUDY_MARK, str(folder))


_GROUND: tuple[Kind, ...] = ("market", "records", "corpora", "base")


def _parent_of_arm(parent: str) -> str:
    """Arms go from sft to teacher at once: rejection would sample for each of them anew."""
    return f"{STUDY_MARK}/runs/sft" if parent == f"{STUDY_MARK}/runs/rejection" else parent


def _arm_stages(plan: Plan) -> list[tuple[str, str]]:
    arms = ("full", *(arm for arm in plan.arms if arm != "full"))
    stages = [(recipe, arm) for arm in arms for recipe in plan.arm_recipes] if plan.arms else []
    return stages + [(recipe, arm) for arm in plan.headline_arms if plan.arms for recipe in plan.headline_recipes]


def _measured(plan: Plan, folder: Path, labels: list[tuple[str, str | None]]) -> list[Part]:
    found = [
        Measurement(label=label, run=None if run is None else str(run_folder(folder, run)), set=where, decode=rules)
        for rules in plan.decodes
        for where in rules.sets
        for label, run in labels
    ]
    return [Part(name=f"measure {one.file_name}", kind="measure", measurement=one) for one in found]

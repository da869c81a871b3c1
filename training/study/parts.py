"""The parts of a study, in the order they run: what each needs, and where it stands.

Pure. The list follows from the plan alone, so `--plan` shows what would run. A part's name is its folder's or
file's; a part is finished when its mark is in `done/`, and one that is not goes on where it was. A row is a run with
its measurements and its result: a file of its own that outlives the study's folder.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from training.study.measure import CONTROLS, Measurement, file_name
from training.study.plan import MIXED, MIXED_PARTS, StudyPlan

BASE = "base"
ARM_START = "sft"  # the recipe that an arm begins with
STUDY_MARK = "{study}"

Kind = Literal["market", "tokenizer", "records", "corpora", "base", "stage", "measure", "result", "report"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `recipe`, `arm` and `seed` are a stage's; `row` is the row of the table that a stage, a measurement or
    a result belongs to, "" for what all rows stand on."""

    name: str
    kind: Kind
    recipe: str = ""
    arm: str = ""
    seed: int = 0
    row: str = ""
    measurement: Measurement | None = None


def parts_of(plan: StudyPlan, folder: Path) -> tuple[Part, ...]:
    """All parts: what every row stands on, the controls, then row after row, each with its measurements and its result,
    and the report. The base's own measurements come behind the first seed's rows: nothing is learnt from them."""
    parts = [Part(name=kind, kind=kind) for kind in _GROUND]
    for label in CONTROLS:
        parts += _measured(plan, label, None)
    is_base_due, first_seed = True, plan.trained[0][2] if plan.trained else 0
    for recipe, arm, seed in plan.trained:
        if is_base_due and seed != first_seed:
            parts += _measured(plan, BASE, run_folder(folder, BASE))
            is_base_due = False
        row = run_name(recipe, arm, seed)
        parts.append(Part(name=f"stage {row}", kind="stage", recipe=recipe, arm=arm, seed=seed, row=row))
        parts += _measured(plan, row, run_folder(folder, row))
    if is_base_due:
        parts += _measured(plan, BASE, run_folder(folder, BASE))
    return (*parts, Part(name="report", kind="report"))


def run_name(recipe: str, arm: str, seed: int) -> str:
    """Name of a row and of its run's folder: RECIPE-SEED, of an arm RECIPE@ARM-SEED."""
    return f"{recipe}@{arm}-{seed}" if arm else f"{recipe}-{seed}"


def run_folder(folder: Path, name: str) -> Path:
    """Where a run of that name stands."""
    return folder / "runs" / name


def named_runs(text: str) -> set[str]:
    """The runs that a recipe, as `recipe_text` gives it, starts from or learns from."""
    told = tomllib.loads(text)
    return {Path(name).name for name in (told.get("parent", ""), *told.get("data", {}).get("rollouts", ())) if name}


def recipe_text(text: str, folder: Path, arm: str, seed: int) -> str:
    """A recipe of the study with its folder and seed put in; of an arm: on that arm's corpus, and from its parents.

    Recipes write `{study}` for the folder, `{study}/corpora/full` for the corpus and `{study}/runs/RECIPE` for what
    they start from or learn from, which are runs of the same seed. Rollouts that are learnt from are the study's own,
    not an arm's: the teacher would answer the same.
    """
    parent = tomllib.loads(text).get("parent", "")
    if arm:
        matched = f"{STUDY_MARK}/corpora/matched/{arm}"
        folders = [f"{matched}/{part}" for part in MIXED_PARTS] if arm == MIXED else [matched]
        text = text.replace(f'"{STUDY_MARK}/corpora/full"', ", ".join(f'"{one}"' for one in folders))
    if parent:
        text = text.replace(
            f'parent = "{parent}"', f'parent = "{STUDY_MARK}/runs/{_own(Path(parent).name, arm, seed)}"'
        )
    text = _ROLLOUTS.sub(lambda found: _RUN.sub(rf'"{STUDY_MARK}/runs/\1-{seed}"', found[0]), text)
    text = _SEED.sub(f"seed = {seed}", text, count=1)
    return text.replace(STUDY_MARK, str(folder))


_SEED = re.compile(r"(?m)^seed = \d+")
_ROLLOUTS = re.compile(r"(?m)^rollouts = .*$")
_RUN = re.compile(r'"\{study\}/runs/(\w+)"')


def _own(recipe: str, arm: str, seed: int) -> str:
    """The run of a recipe that a run of this arm and seed starts from. Arms skip rejection, which would sample anew."""
    return run_name(ARM_START if arm and recipe == "rejection" else recipe, arm, seed)


_GROUND: tuple[Kind, ...] = ("market", "tokenizer", "records", "corpora", "base")


def _measured(plan: StudyPlan, label: str, run: Path | None) -> list[Part]:
    """A policy's measurements, and the part that writes its result. A control draws nothing: greedily alone."""
    found = [
        Measurement(label=label, run=None if run is None else str(run), set=where, decode=rules)
        for rules in plan.decodes
        for where in rules.sets
        if run is not None or rules.temperature == 0
    ]
    parts = [Part(name=f"measure {one.file_name}", kind="measure", row=label, measurement=one) for one in found]
    return [*parts, Part(name=f"result {file_name(label)}", kind="result", row=label)]

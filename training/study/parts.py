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

from training.study.measure import AGENT, CONTROLS, Measurement, file_name
from training.study.plan import ARM_START, BASE_MARK, MIXED, MIXED_PARTS, UNDER, HarnessRules, StudyPlan, TrainedRow

BASE, GENERATIONS = "base", "generations"
STUDY_MARK = "{study}"

Kind = Literal[
    "market", "tokenizer", "records", "corpora", "base", "generation", "stage", "measure", "result", "report"
]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part. `row` is the row of the table that a stage, a measurement or a result belongs to, "" for what several
    rows stand on; `trained` says what a row is trained by, `base` which base a part makes."""

    name: str
    kind: Kind
    trained: TrainedRow | None = None
    base: str = ""
    row: str = ""
    measurement: Measurement | None = None


def parts_of(plan: StudyPlan, folder: Path) -> tuple[Part, ...]:
    """All parts: what every row stands on, the controls and agent files, then row after row, each with its measurements
    and its result, the rows that are asked under another harness, and the report. The base's own measurements come
    behind the first seed's rows, those of another base behind all rows: nothing is learnt from them."""
    parts = [Part(name=kind, kind=kind) for kind in GROUND]
    for label in (*CONTROLS, *(f"{AGENT}{name}" for name in plan.measured_agents)):
        parts += _measured(plan, label, None)
    is_base_due, first_seed = True, plan.trained[0].seed if plan.trained else 0
    others: list[str] = []
    for row in plan.trained:
        if is_base_due and row.seed != first_seed:
            parts += _measured(plan, BASE, run_folder(folder, BASE))
            is_base_due = False
        if row.base and row.base not in others:
            others.append(row.base)
            parts.append(Part(name=base_run(row.base), kind="base", base=row.base))
        if row.generation:
            parts.append(Part(name=f"generation {row.name}", kind="generation", trained=row, row=row.name))
        parts.append(Part(name=f"stage {row.name}", kind="stage", trained=row, row=row.name))
        parts += _measured(plan, row.name, run_folder(folder, row.name))
    for base in ([""] if is_base_due else []) + others:
        parts += _measured(plan, base_run(base), run_folder(folder, base_run(base)))
    for rules in plan.harnesses:
        for name in rules.rows:
            parts += _measured(plan, f"{name}{UNDER}{rules.name}", run_folder(folder, name), rules)
    return (*parts, Part(name="report", kind="report"))


def base_run(base: str) -> str:
    """Name of the run of a base, "" for the plan's own."""
    return f"{BASE}{BASE_MARK}{base}" if base else BASE


def run_folder(folder: Path, name: str) -> Path:
    """Where a run of that name stands."""
    return folder / "runs" / name


def named_runs(text: str) -> set[str]:
    """The runs that a recipe, as `recipe_text` gives it, starts from or learns from."""
    told = tomllib.loads(text)
    return {Path(name).name for name in (told.get("parent", ""), *told.get("data", {}).get("rollouts", ())) if name}


def recipe_text(text: str, folder: Path, row: TrainedRow) -> str:
    """A recipe of the study with its folder and seed put in; of an arm: on that arm's corpus, and from its parents; of
    another base: on that one.

    Recipes write `{study}` for the folder, `{study}/corpora/full` for the corpus and `{study}/runs/RECIPE` for what
    they start from or learn from, which are runs of the same seed. Rollouts that are learnt from are the study's own,
    not an arm's: the teacher would answer the same.
    """
    parent = tomllib.loads(text).get("parent", "")
    if row.arm:
        matched = f"{STUDY_MARK}/corpora/matched/{row.arm}"
        folders = [f"{matched}/{part}" for part in MIXED_PARTS] if row.arm == MIXED else [matched]
        if row.generation:
            folders = [f"{STUDY_MARK}/{GENERATIONS}/{row.name}/corpus"]
        text = text.replace(f'"{STUDY_MARK}/corpora/full"', ", ".join(f'"{one}"' for one in folders))
    if parent:
        recipe = Path(parent).name  # arms skip rejection, which would sample anew
        own = msgspec.structs.replace(row, recipe=ARM_START if row.arm and recipe == "rejection" else recipe)
        text = text.replace(f'parent = "{parent}"', f'parent = "{STUDY_MARK}/runs/{own.name}"')
    if row.base:
        text = text.replace(f'"{STUDY_MARK}/runs/{BASE}/', f'"{STUDY_MARK}/runs/{base_run(row.base)}/')
    text = _ROLLOUTS.sub(lambda found: _RUN.sub(rf'"{STUDY_MARK}/runs/\1-{row.seed}"', found[0]), text)
    text = _SEED.sub(f"seed = {row.seed}", text, count=1)
    return text.replace(STUDY_MARK, str(folder))


_SEED = re.compile(r"(?m)^seed = \d+")
_ROLLOUTS = re.compile(r"(?m)^rollouts = .*$")
_RUN = re.compile(r'"\{study\}/runs/(\w+)"')


GROUND: tuple[Kind, ...] = ("market", "tokenizer", "records", "corpora", "base")


def _measured(plan: StudyPlan, label: str, run: Path | None, harness: HarnessRules | None = None) -> list[Part]:
    """A policy's measurements, and the part that writes its result. A control draws nothing: greedily alone."""
    asked = [(rules, rules.sets) for rules in plan.decodes if run is not None or rules.temperature == 0]
    if harness is not None:
        asked = [(rules, harness.sets) for rules in plan.decodes if rules.name == harness.decode]
    found = [
        Measurement(label=label, run=None if run is None else str(run), set=where, decode=rules, harness=harness)
        for rules, sets in asked
        for where in sets
    ]
    parts = [Part(name=f"measure {one.file_name}", kind="measure", row=label, measurement=one) for one in found]
    return [*parts, Part(name=f"result {file_name(label)}", kind="result", row=label)]

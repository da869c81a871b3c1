"""What a study's page says of the study itself: what limits its numbers, what of its plan is missing or failed, and
what each ablation stood on.

Pure but for reading an arm's trace ids and a recipe. Whatever was planned and is not on the page is named there, and
arms whose rows are the same ones are said to be: one training stands for all of them.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from training.corpus.building import FULL
from training.corpus.corpus_files import DATA
from training.model import RunLineage
from training.report.claims import Endings
from training.study.findings.results import RowResult
from training.study.measure import SET_NAMES
from training.study.parts import BASE, Kind, Part
from training.study.plan import ARM_MARK, MIXED, MIXED_PARTS

LIMITS = "limits.toml"  # in the folder of the plan
GREEDY = " greedy"  # what the name of a report ends with
_GROUPS: tuple[tuple[str, frozenset[Kind]], ...] = (
    ("not made yet", frozenset(("market", "tokenizer", "records", "corpora", "base"))),
    ("not trained yet", frozenset(("stage",))),
    ("not measured yet", frozenset(("measure",))),
)


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has to be known to read a study's numbers, a line each, and what arms have in common with the row that they
    are held against: RECIPE@ARM -> words."""

    limits: tuple[str, ...] = ()
    matched: dict[str, str] = {}


class ArmRows(msgspec.Struct, frozen=True, kw_only=True):
    """An ablation's corpus by its trace ids, sorted, one for each row."""

    name: str
    trace_ids: tuple[str, ...]
    lifted: int = 0  # of the rows


def read_arms(folder: Path, names: Sequence[str]) -> tuple[ArmRows, ...]:
    """The arms of these names that have a corpus in `folder`."""
    found = []
    for name in names:
        parts = {part: folder / name / part / DATA for part in (MIXED_PARTS if name == MIXED else ("",))}
        ids = {
            part: pq.read_table(path, columns=["trace_id"])["trace_id"].to_pylist()
            for part, path in parts.items()
            if path.exists()
        }
        if ids:
            every = sorted(one for part in ids.values() for one in part)
            found.append(ArmRows(name=name, trace_ids=tuple(every), lifted=len(ids.get(MIXED_PARTS[1], ()))))
    return tuple(found)


def progress_notes(parts: Sequence[Part], is_done: Callable[[Part], bool], failed: Mapping[str, str]) -> list[str]:
    """A line for each kind of part that is open, and one for each that failed.

    A measurement of a policy that is not trained yet is not named apart.
    """
    open_parts = [part for part in parts if part.kind not in ("result", "report") and not is_done(part)]
    untrained = {part.row or part.name for part in open_parts if part.kind in ("base", "stage")}
    lines = []
    for said, kinds in _GROUPS:
        named: dict[str, list[str]] = {}  # what a part is called -> sets and decodings it is measured on
        for part in open_parts:
            if part.kind not in kinds or part.name in failed or (part.kind == "measure" and part.row in untrained):
                continue
            found = part.measurement
            detail = named.setdefault(found.label if found else part.name.removeprefix("stage "), [])
            detail += [f"{found.set} {found.decode.name}"] if found else []
        if named:
            each = [f"{label} ({', '.join(detail)})" if detail else label for label, detail in named.items()]
            lines.append(f"Of the plan {said}: {', '.join(each)}.")
    return lines + [f"Failed: {part.name}: {failed[part.name]}" for part in open_parts if part.name in failed]


def arm_lines(arms: Sequence[ArmRows], runs: Mapping[str, RunLineage]) -> list[str]:
    """A line for each arm: its rows, the steps of what was trained on them, and the arms with the very same rows.

    `runs` holds the finished ones by row; those of the arm `full` are the study's own. Of an arm whose corpus is not
    here, the rows that its runs learnt from are said.
    """
    lines = []
    here = {arm.name for arm in arms}
    elsewhere: dict[str, list[tuple[str, RunLineage]]] = {}
    for row, found in runs.items():
        if "rows" in found.metrics and found.corpus_sha256s and not row.startswith(BASE):
            elsewhere.setdefault(_arm_of(row), []).append((row, found))
    for name, trained in elsewhere.items():
        if name not in here:
            counts = sorted({round(found.metrics["rows"]) for _, found in trained})
            counted = " or ".join(f"{count:,}" for count in counts)
            lines.append(f"{name}: {counted} rows learnt; {', '.join(_trained(*one) for one in trained)}")
    for arm in arms:
        rows, different = len(arm.trace_ids), len(set(arm.trace_ids))
        counted = f"{rows} rows" + (f", {different} of them different" if different < rows else "")
        counted += f", {arm.lifted} of them lifted" if arm.lifted else ""
        trained_on = [_trained(row, found) for row, found in runs.items() if _arm_of(row) == arm.name]
        first, *others = [one.name for one in arms if one.trace_ids == arm.trace_ids]
        if arm.name == first:
            same = f"; the very same rows: {', '.join(others)}" if others else ""
        else:
            same = f"; the very same rows as {first}"
        lines.append(f"{arm.name}: {counted}; {', '.join(trained_on) or 'not trained'}{same}")
    return lines


def controls_by_recipe(labels: Sequence[str], recipes: Path) -> dict[str, str]:
    """Of arms RECIPE@ARM-SEED whose recipe extends another, the row OTHER-SEED, where it is among the labels and there
    is no row RECIPE-SEED: the arm is a change of that one."""
    known, found = set(labels), {}
    for label in labels:
        name, mark, rest = label.partition(ARM_MARK)
        seed, path = rest.rpartition("-")[2], recipes / f"{name}.toml"
        if mark and f"{name}-{seed}" not in known and path.exists():
            above = Path(str(tomllib.loads(path.read_text("utf-8")).get("extends", ""))).stem
            if f"{above}-{seed}" in known:
                found[label] = f"{above}-{seed}"
    return found


def endings_of(results: Mapping[str, RowResult]) -> list[Endings]:
    """What became of each row's greedy episodes, set by set."""
    found = []
    for row, result in results.items():
        for place, by_bucket in result.failures.items():
            counts = Counter[str]()
            for reasons in by_bucket.values():
                counts.update(reasons)
            if place.endswith(GREEDY) and counts:
                found.append(Endings(label=row, set=SET_NAMES[place.removesuffix(GREEDY)], counts=counts))
    return found


def _arm_of(row: str) -> str:
    return row.partition(ARM_MARK)[2].rpartition("-")[0] or FULL


def _trained(row: str, found: RunLineage) -> str:
    stopped = f" (stopped: {found.stopped_by.split(':')[0]})" if found.stopped_by else ""
    return f"{row} {found.steps} steps{stopped}"

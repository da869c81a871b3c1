"""Curves of a run: what its log says by step, as named series.

A line that a kill cut short is passed over, a number that is none breaks the curve, and no step is invented or
smoothed away. A run without a log line yet has its place, and no curve. It reads the folder of a run
(`training.stages.run`) and changes nothing in it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from foundation.errors import ArenaError
from training.model import RunLineage
from training.stages.run import LINEAGE, RECIPE, lineage_sha256

METRICS: dict[str, str] = {  # key in the log -> what it is called
    "loss": "loss",
    "reward": "reward",
    "kl": "KL to the parent",
    "groups/mixed": "groups whose rewards differ",
    "emission_rate": "emission on dev",
    "logprob_gap": "sampler to trainer, mean |Δ logprob|",
    "grad_norm": "gradient norm",
}
_LOGS = "log*.jsonl"
_Line = dict[str, float | None]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric by step; `values` holds None where the log holds no number."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]


class RunCurves(msgspec.Struct, frozen=True, kw_only=True):
    """The curves of one run. `lineage_sha256` is "" for one that is not finished, and `steps` those logged so far."""

    label: str
    series: tuple[Series, ...]
    steps: int = 0
    stopped_by: str = ""  # the guard that ended it
    lineage_sha256: str = ""
    parent_sha256: str = ""
    code_commit: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self.lineage_sha256)


def read_curves(folder: Path) -> tuple[RunCurves, ...]:
    """The curves of a run's folder; a swept run has one for each learning rate.

    Raises ArenaError V2124 for a folder that is no run.
    """
    if not (folder / RECIPE).exists():
        raise ArenaError("V2124", f"{folder} is no folder of a run")
    name = folder.name
    end = _end(folder)
    logs = sorted(folder.glob(_LOGS))
    if not logs:
        return (RunCurves(label=name, series=(), **end),)
    found = []
    for log in logs:
        rows = sorted(_lines(log), key=lambda row: row["step"] or 0)
        said = name if len(logs) == 1 else f"{name} {log.stem.removeprefix('log').strip('-_')}".strip()
        logged = {"steps": max((int(row["step"] or 0) for row in rows), default=0)}
        series = []
        for metric in METRICS:
            points = [(int(row["step"] or 0), row[metric]) for row in rows if metric in row]
            if points:
                values = tuple(value if value is not None and math.isfinite(value) else None for _, value in points)
                series.append(Series(metric=metric, steps=tuple(step for step, _ in points), values=values))
        found.append(RunCurves(label=said, series=tuple(series), **(logged | end)))
    return tuple(found)


def _end(folder: Path) -> dict[str, Any]:
    """What the lineage says of a finished run."""
    path = folder / LINEAGE
    if not path.exists():
        return {}
    try:
        lineage = msgspec.json.decode(path.read_bytes(), type=RunLineage)
    except msgspec.DecodeError as error:
        raise ArenaError("V2124", f"{path}: {error}") from error
    return {
        "steps": lineage.steps,
        "stopped_by": lineage.stopped_by,
        "lineage_sha256": lineage_sha256(lineage),
        "parent_sha256": lineage.parent_sha256,
        "code_commit": lineage.versions.code_commit,
    }


def _lines(log: Path) -> list[_Line]:
    rows: list[_Line] = []
    for line in log.read_bytes().splitlines():
        try:
            row = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue  # cut by a kill; the run writes it again
        if "step" in row:
            rows.append(row)
    return rows

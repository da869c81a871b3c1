"""The results of a study's rows: one JSON file a row, which outlives the folder the row was made in.

A result holds what its numbers depend on and what they are: the plan's hash, the commit it was measured at, the
lineage of every checkpoint back to the first stage, the reports with each problem's outcome, why episodes failed, how
long the parts took, and, of a row that learnt from its own rollouts, how its training went. No weights. A row with a
result is finished: it is never run again, and rows that start from its checkpoint make that again, where the folder was
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from foundation.durable_files import write_whole
from foundation.errors import ArenaError
from training.evaluation.report import EvalReport
from training.model import RunLineage
from training.report.series import Series, read_curves
from training.study.generations.counts import GenerationCounts
from training.study.measure import file_name

RESULT_VERSION = 1
CURVES = ("reward", "kl", "groups/mixed")  # of a log of GRPO: what a result keeps by step
CURVE_POINTS = 200


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `plan_sha256` is of what it stands on (`StudyPlan.sha256_of`), `code_commit` what it was measured at;
    what each stage was trained at stands in its lineage.

    `lineage` leads from its checkpoint back to the first stage, whose `parent_sha256` is the hash of the base's
    weights; none for a control; its recipes with `{study}` for the study's folder. `failures` is by report (SET
    DECODING), bucket and reason; `seconds` by part, of one processor; `curves` by step, of rows of GRPO that were
    measured since they are kept.
    """

    version: int = RESULT_VERSION
    row: str
    plan_sha256: str
    code_commit: str
    lineage: tuple[RunLineage, ...] = ()
    reports: tuple[EvalReport, ...]
    failures: dict[str, dict[str, dict[str, int]]]
    seconds: dict[str, float]
    generation: GenerationCounts | None = None  # of a row that learnt from a generation's records
    curves: tuple[Series, ...] = ()  # of CURVES, at most CURVE_POINTS of each

    def report(self, place: str, decoding_temperature: float) -> EvalReport:
        """The report on the set of that name at that temperature. Raises KeyError without one."""
        for one in self.reports:
            if one.conditions.set.name == place and one.conditions.decode.temperature == decoding_temperature:
                return one
        raise KeyError(f"{self.row} has no report on {place} at temperature {decoding_temperature}")

    def has_report(self, place: str, decoding_temperature: float) -> bool:
        """Whether there is a report on that set at that temperature."""
        return any(
            one.conditions.set.name == place and one.conditions.decode.temperature == decoding_temperature
            for one in self.reports
        )

    @property
    def stopped_by(self) -> str:
        """The guard that ended its training, "" for none."""
        return self.lineage[0].stopped_by if self.lineage else ""


def kept_curves(run: Path) -> tuple[Series, ...]:
    """What a result keeps of the log of a run: the metrics of CURVES that it has.

    Of more steps than CURVE_POINTS every n-th is kept, the last among them.
    """
    found = []
    for curves in read_curves(run)[:1]:
        for one in curves.series:
            if one.metric in CURVES:
                stride = -(-len(one.steps) // CURVE_POINTS)
                places = range((len(one.steps) - 1) % stride, len(one.steps), stride)
                found.append(
                    Series(
                        metric=one.metric,
                        steps=tuple(one.steps[place] for place in places),
                        values=tuple(one.values[place] for place in places),
                    )
                )
    return tuple(found)


class ResultFolder:
    """The results in a folder that are of one plan."""

    def __init__(self, folder: Path, sha256_of: Callable[[str], str]) -> None:
        """`sha256_of` is `StudyPlan.sha256_of`."""
        self.folder, self._sha256_of = folder, sha256_of

    def has(self, row: str) -> bool:
        """Whether that row is finished."""
        return self._path(row).exists()

    def add(self, result: RowResult) -> None:
        """Write a row's result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(result.row), msgspec.json.encode(result) + b"\n")

    def read(self, rows: Sequence[str]) -> dict[str, RowResult]:
        """Those of `rows` that are finished, in that order.

        Raises ArenaError V2124 for a file that is no result, or one of another plan: its row was measured otherwise.
        """
        found: dict[str, RowResult] = {}
        for row in rows:
            path = self._path(row)
            if not path.exists():
                continue
            try:
                result = msgspec.json.decode(path.read_bytes(), type=RowResult)
            except msgspec.DecodeError as error:
                raise ArenaError("V2124", f"{path}: {error}") from error
            if result.plan_sha256 != self._sha256_of(row):
                raise ArenaError("V2124", f"{path} is the result of another plan: name another folder for the results")
            found[row] = result
        return found

    def seconds(self, rows: Sequence[str]) -> Mapping[str, float]:
        """How long the parts of finished rows took, by part."""
        return {name: took for result in self.read(rows).values() for name, took in result.seconds.items()}

    def _path(self, row: str) -> Path:
        return self.folder / f"{file_name(row)}.json"

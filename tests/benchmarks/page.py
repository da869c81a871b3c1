"""The made parts of docs/performance.md, from the figures of `make bench`: goal beside found, and a subnet's day.

    make bench                         # writes build/bench.json
    python -m tests.benchmarks.page    # renews the page from it

The parts between the page's marks are made of figures alone; the rest of the page stays byte for byte. What no
run measured is "not measured", and no sum holds it silently. Several files may be named: the last one that has a figure
counts.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.benchmarks.goals import GOALS, lines_of
from tests.benchmarks.row import Row
from tests.benchmarks.run import LOAD, RESULT

PAGE = RESULT.parents[1] / "docs" / "performance.md"
DAY = 27_000  # trajectories of a subnet's day
MISSING = "not measured"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to each trajectory: `each` things of the figure's kind, on `cores` at once."""

    what: str
    figure: str  # a pattern of the row's name
    each: int = 1
    cores: int = 1

    def found(self, rows: Sequence[Row]) -> Row | None:
        """The row with the figure; of several the last."""
        return next((row for row in reversed(rows) if re.fullmatch(self.figure, row.name)), None)

    def minutes(self, row: Row) -> float:
        """Processor minutes of a day. A figure is a rate, or microseconds of processor time of one thing."""
        seconds = self.each * (row.value / 1e6 if row.unit == "us" else self.cores / row.value)
        return DAY * seconds / 60


STEPS = (
    Step(what="episodes in jails, a scripted model", figure="episodes, 2 workers", cores=2),
    Step(what="verdicts, this side of the judge's endpoint", figure="verdicts, model answers at once"),
    Step(
        what="append of its three records, Postgres beside",
        figure="append of episodes' records, 100 episodes per commit",
        each=3,
        cores=2,
    ),
    Step(
        what="verification of its three records by another validator",
        figure="verify, 2 processes, every third record with a body, log of [0-9]{5,}",
        each=3,
        cores=2,
    ),
    Step(what="export to Parquet", figure="processor time of it, log of [0-9,]{6,}, parquet"),
    Step(
        what="corpus filter, from the export",
        figure="[0-9,]+ traces, filter from the export, two processes",
        cores=2,
    ),
)


def goals_table(rows: Sequence[Row]) -> str:
    """A line for each goal, with the command of its figure."""
    commands = [
        next((row.command for row in reversed(rows) if re.fullmatch(goal.figure, row.name)), "") for goal in GOALS
    ]
    lines = ["| what | before | goal | now | met | command |", "|---|---|---|---|---|---|"]
    for (*cells, met), command in zip(lines_of(rows), commands, strict=True):
        lines.append(f"| {' | '.join(cells)} | {met} | {f'`{command}`' if command else ''} |")
    return "\n".join(lines)


def day_table(rows: Sequence[Row]) -> str:
    """A line for each step of a day, and what all come to on two cores."""
    lines = ["| step | figure | processor minutes a day |", "|---|---|---|"]
    whole = 0.0
    is_whole = True
    for step in STEPS:
        row = step.found(rows)
        if row is None:
            is_whole = False
            lines.append(f"| {step.what} | {MISSING} | {MISSING} |")
            continue
        minutes = step.minutes(row)
        whole += minutes
        count = f"{step.each} x " if step.each > 1 else ""
        cores = f", {step.cores} cores" if step.cores > 1 else ""
        lines.append(f"| {step.what} | {count}{DAY:,} at {row.value:,.4g} {row.unit}{cores} | {minutes:,.1f} |")
    share = f"{whole:,.0f}, {whole / (2 * 24 * 60):.1%} of two cores" if is_whole else MISSING
    return "\n".join([*lines, f"| all | | {share} |"])


def renewed(text: str, rows: Sequence[Row], said: str) -> str:
    """The page with its made parts of these rows. Raises ValueError for a page without one of the marks."""
    for name, made in (("goals", f"{said}\n\n{goals_table(rows)}"), ("day", day_table(rows))):
        mark = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(\n<!-- end -->)", re.DOTALL)
        if not mark.search(text):
            raise ValueError(f"the page has no part for {name}")
        text = mark.sub(lambda found, made=made: f"{found[1]}\n{made}\n{found[2]}", text, count=1)
    return text


def read_rows(paths: Sequence[Path]) -> list[Row]:
    """The rows of files that `make bench` wrote."""
    found: dict[str, Row] = {}
    for path in paths:
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str | float | None]])
        found |= {name: msgspec.convert({"name": name, **row}, Row) for name, row in kept.items()}
    return list(found.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Renew the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.page", description="Renew docs/performance.md.")
    parser.add_argument(
        "files", nargs="*", type=Path, default=[RESULT], help="what runs wrote; by default the last one's"
    )
    files = parser.parse_args(argv).files
    rows = read_rows(files)
    day = datetime.datetime.fromtimestamp(files[-1].stat().st_mtime, datetime.UTC).date()
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    load = next((f"{row.value:.1f}" for row in rows if row.name == LOAD), MISSING)
    made_at = commit.stdout.strip()
    said = f"Run on {day}, page renewed at {made_at}; {os.cpu_count()} cores, load average {load} at the start."
    PAGE.write_text(renewed(PAGE.read_text("utf-8"), rows, said), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What speed was asked for, beside what it was when that was written down and what a run of `make bench` finds now.

Pure. A goal names its figure by the whole of a row's name, as a pattern; one that no row has is shown as not
measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from tests.benchmarks.row import Row


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: what it was, and what it is to be. `of` says which of a row's numbers, its value or its ratio."""

    what: str
    figure: str  # a pattern of the row's name
    before: str
    bound: float
    side: Literal["at most", "at least"]
    unit: str = ""
    of: Literal["value", "ratio"] = "value"

    def found(self, rows: Sequence[Row]) -> float | None:
        """The number in these rows, of several the last; None where no row has the name."""
        numbers = [getattr(row, self.of) for row in rows if re.fullmatch(self.figure, row.name)]
        return numbers[-1] if numbers else None

    def is_met(self, number: float) -> bool:
        """Whether a number is on the right side of the bound."""
        return number <= self.bound if self.side == "at most" else number >= self.bound


GOALS = (
    Goal(
        what="episode, median, bubblewrap, scripted model",
        figure="episode median, bubblewrap",
        before="67 to 76",
        bound=45,
        side="at most",
        unit="ms",
    ),
    Goal(
        what="episodes, two workers",
        figure="episodes, 2 workers",
        before="22 to 26",
        bound=40,
        side="at least",
        unit="1/s",
    ),
    Goal(
        what="episode in a jail to one without",
        figure="episode median, sandbox on against off",
        before="1.45",
        bound=1.25,
        side="at most",
        of="ratio",
    ),
    Goal(
        what="most host time that an agent can cause in an episode",
        figure="host work of an episode at its limit",
        before="3,300",
        bound=100,
        side="at most",
        unit="s",
    ),
    Goal(
        what="host work that an agent can cause, to the largest honest episode",
        figure="host work limit, 2.7 million documents, against the largest honest episode",
        before="not measured",
        bound=2,
        side="at most",
        of="ratio",
    ),
    Goal(
        what="verify, every record with a body, two processes",
        figure="verify, 2 processes, every record with a body",
        before="3,600 to 6,500",
        bound=10_000,
        side="at least",
        unit="records/s",
    ),
    Goal(
        what="verify, the same, to signatures alone on one core",
        figure="verify, 2 processes, every record with a body",
        before="not measured",
        bound=3,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="append, 100 episodes a commit, to raw COPY",
        figure="append, 100 per commit, over COPY",
        before="0.65",
        bound=0.85,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="export to Parquet, log of 10,000 or more",
        figure="export to parquet, log of [0-9,]{6,}",
        before="1,190 to 1,420",
        bound=2_500,
        side="at least",
        unit="episodes/s",
    ),
    Goal(
        what="export to Parquet, log of 1,000",
        figure="export to parquet, log of 1,000",
        before="not measured",
        bound=1_250,
        side="at least",
        unit="episodes/s",
    ),
    Goal(
        what="corpus filter, from the export, two processes",
        figure="[0-9,]+ traces, filter from the export, two processes",
        before="645",
        bound=1_800,
        side="at least",
        unit="traces/s",
    ),
    Goal(
        what="corpus filter, two processes to one",
        figure="[0-9,]+ traces, filter, two processes against one",
        before="1.0",
        bound=1.8,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="gate, 1,850 lines, 2.7 million ids",
        figure="gate, 1,850-line agent, 2.7 M ids",
        before="101 to 159",
        bound=80,
        side="at most",
        unit="ms",
    ),
    Goal(
        what="gate, in its own process to without",
        figure="gate, the same in its own process",
        before="2.2 to 3.4",
        bound=1.2,
        side="at most",
        of="ratio",
    ),
    Goal(
        what="pages, 95 of 100 within",
        figure="pages, as served, [0-9,]+ records, [0-9]+ agents: p95",
        before="no pages",
        bound=20,
        side="at most",
        unit="ms",
    ),
    Goal(
        what="`arena run --count 6`, warm, first row",
        figure="arena run --count 6, warm, first row",
        before="16",
        bound=2,
        side="at most",
        unit="s",
    ),
    Goal(
        what="`arena run --count 6`, warm, to the end",
        figure="arena run --count 6, warm",
        before="16",
        bound=6,
        side="at most",
        unit="s",
    ),
    Goal(what="`arena --help`", figure="arena --help", before="not measured", bound=0.3, side="at most", unit="s"),
    Goal(what="`arena check`", figure="arena check", before="not measured", bound=0.8, side="at most", unit="s"),
    Goal(
        what="`arena validator status` beside its node",
        figure="arena validator status",
        before="not measured",
        bound=1,
        side="at most",
        unit="s",
    ),
    Goal(
        what="demo, clean clone, pip cache warm",
        figure="make demo, clean clone, pip cache warm",
        before="96",
        bound=60,
        side="at most",
        unit="s",
    ),
    Goal(
        what="`make test`, install aside",
        figure="make test",
        before="14",
        bound=15,
        side="at most",
        unit="min",
    ),
    Goal(
        what="SFT, one row a step, to TRL as it comes",
        figure="SFT, one row a step",
        before="0.98",
        bound=1.3,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="SFT, memory of TRL as it comes, to ours",
        figure=r"SFT, peak memory, \d+ rows a step",
        before="not measured",
        bound=2.5,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="sampling, 24 turns in a batch, eight samples a prompt, to transformers",
        figure="sampling, 24 turns in a batch, eight samples a prompt",
        before="2.4",
        bound=4,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="sampling, 24 turns in a batch that come and go, to transformers",
        figure="sampling, 24 turns in a batch, turns that come and go",
        before="not measured",
        bound=4,
        side="at least",
        of="ratio",
    ),
    Goal(
        what="memory of a validator at rest, all its processes",
        figure="validator at rest, memory of all processes",
        before="not measured",
        bound=1000,
        side="at most",
        unit="MB",
    ),
    Goal(
        what="memory of a validator in a race",
        figure="validator in a race, most memory of all processes",
        before="not measured",
        bound=1500,
        side="at most",
        unit="MB",
    ),
    Goal(
        what="growth of that from race to race",
        figure=r"validator, growth a race over \d+ races",
        before="not measured",
        bound=2,
        side="at most",
        unit="MB",
    ),
)


def lines_of(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str, str]]:
    """(what, before, goal, now, whether it is met) of every goal, in order."""
    for goal in GOALS:
        number, unit = goal.found(rows), f" {goal.unit}" if goal.unit else ("x" if goal.of == "ratio" else "")
        now = "not measured" if number is None else f"{number:,.3g}{unit}" if number < 1_000 else f"{number:,.0f}{unit}"
        met = "" if number is None else "yes" if goal.is_met(number) else "no"
        yield goal.what, goal.before, f"{goal.side} {goal.bound:,g}{unit}", now, met

"""What each page shows, as plain values: the reads' own rows, what a page adds so that people can compare them, and
what the forms of the pages ask lists for.

Nothing here knows of HTML, stores or clocks. Shares of an axis are percent of its length. A filter takes away from
what may be shown and never adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import msgspec

from arena.api.rows import (
    ListedAgent,
    PairResult,
    RaceDetail,
    RaceRow,
)
from arena.records.model import Standing


class IntervalMark(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its interval on a common axis, in percent of it."""

    low: float
    value: float
    high: float


class AgentName(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as people call it: its name, else the beginning of its id."""

    agent_version_id: str
    name: str
    miner: str = ""


class BucketShare(msgspec.Struct, frozen=True, kw_only=True):
    """Solved of asked in one bucket."""

    bucket: str
    solved: int
    asked: int

    @property
    def percent(self) -> float:
        """Solved to asked."""
        return 100 * self.solved / self.asked if self.asked else 0.0


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a leaderboard. `buckets`, tokens and cost a problem are of released problems, empty before."""

    standing: Standing
    agent: AgentName
    mark: IntervalMark
    is_top: bool
    since: str = ""  # the race that brought the top agent there
    buckets: tuple[BucketShare, ...] = ()
    missed: tuple[tuple[str, int], ...] = ()  # axes, and on how many problems they were missed
    tokens: int | None = None
    cost_micro_usd: int | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of why, and what it follows from: (address, name)."""

    text: str
    links: tuple[tuple[str, str], ...] = ()


class PairedGap(msgspec.Struct, frozen=True, kw_only=True):
    """The best score less the second best, with its 95 % interval, paired over the problems of the race."""

    gap_e4: int
    low_e4: int
    high_e4: int
    problems: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies above nothing."""
        return self.low_e4 > 0

    @property
    def mark(self) -> IntervalMark:
        """On an axis with nothing in its middle."""
        reach = max(1, abs(self.low_e4), abs(self.high_e4))
        low, value, high = (50 + 50 * one / reach for one in (self.low_e4, self.gap_e4, self.high_e4))
        return IntervalMark(low=low, value=min(100.0, max(0.0, value)), high=high)


class RankedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """The leaderboard of one settled race. `low` and `high` are the ends of the axis, in shares of 1."""

    detail: RaceDetail
    leaders: tuple[Leader, ...]  # the first of them
    more: int  # those that are not among `leaders`
    is_told: bool  # whether results by problem are public
    low: float
    high: float
    why: tuple[Reason, ...]  # what decided it
    gap: PairedGap | None  # of the first two; None where the results here do not give the standings
    pools: tuple[str, ...]  # of its problems, once they are released


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One agent on one problem: solved, partial, failed, void or no result, and what the mouse is told."""

    kind: str
    says: str
    href: str = ""


class MatrixRow(msgspec.Struct, frozen=True, kw_only=True):
    """One problem with every agent's cell."""

    problem_id: str
    pool: str
    is_void: bool
    cells: tuple[Cell, ...]


class RaceStep(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a race on its stepper."""

    name: str
    is_done: bool
    is_current: bool
    says: str
    at_says: str = ""  # what happens at `at_ms`
    at_ms: int | None = None


class Qualified(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a race's field, and what it scored on the public suite."""

    agent: AgentName
    score_e4: int
    is_incumbent: bool


class Appearance(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in one settled race."""

    race_id: str
    standing: Standing
    mark: IntervalMark


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a published file, with what the gate said of it."""

    number: int
    text: str
    findings: tuple[str, ...] = ()


class Solver(msgspec.Struct, frozen=True, kw_only=True):
    """One result on a problem, and whose."""

    agent: AgentName
    result: PairResult
    href: str


class CountBar(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled count; `percent` of the longest."""

    label: str
    count: int
    percent: float


class ShapePanel(msgspec.Struct, frozen=True, kw_only=True):
    """What a sample of episodes calls: tools, and the ways (tools in order) with how many of them came once."""

    episodes: int
    ways: int
    once: int
    tools: tuple[CountBar, ...]
    shapes: tuple[CountBar, ...]


Stage = Literal["", "open", "closed", "running", "settling", "settled", "cancelled"]
State = Literal["", "review", "accepted", "qualified", "unqualified", "rejected"]
Shown = Literal["", "split", "all", "none", "void"]
Wrote = Literal["", "model", "code"]
STAGES: tuple[Stage, ...] = get_args(Stage)
STATES: tuple[State, ...] = get_args(State)
SHOWN: dict[Shown, str] = {
    "": "every problem",
    "split": "solved by some",
    "all": "solved by all",
    "none": "solved by none",
    "void": "void",
}
WROTE: dict[Wrote, str] = {"": "all calls", "model": "calls by the model", "code": "calls by code"}


class AgentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Agents whose name, id or miner holds `name`, in this state."""

    name: str = ""
    state: State = ""

    def holds(self, row: ListedAgent) -> bool:
        """Whether this agent is asked for."""
        wanted = self.name.strip().casefold()
        texts = (row.name.casefold(), row.agent_version_id.casefold(), row.miner_hotkey.casefold())
        return (not self.state or row.state == self.state) and any(wanted in text for text in texts)


class RaceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Races of this stage; `is_promotion`: those alone that brought somebody to the top."""

    stage: Stage = ""
    is_promotion: bool = False

    def holds(self, row: RaceRow) -> bool:
        """Whether this race is asked for."""
        return (not self.stage or row.stage == self.stage) and (row.is_promotion or not self.is_promotion)


class EpisodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes of this race and agent, by who wrote their calls."""

    race: str = ""
    agent: str = ""
    wrote: Wrote = ""

    def holds(self, one: PairResult) -> bool:
        """Whether this result is asked for. Which race it is of the reader knows."""
        if self.wrote and one.is_agentic != (self.wrote == "model"):
            return False
        return self.agent in ("", one.agent_version_id)


_HOLDS: dict[Shown, Callable[[MatrixRow, int], bool]] = {
    "": lambda row, solved: True,
    "void": lambda row, solved: row.is_void,
    "all": lambda row, solved: bool(row.cells) and solved == len(row.cells),
    "none": lambda row, solved: not solved,
    "split": lambda row, solved: 0 < solved < len(row.cells),
}


def matching(rows: Iterable[MatrixRow], shown: Shown) -> tuple[MatrixRow, ...]:
    """The problems of a matrix that are asked for, by how many of the agents shown solved them."""
    return tuple(row for row in rows if _HOLDS[shown](row, sum(cell.kind == "solved" for cell in row.cells)))

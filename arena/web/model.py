"""What each page shows, as plain values: the reads' own rows, and what a page adds so that people can compare them.

Promise: nothing here knows of HTML, stores or clocks. Shares of an axis are percent of its length.
"""

from __future__ import annotations

import msgspec

from arena.api.reads.answers import (
    AgentDetail,
    DayRow,
    ListedAgent,
    PairResult,
    ProblemRow,
    RaceDetail,
    RaceRow,
    SuiteRow,
    TrajectoryRow,
    ValidatorRow,
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
    tokens: int | None = None
    cost_micro_usd: int | None = None


class RankedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """The leaderboard of one settled race. `low` and `high` are the ends of the axis, in shares of 1."""

    detail: RaceDetail
    leaders: tuple[Leader, ...]  # the first of them
    more: int  # those that are not among `leaders`
    low: float
    high: float
    why: tuple[str, ...]  # what decided it, a sentence each


class FrontPage(msgspec.Struct, frozen=True, kw_only=True):
    """`/`: who leads. `board` is None before the first settlement; `coming` is the race under way or to come."""

    board: RankedBoard | None
    coming: RaceRow | None
    validators: tuple[ValidatorRow, ...]


class RacesPage(msgspec.Struct, frozen=True, kw_only=True):
    """`/races`: all races, newest first."""

    races: tuple[RaceRow, ...]
    names: dict[str, AgentName]
    next: str


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


class RacePage(msgspec.Struct, frozen=True, kw_only=True):
    """`/races/N`: what happened."""

    detail: RaceDetail
    steps: tuple[RaceStep, ...]
    sealed: str  # why results are not shown, "" where they are
    board: RankedBoard | None
    agents: tuple[AgentName, ...]
    matrix: tuple[MatrixRow, ...]
    pools: tuple[tuple[str, int, bool], ...]  # pool, problems, whether the matrix shows it
    next: str = ""


class Appearance(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in one settled race."""

    race_id: str
    standing: Standing
    mark: IntervalMark


class AgentsPage(msgspec.Struct, frozen=True, kw_only=True):
    """`/agents`: all versions."""

    agents: tuple[ListedAgent, ...]
    next: str


class SourceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a published file, with what the gate said of it."""

    number: int
    text: str
    findings: tuple[str, ...] = ()


class AgentPage(msgspec.Struct, frozen=True, kw_only=True):
    """`/agents/A`: what it does, and whether it gets better."""

    detail: AgentDetail
    agent: AgentName
    versions: tuple[ListedAgent, ...]
    appearances: tuple[Appearance, ...]
    source: tuple[SourceLine, ...]  # its beginning
    more_lines: int
    sealed: str  # why the source is not shown
    latest: tuple[TrajectoryRow, ...]


class Solver(msgspec.Struct, frozen=True, kw_only=True):
    """One result on a problem, and whose."""

    agent: AgentName
    result: PairResult
    href: str


class ProblemPage(msgspec.Struct, frozen=True, kw_only=True):
    """`/races/N/problems/P`: was it fair?"""

    race_id: str
    row: ProblemRow
    query: str  # "" where no public trace tells it
    cluster_id: str
    nearest: tuple[str, ...]  # other problems of its leak cluster
    solvers: tuple[Solver, ...]


class CountBar(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled count; `percent` of the longest."""

    label: str
    count: int
    percent: float


class FirehosePage(msgspec.Struct, frozen=True, kw_only=True):
    """`/firehose`: is there data worth training on? `agentic` and the bars are of published races alone."""

    days: tuple[DayRow, ...]
    most: int  # episodes of the fullest day
    funnel: tuple[CountBar, ...]
    calls: tuple[CountBar, ...]
    lengths: tuple[CountBar, ...]
    suites: tuple[SuiteRow, ...]
    base_url: str


class ValidatorsPage(msgspec.Struct, frozen=True, kw_only=True):
    """`/validators`: whose logs are served here, and whether they agree."""

    validators: tuple[ValidatorRow, ...]
    checkpoints: dict[str, tuple[int, int, int]]  # validator -> size, signed ms, anchor block
    pairs: tuple[tuple[str, str, int, int], ...]  # two validators, pairs both have, pairs with another outcome


class ErrorPage(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal a person reads: what happened, and what to do."""

    status: int
    code: str
    message: str
    what_to_do: str

"""What a reader asks lists for, as the forms of the pages send it. Pure.

A filter takes away from what may be shown and never adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import msgspec

from arena.api.reads.answers import ListedAgent, PairResult, RaceRow
from arena.web.model import MatrixRow

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

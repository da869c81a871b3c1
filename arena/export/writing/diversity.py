"""How varied the exported trajectories of each UTC day are: teams, top agent's share, tool-call shapes, agentic share.

A fold over trajectories in any order and any number of parts (`merge`), with integer results that come out the
same on every machine: the entropy is computed in decimals of fixed precision and rounded half to even.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal

import msgspec

from arena.export.model import Diversity, Trajectory
from harness.trace import ToolCall

_CONTEXT = Context(prec=40, rounding=ROUND_HALF_EVEN)
_SHAPE_BYTES = 16


class _Day:
    """Counts of one day."""

    def __init__(self) -> None:
        self.teams: set[str] = set()
        self.agents: Counter[str] = Counter()
        self.shapes: Counter[bytes] = Counter()  # names of the executed tool calls in order, whoever emitted them
        self.agentic = 0


class DiversityFold:
    """Diversity by day of the trajectories added so far. Holds a few dozen bytes for each different shape."""

    def __init__(self) -> None:
        self._days: dict[str, _Day] = {}

    def add(self, trajectory: Trajectory) -> None:
        """Count one trajectory, on the UTC day its evaluation was recorded."""
        day = self._days.setdefault(day_of(trajectory.content.recorded_ms), _Day())
        subject = trajectory.evaluation.subject
        day.teams.add(subject.miner_hotkey)
        day.agents[subject.agent_version_id] += 1
        names = [event.name for event in trajectory.body.events if isinstance(event, ToolCall)]
        day.shapes[hashlib.sha256(msgspec.json.encode(names)).digest()[:_SHAPE_BYTES]] += 1
        day.agentic += trajectory.evaluation.is_agentic

    def merge(self, other: DiversityFold) -> None:
        """Add what another fold counted, over other trajectories."""
        for name, counted in other._days.items():
            day = self._days.setdefault(name, _Day())
            day.teams |= counted.teams
            day.agents.update(counted.agents)
            day.shapes.update(counted.shapes)
            day.agentic += counted.agentic

    def days(self) -> tuple[Diversity, ...]:
        """One row a day that has trajectories, earliest first."""
        return tuple(
            Diversity(
                day=name,
                trajectories=day.agents.total(),
                teams=len(day.teams),
                agents=len(day.agents),
                top_agent_share_e4=max(day.agents.values()) * 10_000 // day.agents.total(),
                shape_entropy_mbit=entropy_mbit(list(day.shapes.values())),
                agentic_share_e4=day.agentic * 10_000 // day.agents.total(),
            )
            for name, day in sorted(self._days.items())
        )


def day_of(recorded_ms: int) -> str:
    """The UTC day of a time in unix milliseconds, YYYY-MM-DD; the calendar's first or last day beyond its ends."""
    try:
        return datetime.fromtimestamp(recorded_ms // 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "0001-01-01" if recorded_ms < 0 else "9999-12-31"


def entropy_mbit(counts: list[int]) -> int:
    """Shannon entropy of a distribution given as counts above 0, in thousandths of a bit; 0 for none or one."""
    if len(counts) < 2:
        return 0
    total = Decimal(sum(counts))
    weighted = Decimal(0)
    for count, times in sorted(Counter(counts).items()):
        value = Decimal(count)
        weighted = _CONTEXT.add(weighted, _CONTEXT.multiply(value * times, _CONTEXT.ln(value)))
    nats = _CONTEXT.subtract(_CONTEXT.ln(total), _CONTEXT.divide(weighted, total))
    bits = _CONTEXT.divide(nats, _CONTEXT.ln(Decimal(2)))
    return int(_CONTEXT.multiply(bits, Decimal(1000)).to_integral_value(rounding=ROUND_HALF_EVEN))

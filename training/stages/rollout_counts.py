"""How many rollouts a run sampled and left out, kept in its log.

What `line` writes, `go_on_from` reads: a run that was killed counts on from the step it resumes at, since its
log is wound back to that step first. It decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SAMPLED, _ALONE, _DROPPED = "rollouts", "rollouts/without_teacher", "rollouts/dropped: "  # names in the log
_MIXED = "groups/mixed"


@dataclass
class Counts:
    """What became of the rollouts of a run so far, all of its resumptions together."""

    sampled: int = 0
    without_teacher: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    mixed: list[float] = field(default_factory=list)  # of each step, the share of groups whose rewards differ

    def line(self) -> dict[str, float]:
        """As numbers of a log's line."""
        dropped = {f"{_DROPPED}{reason}": float(count) for reason, count in self.dropped.items()}
        mixed = {_MIXED: self.mixed[-1]} if self.mixed else {}
        return {_SAMPLED: float(self.sampled), _ALONE: float(self.without_teacher)} | mixed | dropped

    def go_on_from(self, lines: Sequence[Mapping[str, float]]) -> None:
        """Count on from the last of a log's lines that says how many there were; from nothing where none does."""
        line = next((line for line in reversed(lines) if _SAMPLED in line), None)
        if line is None:
            return
        self.sampled, self.without_teacher = int(line[_SAMPLED]), int(line[_ALONE])
        named = {name.removeprefix(_DROPPED): int(n) for name, n in line.items() if name.startswith(_DROPPED)}
        self.dropped = Counter(named)
        by_step = {line["step"]: line[_MIXED] for line in lines if _MIXED in line}
        self.mixed = [by_step[step] for step in sorted(by_step)]

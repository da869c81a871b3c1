"""What judging costs a node in each race, held against the operator's budget, in a file per race.

A problem whose judging was begun stays begun over restarts, and one that the budget has no room for is judged
for no agent (`judge.budget`). Qualifying is not held to it. Without a bound nothing is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import msgspec

from arena.store.port import WorkItem
from foundation.codes.names import JUDGE_BUDGET_SPENT
from foundation.durable_files import write_whole
from foundation.errors import ArenaError, Failure
from judge.budget import JudgeBudget, RaceSpending, Spending


class JudgeBudgets:
    """The budget of every race of one node. One process; not for several threads."""

    def __init__(self, folder: Path, budget: JudgeBudget) -> None:
        self._folder, self._budget = folder, budget
        self._races: dict[str, RaceSpending] = {}

    def plan(self, race_id: str, items: Iterable[WorkItem]) -> None:
        """Take note of how many pairs this node judges of each problem. Raises ArenaError V2064."""
        if self._is_bounded(race_id):
            counted = Counter(item.context.problem_id for item in items)
            self._keep(race_id, self._race(race_id).planned(counted))

    def refusal(self, race_id: str, problem_id: str) -> Failure | None:
        """Why nobody's trace of a problem is judged now, or None: then its judging has begun.

        Raises ArenaError V2064.
        """
        if not self._is_bounded(race_id):
            return None
        before = self._race(race_id)
        after = before.begun(problem_id, self._budget)
        if after is None:
            spent = before.spent
            detail = f"{race_id}: {spent.tokens} tokens spent"
            return Failure(code=JUDGE_BUDGET_SPENT, detail=detail)
        if after is not before:
            self._keep(race_id, after)
        return None

    def charge(self, race_id: str, problem_id: str, spent: Spending) -> None:
        """Count what judging one trace cost. Raises ArenaError V2064."""
        if self._is_bounded(race_id):
            self._keep(race_id, self._race(race_id).charged(problem_id, spent))

    def _is_bounded(self, race_id: str) -> bool:
        return bool(race_id and self._budget.tokens)

    def _race(self, race_id: str) -> RaceSpending:
        if race_id not in self._races:
            path = self._path(race_id)
            try:
                kept = msgspec.json.decode(path.read_bytes(), type=RaceSpending) if path.exists() else RaceSpending()
            except (OSError, msgspec.DecodeError) as error:
                raise ArenaError("V2064", f"{path}: {error}") from error
            self._races[race_id] = kept
        return self._races[race_id]

    def _keep(self, race_id: str, spending: RaceSpending) -> None:
        path = self._path(race_id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(spending))
        except OSError as error:
            raise ArenaError("V2064", f"{path}: {error}") from error
        self._races[race_id] = spending

    def _path(self, race_id: str) -> Path:
        return self._folder / f"{quote(race_id, safe='')}.json"

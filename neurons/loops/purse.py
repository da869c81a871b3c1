"""What models may cost a node: nothing is begun that might pass the cap of its race or of the day (UTC).

What was spent stands in the ledger (`arena.usage`); this process reads the sum of a race or day once, and adds to it. A
problem is begun when the caps have room for all its pairs at their mean cost; one that was not begun, or that meets a
cap on its way, is stopped for every agent at this validator (U3022, `arena.race.scores`), so nobody loses by it. An
episode waits while those that run might still cost what it needs. Each is set aside at the policy's limits, so a cap is
passed by no more than the last request of those that run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec

from arena.race.forecast import KNOWN_FROM, Cost, episodes_in, past_episodes
from arena.race.scores import LoggedRecord
from arena.records.model import AttemptRecord, Context, EvaluationRecord
from arena.records.port import WorkItem
from arena.store.postgres import PostgresStore
from foundation.codes import CAP_REACHED
from foundation.errors import Failure
from harness.inference.gateway import ModelUsage
from neurons.settings.settings import Budget

MICRO, DAY_MS = 1_000_000, 86_400_000
_WAIT_S = 0.25


class _Plan(msgspec.Struct, kw_only=True):
    """A race: pairs left by problem, problems that were begun or stopped, episodes that were paid for, and what an
    episode cost in races before, in micro-USD (0: not known)."""

    left: Counter[str]
    begun: set[str]
    stopped: set[str]
    paid: int
    before: int


class Purse:
    """One node's caps. One event loop."""

    def __init__(
        self, store: PostgresStore, budget: Budget, most: tuple[Cost, Cost], now_ms: Callable[[], int]
    ) -> None:
        """`most` is what an episode costs at its limits: inference, judging."""
        self._store, self._now_ms = store, now_ms
        self.race_cap, self.day_cap = (round(usd * MICRO) for usd in (budget.race_usd, budget.day_usd))  # 0: none
        self._most = most[0].plus(most[1]).micro_usd or 0
        self.refusal: Failure | None = None  # the newest one, while it holds
        self._spent: dict[str, int] = {}  # micro-USD by race, and by day
        self._running = 0
        self._plans: dict[str, _Plan] = {}

    async def plan(
        self,
        race_id: str,
        items: Iterable[WorkItem],
        evaluations: Iterable[LoggedRecord[EvaluationRecord]],
        attempts: Iterable[LoggedRecord[AttemptRecord]],
    ) -> None:
        """Take note of the pairs that this node runs in a race, and of those that its log says were run or stopped."""
        if not (self.race_cap or self.day_cap):
            return
        own, rows = self._store.validator, await self._store.usage_totals()
        done = Counter(row.record.context.problem_id for row in evaluations if row.validator == own)
        inference, judging, counted, _ = past_episodes(rows)
        known = inference.plus(judging).micro_usd if counted >= KNOWN_FROM else 0
        self._plans = {
            race_id: _Plan(
                left=Counter(item.context.problem_id for item in items) - done,
                begun=set(done),
                stopped={each.record.context.problem_id for each in attempts if _is_capped(each, own)},
                paid=episodes_in(row for row in rows if row.race_id == race_id),
                before=-(-(known or 0) // max(1, counted)),
            )
        }
        self.refusal = None

    async def enter(self, context: Context) -> Failure | None:
        """Set an episode, or a verdict, aside, once there is room beside those that run; why it may not be run."""
        while self.race_cap or self.day_cap:
            left, which = await self._left(context.race_id)
            plan = self._plans.get(context.race_id)
            if plan is not None and not self._is_begun(plan, context, left):
                return self._refuse(plan, context, which)
            if left >= self._most * (self._running + 1):
                break
            if not self._running:
                return self._refuse(plan, context, which)
            await asyncio.sleep(_WAIT_S)
        self._running += 1
        return None

    def leave(self, context: Context, usage: Iterable[ModelUsage]) -> None:
        """What was set aside came to its end, and cost this."""
        self._running -= 1
        cost = sum(row.cost_micro_usd or 0 for row in usage)
        for name in {context.race_id, self._today()} & self._spent.keys():
            self._spent[name] += cost
        if (plan := self._plans.get(context.race_id)) is not None:
            plan.left -= Counter((context.problem_id,))
            plan.paid += 1

    def waits_ms(self) -> int:
        """Until the next day, when its cap has room again."""
        return DAY_MS - self._now_ms() % DAY_MS

    def _today(self) -> str:
        return datetime.fromtimestamp(self._now_ms() / 1_000, UTC).date().isoformat()

    async def _left(self, race_id: str) -> tuple[int, str]:
        """Micro-USD that the tightest cap leaves, and which that is."""
        day, found = self._today(), list[tuple[int, str]]()
        if self.day_cap:
            if day not in self._spent:
                since_ms = self._now_ms() // DAY_MS * DAY_MS
                self._spent[day] = await self._store.spent_micro_usd(since_ms=since_ms)
            found.append((self.day_cap - self._spent[day], f"{day}: ${self.day_cap / MICRO:.2f} a day"))
        if self.race_cap and race_id:
            if race_id not in self._spent:
                self._spent[race_id] = await self._store.spent_micro_usd(race_id)
            found.append((self.race_cap - self._spent[race_id], f"{race_id}: ${self.race_cap / MICRO:.2f} a race"))
        return min(found, default=(self._most * (self._running + 1), ""))

    def _is_begun(self, plan: _Plan, context: Context, left: int) -> bool:
        """Begin the problem, where the cap has room for its pairs and what is left of those begun; whether it is."""
        name, spent = context.problem_id, self._spent.get(context.race_id, 0)
        if name in plan.stopped or name in plan.begun:
            return name not in plan.stopped
        each = spent // plan.paid if spent and plan.paid >= KNOWN_FROM else plan.before
        if each * sum(plan.left[one] for one in {*plan.begun, name}) > left:
            return False
        plan.begun.add(name)
        return True

    def _refuse(self, plan: _Plan | None, context: Context, which: str) -> Failure:
        if plan is not None:
            plan.stopped.add(context.problem_id)
        self.refusal = Failure(code=CAP_REACHED, detail=which)
        return self.refusal


def _is_capped(row: LoggedRecord[AttemptRecord], validator: str) -> bool:
    failure = row.record.failure
    return row.validator == validator and failure is not None and failure.code == CAP_REACHED

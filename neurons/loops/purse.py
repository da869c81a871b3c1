"""What models may cost a node: nothing is begun that might pass a cap of its race or of the day (UTC).

What was spent stands in the ledger (`arena.usage`); this process reads the sums of a race or day once, and adds. A
problem is begun when each cap has room for all its pairs at their mean cost; one that was not begun, or that meets a
cap on its way, is stopped for every agent at this validator (U3022, `arena.race.scores`), so nobody loses by it. An
episode waits while those that run might still cost what it needs. Each is set aside at the policy's limits, so a cap is
passed by no more than the last request of those that run; judges' tokens are set aside at their mean. What a worker
asks is accounted as it asks; a node that is killed loses the accounts of what ran, whose answers aren't paid again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from arena.race.admission import RaceRecords
from arena.race.forecast import KNOWN_FROM, Cost, day_of, episodes_in, past_episodes, spent
from arena.records.model import Context
from arena.records.port import WorkItem
from arena.store.postgres import PostgresStore
from foundation.codes import CAP_REACHED
from foundation.errors import Failure
from harness.inference.gateway import ModelUsage
from judge.verdict import JUDGED_AT
from neurons.settings.settings import Budget

MICRO, DAY_MS = 1_000_000, 86_400_000
_WAIT_S = 0.25
Amounts = tuple[int, int]  # micro-USD, and tokens of judges


class _Cap(NamedTuple):
    """What one cap leaves: `left` of `unit`, an index of `Amounts`."""

    text: str
    unit: int
    left: int


class _Plan(msgspec.Struct, kw_only=True):
    """A race: pairs left by problem, problems that were begun or stopped, episodes that were paid for, and what an
    episode cost in races before."""

    left: Counter[str]
    begun: set[str]
    stopped: set[str]
    paid: int
    before: Amounts


class Purse:
    """One node's caps. One event loop."""

    def __init__(
        self,
        store: PostgresStore,
        budget: Budget,
        most: tuple[Cost, Cost],
        assumed: tuple[Cost, Cost],
        now_ms: Callable[[], int],
    ) -> None:
        """What an episode costs, inference and judging: `most` at its limits, `assumed` before any race."""
        self._store, self._now_ms, self.budget = store, now_ms, budget
        self._most, self._assumed = (most[0].plus(most[1]).micro_usd or 0, assumed[1].tokens), assumed
        self.refusal: Failure | None = None  # the newest one, until the next race
        self._spent: dict[str, list[int]] = {}  # `Amounts` by race, and by day
        self._running = 0
        self._plans: dict[str, _Plan] = {}

    async def plan(self, race_id: str, items: Iterable[WorkItem], log: RaceRecords) -> None:
        """Take note of the pairs that this node runs in a race, and of those that its log says were run or stopped."""
        if self.budget == Budget():
            return
        own, rows = self._store.validator, await self._store.usage_totals()
        done = Counter(row.record.context.problem_id for row in log.evaluations if row.validator == own)
        inference, judging, counted, _ = past_episodes(rows)
        if counted < KNOWN_FROM:
            (inference, judging), counted = self._assumed, 1
        before = ((inference.plus(judging).micro_usd or 0) // counted, judging.tokens // counted)
        self._most = (self._most[0], before[1])
        self._plans = {
            race_id: _Plan(
                left=Counter(item.context.problem_id for item in items) - done,
                begun=set(done),
                stopped={
                    each.record.context.problem_id
                    for each in log.attempts
                    if each.validator == own and each.record.failure and each.record.failure.code == CAP_REACHED
                },
                paid=episodes_in(row for row in rows if row.race_id == race_id),
                before=before,
            )
        }
        self.refusal = None

    async def enter(self, context: Context) -> Failure | None:
        """Set an episode, or a verdict, aside, once there is room beside those that run; why it may not be run."""
        while caps := await self._caps(context.race_id):
            plan = self._plans.get(context.race_id)
            lacking = self._lacking(plan, context, caps) if plan is not None else None
            tight = [one for one in caps if one.left < self._most[one.unit] * (self._running + 1)]
            if lacking or (tight and not self._running):
                if plan is not None:
                    plan.stopped.add(context.problem_id)
                self.refusal = Failure(code=CAP_REACHED, detail=(lacking or tight[0]).text)
                return self.refusal
            if not tight:
                break
            await asyncio.sleep(_WAIT_S)
        self._running += 1
        return None

    def leave(self, context: Context, usage: Iterable[ModelUsage]) -> None:
        """What was set aside came to its end, and cost this."""
        self._running -= 1
        rows = tuple(usage)
        judged = [row.prompt_tokens + row.completion_tokens for row in rows if row.upstream.startswith(JUDGED_AT)]
        for name in {context.race_id, day_of(self._now_ms())} & self._spent.keys():
            self._spent[name][0] += sum(row.cost_micro_usd or 0 for row in rows)
            self._spent[name][1] += sum(judged)
        if (plan := self._plans.get(context.race_id)) is not None:
            plan.left -= Counter((context.problem_id,))
            plan.paid += 1

    def waits_ms(self) -> int:
        """Until the next day, when its cap has room again."""
        return DAY_MS - self._now_ms() % DAY_MS

    async def _caps(self, race_id: str) -> list[_Cap]:
        found, day, budget = list[_Cap](), day_of(self._now_ms()), self.budget
        for name, usd, tokens in ((day, budget.day_usd, 0), (race_id, budget.race_usd, budget.judge_race_tokens)):
            if not name or not (usd or tokens):
                continue
            if name not in self._spent:
                inference, judging = spent(
                    one for one in await self._store.usage_totals() if name in (one.day, one.race_id)
                )
                self._spent[name] = [(inference.micro_usd or 0) + (judging.micro_usd or 0), judging.tokens]
            if usd:
                amount = max(f"{usd:,}", f"{usd:,.2f}", key=len)
                cap = f"{name}: {'race' if name == race_id else 'day'}_usd ${amount}"
                found.append(_Cap(cap, 0, round(usd * MICRO) - self._spent[name][0]))
            if tokens:
                found.append(_Cap(f"{name}: judge_race_tokens {tokens:,}", 1, tokens - self._spent[name][1]))
        return found

    def _lacking(self, plan: _Plan, context: Context, caps: Iterable[_Cap]) -> _Cap | None:
        """The cap that has no room for the problem's pairs beside what is left of those begun; else it is begun."""
        name, paid = context.problem_id, self._spent.get(context.race_id)
        pairs = sum(plan.left[one] for one in {*plan.begun, name})
        for cap in caps:
            own = paid[cap.unit] // plan.paid if paid and plan.paid >= KNOWN_FROM else 0
            each = max(own, plan.before[cap.unit])  # the control agent, which is cheap, comes first
            last = max(each, self._most[cap.unit])  # is set aside so, and must find room
            if name in plan.stopped or (name not in plan.begun and each * (pairs - 1) + last > cap.left):
                return cap
        plan.begun.add(name)
        return None

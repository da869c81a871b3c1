"""What judging costs, and a race's budget of it: a spent budget stops whole problems for everybody, never some agents.

A problem is begun with its first verdict, when what is spent and what is set aside for the problems already begun leave
room for all its pairs. From then on it is judged to its end, whatever it costs; a problem that was not begun is judged
for nobody until room comes back (a begun one cost less than was set aside) or the operator gives more. So the budget
may be passed by what estimates were wrong about the problems begun, and by nothing else. Pure, but for `MeteredJudge`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from harness.inference.gateway import Ledger, ModelUsage
from harness.limits import TokenPrice
from judge.render import Judge, JudgeReply, RenderedTrace
from judge.rubric import Rubric

JUDGED_AT = "judge/"  # what an endpoint's name begins with in accounts of judging
_KNOWN_FROM = 8  # verdicts after which their mean is the estimate
_FIRST_TOKENS = 20_000  # of a verdict, before any was given: three asks


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over verdicts. `ms` is time that endpoints took; `requests` are replies, usable or not."""

    verdicts: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: int = 0

    @property
    def tokens(self) -> int:
        """Of prompts and completions together."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, more: Spending) -> Spending:
        """The sum of both."""
        return Spending(**{name: getattr(self, name) + getattr(more, name) for name in self.__struct_fields__})


class ProblemSpending(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the race: how many pairs of it this node judges, whether judging has begun, and what it cost."""

    pairs: int = 1
    is_begun: bool = False
    spent: Spending = Spending()


class RaceSpending(msgspec.Struct, frozen=True, kw_only=True):
    """A race's problems by id."""

    problems: Mapping[str, ProblemSpending] = {}

    def planned(self, pairs: Mapping[str, int]) -> RaceSpending:
        """With the number of pairs of each problem; what is known of it stays."""
        return self._with({name: msgspec.structs.replace(self._of(name), pairs=count) for name, count in pairs.items()})

    def charged(self, problem_id: str, spent: Spending) -> RaceSpending:
        """With what verdicts on a problem cost."""
        before = self._of(problem_id)
        return self._with({problem_id: msgspec.structs.replace(before, spent=before.spent.plus(spent))})

    def begun(self, problem_id: str, budget_tokens: int) -> RaceSpending | None:
        """With judging of the problem begun; None where the budget (0: no bound) has no room for all of its pairs."""
        one = self._of(problem_id)
        if one.is_begun:
            return self
        after = self._with({problem_id: msgspec.structs.replace(one, is_begun=True)})
        return after if not budget_tokens or after._committed() <= budget_tokens else None

    @property
    def spent(self) -> Spending:
        """Over all problems."""
        return functools.reduce(Spending.plus, (one.spent for one in self.problems.values()), Spending())

    def _committed(self) -> float:
        """Tokens that were spent, and that the pairs of begun problems that wait will cost."""
        spent = self.spent
        waiting = sum(max(0, each.pairs - each.spent.verdicts) for each in self.problems.values() if each.is_begun)
        each = spent.tokens / spent.verdicts if spent.verdicts >= _KNOWN_FROM else _FIRST_TOKENS
        return spent.tokens + waiting * each

    def _of(self, problem_id: str) -> ProblemSpending:
        return self.problems.get(problem_id, ProblemSpending())

    def _with(self, changed: Mapping[str, ProblemSpending]) -> RaceSpending:
        return RaceSpending(problems={**self.problems, **changed})


class JudgeMeter:
    """Sums what judges cost, by endpoint and model. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ledger = Ledger()

    def add(self, upstream: str, model: str, reply: JudgeReply | None, ms: int) -> None:
        """Count one request, answered or not. One that a cache answered is not to be counted."""
        tokens = (reply.prompt_tokens, reply.completion_tokens) if reply else (0, 0)
        numbers = dict(prompt_tokens=tokens[0], completion_tokens=tokens[1], latency_ms=ms)
        with self._lock:
            self._ledger.add(upstream, model, attempts=1, **numbers)

    def take(
        self, verdicts: int = 1, prices: Mapping[str, TokenPrice] = MappingProxyType({})
    ) -> tuple[Spending, tuple[ModelUsage, ...]]:
        """What was spent since the last call, as the cost of so many verdicts, and its account; `prices` are by
        upstream."""
        with self._lock:
            ledger, self._ledger = self._ledger, Ledger()
        rows = ledger.usage(prices)
        sums = {name: sum(getattr(row, name) for row in rows) for name in ("prompt_tokens", "completion_tokens")}
        requests, ms = sum(row.requests for row in rows), sum(row.latency_ms for row in rows)
        return Spending(verdicts=verdicts, requests=requests, ms=ms, **sums), rows


class MeteredJudge:
    """A `Judge` whose requests a meter counts, also those that failed."""

    def __init__(self, judge: Judge, meter: JudgeMeter, upstream: str = f"{JUDGED_AT}judge") -> None:
        """`upstream` names its endpoint in accounts."""
        self._judge, self._meter, self._upstream = judge, meter, upstream

    @property
    def model(self) -> str:
        """As the judge's."""
        return self._judge.model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """As the judge's."""
        begun = time.monotonic()
        reply = None
        try:
            reply = self._judge.opine(trace, rubric, refusals)
            return reply
        finally:
            self._meter.add(self._upstream, self.model, reply, int((time.monotonic() - begun) * 1000))

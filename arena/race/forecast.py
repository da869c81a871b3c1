"""What a race costs one validator, and what the next one is likely to: episodes x tokens x price. Pure.

Tokens of an episode are the mean over what past races took, each at today's price where that is known; before any race
they are assumed, and said to be. Amounts are micro-USD.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from arena.policy import RaceRules
from arena.records.port import UsageTotal
from harness.limits import TokenPrice

PAST_RACES = 8  # the newest ones, whose mean is the estimate
KNOWN_FROM = 8  # episodes after which a mean is one
ASSUMED_TOKENS = (60_000, 3_000)  # of an episode, in and out
ASSUMED_VERDICT_TOKENS = (10_000, 600)  # of a judge model, in and out


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, and what they cost. `micro_usd` None: a price is not known."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    micro_usd: int | None = 0

    @property
    def tokens(self) -> int:
        """Of prompts and completions together."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, more: Cost) -> Cost:
        """The sum of both."""
        known = self.micro_usd is not None and more.micro_usd is not None
        return Cost(
            prompt_tokens=self.prompt_tokens + more.prompt_tokens,
            completion_tokens=self.completion_tokens + more.completion_tokens,
            micro_usd=(self.micro_usd or 0) + (more.micro_usd or 0) if known else None,
        )

    def times(self, count: int, of: int = 1) -> Cost:
        """The cost of `count` where this is that of `of`, rounded up."""
        sums = {name: value and -(-value * count // of) for name, value in msgspec.structs.asdict(self).items()}
        return Cost(**sums)


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What one race is likely to cost this validator; `most_micro_usd` if every episode meets its limits. `races` are
    those that it is drawn from; 0: tokens are assumed."""

    race_id: str
    problems: int
    agents: int
    episodes: int
    inference: Cost
    judging: Cost
    races: int
    most_micro_usd: int | None = None

    @property
    def micro_usd(self) -> int | None:
        """Inference and judging together; None where a price is not known."""
        return self.inference.plus(self.judging).micro_usd


def day_of(now_ms: int) -> str:
    """The day of accounts: YYYY-MM-DD, UTC."""
    return datetime.fromtimestamp(now_ms / 1_000, UTC).date().isoformat()


def spent(rows: Iterable[UsageTotal], prices: Mapping[str, TokenPrice] = {}) -> tuple[Cost, Cost]:
    """What agents' inference and what judging cost, by the ledger, or by `prices` of those upstreams."""
    sums = [Cost(), Cost()]
    for row in rows:
        price = prices.get(row.upstream)
        cost = row.cost_micro_usd if price is None else price.cost_micro_usd(row.prompt_tokens, row.completion_tokens)
        one = Cost(prompt_tokens=row.prompt_tokens, completion_tokens=row.completion_tokens, micro_usd=cost)
        sums[row.is_judging] = sums[row.is_judging].plus(one)
    return sums[0], sums[1]


def episodes_in(rows: Iterable[UsageTotal]) -> int:
    """Attempts at episodes: of an agent in a race and day as many as used its most used model."""
    most: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if not row.is_judging:
            key = (row.race_id, row.agent_version_id, row.day)
            most[key] = max(most.get(key, 0), row.episodes)
    return sum(most.values())


def past_episodes(rows: Iterable[UsageTotal], prices: Mapping[str, TokenPrice] = {}) -> tuple[Cost, Cost, int, int]:
    """What episodes of the newest races cost together, inference and judging; how many, and of how many races."""
    raced = [row for row in rows if row.stage == "race"]
    past = sorted({row.race_id for row in raced})[-PAST_RACES:]
    taken = [row for row in raced if row.race_id in past]
    return *spent(taken, prices), episodes_in(taken), len(past)


def forecast(
    race_id: str,
    rules: RaceRules,
    agents: int,
    validators: int,
    rows: Sequence[UsageTotal],
    assumed: tuple[Cost, Cost],
    most: tuple[Cost, Cost] | None = None,
    prices: Mapping[str, TokenPrice] = {},
) -> Forecast:
    """The forecast of a race at one of so many validators, from the ledger's `rows`. `assumed` and `most` are of one
    episode: inference, judging."""
    agents = min(agents, rules.seats + 1) if rules.seats else agents  # the top agent's seat is one more
    share = agents * min(rules.validators_per_problem, validators) / validators
    episodes = rules.problems * (1 + math.ceil(share))  # the control agent runs on every problem
    inference, judging, counted, races = past_episodes(rows, prices)
    if counted < KNOWN_FROM:
        (inference, judging), counted, races = assumed, 1, 0
    return Forecast(
        race_id=race_id,
        problems=rules.problems,
        agents=agents,
        episodes=episodes,
        inference=inference.times(episodes, counted),
        judging=judging.times(episodes, counted),
        races=races,
        most_micro_usd=most[0].plus(most[1]).times(episodes).micro_usd if most else None,
    )

"""What a run of the filter reports: how many traces fell where, and what the rest looks like.

Counts and raw distributions, integers all, the same for the same set of traces in any order and on any number of
processes. Drawing them is the report's. Times and rates are no part of it: they are in `TokenWork`.
"""

from __future__ import annotations

import functools
import hashlib
import math
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

import msgspec
import numpy as np

from training.corpus.appraisal import Appraised
from training.corpus.model import Appraisal, RejectCode, Rules, UnreadCount
from training.corpus.selection import Decision


class CodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A reject code: how many traces broke the rule, and of how many it was the only one. `examples` are places."""

    code: RejectCode
    count: int
    alone: int
    examples: tuple[str, ...] = ()


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One day, bucket or agent ("" where the source does not say): traces in, kept, and rejected by code.

    `title` is the name that an agent version was submitted under, where an export says it.
    """

    name: str
    traces: int
    kept: int
    codes: tuple[tuple[RejectCode, int], ...]
    title: str = ""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A measure over traces: (value, traces) by value, and how many traces have none."""

    counts: tuple[tuple[int, int], ...]
    missing: int = 0

    @property
    def traces(self) -> int:
        """How many traces have a value."""
        return sum(count for _, count in self.counts)

    def quantile(self, share_e4: int) -> int | None:
        """The smallest value that at least `share_e4` ten-thousandths of the traces do not exceed; None of none."""
        wanted, met = max(1, -(-self.traces * share_e4 // 10_000)), 0
        for value, count in self.counts:
            met += count
            if met >= wanted:
                return value
        return None


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """A set measured, and how varied it is. `tokens` is known of traces that every other per-trace rule lets pass."""

    turns: Distribution
    tool_calls: Distribution
    queries: Distribution  # distinct search queries
    tokens: Distribution
    coefficient_e4: Distribution
    teams: int
    agents: int
    problems: int
    top_agent_share_e4: int  # of the agent version with most traces
    shape_entropy_mbit: int  # Shannon entropy of tool-call shapes (names in order), in thousandths of a bit


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `traces` came in, `kept` are the corpus. Codes are in the order they are applied.

    `removed` counts each lost trace once, under the first code in that order, so it adds up to `traces - kept`.
    """

    rules: Rules
    traces: int
    kept: int
    codes: tuple[CodeCount, ...]
    removed: tuple[tuple[RejectCode, int], ...]
    days: tuple[Slice, ...]
    buckets: tuple[Slice, ...]
    agents: tuple[Slice, ...]
    before: Measures
    after: Measures
    unread: tuple[UnreadCount, ...]  # rows that could not be read, beside `traces`
    unjudged: int  # of sources without a judge: the rule `coefficient` was not asked of them

    @property
    def quarantined(self) -> int:
        """How many rows could not be read."""
        return sum(one.count for one in self.unread)


CODES: tuple[RejectCode, ...] = get_args(RejectCode)  # in the order they are applied
EXAMPLES = 5


def funnel_of(appraised: Appraised, decision: Decision, names: Mapping[str, str] = {}) -> Funnel:
    """The funnel of a decision. Reads every appraisal once. `names` of agent versions by id, where they are known."""
    before, after = _Measured(), _Measured()
    days, buckets, agents = _Sliced(), _Sliced(), _Sliced()
    broken: Counter[RejectCode] = Counter()
    alone: Counter[RejectCode] = Counter()
    removed: Counter[RejectCode] = Counter()
    examples: dict[RejectCode, list[tuple[int, str]]] = defaultdict(list)
    unjudged = 0
    for one, stays, found in zip(appraised, decision.ranks, decision.codes, strict=True):
        unjudged += one.is_unjudged
        for measured in (before, after) if stays else (before,):
            measured.add(one)
        for sliced, name in ((days, one.day), (buckets, one.bucket), (agents, one.agent)):
            sliced.add(name, bool(stays), found)
        broken.update(found)
        alone.update(found if len(found) == 1 else ())
        removed.update([min(found, key=CODES.index)] if found else ())
        for code in found:
            # drawn by a hash of the place: a sample, and the same one in any order
            examples[code] = sorted([*examples[code], (zlib.crc32(one.place.encode()), one.place)])[:EXAMPLES]
    return Funnel(
        rules=decision.rules,
        traces=before.traces,
        kept=after.traces,
        codes=tuple(
            CodeCount(
                code=code,
                count=broken[code],
                alone=alone[code],
                examples=tuple(place for _, place in examples[code]),
            )
            for code in CODES
            if code in broken
        ),
        removed=_in_order(removed),
        days=days.slices(),
        buckets=buckets.slices(),
        agents=agents.slices(names),
        before=before.measures(),
        after=after.measures(),
        unread=appraised.unread,
        unjudged=unjudged,
    )


class _Measured:
    """The measures of a set while its traces are added. Eight bytes a trace are kept: a hash of its shape."""

    def __init__(self) -> None:
        self.traces = 0
        self._turns, self._calls, self._queries = Counter[int](), Counter[int](), Counter[int]()
        self._tokens, self._coefficients = Counter[int | None](), Counter[int | None]()
        self._agents = Counter[str]()
        self._teams, self._problems = set[str](), set[str]()
        self._shapes = array("Q")

    def add(self, one: Appraisal) -> None:
        self.traces += 1
        self._turns[one.turns] += 1
        self._calls[len(one.signals.shape)] += 1
        self._queries[one.signals.reformulations] += 1
        self._tokens[one.tokens] += 1
        self._coefficients[one.coefficient_e4] += 1
        self._agents[one.agent] += 1
        self._teams.add(one.team)
        self._problems.add(one.problem)
        self._shapes.append(_number_of("\n".join(one.signals.shape)))

    def measures(self) -> Measures:
        _, shapes = np.unique(np.asarray(self._shapes), return_counts=True)
        return Measures(
            turns=_distribution(self._turns),
            tool_calls=_distribution(self._calls),
            queries=_distribution(self._queries),
            tokens=_distribution(self._tokens),
            coefficient_e4=_distribution(self._coefficients),
            teams=len(self._teams - {""}),
            agents=len(self._agents.keys() - {""}),
            problems=len(self._problems),
            top_agent_share_e4=max(self._agents.values(), default=0) * 10_000 // max(1, self.traces),
            shape_entropy_mbit=entropy_mbit(shapes.tolist()),
        )


class _Sliced:
    """Counts by name while traces are added."""

    def __init__(self) -> None:
        self._counts, self._kept = Counter[str](), Counter[str]()
        self._found: dict[str, Counter[RejectCode]] = defaultdict(Counter)

    def add(self, name: str, stays: bool, found: tuple[RejectCode, ...]) -> None:
        self._counts[name] += 1
        self._kept[name] += stays
        self._found[name].update(found)

    def slices(self, titles: Mapping[str, str] = MappingProxyType({})) -> tuple[Slice, ...]:
        return tuple(
            Slice(
                name=name,
                traces=self._counts[name],
                kept=self._kept[name],
                codes=_in_order(self._found[name]),
                title=titles.get(name, ""),
            )
            for name in sorted(self._counts)
        )


@functools.lru_cache(maxsize=1 << 16)
def _number_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _in_order(counts: Counter[RejectCode]) -> tuple[tuple[RejectCode, int], ...]:
    return tuple((code, counts[code]) for code in CODES if counts[code])


def _distribution(counts: Counter[int] | Counter[int | None]) -> Distribution:
    known = tuple(sorted((value, count) for value, count in counts.items() if value is not None))
    return Distribution(counts=known, missing=sum(counts.values()) - sum(count for _, count in known))


def entropy_mbit(counts: list[int]) -> int:
    """Shannon entropy of a distribution given as counts above 0, in thousandths of a bit; 0 for none or one."""
    total = sum(counts)
    weighted = math.fsum(count * math.log2(count) for count in counts)
    return round(1_000 * (math.log2(total) - weighted / total)) if total else 0

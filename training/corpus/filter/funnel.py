"""What a run of the filter reports: how many traces fell where, and what the rest looks like. Values only.

Counts and raw distributions, integers all, the same for the same set of traces in any order and on any number
of processes. Drawing them is the report's. Times and rates are no part of it: they are in `TokenWork`.
"""

from __future__ import annotations

import msgspec

from training.corpus.model import RejectCode, Rules


class CodeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A reject code: how many traces broke the rule, and of how many it was the only one. `examples` are places."""

    code: RejectCode
    count: int
    alone: int
    examples: tuple[str, ...] = ()


class UnreadCount(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that could not be converted, by the code of the failure. `example` is the place of the first."""

    code: str
    count: int
    example: str


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


class Distributions(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of a set. `tokens` is known of traces that every other per-trace rule lets pass."""

    turns: Distribution
    tool_calls: Distribution
    queries: Distribution  # distinct search queries
    tokens: Distribution
    coefficient_e4: Distribution


class Diversity(msgspec.Struct, frozen=True, kw_only=True):
    """How varied a set is."""

    teams: int
    agents: int
    problems: int
    top_agent_share_e4: int  # of the agent version with most traces
    shape_entropy_mbit: int  # Shannon entropy of tool-call shapes (names in order), in thousandths of a bit


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Distinct values before and after, and of the rare ones among them (in at most `RARE_E4` of the traces)."""

    before: int
    after: int
    rare_before: int
    rare_after: int


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Traces of `from_tokens` to below `to_tokens` tokens."""

    from_tokens: int
    to_tokens: int
    traces: int


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """The length histogram, to be looked at before a budget is believed: bins, and how many are over the budget."""

    tokens_max: int
    counted: int
    over: int
    bins: tuple[Bin, ...]


class TokenWork(msgspec.Struct, frozen=True, kw_only=True):
    """What counting tokens cost: time is that of the tokenizer alone, summed over processes."""

    counter: str
    counted: int = 0
    from_cache: int = 0
    tokens: int = 0  # of those counted
    text_bytes: int = 0
    elapsed_ms: int = 0

    @property
    def traces_per_s(self) -> int:
        """Counted traces in a second of one process; 0 when nothing was counted."""
        return self.counted * 1000 // self.elapsed_ms if self.elapsed_ms else 0


class Funnel(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `traces` came in, `kept` are the corpus. Codes are in the order they are applied.

    `removed` counts each lost trace once, under the first code in that order, so it adds up to `traces - kept`.
    `quarantined` rows could not be read, beside `traces`; `unread` says by which codes.
    """

    rules: Rules
    traces: int
    quarantined: int
    kept: int
    codes: tuple[CodeCount, ...]
    removed: tuple[tuple[RejectCode, int], ...]
    days: tuple[Slice, ...]
    buckets: tuple[Slice, ...]
    agents: tuple[Slice, ...]
    before: Distributions
    after: Distributions
    diversity_before: Diversity
    diversity_after: Diversity
    queries: Coverage
    categories: Coverage | None  # None where products have no known category
    tools: Coverage
    lengths: Lengths
    unread: tuple[UnreadCount, ...] = ()  # a funnel of an earlier release has none
    unjudged: int = 0  # of sources without a judge: the rule `coefficient` was not asked of them

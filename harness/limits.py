"""Limits of one episode, a frozen slice of the policy, the same for every agent; and the meter of the host's work.

Counts come first (steps, calls, tokens, cost); the wall clock is a backstop that pauses while the host works, so a slow
host costs nobody a score. Every breach has a stop reason in the trace and is the agent's. Processes and disk refuse
first, as a computer does: they are a stop reason when the agent ends by the refusal. Host work is counted in units of
about a nanosecond, from request, catalogue and result alone, before it is done (harness/WORK.md;
`tests/benchmarks/bench_host_work.py` measures them).
"""

from __future__ import annotations

import msgspec

_TOKENS_PRICED = 1_000_000  # a price is per this many tokens


class TokenPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What tokens cost, in micro-USD per million tokens, as price lists quote them."""

    prompt_micro_usd: int
    completion_micro_usd: int

    def cost_micro_usd(self, prompt_tokens: int, completion_tokens: int) -> int:
        """What so many tokens cost, rounded up."""
        cost = prompt_tokens * self.prompt_micro_usd + completion_tokens * self.completion_micro_usd
        return -(-cost // _TOKENS_PRICED)


class ModelPrice(TokenPrice, frozen=True, kw_only=True):
    """What a model's tokens cost."""

    model: str


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps of one (agent, problem) run. A step is one model completion with the tool calls that follow it."""

    steps: int = 25
    # Model completions of a run; 0: each one is a step. Where set, a step is a round as SN15's default loop counts
    # them: completions, however many, and the tool calls that follow.
    completions: int = 0
    tool_calls: int = 100
    prompt_tokens: int = 400_000
    completion_tokens: int = 40_000
    completion_tokens_per_call: int = 4_096
    cost_micro_usd: int = 0  # of all completions by `prices`; 0: not limited
    prices: tuple[ModelPrice, ...] = ()  # a model without a row costs nothing (it is ours)
    agent_time_ms: int = 300_000  # agent time only: paused while the host executes a call
    cpu_time_s: int = 300  # of all processes of the jail together, also while the host works
    memory_bytes: int = 1 << 30  # of the whole jail
    processes: int = 64
    disk_bytes: int = 64 << 20
    output_bytes: int = 1 << 20  # stdout and stderr together
    frame_bytes: int = 1 << 20
    rpc_bytes: int = 32 << 20
    argument_bytes: int = 1 << 16  # of one tool call; a longer one is refused
    host_work: int = 0  # what the host does for the agent, in units of `harness.limits`; 0: not limited
    claim_bytes: int = 1 << 16  # what is kept of the agent's return value
    source_bytes: int = 1_000_000
    # What one episode may leave behind; 0: not limited. Together they keep a body storable and a trace readable.
    result_bytes: int = 0  # of all tool results
    trace_bytes: int = 0  # of the trace in a judge's spans, before a long one is cut to what a judge can read
    body_bytes: int = 0  # of all text in the body

    @property
    def completions_max(self) -> int:
        """Model completions after which a run ends."""
        return self.completions or self.steps


def completion_cost(limits: EpisodeLimits, model: str, prompt_tokens: int, completion_tokens: int) -> int:
    """The cost of one completion in micro-USD by the policy's price table, rounded up; 0 for a model without a row."""
    price = next((one for one in limits.prices if one.model == model), None)
    return 0 if price is None else price.cost_micro_usd(prompt_tokens, completion_tokens)


POSTING = 1  # one document of one word's list, read and summed
WORD = 500  # one distinct word of a search: looked up, its weights computed
HIT = 2  # one of the best hits, held against the filters
PRODUCT = 2_000  # one product read, decoded and shown
MATCHED_VALUE = 1_000  # one required value, compared with a product's options
CALL = 10_000  # one tool call of any kind, refused or not: read, recorded, answered
CALL_BYTE = 50  # one byte of a tool call, as far as calls are read: decoded, normalised, cut into words
RESULT_BYTE = 5  # one byte of a tool's answer: encoded, cut into words, recorded, sent
REQUEST = 20_000  # one model request, refused or not
REQUEST_BYTE = 20  # one byte of a model request: rebuilt, recorded, its messages read for calls that are in them


class WorkExceededError(Exception):
    """Raised where work would pass the limit."""


class WorkMeter:
    """Adds up the units of one episode. One thread."""

    def __init__(self, limit: int = 0) -> None:
        """`limit` in units; 0: nothing is refused."""
        self._limit = limit
        self.spent = 0  # units so far

    def spend(self, units: int) -> None:
        """Count `units`. Raises WorkExceededError, and counts nothing, when they pass the limit."""
        if self._limit and self.spent + units > self._limit:
            raise WorkExceededError(f"{self._limit} units of host work")
        self.spent += units

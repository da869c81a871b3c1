"""Limits of one episode: a frozen slice of the policy, the same for every agent.

Counts come first (steps, calls, tokens, cost); the wall clock is a backstop that pauses while the host works, so a slow
host costs nobody a score. Every breach has a stop reason in the trace and is the agent's. Processes and disk refuse
first, as a computer does: they are a stop reason when the agent ends by the refusal.
"""

from __future__ import annotations

import msgspec

_TOKENS_PRICED = 1_000_000  # a price is per this many tokens


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's tokens cost, in micro-USD per million tokens, as price lists quote them."""

    model: str
    prompt_micro_usd: int
    completion_micro_usd: int


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
    host_work: int = 0  # what the host does for the agent, in units of `harness.work`; 0: not limited
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
    for price in limits.prices:
        if price.model == model:
            cost = prompt_tokens * price.prompt_micro_usd + completion_tokens * price.completion_micro_usd
            return -(-cost // _TOKENS_PRICED)
    return 0

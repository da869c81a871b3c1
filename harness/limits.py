"""Limits of one episode: a frozen slice of the policy, the same for every agent.

Counts come first (steps, calls, tokens); the wall clock is a backstop that pauses while the host works, so a slow host
costs nobody a score. Every breach has a stop reason in the trace and is the agent's (DESIGN section 7).
"""

from __future__ import annotations

import msgspec


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps of one (agent, problem) run. A step is one model completion with the tool calls that follow it."""

    steps: int = 25
    tool_calls: int = 100
    prompt_tokens: int = 400_000
    completion_tokens: int = 40_000
    completion_tokens_per_call: int = 4_096
    agent_time_ms: int = 300_000  # agent time only: paused while the host executes a call
    cpu_time_s: int = 300
    memory_bytes: int = 1 << 30
    processes: int = 64
    disk_bytes: int = 64 << 20
    output_bytes: int = 1 << 20  # stdout and stderr together
    frame_bytes: int = 1 << 20
    rpc_bytes: int = 32 << 20
    claim_bytes: int = 1 << 16  # what is kept of the agent's return value
    source_bytes: int = 1_000_000

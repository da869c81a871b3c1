"""The model side of an episode: requests in, completions out, everything counted.

`Upstream` is an endpoint; `Gateway` (in `gateway.py`) rebuilds requests from an allow-list, enforces budgets and owns
retries. The agent never talks to an upstream and never holds a key.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from harness.trace import EmittedCall


class InferenceRules(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's slice for the gateway."""

    models: tuple[str, ...]
    attempts: int = 4
    attempt_timeout_ms: int = 120_000
    backoff_ms: int = 500
    temperature_max_e4: int = 20_000
    message_count: int = 200
    request_bytes: int = 1 << 20


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """One completion as the endpoint gave it, typed."""

    model: str
    content: str
    reasoning: str = ""
    calls: tuple[EmittedCall, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int
    completion_tokens: int
    message: str  # the raw assistant message, JSON text
    logprobs: str = ""


class Upstream(Protocol):
    """An OpenAI-compatible endpoint."""

    @property
    def name(self) -> str: ...

    def complete(self, request: str) -> ModelReply:
        """One attempt. `request` is the JSON text of the rebuilt request.

        Raises ArenaError: A1040 when the endpoint says the request itself is at fault, U3001..U3003 otherwise.
        """
        ...

    def probe(self) -> bool:
        """True when the endpoint answers an independent trivial request."""
        ...

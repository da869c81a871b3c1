"""The model side of an episode: requests in, completions out, everything counted.

`Upstream` is an endpoint; `Gateway` (in `gateway.py`) rebuilds requests from an allow-list, enforces budgets and owns
retries; `harness.inference.journal` keeps what was answered for the restarts of an episode. The agent never talks to an
upstream and never holds a key.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from foundation.errors import ArenaError, Failure
from harness.sandbox.port import GuestCallError
from harness.trace import EmittedCall, StopReason


class InferenceRules(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's slice for the gateway."""

    models: tuple[str, ...]
    attempts: int = 4
    attempt_timeout_ms: int = 120_000
    backoff_ms: int = 500
    retry_after_max_ms: int = 20_000  # how long an endpoint's own Retry-After is honoured
    temperature_max_e4: int = 20_000
    message_count: int = 200
    request_bytes: int = 1 << 20
    is_call_required_allowed: bool = False  # `tool_choice: "required"` is passed on: the model chooses which call
    served_bytes: int = 0  # every endpoint takes requests up to this; a longer one is the agent's risk. 0: no bound


class RetryLaterError(ArenaError):
    """An upstream fault whose endpoint said when to come back. `retry_after_ms` is its word, not yet capped."""

    def __init__(self, code: str, detail: str, *, retry_after_ms: int) -> None:
        super().__init__(code, detail)
        self.retry_after_ms = retry_after_ms


class EndingRefusalError(GuestCallError):
    """A refused request after which the agent may not go on: the episode ends with `stop`, as the agent's."""

    def __init__(self, code: str, message: str, stop: StopReason) -> None:
        super().__init__(code, message)
        self.stop = stop


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

        Raises ArenaError: A1040 when the endpoint says the request itself is at fault, U3001..U3004 otherwise, as a
        RetryLaterError when it said when to come back; U3008 when it was not asked. Whose fault either is, the gateway
        decides. GuestCallError A1040 from an endpoint of our own that measured the request and takes none of its
        length.
        """
        ...

    def probe(self, request: str) -> ModelReply | Failure | None:
        """What the endpoint answers to `request`, which no agent wrote, at one attempt, or why nothing; only its tokens
        are kept. None: there is nothing to ask."""
        try:
            return self.complete(request)
        except ArenaError as error:
            return error.failure


class GatewayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the session gets back for one admitted model request."""

    reply: ModelReply
    messages: tuple[str, ...]  # the rebuilt messages, one JSON text each, as they went upstream
    request_sha256: str  # of the rebuilt request's bytes
    model_ms: int  # host time spent on all attempts; never part of a body
    model: str = ""  # the allow-listed name that was asked for: what prices go by, whatever the endpoint calls itself


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How one rebuilt request ended in an attempt at an episode: a reply, or a refusal that is the agent's. `model` is
    the one that was asked for."""

    request_sha256: str
    model: str
    reply: ModelReply | None = None
    refusal: Failure | None = None


class ModelGateway(Protocol):
    """The one way from a guest to a model."""

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        """Rebuild `params` from the allow-list and complete it, with retries and failover.

        Raises GuestCallError A1040 to A1043 for a request that is refused, as an EndingRefusalError (also A1044) where
        the episode ends by it, and ArenaError U3001..U3004, U3006 to U3008 when no upstream could answer.
        """
        ...

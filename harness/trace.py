"""What happened in one episode: the body of an evaluation record, and the only thing the judge and the filter read.

`EvaluationBody` is written by the host, outside the judged agent. It holds no clock, host, key or hotkey, so
two hosts that run the same agent on the same problem with the same model replies produce the same `body_hash`.
Everything foreign (messages, arguments, results, claims) is JSON text. Messages are interned: a completion lists
indexes into `messages`, so a conversation that grows turn by turn is stored once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from foundation.canonical import content_hash
from foundation.errors import Failure
from problems.model import Bucket

BODY_VERSION = 1

Emitter = Literal["llm", "echoed", "code"]
SandboxEnd = Literal[
    "wall_clock",
    "output",
    "protocol",
    "frame",
    "died",
    "memory",
    "cpu",
    "processes",
    "disk",
    "resources",  # the kernel ended it for a limit that it did not name
]
StopReason = Literal[
    SandboxEnd,
    "terminated",  # the agent called terminate, or returned after recommending
    "returned",  # agent_main returned
    "raised",
    "not_json",
    "steps",
    "tool_calls",
    "tokens",
    "cost",
    "host_work",
    "load_failed",
    "unreadable",  # what it sent could not be read
    "results",  # the bytes of its tool results
    "trace",  # the bytes of the trace as a judge is shown it
    "body",  # the bytes of its record
    "model_refused",  # the model endpoints refused the agent's request at every attempt
    "diverged",  # restarted, the agent left out a completion that it had been given
]


class EmittedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the model wrote it in a completion, native or as `<tool_call>` text."""

    call_id: str
    name: str
    arguments: str  # JSON text as emitted


class Completion(msgspec.Struct, frozen=True, kw_only=True, tag="completion"):
    """One model completion that passed through the gateway. `step` counts completions from 1."""

    step: int
    model: str
    request: tuple[int, ...]  # indexes into EvaluationBody.messages
    request_sha256: str  # of the rebuilt request as sent upstream
    content: str
    reasoning: str = ""
    calls: tuple[EmittedCall, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int
    completion_tokens: int
    response: str  # raw completion message, JSON text
    logprobs: str = ""  # JSON text with token ids and logprobs when the endpoint gave them


class FailedCompletion(msgspec.Struct, frozen=True, kw_only=True, tag="failed_completion"):
    """A model request that the gateway refused (the agent's fault). Upstream faults never stand here."""

    step: int
    failure: Failure


class Surfaced(msgspec.Struct, frozen=True, kw_only=True):
    """First time an id appeared in a `find_*` result whose own arguments did not contain it. `rank` counts from 1."""

    product_id: str
    rank: int


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """One tool call the host executed. `step` is that of the latest completion (0 before the first)."""

    index: int  # counts tool calls from 0
    step: int
    name: str
    arguments: str  # JSON text, re-serialised by the host
    emitter: Emitter
    emitted_call_id: str = ""  # the matched EmittedCall, when emitter is llm
    result: str  # JSON text the agent received
    failure: Failure | None = None  # A1050 when the call was malformed
    ignored_parameters: tuple[str, ...] = ()
    surfaced: tuple[Surfaced, ...] = ()


Event = Completion | FailedCompletion | ToolCall


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the episode."""

    steps: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_micro_usd: int = 0  # by the policy's price table
    llm_calls: int = 0  # tool calls by emitter
    echoed_calls: int = 0
    code_calls: int = 0


class EvaluationBody(msgspec.Struct, frozen=True, kw_only=True):
    """One episode as the host recorded it. `failure` is set when the agent's run ended in an agent fault."""

    version: int = BODY_VERSION
    policy_sha256: str
    problem_id: str
    bucket: Bucket
    query: str
    agent_sha256: str
    tool_profile: str
    tools_sha256: str  # of the canonical tool schemas
    catalogue_sha256: str
    messages: tuple[str, ...]
    events: tuple[Event, ...]
    stop: StopReason
    failure: Failure | None = None
    claim: str = ""  # what agent_main returned: JSON text, a claim and never evidence
    recommended: tuple[str, ...] | None = None  # ids of the last recommend_product call; None when there was none
    unsurfaced: tuple[str, ...] = ()  # recommended ids that the surfaced rule refuses
    is_agentic: bool
    totals: Totals
    emission: str = ""  # version of the rule that named the emitters
    ledger_sha256: str = ""  # `harness.inference.gateway.ledger_sha256` of the events

    def body_hash(self) -> str:
        """sha256 hex of the canonical bytes."""
        return content_hash(self)

"""The model gateway: the one way from a guest to a model.

Every request is rebuilt from the allow-list (`harness.inference.request`), tried on the upstreams of
its model in the order they are given, and charged by the upstream's own usage numbers. Whose fault a failure is,
`harness.inference.failover` decides. What an earlier attempt at the same episode was answered is answered again from
the journal, and nothing is sent: a restart draws no completion anew. It keeps no budget (the session does) and no
conversation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from foundation.canonical import text_hash
from foundation.codes.names import NO_ENDPOINT, RESTART_DIVERGED
from foundation.errors import ArenaError, Failure
from harness.errors import reading_guest_bytes
from harness.inference.failover import Failover
from harness.inference.journal import MemoryJournal
from harness.inference.ledger import Ledger, LedgerEntry
from harness.inference.port import (
    CompletionJournal,
    EndingRefusalError,
    GatewayAnswer,
    InferenceRules,
    ModelReply,
    RecordedAnswer,
    Upstream,
)
from harness.inference.request import RebuiltRequest, rebuild
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestCallError


def monotonic_ms() -> int:
    """The default clock for latencies; they are never part of a body."""
    return time.monotonic_ns() // 1_000_000


class Gateway:
    """A `ModelGateway` over upstreams that speak the OpenAI protocol. Thread-safe."""

    def __init__(
        self,
        rules: InferenceRules,
        upstreams: Sequence[Upstream],
        tools_schemas: str,
        limits: EpisodeLimits,
        sleep: Callable[[float], None] = time.sleep,
        *,
        dedicated: Mapping[str, Sequence[Upstream]] = MappingProxyType({}),
        clock_ms: Callable[[], int] = monotonic_ms,
        ledger: Ledger | None = None,
        journal: CompletionJournal | None = None,
        is_last: bool = False,
    ) -> None:
        """`tools_schemas` is the toolbox's canonical `tools` array, JSON text; `ledger` gets one entry per request.

        `dedicated` names the upstreams of a model that has its own; `upstreams` serve every other model.
        `journal` holds what earlier attempts were answered; `is_last`: the policy allows no attempt after this one.
        """
        if not rules.models:
            raise ArenaError(NO_ENDPOINT, "no model is configured")
        if unserved := [model for model in rules.models if not dedicated.get(model, upstreams)]:
            raise ArenaError(NO_ENDPOINT, f"no endpoint is configured for {', '.join(unserved)}")
        self._rules = rules
        self._upstreams = tuple(upstreams)
        self._dedicated = {model: tuple(own) for model, own in dedicated.items()}
        self._schemas = {schema["function"]["name"]: schema for schema in json.loads(tools_schemas)}
        self._limits = limits
        self._sleep = sleep
        self._clock_ms = clock_ms
        self._ledger = ledger
        self._journal: CompletionJournal = journal or MemoryJournal()
        self._is_last = is_last
        self._replies = 0  # to this agent, in this attempt

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        """Rebuild `params` and complete it, from the journal where an earlier attempt was answered.

        Raises GuestCallError A1040..A1043 for a request that is refused, EndingRefusalError A1043 or A1044 where the
        episode ends by it, ArenaError U3001..U3008 when no upstream could answer, UnreadableError for what cannot be
        read.
        """
        with reading_guest_bytes():
            request = rebuild(
                params,
                rules=self._rules,
                limits=self._limits,
                schemas=self._schemas,
                completion_tokens_left=completion_tokens_left,
            )
        recorded = self._journal.take(request.sha256)
        if recorded is None:
            return self._answer(request, *self._complete(request))
        if recorded.reply is None:
            refusal = recorded.refusal or Failure(code=RESTART_DIVERGED)
            self._enter(request, failure=refusal)
            raise GuestCallError(refusal.code, refusal.detail)
        self._enter(request, reply=recorded.reply)
        return self._answer(request, recorded.reply, 0)

    def _complete(self, request: RebuiltRequest) -> tuple[ModelReply, int]:
        """A reply that was never given before, and the milliseconds it took."""
        owed = self._journal.owed()
        if owed and self._replies + owed >= self._limits.completions_max:
            raise EndingRefusalError(RESTART_DIVERGED, "a restart leaves out what was answered before", "diverged")
        started_ms = self._clock_ms()
        course = Failover(
            request,
            lambda model: self._dedicated.get(model, self._upstreams),
            self._rules,
            self._sleep,
            is_last=self._is_last,
        )
        try:
            reply = course.run(self._journal.models())
        except ArenaError as error:
            self._enter(request, course, self._clock_ms() - started_ms, failure=error.failure)
            raise
        except GuestCallError as error:
            refusal = Failure(code=error.code, detail=error.message)
            self._enter(request, course, self._clock_ms() - started_ms, failure=refusal)
            if not isinstance(error, EndingRefusalError):
                self._journal.add(RecordedAnswer(request_sha256=request.sha256, model=request.model, refusal=refusal))
            raise
        latency_ms = self._clock_ms() - started_ms
        self._enter(request, course, latency_ms, reply=reply)
        self._journal.add(RecordedAnswer(request_sha256=request.sha256, model=request.model, reply=reply))
        return reply, latency_ms

    def _answer(self, request: RebuiltRequest, reply: ModelReply, model_ms: int) -> GatewayAnswer:
        self._replies += 1
        return GatewayAnswer(
            reply=reply,
            messages=request.messages,
            request_sha256=request.sha256,
            model_ms=model_ms,
            model=request.model,
        )

    def _enter(
        self,
        request: RebuiltRequest,
        course: Failover | None = None,
        latency_ms: int = 0,
        *,
        reply: ModelReply | None = None,
        failure: Failure | None = None,
    ) -> None:
        """Enter the request into the ledger; without a course it was answered from the journal."""
        if self._ledger is None:
            return
        self._ledger.append(
            LedgerEntry(
                request_sha256=request.sha256,
                response_sha256=text_hash(reply.message) if reply else "",
                model=request.model,
                answered_model=reply.model if reply else "",
                upstream=course.answered_by if course else "",
                attempts=course.attempts if course else 0,
                probes=course.probes if course else 0,
                latency_ms=latency_ms,
                prompt_tokens=reply.prompt_tokens if reply else 0,
                completion_tokens=reply.completion_tokens if reply else 0,
                calls=reply.calls if reply else (),
                failure=failure,
            )
        )

"""The model gateway: the one way from a guest to a model.

Promise: every request is rebuilt from the allow-list (`harness.inference.request`), tried on the upstreams in policy
order, and charged by the upstream's own usage numbers. Whose fault a failure is, is decided here and nowhere else
(DESIGN section 7): a request that is refused, or that keeps failing while the same endpoint answers an independent
probe, is the agent's; everything else is the upstream's. It keeps no budget (the session does) and no conversation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from harness.inference.ledger import Ledger, LedgerEntry
from harness.inference.port import GatewayAnswer, InferenceRules, ModelReply, RetryLaterError, Upstream
from harness.inference.request import MALFORMED, RebuiltRequest, rebuild
from harness.limits import EpisodeLimits
from harness.sandbox.port import GuestCallError
from problems.canonical import text_hash
from problems.errors import ArenaError, Failure

_NO_ENDPOINT = "U3001"
_FAILED = "U3002"


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
        clock_ms: Callable[[], int] = monotonic_ms,
        ledger: Ledger | None = None,
    ) -> None:
        """`tools_schemas` is the toolbox's canonical `tools` array, JSON text; `ledger` gets one entry per request."""
        if not rules.models or not upstreams:
            raise ArenaError(_NO_ENDPOINT, "no model or no endpoint is configured")
        self._rules = rules
        self._upstreams = tuple(upstreams)
        self._schemas = {schema["function"]["name"]: schema for schema in json.loads(tools_schemas)}
        self._limits = limits
        self._sleep = sleep
        self._clock_ms = clock_ms
        self._ledger = ledger

    def chat(self, params: dict[str, object], *, completion_tokens_left: int) -> GatewayAnswer:
        """Rebuild `params` and complete it.

        Raises GuestCallError A1040..A1042 for a request that is refused or is itself at fault, ArenaError U3001..U3004
        when no upstream could answer.
        """
        request = rebuild(
            params,
            rules=self._rules,
            limits=self._limits,
            schemas=self._schemas,
            completion_tokens_left=completion_tokens_left,
        )
        started_ms = self._clock_ms()
        course = _Course(request, self._upstreams, self._rules, self._sleep)
        try:
            reply = course.run()
        except ArenaError as error:
            self._record(request, course, started_ms, failure=error.failure)
            raise
        except GuestCallError as error:
            self._record(request, course, started_ms, failure=Failure(code=error.code, detail=error.message))
            raise
        model_ms = self._record(request, course, started_ms, reply=reply)
        return GatewayAnswer(
            reply=reply,
            messages=request.messages,
            request_sha256=request.sha256,
            model_ms=model_ms,
            model=request.model,
        )

    def _record(
        self,
        request: RebuiltRequest,
        course: _Course,
        started_ms: int,
        *,
        reply: ModelReply | None = None,
        failure: Failure | None = None,
    ) -> int:
        latency_ms = self._clock_ms() - started_ms
        if self._ledger is not None:
            self._ledger.append(
                LedgerEntry(
                    request_sha256=request.sha256,
                    response_sha256=text_hash(reply.message) if reply else "",
                    model=request.model,
                    answered_model=reply.model if reply else "",
                    upstream=course.answered_by,
                    attempts=course.attempts,
                    latency_ms=latency_ms,
                    prompt_tokens=reply.prompt_tokens if reply else 0,
                    completion_tokens=reply.completion_tokens if reply else 0,
                    calls=reply.calls if reply else (),
                    failure=failure,
                )
            )
        return latency_ms


class _Course:
    """One request on its way through the upstreams: two rounds at most, with a probe after each."""

    def __init__(
        self,
        request: RebuiltRequest,
        upstreams: tuple[Upstream, ...],
        rules: InferenceRules,
        sleep: Callable[[float], None],
    ) -> None:
        self.attempts = 0
        self.answered_by = ""
        self._request = request
        self._upstreams = upstreams
        self._rules = rules
        self._sleep = sleep

    def run(self) -> ModelReply:
        """The first answer. Raises GuestCallError A1040 or ArenaError U300x as `Gateway.chat` says."""
        candidates = self._upstreams
        # The second round gives the benefit of the doubt to a request that failed in an outage that has just ended.
        for _ in range(2):
            failures: list[Failure] = []
            for upstream in candidates:
                answer = self._try(upstream)
                if isinstance(answer, ModelReply):
                    self.answered_by = upstream.name
                    return answer
                failures.append(answer)
            blamable = tuple(u for u, f in zip(candidates, failures, strict=True) if f.code == _FAILED)
            candidates = tuple(upstream for upstream in blamable if upstream.probe())
            if not candidates:
                raise _outage(failures)
        raise GuestCallError(
            MALFORMED,
            f"the model endpoint failed {self.attempts} times on this request while it answers others",
        )

    def _try(self, upstream: Upstream) -> ModelReply | Failure:
        """All attempts on one upstream. Raises GuestCallError A1040 when it says the request is at fault."""
        last, asked_pause_ms = Failure(code=_FAILED), 0
        for attempt in range(self._rules.attempts):
            if attempt:
                self._sleep(self._pause_s(attempt, asked_pause_ms))
            self.attempts += 1
            try:
                return upstream.complete(self._request.text)
            except ArenaError as error:
                if error.failure.code == MALFORMED:
                    raise GuestCallError(
                        MALFORMED, f"the model endpoint refused the request: {error.failure.detail}"
                    ) from error
                last = Failure(code=error.failure.code, detail=f"{upstream.name}: {error.failure.detail}")
                asked_pause_ms = error.retry_after_ms if isinstance(error, RetryLaterError) else 0
                if last.code == _NO_ENDPOINT:
                    break  # a missing endpoint or a refused key does not heal within one call
        return last

    def _pause_s(self, attempt: int, asked_pause_ms: int) -> float:
        """Exponential, or what the endpoint asked for when that is longer, up to the policy's cap; with up to a half
        more, taken from the request's hash: workers that fail together part ways."""
        spread = int(self._request.sha256[:4], 16) / 0x1_0000
        backoff_ms = self._rules.backoff_ms << (attempt - 1)
        return max(backoff_ms, min(asked_pause_ms, self._rules.retry_after_max_ms)) / 1000 * (1 + spread / 2)


def _outage(failures: list[Failure]) -> ArenaError:
    """The common code when all upstreams failed alike, else U3002; the detail names every upstream."""
    codes = {failure.code for failure in failures}
    return ArenaError(codes.pop() if len(codes) == 1 else _FAILED, "; ".join(failure.detail for failure in failures))

"""The model gateway: the one way from a guest to a model.

Every request is rebuilt from the allow-list (`harness.inference.request`), tried on the upstreams of its model in the
order they are given, and charged by the upstream's own usage numbers. What an earlier attempt at the same episode was
answered is answered again from the journal, and nothing is sent: a restart draws no completion anew. It keeps no budget
(the session does) and no conversation.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from foundation.backoff import Backoff, retried
from foundation.canonical import content_hash, text_hash
from foundation.codes import (
    BAD_REQUEST,
    MODEL_FAILED,
    MODEL_REFUSED,
    NO_ENDPOINT,
    NO_TURN,
    REQUEST_PROVOKED,
    RESTART_DIVERGED,
    SHAPE_NOT_SERVED,
    Owner,
)
from foundation.errors import ArenaError, Failure
from harness.errors import reading_guest_bytes
from harness.inference.journal import MemoryJournal
from harness.inference.port import (
    EndingRefusalError,
    GatewayAnswer,
    InferenceRules,
    ModelReply,
    RecordedAnswer,
    RetryLaterError,
    Upstream,
)
from harness.inference.reply import CONTROL_TOKEN
from harness.inference.request import RebuiltRequest, neutral_request, plain_request, rebuild
from harness.limits import EpisodeLimits, TokenPrice
from harness.sandbox.port import GuestCallError
from harness.trace import Completion, Event


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
        dedicated: Mapping[str, Sequence[Upstream]] = {},
        ledger: Ledger | None = None,
        journal: MemoryJournal | None = None,
        is_last: bool = False,
    ) -> None:
        """`tools_schemas` is the toolbox's canonical `tools` array, JSON text; `ledger` counts each request.

        `dedicated` names the upstreams of a model that has its own; `upstreams` serve every other model.
        `journal` holds what earlier attempts were answered; `is_last`: the policy allows no attempt after this one.
        """
        unserved = [model for model in rules.models if not dedicated.get(model, upstreams)]
        if unserved or not rules.models:
            raise ArenaError(NO_ENDPOINT, f"no endpoint is configured for {', '.join(unserved) or 'any model'}")
        self._rules, self._limits = rules, limits
        self._upstreams_of: Callable[[str], Sequence[Upstream]] = lambda model: dedicated.get(model, upstreams)
        self._schemas = {schema["function"]["name"]: schema for schema in json.loads(tools_schemas)}
        self._sleep, self._ledger, self._journal = sleep, ledger, journal or MemoryJournal()
        self._is_last = is_last
        self._replies = 0  # to this agent, in this attempt
        self._given: set[str] = set()  # control tokens that they held

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
                given=self._given,
            )
        answer, model_ms = self._journal.take(request.sha256), 0
        if answer is None:
            answer, model_ms = self._ask(request)
            self._journal.add(answer)
        if answer.reply is None:
            refusal = answer.refusal or Failure(code=RESTART_DIVERGED)
            raise GuestCallError(refusal.code, refusal.detail)
        self._replies += 1
        self._given.update(one[0] for one in CONTROL_TOKEN.finditer(msgspec.json.encode(answer.reply).decode()))
        return GatewayAnswer(
            reply=answer.reply,
            messages=request.messages,
            request_sha256=request.sha256,
            model_ms=model_ms,
            model=request.model,
        )

    def _ask(self, request: RebuiltRequest) -> tuple[RecordedAnswer, int]:
        """An answer that was never given before, and the milliseconds it took."""
        owed = self._journal.owed()
        if owed and self._replies + owed >= self._limits.completions_max:
            raise EndingRefusalError(RESTART_DIVERGED, "a restart leaves out what was answered before", "diverged")
        started_s, reply = time.monotonic(), None
        course = Failover(request, self._upstreams_of, self._rules, self._sleep, self._is_last)
        try:
            found = course.run(self._journal.models())
            reply, refusal = (found, None) if isinstance(found, ModelReply) else (None, found)
        finally:
            latency_ms = int((time.monotonic() - started_s) * 1000)
            if self._ledger is not None:
                self._ledger.add(
                    course.answered_by,
                    request.model,
                    attempts=course.attempts,
                    probes=len(course.probed),
                    prompt_tokens=reply.prompt_tokens if reply else 0,
                    completion_tokens=reply.completion_tokens if reply else 0,
                    latency_ms=latency_ms,
                )
                for name, spent in course.probe_tokens.items():  # an endpoint charges for them, too
                    self._ledger.add(name, request.model, requests=0, **spent)
        one = RecordedAnswer(request_sha256=request.sha256, model=request.model, reply=reply, refusal=refusal)
        return one, latency_ms


_AT_ONCE = frozenset({NO_ENDPOINT, BAD_REQUEST})  # what another attempt within one call does not heal
_BACKOFF_MAX_MS = 600_000
_ROUNDS = 2  # the second one is for a request that failed in an outage that has just ended


@dataclasses.dataclass
class Failover:
    """The way of one request through the upstreams of its model. `is_last`: no later attempt at this episode can give a
    second opinion."""

    request: RebuiltRequest
    upstreams_of: Callable[[str], Sequence[Upstream]]
    rules: InferenceRules
    sleep: Callable[[float], None]
    is_last: bool
    attempts: int = 0
    answered_by: str = ""  # the upstream's name; "" where none did
    probed: dict[tuple[int, str], Failure | None] = dataclasses.field(default_factory=dict)  # by upstream and request
    probe_tokens: dict[str, Counter[str]] = dataclasses.field(default_factory=lambda: defaultdict(Counter))

    def run(self, models: Iterable[str] = ()) -> ModelReply | Failure:
        """The first answer, or a refusal that is the agent's. `models` are those that answered this agent before, in
        this attempt or one it repeats: an outage of another model is one that the agent can choose.

        Raises EndingRefusalError where the episode ends by the refusal, and ArenaError where nobody could answer.
        """
        failures: dict[Upstream, Failure] = {}
        candidates = list(self.upstreams_of(self.request.model))
        for _ in range(_ROUNDS):
            for upstream in candidates:
                answer = self._try(upstream)
                if isinstance(answer, ModelReply):
                    self.answered_by = upstream.name
                    return answer
                failures[upstream] = answer
            candidates = [one for one in candidates if self._answers_neutral(one, failures[one])]
            if not candidates:
                raise self._outage(tuple(failures.values()), models)
        detail, codes = failures[candidates[0]].detail, {failures[one].code for one in candidates}
        if len(candidates) > 1:
            code = BAD_REQUEST if codes == {BAD_REQUEST} else MODEL_REFUSED
            return Failure(code=code, detail=f"the model endpoint refused the request: {detail}")
        if self.is_last:
            raise EndingRefusalError(MODEL_REFUSED, "refused at every attempt that the policy allows", "model_refused")
        raise ArenaError(REQUEST_PROVOKED, detail)

    def _try(self, upstream: Upstream) -> ModelReply | Failure:
        """All attempts on one upstream, with pauses that double, or what the endpoint asked for when that is longer (up
        to the policy's cap), and up to a half more. Raises ArenaError for a fault that is not an upstream's."""
        rules = self.rules
        backoff = Backoff(first_ms=rules.backoff_ms, most_ms=max(rules.backoff_ms, _BACKOFF_MAX_MS))
        spread = 1 + int(self.request.sha256[:4], 16) / 0x2_0000  # workers that fail together part ways

        def once() -> ModelReply:
            self.attempts += 1
            return upstream.complete(self.request.text)

        def pause_ms(error: ArenaError, failures: int) -> float | None:
            if error.owner is not Owner.UPSTREAM or error.failure.code in _AT_ONCE:
                return None
            asked_ms = error.retry_after_ms if isinstance(error, RetryLaterError) else 0
            return max(backoff.pause_ms(failures), min(asked_ms, rules.retry_after_max_ms)) * spread

        try:
            return retried(once, rules.attempts, pause_ms, self.sleep)
        except ArenaError as error:
            if error.owner is not Owner.UPSTREAM and error.failure.code != BAD_REQUEST:
                raise
            return Failure(code=error.failure.code, detail=f"{upstream.name}: {error.failure.detail}")

    def _answers_neutral(self, upstream: Upstream, failure: Failure) -> bool:
        if failure.code == NO_TURN:
            return False
        refused = self._probe(upstream, neutral_request(self.request.text))
        if refused is None:
            return True
        served = self.rules.served_bytes
        is_too_long = served and len(self.request.text.encode()) > served
        if not is_too_long or {failure.code, refused.code} != {BAD_REQUEST}:
            return False
        return self._probe(upstream, neutral_request(self.request.text, at_most_bytes=served)) is None

    def _probe(self, upstream: Upstream, request: str) -> Failure | None:
        """Each request once to each upstream."""
        if (id(upstream), request) not in self.probed:
            answer = upstream.probe(request)
            if isinstance(answer, ModelReply):
                counts = dict(prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
                self.probe_tokens[upstream.name].update(counts)
            self.probed[id(upstream), request] = answer if isinstance(answer, Failure) else None
        return self.probed[id(upstream), request]

    def _outage(self, failures: tuple[Failure, ...], models: Iterable[str]) -> ArenaError:
        """The code of a real outage is the common one when all upstreams failed alike, else U3002; U3008 where one was
        not asked. The detail names every upstream."""
        detail = "; ".join(failure.detail for failure in failures)

        def is_unasked() -> bool:
            return any(one and one.code == NO_TURN for one in (*failures, *self.probed.values()))

        asked = dict.fromkeys((self.request.model, *models))
        probes = (
            self._probe(upstream, plain_request(model)) for model in asked for upstream in self.upstreams_of(model)
        )
        if not is_unasked() and None in probes:
            return ArenaError(SHAPE_NOT_SERVED, detail)
        if is_unasked():
            return ArenaError(NO_TURN, detail)
        codes = {MODEL_FAILED if failure.code == BAD_REQUEST else failure.code for failure in failures}
        return ArenaError(codes.pop() if len(codes) == 1 else MODEL_FAILED, detail)


def ledger_sha256(events: Iterable[Event]) -> str:
    """sha256 hex over a line for each completion among an episode's events, in their order: as far as it is the same on
    every host. `response_sha256` is of the raw completion message, `model` as the endpoint named itself."""
    return content_hash(
        [
            {
                "request_sha256": event.request_sha256,
                "response_sha256": text_hash(event.response),
                "model": event.model,
                "prompt_tokens": event.prompt_tokens,
                "completion_tokens": event.completion_tokens,
            }
            for event in events
            if isinstance(event, Completion)
        ]
    )


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an upstream was asked for under one of the allow-listed names, summed over a ledger. Requests that no
    upstream answered stand under the upstream ""; those answered from the journal cost nothing and are not counted."""

    upstream: str
    model: str
    requests: int = 0
    attempts: int = 0
    probes: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_ms: int = 0
    cost_micro_usd: int | None = None  # by the tokens that the upstream itself counted; None: its price is not known


class Ledger:
    """Sums what requests cost. Thread-safe: episodes that run at once may share one."""

    def __init__(self, on_add: Callable[[], None] = lambda: None) -> None:
        """`on_add` is called after each request, in their order."""
        self._on_add = on_add
        self._sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._lock = threading.RLock()

    def add(self, upstream: str, model: str, *, requests: int = 1, **numbers: int) -> None:
        """Add what one request asked, by fields of `ModelUsage`; upstream "": none answered."""
        with self._lock:
            self._sums[upstream, model].update(requests=requests, **numbers)
            self._on_add()

    def usage(self, prices: Mapping[str, TokenPrice] = {}) -> tuple[ModelUsage, ...]:
        """What was asked for so far, by upstream and model, in the order of their names. `prices` are by upstream."""
        free = TokenPrice(prompt_micro_usd=0, completion_micro_usd=0)  # what no upstream answered
        found: list[ModelUsage] = []
        with self._lock:
            for (one, model), sums in sorted(self._sums.items()):
                price, read, wrote = prices.get(one) if one else free, sums["prompt_tokens"], sums["completion_tokens"]
                cost = price.cost_micro_usd(read, wrote) if price else None
                found.append(ModelUsage(upstream=one, model=model, cost_micro_usd=cost, **sums))
        return tuple(found)

    def clear(self) -> None:
        """Begin anew at nothing. One thread at a time."""
        self._sums.clear()

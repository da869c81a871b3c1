"""A judge behind an OpenAI-compatible endpoint, through the `openai` package, at temperature 0.

One reply per `opine`; transport faults are retried here, when the endpoint says where it says, and end as
U3020; what a reply says is never looked at here. The prompt sent is the one the rubric pins by hash, or nothing is
sent. Endpoints differ in what they take: JSON by a schema, and the name of the limit of tokens. What one refuses (HTTP
400) is left out, and remembered once it answers without. Source: docs/architecture.md#the-judge.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import msgspec
import orjson

from foundation.backoff import Backoff, retried
from foundation.codes import BAD_REQUEST, NO_ENDPOINT
from foundation.errors import ArenaError
from harness.inference.client import SdkUpstream
from harness.inference.gateway import Ledger
from harness.inference.port import ModelReply, RetryLaterError
from judge.parse import REPLY_SCHEMA
from judge.render import Judge, JudgeReply, RenderedTrace
from judge.rubric import Rubric, prompt_sha256, prompt_text
from judge.verdict import JUDGED_AT

_DETAIL_CHARS = 300
_BACKOFF_MAX_MS = 30_000
_CUT = "length"  # finish reason of a reply that reached its limit
# Ways to ask, the fullest first: the limit's name, and whether a schema is sent.
_WAYS = tuple(itertools.product(("max_tokens", "max_completion_tokens"), (True, False)))


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long one reply is waited for, how often a transport fault is tried again, and what a reply may cost.

    `reasoning_tokens` are added to the limit for models that think before they write; `reasoning_effort` is sent where
    it is set. An endpoint that wants a pause longer than `retry_after_max_ms` is not waited for.
    """

    timeout_ms: int = 90_000
    attempts: int = 4
    backoff_ms: int = 2_000
    retry_after_max_ms: int = 60_000
    completion_tokens: int = 3_072
    reasoning_tokens: int = 0
    reasoning_effort: str = ""


DEFAULT_PATIENCE = RetryPolicy()


class OpenAIJudge:
    """A `Judge` at an endpoint. Thread-safe; connects on first use. `api_key` stays in this process."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key: str = "",
        patience: RetryPolicy = DEFAULT_PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`base_url` has its version path, e.g. https://host/v1. `sleep` takes seconds."""
        self.model = model  # as the rubric names it
        self._upstream = SdkUpstream(model, base_url, api_key, patience.timeout_ms)
        self._patience = patience
        self._sleep = sleep
        self._way = 0  # the first way to ask that this endpoint was not seen to refuse

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """One reply to one trace. Raises ArenaError U3020 when no attempt succeeded, V2030 for another prompt."""
        messages = judge_messages(trace, rubric, refusals)
        try:
            reply = retried(lambda: self._complete(messages), self._patience.attempts, self._pause_ms, self._sleep)
        except ArenaError as error:
            raise ArenaError("U3020", f"{self.model}: {error.failure.detail}"[:_DETAIL_CHARS]) from error
        return JudgeReply(
            text=reply.content,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            is_cut=reply.finish_reason == _CUT,
        )

    def _pause_ms(self, error: ArenaError, failures: int) -> int | None:
        if error.failure.code in (BAD_REQUEST, NO_ENDPOINT):  # it refuses the request, key or model
            return None
        backoff = Backoff(first_ms=self._patience.backoff_ms, most_ms=_BACKOFF_MAX_MS)
        pause_ms = error.retry_after_ms if isinstance(error, RetryLaterError) else backoff.pause_ms(failures)
        return pause_ms if pause_ms <= self._patience.retry_after_max_ms else None

    def _complete(self, messages: list[dict[str, str]]) -> ModelReply:
        """One attempt, by the fullest way that the endpoint takes. Raises ArenaError as `Upstream.complete`."""
        form = {"name": "judge_reply", "strict": True, "schema": REPLY_SCHEMA}
        for place in range(self._way, len(_WAYS)):
            limit, is_by_schema = _WAYS[place]
            asked: dict[str, object] = {
                "model": self.model,
                "messages": messages,
                "temperature": 0,
                limit: self._patience.completion_tokens + self._patience.reasoning_tokens,
            }
            if is_by_schema:
                asked["response_format"] = {"type": "json_schema", "json_schema": form}
            if self._patience.reasoning_effort:
                asked["reasoning_effort"] = self._patience.reasoning_effort
            try:
                # unsorted: who writes by a schema writes its fields in their order, the gates first as in the prompt
                reply = self._upstream.complete(orjson.dumps(asked).decode())
            except ArenaError as error:
                if error.failure.code != BAD_REQUEST or place == len(_WAYS) - 1:
                    raise
                continue
            self._way = place
            return reply
        raise AssertionError("the last way returns or raises")


def judge_messages(trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> list[dict[str, str]]:
    """The messages of one request: the pinned prompt, the trace, and why earlier replies were refused.

    Raises ArenaError V2030 when this package's prompt is not the one the rubric pins.
    """
    if prompt_sha256(rubric.rubric_id) != rubric.prompt_sha256:
        raise ArenaError("V2030", f"rubric {rubric.rubric_id} pins another prompt than this release ships")
    opening = f"The trace has {len(trace.spans)} spans. It follows."
    question = f"{opening}\n\n{trace.text}\n\nEnd of the trace. Reply with the JSON object."
    messages: list[dict[str, str]] = [
        {"role": "system", "content": prompt_text(rubric.rubric_id)},
        {"role": "user", "content": question},
    ]
    if refusals:
        reasons = "\n".join(f"- {reason}" for reason in refusals)
        messages.append({"role": "user", "content": f"Your earlier replies were refused:\n{reasons}\nReply again."})
    return messages


class MeteredJudge:
    """A `Judge` whose requests a ledger counts, also those that failed."""

    def __init__(self, judge: Judge, ledger: Ledger, endpoint: str = "judge") -> None:
        """`endpoint` names where it is asked."""
        self._judge, self._ledger, self._upstream = judge, ledger, f"{JUDGED_AT}{endpoint}"
        self.model = judge.model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """As the judge's."""
        begun_s, reply = time.monotonic(), JudgeReply(text="")
        try:
            reply = self._judge.opine(trace, rubric, refusals)
            return reply
        finally:
            self._ledger.add(
                self._upstream,
                self.model,
                attempts=1,
                prompt_tokens=reply.prompt_tokens,
                completion_tokens=reply.completion_tokens,
                latency_ms=int((time.monotonic() - begun_s) * 1000),
            )

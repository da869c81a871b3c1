"""A judge behind an OpenAI-compatible endpoint, through the client that agents' requests take, at temperature 0.

Promise: one reply per `opine`; transport faults are retried here and end as U3020; what a reply says is never looked at
here. The prompt sent is the one the rubric pins by hash, or nothing is sent. Source: docs/architecture.md#the-judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from foundation.backoff import Backoff
from foundation.canonical import foreign_text
from foundation.codes.names import BAD_REQUEST, NO_ENDPOINT
from foundation.errors import ArenaError
from harness.inference.client import OpenAIUpstream
from judge.port import JudgeReply
from judge.prompts import prompt_sha256, prompt_text
from judge.render import RenderedTrace
from judge.rubric import Rubric

_DETAIL_CHARS = 300
_BACKOFF_MAX_MS = 30_000
_REFUSED_AT_ONCE = frozenset({BAD_REQUEST, NO_ENDPOINT})  # the endpoint refuses the request, the key or the model


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long one reply is waited for, and how often a transport fault is tried again."""

    timeout_ms: int = 90_000
    attempts: int = 4
    backoff_ms: int = 2_000
    completion_tokens: int = 3_072


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
        self._model = model
        self._upstream = OpenAIUpstream(model, base_url, api_key, patience.timeout_ms)
        self._patience = patience
        self._sleep = sleep

    @property
    def model(self) -> str:
        """The model id as the rubric names it."""
        return self._model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """One reply to one trace. Raises ArenaError U3020 when no attempt succeeded, V2030 for another prompt."""
        request = foreign_text(
            {
                "model": self._model,
                "messages": judge_messages(trace, rubric, refusals),
                "temperature": 0,
                "max_tokens": self._patience.completion_tokens,
            }
        )
        backoff = Backoff(first_ms=self._patience.backoff_ms, most_ms=_BACKOFF_MAX_MS)
        detail = "no attempt was made"
        for attempt in range(self._patience.attempts):
            if attempt:
                self._sleep(backoff.pause_ms(attempt) / 1000)
            try:
                reply = self._upstream.complete(request)
            except ArenaError as error:
                detail = f"{self.model}: {error.failure.detail}"[:_DETAIL_CHARS]
                if error.failure.code in _REFUSED_AT_ONCE:
                    raise ArenaError("U3020", detail) from error
                continue
            return JudgeReply(
                text=reply.content, prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens
            )
        raise ArenaError("U3020", detail)


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

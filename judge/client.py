"""A judge behind an OpenAI-compatible endpoint, through the real `openai` client, at temperature 0.

Promise: one reply per `opine`; transport faults are retried here and end as U3020; what a reply says is never looked at
here. The prompt sent is the one the rubric pins by hash, or nothing is sent. Source: docs/architecture.md#the-judge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from foundation.errors import ArenaError
from judge.port import JudgeReply
from judge.prompts import prompt_sha256, prompt_text
from judge.render import RenderedTrace
from judge.rubric import Rubric

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletionMessageParam

_DETAIL_CHARS = 300
_REFUSED_AT_ONCE = frozenset({400, 401, 402, 403, 404, 405, 413, 422})


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
        self._model = model
        self._base_url = base_url  # with its version path, e.g. https://host/v1
        self._api_key = api_key
        self._patience = patience
        self._sleep = sleep
        self._client: OpenAI | None = None
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        """The model id as the rubric names it."""
        return self._model

    def opine(self, trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()) -> JudgeReply:
        """One reply to one trace. Raises ArenaError U3020 when no attempt succeeded, V2030 for another prompt."""
        messages = judge_messages(trace, rubric, refusals)
        last = "no attempt was made"
        for attempt in range(self._patience.attempts):
            if attempt:
                self._sleep(min(self._patience.backoff_ms << (attempt - 1), 30_000) / 1000)
            reply = self._ask_once(messages)
            if isinstance(reply, JudgeReply):
                return reply
            last = reply
        raise ArenaError("U3020", f"{self.model}: {last}"[:_DETAIL_CHARS])

    def _ask_once(self, messages: list[ChatCompletionMessageParam]) -> JudgeReply | str:
        """One request: the reply, or why it may be tried again. Raises ArenaError U3020 when it may not."""
        import openai

        try:
            answer = self._connected().chat.completions.create(
                model=self._model,
                messages=messages,
                temperature=0,
                max_tokens=self._patience.completion_tokens,
            )
        except openai.APIStatusError as error:
            detail = f"{self.model}: HTTP {error.status_code}: {error.message}"[:_DETAIL_CHARS]
            if error.status_code in _REFUSED_AT_ONCE:
                raise ArenaError("U3020", detail) from error
            return detail
        except openai.APIError as error:  # timeouts, lost connections, unreadable answers
            return f"{type(error).__name__}: {error.message}"
        except ValueError as error:
            return f"the answer is not JSON: {error}"
        choices = getattr(answer, "choices", None)
        if not choices or choices[0].message is None:
            return "the answer holds no choice"
        usage = answer.usage
        return JudgeReply(
            text=choices[0].message.content or "",
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
        )

    def _connected(self) -> OpenAI:
        with self._lock:
            if self._client is None:
                from openai import OpenAI

                # An empty key would make the client look for one in the environment of this process.
                self._client = OpenAI(
                    base_url=self._base_url,
                    api_key=self._api_key or "none",
                    max_retries=0,
                    timeout=self._patience.timeout_ms / 1000,
                )
            return self._client


def judge_messages(
    trace: RenderedTrace, rubric: Rubric, refusals: Sequence[str] = ()
) -> list[ChatCompletionMessageParam]:
    """The messages of one request: the pinned prompt, the trace, and why earlier replies were refused.

    Raises ArenaError V2030 when this package's prompt is not the one the rubric pins.
    """
    if prompt_sha256(rubric.rubric_id) != rubric.prompt_sha256:
        raise ArenaError("V2030", f"rubric {rubric.rubric_id} pins another prompt than this release ships")
    opening = f"The trace has {len(trace.spans)} spans. It follows."
    question = f"{opening}\n\n{trace.text}\n\nEnd of the trace. Reply with the JSON object."
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": prompt_text(rubric.rubric_id)},
        {"role": "user", "content": question},
    ]
    if refusals:
        reasons = "\n".join(f"- {reason}" for reason in refusals)
        messages.append({"role": "user", "content": f"Your earlier replies were refused:\n{reasons}\nReply again."})
    return messages

"""An OpenAI-compatible endpoint on loopback that answers as a function says, for the judge client's tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from judge.render import RenderedTrace
from judge.scripted import ScriptedJudge
from tests.harness.inference_stand import OtherServer
from tests.judge.bodies import RUBRIC

Answer = tuple[Any, ...]  # status, JSON value or bytes (None: hangs up), headers


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[str]:
    """Serve `answer(request)`; yields the base URL."""

    def behave(request: dict[str, Any]) -> Answer:
        status, value, *more = answer(request)
        return status, value if value is None or isinstance(value, bytes) else json.dumps(value).encode(), *more

    with OtherServer(then=behave) as server:
        yield server.base_url


def chat(text: str | None) -> dict[str, Any]:
    """A chat completion that says `text`."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


class ScriptedEndpoint:
    """Answers for traces, by their text, as the scripted judge does, once `faults` are used up, one a request."""

    def __init__(self, traces: Mapping[str, RenderedTrace], *faults: Callable[[Mapping[str, Any]], Answer]) -> None:
        self._traces, self._faults = traces, list(faults)
        self.requests: list[Mapping[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> Answer:
        self.requests.append(request)
        if self._faults:
            return self._faults.pop(0)(request)
        question = request["messages"][1]["content"]
        trace = next(trace for text, trace in self._traces.items() if text in question)
        return 200, chat(ScriptedJudge().opine(trace, RUBRIC).text)

"""Upstreams that refuse: certain words, long requests, or everything, in every way an endpoint can say no.

`RefusingServer` speaks HTTP; `RefusingUpstream` wraps any `Upstream` of a simulation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply, Upstream
from tests.harness.inference_stand import Behaviour, OtherServer, answer, raw, status


def _body(**changes: object) -> bytes:
    whole = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
    return json.dumps(whole | changes).encode()


def _choice(**fields: object) -> bytes:
    return _body(choices=[fields])


_DEEP = '{"a":' * 400 + "1" + "}" * 400
# Every way of saying no, as (the answer, whether the endpoint calls the request malformed).
WAYS: Mapping[str, tuple[Behaviour, bool]] = {
    "malformed": (status(400, "bad words"), True),
    "too large": (status(413, "Request Entity Too Large"), True),
    "key": (status(401), False),
    "moderation": (status(403, "flagged by moderation"), False),
    "rate": (status(429), False),
    "broken": (status(500), False),
    "error beside choices": (raw(_body(error={"message": "flagged"})), False),
    "no choices": (raw(_body(choices=[])), False),
    "message without text and calls": (raw(_choice(message={"role": "assistant"})), False),
    "a call without a name": (raw(_choice(message={"content": "", "tool_calls": [{"function": {}}]})), False),
    "deep arguments": (
        raw(
            b'{"choices":[{"message":{"content":"","tool_calls":[{"function":{"name":"a","arguments":'
            + _DEEP.encode()
            + b"}}]}}]}"
        ),
        False,
    ),
    "deeper than any reader": (raw(b'{"choices":' + b"[" * 100_000), False),
    "tokens without end": (raw(_body(usage={"prompt_tokens": 10**30, "completion_tokens": 1})), False),
    "no JSON": (raw(b"<html>busy</html>"), False),
}

Refuses = Callable[[dict[str, object]], bool]


def text_of(body: dict[str, object]) -> str:
    """All message text of a request."""
    return "\n".join(str(message.get("content")) for message in body["messages"])  # type: ignore[attr-defined]


def words(*forbidden: str) -> Refuses:
    """Requests that hold one of these words."""
    return lambda body: any(word in text_of(body) for word in forbidden)


def longer_than(characters: int) -> Refuses:
    """Requests whose messages have more characters."""
    return lambda body: len(text_of(body)) > characters


def everything(_: dict[str, object]) -> bool:
    """Every request, the shortest too."""
    return True


class RefusingServer(OtherServer):
    """An endpoint that answers all requests but those that `refuses` picks; these `way` answers."""

    def __init__(self, way: Behaviour, refuses: Refuses) -> None:
        self.refuses, self.way = refuses, way
        super().__init__()

    def _behaviour(self, body: dict[str, object]) -> Behaviour:
        self.bodies.append(body)
        return self.way if self.refuses(body) else answer()


class RefusingUpstream:
    """`inner`, but requests that `refuses` picks fail with `code`. Neutral requests go the same way."""

    def __init__(self, inner: Upstream, refuses: Refuses, code: str = "U3001") -> None:
        self._inner, self._refuses, self._code = inner, refuses, code
        self.refused = 0

    @property
    def name(self) -> str:
        return self._inner.name

    def complete(self, request: str) -> ModelReply:
        if self._refuses(json.loads(request)):
            self.refused += 1
            raise ArenaError(self._code, "refused")
        return self._inner.complete(request)

    def probe(self, request: str) -> Failure | None:
        return Failure(code=self._code) if self._refuses(json.loads(request)) else self._inner.probe(request)

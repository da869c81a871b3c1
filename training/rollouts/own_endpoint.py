"""The run's own endpoint: when it refuses a request, no second endpoint is asked.

What it calls malformed, such as a prompt over its context, fails that call alone and the episode goes on. In
the arena neutral requests decide such a case, because an agent could profit from a refusal. Here none can.
"""

from __future__ import annotations

from foundation.codes.names import BAD_REQUEST
from foundation.errors import ArenaError, Failure
from harness.inference.port import ModelReply, Upstream
from harness.sandbox.port import GuestCallError


class OwnEndpoint:
    """`inner`, believed. As thread-safe as that is."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The endpoint's."""
        return self._inner.name

    def complete(self, request: str) -> ModelReply:
        """One attempt. Raises GuestCallError A1040 for a request the endpoint calls malformed, else what it raises."""
        try:
            return self._inner.complete(request)
        except ArenaError as error:
            if error.failure.code != BAD_REQUEST:
                raise
            detail = f"the model endpoint refused the request: {error.failure.detail}"
            raise GuestCallError(BAD_REQUEST, detail) from error

    def probe(self, request: str) -> Failure | None:
        """Never answered: a failure of the endpoint is an outage of the run, whatever else it would answer."""
        return Failure(code="U3002")

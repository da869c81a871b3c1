"""The scripted model without a server: what a run with one process asks.

The replies and the codes that `OpenAIUpstream` gets from the scripted server, from the same bytes, so a body
does not tell which of the two answered.
"""

from __future__ import annotations

import orjson

from foundation.errors import ArenaError, Failure
from harness.inference.client import code_of_status, read_reply
from harness.inference.port import ModelReply
from harness.inference.scripted.model import RequestError, complete


class ScriptedUpstream:
    """An `Upstream` on the scripted models. Thread-safe: it has no state."""

    name = "scripted"

    def complete(self, request: str) -> ModelReply:
        """As `Upstream.complete`. Raises ArenaError A1040, U3001."""
        try:
            return read_reply(orjson.dumps(complete(orjson.loads(request))))
        except RequestError as error:
            raise ArenaError(code_of_status(error.status), f"HTTP {error.status}: {error}") from error

    def probe(self, request: str) -> Failure | None:
        """As `Upstream.probe`."""
        try:
            self.complete(request)
        except ArenaError as error:
            return error.failure
        return None

"""Endpoints for the gateway: one in memory that keeps what it was sent, and one over HTTP.

The latter is an OpenAI-compatible endpoint, written against the protocol alone. It answers from a queue of behaviours
and keeps every body it received.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from foundation.errors import ArenaError, Failure
from harness.inference.gateway import Gateway, Ledger
from harness.inference.journal import MemoryJournal
from harness.inference.port import InferenceRules, ModelReply, Upstream
from harness.inference.scripted.model import complete
from harness.limits import EpisodeLimits

Behaviour = Callable[[dict[str, Any]], tuple[Any, ...]]  # status, body (None: hangs up), and headers if any

SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"canonical {name}",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
    for name in ("find_product", "recommend_product", "terminate")
]


def answer(content: str = "fine", **message: object) -> Behaviour:
    body = {
        "id": "x",
        "object": "chat.completion",
        "model": "other-model",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7},
    }
    return lambda _: (200, json.dumps(body).encode())


def status(code: int, message: str = "no") -> Behaviour:
    return lambda _: (code, json.dumps({"error": {"message": message}}).encode())


def raw(body: bytes) -> Behaviour:
    return lambda _: (200, body)


def scripted(request: dict[str, Any]) -> tuple[Any, ...]:
    """What the scripted model answers."""
    try:
        return 200, json.dumps(complete(request)).encode()
    except ArenaError as error:
        return status(int(error.failure.detail[5:8]), error.failure.detail[10:])(request)


class OtherServer:
    """`queue` is answered first, one behaviour a request; then `then` for ever. What is read (the list of models) is
    answered by `listed`."""

    def __init__(
        self, *queue: Behaviour, then: Behaviour | None = None, listed: Behaviour | None = None, port: int = 0
    ) -> None:
        self.queue, self.then = list(queue), then or answer()
        self.bodies: list[dict[str, object]] = []
        self.listed = listed or status(404)
        stand = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._reply(stand._behaviour(body)(body))

            def do_GET(self) -> None:
                self._reply(stand.listed({}))

            def _reply(self, behaved: tuple[Any, ...]) -> None:
                code, reply, *more = behaved
                if reply is None:
                    self.close_connection = True
                    return
                try:
                    self.send_response_only(code)
                    for name, value in more[0].items() if more else ():
                        self.send_header(name, value)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(reply)))
                    self.end_headers()
                    self.wfile.write(reply)
                except OSError:
                    self.close_connection = True  # the client gave up waiting

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.socket.listen(128)  # by default 5: of 16 that connect at once the kernel resets some
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def _behaviour(self, body: dict[str, object]) -> Behaviour:
        self.bodies.append(body)
        return self.queue.pop(0) if self.queue else self.then

    def __enter__(self) -> OtherServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


MODEL = "scripted-expert"
ASK = {"messages": [{"role": "user", "content": "Show me a red cotton shirt."}]}


class RecordingUpstream:
    """Keeps what it was sent; fails with the given codes first, then answers. Neutral and one-token requests are kept
    apart, and answered while it is healthy."""

    def __init__(self, name: str = "first", *failures: str, is_healthy: bool = True) -> None:
        self.name = name
        self.sent: list[dict[str, object]] = []
        self.probed: list[dict[str, object]] = []
        self.failures = list(failures)
        self.is_healthy = is_healthy

    def complete(self, request: str) -> ModelReply:
        self.sent.append(json.loads(request))
        if self.failures:
            raise ArenaError(self.failures.pop(0), "said so")
        return ModelReply(model=MODEL, content="ok", prompt_tokens=3, completion_tokens=2, message='{"content":"ok"}')

    def probe(self, request: str) -> Failure | None:
        self.probed.append(json.loads(request))
        return None if self.is_healthy else Failure(code="U3002")


def make_gateway(
    *upstreams: Upstream,
    dedicated: Mapping[str, Sequence[Upstream]] = MappingProxyType({}),
    ledger: Ledger | None = None,
    pauses: list[float] | None = None,
    journal: MemoryJournal | None = None,
    is_last: bool = False,
    served_bytes: int = 0,
) -> Gateway:
    return Gateway(
        InferenceRules(
            models=(MODEL, "other-model"),
            attempts=3,
            backoff_ms=100,
            retry_after_max_ms=5_000,
            message_count=5,
            request_bytes=4_000,
            served_bytes=served_bytes,
        ),
        upstreams,
        json.dumps(SCHEMAS),
        EpisodeLimits(completion_tokens_per_call=256),
        sleep=(pauses if pauses is not None else []).append,
        dedicated=dedicated,
        ledger=ledger,
        journal=journal,
        is_last=is_last,
    )

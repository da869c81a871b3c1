"""The scripted model as an OpenAI-compatible server on loopback, and as an endpoint of this process without one.

`/v1/chat/completions`, `/v1/models` and `/health`, deterministic replies, no state between requests, no
address but 127.0.0.1. It ignores the API key.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from foundation.errors import ArenaError, Failure
from harness.inference.client import code_of_status, read_reply
from harness.inference.port import ModelReply
from harness.inference.scripted.model import MODELS, RequestError, complete

_BACKLOG = 128
_STOP_TIMEOUT_S = 10.0


async def serve_request(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application; bare, because its three routes are on the path of every benchmarked episode."""
    if scope["type"] != "http":
        return
    body = b""
    is_more = True
    while is_more:
        event = await receive()
        body += event.get("body", b"")
        is_more = event.get("more_body", False)
    status, answer = _answer(scope["method"], scope["path"], body)
    raw = orjson.dumps(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


def _answer(method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    if (method, path) == ("GET", "/health"):
        return 200, {"status": "ok"}
    if (method, path) == ("GET", "/v1/models"):
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "agent-arena"} for name in MODELS]
        return 200, {"object": "list", "data": rows}
    if (method, path) != ("POST", "/v1/chat/completions"):
        return 404, _error("not_found", f"no route {method} {path}")
    try:
        request = orjson.loads(body)
        if not isinstance(request, dict):
            return 400, _error("invalid_request_error", "the body is not a JSON object")
        return 200, complete(request)
    except orjson.JSONDecodeError as error:
        return 400, _error("invalid_request_error", f"the body is not JSON: {error}")
    except RequestError as error:
        return error.status, _error("invalid_request_error", str(error))


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message}}


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is accepting connections."""

    base_url: str


@contextlib.contextmanager
def start_scripted_server(port: int = 0) -> Iterator[RunningServer]:
    """Serve on 127.0.0.1 in a background thread while the context lasts; port 0 picks a free one.

    Raises ArenaError U3001 when the port cannot be bound.
    """
    import uvicorn

    # named, because asyncio turns Nagle off only for sockets that say they are TCP
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)  # connections wait here until the loop in the thread accepts them
    except OSError as error:
        listener.close()
        raise ArenaError("U3001", f"cannot bind 127.0.0.1:{port} for the scripted model: {error}") from error
    config = uvicorn.Config(
        serve_request, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=120, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="scripted-model", daemon=True)
    thread.start()
    try:
        yield RunningServer(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    finally:  # stop accepting, finish what is running
        server.should_exit = True
        thread.join(_STOP_TIMEOUT_S)


class ScriptedUpstream:
    """An `Upstream` on the scripted models, for a run with one process. Thread-safe: it has no state.

    The replies and the codes that `OpenAIUpstream` gets from the scripted server, from the same bytes, so a body does
    not tell which of the two answered.
    """

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

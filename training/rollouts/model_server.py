"""A model folder as an OpenAI-compatible endpoint on loopback: what an agent is tried against without a provider.

`/v1/models` and `/v1/chat/completions`, one request at a time, each rendered afresh and sampled with the
request's temperature and seed 0, so equal requests get equal replies. Tool calls are read as in training. No address
but 127.0.0.1, no key. It is slow on a CPU, and no faster for several requests at once.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from foundation.errors import ArenaError
from harness.sandbox.port import GuestCallError
from training.model import Decode, Sampler
from training.models.render import Qwen3Codec
from training.rollouts.rollout import TokenUpstream

_REQUEST_BYTES = 8 << 20


class ModelEndpoint:
    """Answers of one model. Thread-safe: one request after the other."""

    def __init__(self, sampler: Sampler, codec: Qwen3Codec, name: str, decode: Decode) -> None:
        """`name` is the model id that requests give. `decode` bounds tokens; temperatures come with requests."""
        self._sampler, self._codec, self._name, self._decode = sampler, codec, name, decode
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """HTTP status and JSON of one request."""
        if (method, path) == ("GET", "/v1/models"):
            return 200, {"object": "list", "data": [{"id": self._name, "object": "model"}]}
        if (method, path) != ("POST", "/v1/chat/completions"):
            return 404, refusal(f"no route {method} {path}")
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
            if asked.get("model") != self._name:
                return 404, refusal(f"model {asked.get('model')!r} is not served; this is {self._name!r}")
            decode = msgspec.structs.replace(
                self._decode, temperature=min(2.0, max(0.0, float(asked.get("temperature") or 0)))
            )
            with self._lock:
                reply = TokenUpstream(self._sampler, self._codec, decode, seed=0).complete(body.decode())
        except GuestCallError as error:
            return 400, refusal(str(error))
        except (
            msgspec.MsgspecError,
            ArenaError,
            UnicodeError,
            RecursionError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:
            return 400, refusal(f"{type(error).__name__}: {error}")
        message = json.loads(reply.message)
        choice = {"index": 0, "finish_reason": reply.finish_reason, "message": message}
        usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
        return 200, {"object": "chat.completion", "model": self._name, "choices": [choice], "usage": usage}


def refusal(why: str) -> dict[str, Any]:
    """An error body as OpenAI-compatible endpoints write it."""
    return {"error": {"type": "invalid_request_error", "message": why}}


def open_model_server(endpoint: ModelEndpoint, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1:`port` (0: a free one), bound and not yet serving. Raises OSError for a port that is
    taken."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(*endpoint.answer("GET", self.path, b""))

        def do_POST(self) -> None:
            given = self.headers.get("content-length") or "0"
            length = int(given) if given.isdecimal() else _REQUEST_BYTES + 1
            if length > _REQUEST_BYTES:
                self.close_connection = True
                self._send(413, refusal(f"a request of {given} bytes; at most {_REQUEST_BYTES} are read"))
                return
            self._send(*endpoint.answer("POST", self.path, self.rfile.read(length)))

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: stdout and stderr are the command's."""

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = msgspec.json.encode(body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)

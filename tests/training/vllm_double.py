"""A server that answers like vLLM over a model in this process: `/v1/completions` with ids, adapters by name.

It follows the documented protocol where the sampler reads it: `token_ids` with the stop token, the raw logits'
`logprobs.token_logprobs`, `finish_reason`, 404 for an unknown model, text answers of the adapter routes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from training.model import Decode, TurnSample

Turn = Callable[[str, tuple[int, ...], Decode, int], TurnSample]


class VllmDouble:
    """What the server was asked, and which models it serves. `answer` may replace a completion's body."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.models: dict[str, str] = {"base": ""}
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body
        self.status = 200

    def reply(self, path: str, fields: dict[str, Any]) -> tuple[int, bytes]:
        """Status and body."""
        if self.status != 200:
            return self.status, b"busy"
        if path == "/v1/load_lora_adapter":
            if fields["lora_name"] in self.models:
                return 400, b'{"message": "The lora adapter has already been loaded."}'
            self.models[fields["lora_name"]] = fields["lora_path"]
            return 200, b"Success: LoRA adapter added."
        if path == "/v1/unload_lora_adapter":
            del self.models[fields["lora_name"]]
            return 200, b"Success: LoRA adapter removed."
        self.requests.append(fields)
        if fields["model"] not in self.models:
            return 404, b'{"error": {"message": "The model does not exist."}}'
        decode = Decode(temperature=fields["temperature"], top_p=fields["top_p"], turn_tokens_max=fields["max_tokens"])
        drawn = self.turn(fields["model"], tuple(fields["prompt"]), decode, fields["seed"])
        choice = {
            "index": 0,
            "text": "",
            "finish_reason": drawn.finish,
            "token_ids": list(drawn.token_ids),
            "logprobs": {"token_logprobs": list(drawn.logprobs)},
        }
        body = {"id": "cmpl-1", "object": "text_completion", "model": fields["model"], "choices": [choice]}
        return 200, json.dumps(self.answer(body)).encode()


@contextmanager
def serve(double: VllmDouble) -> Iterator[str]:
    """The base URL while it serves on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parents = {name: "base" for name in double.models if name.startswith("adapter-")}
            listed_of = double.models.items()
            data = [{"id": one, "object": "model", "root": root, "parent": parents.get(one)} for one, root in listed_of]
            listed = {"object": "list", "data": data}
            self.answer(200, json.dumps(listed).encode())

        def do_POST(self) -> None:
            fields = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.answer(*double.reply(self.path, fields))

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()

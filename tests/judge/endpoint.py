"""A tiny OpenAI-compatible endpoint on loopback that answers from a list, for the judge client's tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any] | tuple[int, Any, Mapping[str, str]]  # status, JSON value or bytes (None: hangs up), headers


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[str]:
    """Serve `answer(request)`; yields the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, value, *more = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if value is None:
                self.close_connection = True
                return
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            headers = {"content-type": "application/json", "content-length": str(len(raw))}
            try:
                self.send_response_only(status)
                for name, text in (headers | dict(*more)).items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(raw)
            except BrokenPipeError:  # a client that no longer waits
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def chat(text: str | None) -> dict[str, Any]:
    """A chat completion that says `text`."""
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }

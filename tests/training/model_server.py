"""A stand for measuring with a small real model: chat completions of a model folder, on loopback, one at a time.

`python -m tests.training.model_server MODEL_DIR --port 8411` serves it. Its layers' weights are rounded to eight bits,
since what a CPU waits for is reading them. A prompt that leaves no room in `--context` is refused as other servers
refuse it (HTTP 400), and an answer ends after `--answer` tokens, whatever is asked for. The last prompt's attention
cache is kept, so a conversation that goes on costs its new tokens alone. The scripted models answer under their own
names, so that the small one can play some of several roles. For measurements only: it knows no tools, no key and no two
requests at once. It says on stdout what each request of the small model cost.
"""

from __future__ import annotations

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from harness.inference.scripted.model import MODELS
from training.trac.scripted import ANNOTATOR, ScriptedOracle


class ModelStand:
    """A model folder that answers requests, one after the other."""

    def __init__(self, folder: Path, context_tokens: int, answer_tokens: int) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        model.model = torch.ao.quantization.quantize_dynamic(model.model, {torch.nn.Linear}, dtype=torch.qint8)
        self._model = model
        self._context_tokens, self._answer_tokens = context_tokens, answer_tokens
        self._seen: list[int] = []
        self._cache = DynamicCache(config=model.config)
        self._lock = threading.Lock()

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """HTTP status and body for one request."""
        with self._lock, torch.inference_mode():
            prompt = self._tokenizer.apply_chat_template(
                asked["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
            tokens_max = min(int(asked.get("max_tokens") or self._answer_tokens), self._answer_tokens)
            if len(prompt) + tokens_max > self._context_tokens:
                said = f"maximum context length is {self._context_tokens} tokens, the prompt has {len(prompt)}"
                return 400, {"error": {"message": said, "type": "BadRequestError", "code": 400}}
            same = next(
                (n for n, (a, b) in enumerate(zip(prompt, self._seen, strict=False)) if a != b), len(self._seen)
            )
            if (surplus := len(self._seen) - min(same, len(prompt) - 1)) > 0:
                self._cache.crop(-surplus)
            temperature = float(asked.get("temperature") or 0)
            torch.manual_seed(int(asked.get("seed") or 0))
            decoding = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
            ids = torch.tensor([prompt])
            found = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                past_key_values=self._cache,
                max_new_tokens=tokens_max,
                **decoding,
            )[0].tolist()
            self._seen = found[:-1]
            written = found[len(prompt) :]
            reason = "stop" if written and written[-1] == self._tokenizer.eos_token_id else "length"
        text = self._tokenizer.decode(written, skip_special_tokens=True)
        print(f"{len(prompt)} + {len(written)} tokens, {len(prompt) - same} of them new: {text!r}", flush=True)
        choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(written)}
        return 200, {"object": "chat.completion", "model": asked.get("model"), "choices": [choice], "usage": usage}


def _scripted(asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    reply = ScriptedOracle().complete(json.dumps(asked))
    choice = {"index": 0, "finish_reason": "stop", "message": json.loads(reply.message)}
    usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    return 200, {"object": "chat.completion", "model": asked["model"], "choices": [choice], "usage": usage}


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="Chat completions of a model folder, on loopback.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8411)
    parser.add_argument("--context", type=int, default=8_192, help="tokens of prompt and answer together")
    parser.add_argument("--answer", type=int, default=512, help="tokens of an answer, at most")
    given = parser.parse_args()
    stand = ModelStand(given.folder, given.context, given.answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                status, body = _scripted(asked) if asked["model"] in (ANNOTATOR, *MODELS) else stand.answer(asked)
            except Exception as wrong:  # noqa: BLE001 - a stand says what went wrong, as servers do
                status, body = 500, {"error": {"message": f"{type(wrong).__name__}: {wrong}", "code": 500}}
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()

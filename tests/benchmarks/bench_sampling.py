"""Turns sampled in this process against transformers' `generate`, on the same conversations.

Both sides run in one process on one thread: processor seconds count, which other work on the machine changes little.
The model is a small random Qwen3 of three layers, and the length of every turn is set, so it says nothing of a model.
Prefill is in the figures, since a turn needs it. All is greedy, and turns of both sides have to be equal, else the
benchmark ends.

The load is conversations as an evaluation has them: eight of each problem, turns of 20 to 150 tokens and one in
ten of four hundred, so that rows come and go at all times. Stock transformers has no place for a row that comes later:
it gets the same turns in batches, each until its longest turn is over, which takes a minute.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.apart import run_apart
from tests.benchmarks.row import Row
from training.model import Decode

ROWS = 24
SHARED_TOKENS, OWN_TOKENS = 900, 600  # of a prompt: as in all others (system prompt, tools), and its own
CONVERSATIONS, TURNS = 48, 2
LONG_SHARE, LONG_TOKENS = 0.1, 400
_PROGRAM = "from tests.benchmarks.bench_sampling import main; main()"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Processor seconds of both sides."""

    tokens: int
    ours_s: float
    stock_s: float


def measure() -> Sequence[Row]:
    """Sampled tokens a processor second of both. Raises RuntimeError when turns are not equal."""
    said, _ = run_apart(_PROGRAM)
    spent = msgspec.json.decode(said, type=Spent)
    return [
        Row(
            name=f"sampling, {ROWS} turns in a batch that come and go",
            value=spent.tokens / spent.ours_s,
            unit="tokens/s",
            baseline=spent.tokens / spent.stock_s,
            command="make bench ARGS=sampling",
        )
    ]


def main() -> None:
    """Both sides, in a process of its own."""
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
        sys.stdout.buffer.write(msgspec.json.encode(_spent(model)))


def _spent(model: Any) -> Spent:
    from training.samplers.in_process import LocalSampler

    stop = model.config.vocab_size - 1
    sampler = LocalSampler(model, stop_id=stop, suppressed_ids=[stop], version="bench", batch_rows=ROWS)
    plans = [_Talk(model, number) for number in range(CONVERSATIONS)]

    def talk(plan: _Talk) -> list[tuple[int, ...]]:
        said: list[tuple[int, ...]] = []
        for tokens in plan.lengths:
            decode = Decode(temperature=0.0, top_p=1.0, turn_tokens_max=tokens)
            said.append(sampler.sample(plan.prompt(said), decode, 0).token_ids)
        return said

    started = time.process_time()
    with ThreadPoolExecutor(ROWS) as pool:
        ours = list(pool.map(talk, plans))
    ours_s, stock_s = time.process_time() - started, 0.0
    stock: list[list[tuple[int, ...]]] = [[] for _ in plans]
    for turn in range(TURNS):
        for first in range(0, CONVERSATIONS, ROWS):
            batch = range(first, first + ROWS)
            longest = max(plans[number].lengths[turn] for number in batch)
            took, found = _stock(model, [plans[number].prompt(stock[number]) for number in batch], longest)
            stock_s += took
            for number, ids in zip(batch, found, strict=True):
                stock[number].append(tuple(ids[: plans[number].lengths[turn]]))
    if ours != stock:
        raise ValueError("greedy turns are not those of transformers")
    return Spent(tokens=sum(sum(plan.lengths) for plan in plans), ours_s=ours_s, stock_s=stock_s)


class _Talk:
    """One conversation: how long its turns are, and what it is told between them."""

    def __init__(self, model: Any, number: int) -> None:
        draw, size = random.Random(number), model.config.vocab_size - 1
        self._begin = _prompts(model, 1 + number // 8)[-1]
        self.lengths = [LONG_TOKENS if draw.random() < LONG_SHARE else draw.randrange(20, 150) for _ in range(TURNS)]
        self._told = [tuple(draw.randrange(size) for _ in range(draw.randrange(80, 250))) for _ in range(TURNS)]

    def prompt(self, said: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Of the turn after those that were said."""
        parts = [self._begin]
        for turn, told in zip(said, self._told, strict=False):
            parts += [turn, told]
        return tuple(one for part in parts for one in part)


def _prompts(model: Any, count: int) -> list[tuple[int, ...]]:
    """Different prompts that begin alike; of slightly different lengths, so that the stock way has to pad."""
    draw = random.Random(0)
    size = model.config.vocab_size - 1  # without the last token, which ends a turn here
    shared = tuple(draw.randrange(size) for _ in range(SHARED_TOKENS))
    return [(*shared, *(draw.randrange(size) for _ in range(OWN_TOKENS + 8 * (number % 5)))) for number in range(count)]


def _stock(model: Any, prompts: list[tuple[int, ...]], tokens: int) -> tuple[float, list[list[int]]]:
    """(processor seconds, tokens) of turns by `generate`: one call, padded at the left."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    seen = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    ends = {"pad_token_id": 0, "eos_token_id": model.config.vocab_size - 1}
    lengths = {"max_new_tokens": tokens, "min_new_tokens": tokens}
    started = time.process_time()
    with torch.inference_mode():
        found = model.generate(input_ids=ids, attention_mask=seen, do_sample=False, **ends, **lengths)
    return time.process_time() - started, found[:, longest:].tolist()

"""Short conversations as token rows: what tests of the training stages learn, in milliseconds a step."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch

from harness.chat import Call, Message
from training.model import TokenRow
from training.models.render import Qwen3Codec
from training.recipe import Recipe, parse_recipe
from training.run import CHECKPOINT, Outcome, RunFolder
from training.stages.sft import train_sft

ROOM = 1_000
SFT = """
[lora]
r = {r}
[optim]
lr = 1e-2
steps_max = {steps}
epochs = 2.0
batch_rows = 2
accumulation = 1
warmup_share = 0.0
is_bf16 = false
is_checkpointing = false
save_every_steps = 2
"""


def short_rows(codec: Qwen3Codec, count: int = 12, said: str = "It is") -> list[TokenRow]:
    """Rows of two turns each: a call, and what is said to its result."""
    return [
        codec.row(
            f"{number:04d}",
            (
                Message(role="user", content=f"Find {number}."),
                Message(
                    role="assistant",
                    content="I search.",
                    calls=(Call(id="1", name="find_product", arguments=f'{{"q": "{number}"}}'),),
                ),
                Message(role="tool", content=f"[{number}]" * (1 + number % 3), call_id="1"),
                Message(role="assistant", content=f"{said} {number}."),
            ),
            "[]",
            ROOM,
        )
        for number in range(count)
    ]


def sft_recipe(model: Path, more: str = "", r: int = 0, steps: int = 6) -> Recipe:
    """A recipe; without `steps`, two epochs."""
    text = f'name = "short"\nstage = "sft"\nmodel = "{model}"\n{SFT.format(r=r, steps=steps)}{more}'
    return parse_recipe(text)


def run_sft(
    model: Path,
    out: Path,
    *,
    more: str = "",
    r: int = 0,
    steps: int = 6,
    dev: int = 0,
    progress: Callable[..., None] | None = None,
) -> Outcome:
    """Train on short rows in `out`."""
    codec = Qwen3Codec(model)
    recipe = sft_recipe(model, more + '[data]\ndev = ["dev"]\n' if dev else more, r, steps)
    folder = RunFolder(out, recipe, progress)
    rows = short_rows(codec)
    return train_sft(recipe, folder, rows, rows[:dev], codec.tokenizer.pad_token_id)


def engine_processes() -> ForkServerContext:
    """Starts processes that have read the engine already and nothing else: each would take seconds to read it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.bandit", "tests.training.kto_rows", "tests.training.short_rows"])
    return context


def require_killed(work: Callable[..., None], folder: Path, *given: object) -> None:
    """Run `work(*given)`, which trains in `folder`, in another process until it dies there by -9."""
    killed = engine_processes().Process(target=work, args=given)
    killed.start()
    killed.join(300)
    assert killed.exitcode == -signal.SIGKILL
    assert not (folder / CHECKPOINT).exists()


def die_in(step: int) -> Callable[[str, int, int], None]:
    """A progress report that ends its process by kill -9 in this step."""
    torch.set_num_threads(1)  # as in the tests: sums are taken in the same order

    def die(phase: str, done: int, of: int) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def die_in_sft(model: Path, out: Path, step: int, steps: int) -> None:
    """A run of so many steps that dies in the step named."""
    run_sft(model, out, steps=steps, progress=die_in(step))

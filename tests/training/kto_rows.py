"""Labelled rows and the small KTO run on them; also the one that dies in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.training.short_rows import die_in, short_rows
from training.model import TokenRow
from training.models.render import Qwen3Codec
from training.recipe import Recipe, parse_recipe
from training.run import Outcome, RunFolder
from training.stages.kto import train_kto

KTO = """
parent = "{parent}"
[data]
tokens_max = 1000
[lora]
r = {r}
alpha = 8
targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
[optim]
lr = 5e-3
steps_max = 4
batch_rows = 2
accumulation = 1
warmup_share = 0.0
is_bf16 = false
is_checkpointing = false
save_every_steps = 2
[kto]
beta = 0.5
emission_every_steps = 2
"""


def kto_recipe(model: Path, parent: Path | str = "", r: int = 4, more: str = "") -> Recipe:
    """A recipe."""
    text = f'name = "k"\nstage = "kto"\nmodel = "{model}"\n' + KTO.format(parent=parent, r=r) + more
    return parse_recipe(text)


def labelled(codec: Qwen3Codec, count: int = 8) -> list[TokenRow]:
    """Rows of both classes in turn, which end differently."""
    rows = (short_rows(codec, count), short_rows(codec, count, said="Who knows about"))
    return [replace(rows[place % 2][place], is_wanted=place % 2 == 0) for place in range(count)]


def run_kto(
    model: Path, out: Path, rate: Any = None, progress: Callable[..., None] | None = None, **changes: Any
) -> Outcome:
    """Train on eight labelled rows in `out`. `rate` is the policy's emission rate."""
    codec = Qwen3Codec(model)
    recipe = kto_recipe(model, **changes)
    return train_kto(recipe, RunFolder(out, recipe, progress), labelled(codec), codec.tokenizer, rate)


def die_in_kto(model: Path, out: Path, step: int, rates: tuple[float, ...] = ()) -> None:
    """A run that dies in the step named, watched by these rates."""
    watched = iter(rates)
    run_kto(model, out, (lambda policy: next(watched)) if rates else None, progress=die_in(step))

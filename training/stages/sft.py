"""Supervised fine-tuning on token rows: the first three stages train with it (paper section 6, B.1).

Promise: rows come in as tokens and labels (`training.token_rows`); the engine tokenises, masks, packs and cuts nothing.
Where the recipe sweeps learning rates, each is trained from the same start and the least loss on the `dev` rows is
kept. A killed run goes on where it was, with the same losses.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from problems.errors import ArenaError
from training.model import TokenRow
from training.models import lora_config, open_parent
from training.recipe import Recipe
from training.stages.engine import Watch, attend, engine_arguments
from training.stages.run import CHECKPOINT, LOG, RunFolder, newest_checkpoint

IGNORED = -100  # the label of a token that is not learnt


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What a training came to. `losses` by step; `eval_loss` on the dev rows, None without any."""

    parent_sha256: str
    lr: float
    steps: int
    losses: tuple[float, ...]
    eval_loss: float | None
    stopped_by: str = ""


def train_sft(
    recipe: Recipe,
    folder: RunFolder,
    rows: Sequence[TokenRow],
    dev: Sequence[TokenRow],
    pad_id: int,
    *,
    save: Callable[[Any, Path], None],
) -> Trained:
    """Train, and save the model with the least dev loss to `checkpoint/`.

    Raises ArenaError V2124 without rows, or for a sweep without dev rows.
    """
    if not rows:
        raise ArenaError("V2124", "no row to train on")
    rates = recipe.optim.lr_sweep or (recipe.optim.lr,)
    if len(rates) > 1 and not dev:
        raise ArenaError("V2124", "a sweep of learning rates needs dev rows")
    best: Trained | None = None
    for rate in rates:
        trained, model = _train(recipe, folder, rows, dev, pad_id, rate, is_swept=len(rates) > 1)
        if best is None or (trained.eval_loss or 0.0) < (best.eval_loss or 0.0):
            best = trained
            save(model, folder.path / CHECKPOINT)
        del model
        gc.collect()
    assert best is not None
    return best


def _train(
    recipe: Recipe,
    folder: RunFolder,
    rows: Sequence[TokenRow],
    dev: Sequence[TokenRow],
    pad_id: int,
    rate: float,
    *,
    is_swept: bool,
) -> tuple[Trained, Any]:
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    model, parent_sha256 = open_parent(recipe)
    engine = folder.engine / f"lr-{rate:g}" if is_swept else folder.engine
    arguments = engine_arguments(recipe, engine, lr=rate)
    watch = Watch(folder, f"log-lr-{rate:g}.jsonl" if is_swept else LOG)
    config = SFTConfig(
        **arguments,
        max_length=None,  # rows are whole, and long ones were refused
        packing=False,
        padding_free=False,
        completion_only_loss=False,
        assistant_only_loss=False,
        loss_type="nll",
        train_sampling_strategy="group_by_length",
        eval_strategy="no",
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=_dataset(rows),
        eval_dataset=_dataset(dev) if dev else None,
        data_collator=_Collator(pad_id),
        peft_config=lora_config(recipe.lora),
        callbacks=[watch],
    )
    result = attend(trainer).train(resume_from_checkpoint=newest_checkpoint(engine))
    eval_loss = float(trainer.evaluate()["eval_loss"]) if dev else None
    losses = tuple(float(line["loss"]) for line in trainer.state.log_history if "loss" in line)
    trained = Trained(
        parent_sha256=parent_sha256,
        lr=rate,
        steps=int(result.global_step),
        losses=losses,
        eval_loss=eval_loss,
        stopped_by=watch.stopped_by,
    )
    return trained, trainer.model


class _Collator:
    """Pads ids and labels on the right; what is padding is neither seen nor learnt."""

    def __init__(self, pad_id: int) -> None:
        self._pad_id = pad_id

    def __call__(self, examples: Sequence[dict[str, list[int]]]) -> dict[str, Any]:
        import torch

        longest = max(len(example["input_ids"]) for example in examples)

        def padded(name: str, filler: int) -> Any:
            return torch.tensor([list(e[name]) + [filler] * (longest - len(e[name])) for e in examples])

        seen = [[1] * len(e["input_ids"]) + [0] * (longest - len(e["input_ids"])) for e in examples]
        return {
            "input_ids": padded("input_ids", self._pad_id),
            "labels": padded("labels", IGNORED),
            "attention_mask": torch.tensor(seen),
        }


def _dataset(rows: Sequence[TokenRow]) -> Any:
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "input_ids": list(row.token_ids),
                "labels": [token if bit else IGNORED for token, bit in zip(row.token_ids, row.mask, strict=True)],
                "length": len(row.token_ids),
            }
            for row in rows
        ]
    )

"""Supervised fine-tuning on token rows: the first three stages train with it (paper section 6, B.1).

Rows come in as tokens and labels (`training.stages.pipeline`); the engine tokenises, masks, packs and cuts
nothing. Where the recipe sweeps learning rates, each is trained from the same start and the least loss on the `dev`
rows is kept. A killed run goes on where it was, with the same losses. Several processes share out the rows of each
step, and come to the losses of one, but for the order in which sums are taken.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from msgspec.structs import replace
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling, SFTTrainer

from foundation.errors import ArenaError
from training.model import TokenRow
from training.models.opening import lora_config, open_parent
from training.recipe import Recipe
from training.run import ALONE, LOG, Outcome, Processes, RunFolder
from training.stages.engine import Watch, engine_arguments, run_trainer, save_model, scoring_what_is_learnt

IGNORED = -100  # the label of a token that is not learnt
FILLER = TokenRow(trace_id="", token_ids=(0, 0), mask=(0, 0), prompt_length=2)  # nothing of it is learnt


def train_sft(
    recipe: Recipe,
    folder: RunFolder,
    rows: Sequence[TokenRow],
    dev: Sequence[TokenRow],
    pad_id: int,
) -> Outcome:
    """Train, and save the model with the least dev loss to `checkpoint/`. Raises ArenaError V2124 without rows."""
    if not rows:
        raise ArenaError("V2124", "no row to train on")
    rates = recipe.optim.lr_sweep or (recipe.optim.lr,)
    best: Outcome | None = None
    for rate in rates:
        trained, trainer = _train(recipe, folder, rows, dev, pad_id, rate, is_swept=len(rates) > 1)
        if best is None or dev_loss(trained) < dev_loss(best):
            best = trained
            save_model(trainer, folder)
        del trainer
        gc.collect()
    assert best is not None
    return best


def dev_loss(trained: Outcome) -> float:
    """What a rate is chosen by; a NaN loss is the worst."""
    loss = trained.metrics.get("dev_loss", 0.0)
    return loss if math.isfinite(loss) else math.inf


def _train(
    recipe: Recipe,
    folder: RunFolder,
    rows: Sequence[TokenRow],
    dev: Sequence[TokenRow],
    pad_id: int,
    rate: float,
    *,
    is_swept: bool,
) -> tuple[Outcome, Any]:
    processes = folder.processes
    model, parent_sha256 = open_parent(recipe)
    engine = folder.engine / f"lr-{rate:g}" if is_swept else folder.engine
    watch = Watch(folder, f"log-lr-{rate:g}.jsonl" if is_swept else LOG)
    trainer = _SharedTrainer(
        model=model,
        args=sft_config(recipe, engine, rate, processes),
        train_dataset=_dataset(rows if processes.count == 1 else [*rows, FILLER]),
        eval_dataset=_dataset(dev) if dev else None,
        data_collator=DataCollatorForLanguageModeling(pad_token_id=pad_id),
        peft_config=lora_config(recipe.lora),
        callbacks=[watch],
    )
    trained = run_trainer(trainer, watch, engine, parent_sha256)
    metrics = {"rows": float(len(rows)), "lr": rate}
    if trained.losses:
        metrics |= {"loss_first": trained.losses[0], "loss_last": trained.losses[-1]}
    if dev:
        with scoring_what_is_learnt():
            metrics["dev_loss"] = float(trainer.evaluate()["eval_loss"])
    return replace(trained, metrics=metrics), trainer


def sft_config(recipe: Recipe, engine: Path, rate: float, processes: Processes = ALONE) -> SFTConfig:
    """Everything the engine is given. `engine`: where it keeps its checkpoints; `rate`: the learning rate."""
    return SFTConfig(
        **engine_arguments(recipe, engine, lr=rate, processes=processes),
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


class _SharedTrainer(SFTTrainer):  # type: ignore[misc]
    """The engine's trainer. Several processes take the rows in the order in which one would, and no row twice.

    Rows of a batch are computed one by one: what is padding costs nothing, and attention needs no mask. A process alone
    takes a row's gradients before it comes to the next, and so holds no more than what one row computes.
    """

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """The engine's, row by row; processes that share gradients do so once a batch."""
        step = super().training_step
        if num_items_in_batch is None or self.accelerator.distributed_type != DistributedType.NO:
            return step(model, inputs, num_items_in_batch)
        return torch.stack([step(model, row, num_items_in_batch) for row in _rows_of(inputs)]).sum()

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The sum over the rows of the engine's loss, each over the tokens of all `num_items_in_batch`."""
        loss = super().compute_loss
        if num_items_in_batch is None:  # the evaluation's, of one row
            return loss(model, inputs, return_outputs)
        return torch.stack([loss(model, row, False, num_items_in_batch) for row in _rows_of(inputs)]).sum()

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        sampler, args = super()._get_train_sampler(train_dataset), self.args
        rows, is_shared = args.train_batch_size * args.world_size, args.world_size > 1
        return RowOrder(
            sampler.lengths[:-1] if is_shared else sampler.lengths,  # without the filler
            step_rows=rows * args.gradient_accumulation_steps,
            size=rows if is_shared else 1,
            seed=args.data_seed,
        )


def _rows_of(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a batch, each without its padding."""
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    return [{name: value[row : row + 1, :end] for name, value in inputs.items()} for row, end in enumerate(lengths)]


class RowOrder(Sampler):  # type: ignore[type-arg]
    """Rows of these `lengths` as one process orders them, alike in length among the `step_rows` of a step.

    `size`: rows that all of several processes take together, 1 for one process. The order is filled up to a multiple of
    it with the row behind the last: the engine would fill up with rows of the epoch's beginning, which would be
    learnt twice. The first epoch has the engine's own order; later ones are drawn from the seed and their number, since
    the engine would draw them before it restores a resumed run's random state.
    """

    def __init__(self, lengths: Sequence[int], *, step_rows: int, size: int, seed: int) -> None:
        self._lengths, self._step_rows, self._size, self._seed = list(lengths), step_rows, size, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The engine calls it before each epoch, a resumed one among them."""
        self._epoch = epoch

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._size) * self._size

    def __iter__(self) -> Iterator[int]:
        drawn = torch.Generator().manual_seed(self._seed + self._epoch) if self._epoch else None
        yield from get_length_grouped_indices(self._lengths, self._step_rows, generator=drawn)
        yield from [len(self._lengths)] * (len(self) - len(self._lengths))


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

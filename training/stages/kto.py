"""KTO preference refinement on whole traces, learnt on assistant tokens only (paper section 6 stage 4, B.5).

The engine scores exactly the tokens the mask marks, for the policy, the reference and the rows paired for the
KL term alike; stock KTO would train on tool results. Rows of both classes are needed, no batch pairs a row with itself,
and nothing is cut. Training stops when the policy recommends less on `dev` than its parent did, by the share the recipe
allows: the parent's rate is taken before the first step, logged as step 0, and holds for the whole run, resumed or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference, KTOTrainer
from trl.trainer.utils import pad

from training.guards import require_emission, require_two_classes
from training.model import TokenRow
from training.models.opening import lora_config, open_parent, placed
from training.recipe import Recipe
from training.run import Outcome, RunFolder, newest_checkpoint
from training.samplers.in_process import eval_mode
from training.stages.engine import Watch, engine_arguments, run_trainer

MASK = "completion_loss_mask"

EmissionRate = Callable[[Any], float]  # the policy's emission rate on fixed `dev` problems


def train_kto(
    recipe: Recipe,
    folder: RunFolder,
    rows: Sequence[TokenRow],
    tokenizer: Any,
    emission_rate: EmissionRate | None,
) -> Outcome:
    """Refine the parent on rows of both classes, wanted and unwanted.

    Raises GuardStopError for rows of one class and for a parent that never recommends.
    """
    require_two_classes(row.is_wanted for row in rows)
    model, parent_sha256 = open_parent(recipe)
    # An adapter switched off is its own reference; else the engine would take the base model's folder for the parent.
    reference = None if recipe.lora.r else open_parent(recipe)[0]
    watch = KtoWatch(folder, emission_rate, _start_rate(folder, recipe, emission_rate, model))
    config = KTOConfig(
        **engine_arguments(recipe, folder.engine, lr=recipe.optim.lr),
        beta=recipe.kto.beta,
        loss_type="kto",
        desirable_weight=recipe.kto.desirable_weight,
        undesirable_weight=recipe.kto.undesirable_weight,
        max_length=recipe.data.tokens_max,
        disable_dropout=True,
        remove_unused_columns=False,
        train_sampling_strategy="sequential",  # rows were shuffled and paired already
    )
    trainer = _MaskedTrainer(
        model=model,
        ref_model=reference,
        args=config,
        train_dataset=_dataset(rows, recipe),
        processing_class=tokenizer,
        peft_config=lora_config(recipe.lora),
        data_collator=_MaskedCollator(pad_token_id=tokenizer.pad_token_id, max_length=None),
        callbacks=[watch],
    )
    done = run_trainer(trainer, watch, folder.engine, parent_sha256, before=recipe.optim.steps_max)
    folder.save(trainer.model)
    metrics = {"rows": float(len(rows)), "wanted": float(sum(row.is_wanted for row in rows))}
    return msgspec.structs.replace(done, metrics=metrics)


class KtoWatch(Watch):
    """Also watches, every so many steps, whether the policy still recommends on `dev`.

    `start_rate` is the parent's emission rate.
    """

    def __init__(self, folder: RunFolder, emission_rate: EmissionRate | None, start_rate: float) -> None:
        super().__init__(folder)
        self._recipe, self._rate, self._start_rate = folder.recipe, emission_rate, start_rate

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> Any:
        """Sample `dev` with the policy as it is."""
        super().on_step_end(args, state, control, **rest)
        if self._rate is None or state.global_step % self._recipe.kto.emission_every_steps:
            return control
        with eval_mode(model):
            rate = self._rate(model)
        self._folder.log({"step": state.global_step, "emission_rate": rate})
        self.guard(control, lambda: require_emission(rate, self._start_rate, self._recipe.guards))
        return control


def _start_rate(folder: RunFolder, recipe: Recipe, emission_rate: EmissionRate | None, parent: Any) -> float:
    """The parent's emission rate: as logged when the run began, else taken of `parent` and logged; 0 without a rate."""
    if emission_rate is None:
        return 0.0
    resumed = newest_checkpoint(folder.engine, before=recipe.optim.steps_max)
    # A line that a kill cut short would spoil the next one.
    folder.rewind(int(resumed.rpartition("-")[2]) if resumed else 0)
    known = [line["emission_rate"] for line in folder.lines() if line["step"] == 0 and "emission_rate" in line]
    if not known:
        with eval_mode(parent):
            known = [emission_rate(placed(parent))]
        folder.log({"step": 0, "emission_rate": known[0]})
    require_emission(known[0], known[0], recipe.guards)
    return known[0]


def pair_rows(rows: Sequence[TokenRow], batch_rows: int, seed: int) -> list[TokenRow]:
    """Rows in a seeded order whose last batch holds more than one: a row alone would be its own KL pair."""
    ordered = sorted(rows, key=lambda row: row.trace_id)
    random.Random(seed).shuffle(ordered)
    return ordered[:-1] if len(ordered) % batch_rows == 1 else ordered


def _dataset(rows: Sequence[TokenRow], recipe: Recipe) -> Any:
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "prompt_ids": list(row.token_ids[: row.prompt_length]),
                "completion_ids": list(row.token_ids[row.prompt_length :]),
                MASK: list(row.mask[row.prompt_length :]),
                "label": row.is_wanted,
            }
            for row in pair_rows(rows, recipe.optim.batch_rows, recipe.seed)
        ]
    )


@dataclass
class _MaskedCollator(DataCollatorForUnpairedPreference):  # type: ignore[misc]
    """Puts the rows' own mask in place of the engine's, which marks every completion token."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super().torch_call(examples)
        for prefix in ("", "KL_"):
            if prefix + "completion_ids" not in examples[0]:
                continue
            masks = [torch.tensor([0] * len(one["prompt_ids"]) + one[prefix + MASK]) for one in examples]
            mask = pad(masks, padding_value=0, padding_side="right", pad_to_multiple_of=self.pad_to_multiple_of)
            if mask.shape != output[prefix + "completion_mask"].shape:
                raise ValueError(f"{prefix}{MASK} does not line up with its tokens")
            output[prefix + "completion_mask"] = mask
        return output


class _MaskedTrainer(KTOTrainer):  # type: ignore[misc]
    """KTO on rows that are tokens already."""

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        if not self.calculate_KL:
            return dataset

        def rotate(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            for name in ("completion_ids", MASK):  # tokens and mask stay together
                batch["KL_" + name] = [batch[name][-1], *batch[name][:-1]]
            return batch

        return dataset.map(rotate, batched=True, batch_size=args.per_device_train_batch_size)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        self._signature_columns += [name for name in (MASK, "KL_" + MASK) if name not in self._signature_columns]

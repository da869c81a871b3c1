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

from training.guards import GuardStopError, require_emission, require_two_classes
from training.model import TokenRow
from training.models.opening import lora_config, open_parent, placed
from training.recipe import Recipe
from training.run import Outcome, PreemptionError, RunFolder, newest_checkpoint
from training.samplers.in_process import eval_mode
from training.stages.engine import Watch, engine_arguments, run_trainer, save_model
from training.stages.sft import FILLER

MASK = "completion_loss_mask"
_FILLER = msgspec.structs.replace(FILLER, prompt_length=1, is_wanted=False)  # of a last batch that processes share

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
    paired = pair_rows(rows, recipe.optim.batch_rows, recipe.seed)
    config = KTOConfig(
        **engine_arguments(recipe, folder.engine, lr=recipe.optim.lr),
        accelerator_config={"split_batches": True} if folder.processes.count > 1 else None,  # its pairs and z0: of all
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
        train_dataset=_dataset(paired, recipe.optim.batch_rows, is_filled=folder.processes.count > 1),
        processing_class=tokenizer,
        peft_config=lora_config(recipe.lora),
        data_collator=_MaskedCollator(pad_token_id=tokenizer.pad_token_id, max_length=None),
        callbacks=[watch],
    )
    done = run_trainer(trainer, watch, folder.engine, parent_sha256)
    save_model(trainer, folder)
    metrics = {"rows": float(len(paired)), "wanted": float(sum(row.is_wanted for row in paired))}
    dropped = {"own pair": 1} if len(paired) < len(rows) else {}
    return msgspec.structs.replace(done, metrics=metrics, dropped=dropped)


class KtoWatch(Watch):
    """Also watches, every so many steps, whether the policy still recommends on `dev`.

    `start_rate` is the parent's emission rate.
    """

    def __init__(self, folder: RunFolder, emission_rate: EmissionRate | None, start_rate: float) -> None:
        super().__init__(folder)
        self._recipe, self._rate, self._start_rate = folder.recipe, emission_rate, start_rate

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> Any:
        """Also look at the step that a run was asked to end after, before it could be looked at."""
        if state.global_step and not any("emission_rate" in line for line in self._lines_of(state)):
            self._watch_emission(state, control, model)
        if self.is_cut:  # the engine asks whether to stop only behind a step
            self.folder.require_time()
        if self.stopped_by:
            raise GuardStopError("emission", self.stopped_by)
        return super().on_train_begin(args, state, control, **rest)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> Any:
        """Sample `dev` with the policy as it is."""
        super().on_step_end(args, state, control, **rest)
        if not self.is_ending or state.global_step >= state.max_steps:
            self._watch_emission(state, control, model)
        return control

    def _watch_emission(self, state: Any, control: Any, model: Any) -> None:
        if self._rate is None or state.global_step % self._recipe.kto.emission_every_steps:
            return
        rate_of = self._rate
        try:
            with eval_mode(model):
                rate = self.folder.processes.by_first(lambda: rate_of(model))
        except PreemptionError:  # a resumed run looks at this step again
            self.is_cut = True
            self.end(control)
            return
        self.folder.log({"step": state.global_step, "emission_rate": rate})
        self.guard(control, lambda: require_emission(rate, self._start_rate, self._recipe.guards))

    def _lines_of(self, state: Any) -> list[dict[str, float]]:
        """What is logged of the newest step, the same in all processes."""
        lines = self.folder.processes.by_first(self.folder.lines)
        return [line for line in lines if line["step"] == state.global_step]


def _start_rate(folder: RunFolder, recipe: Recipe, emission_rate: EmissionRate | None, parent: Any) -> float:
    """The parent's emission rate: as logged when the run began, else taken of `parent` and logged; 0 without a rate."""
    if emission_rate is None:
        return 0.0
    resumed = newest_checkpoint(folder.engine, folder.processes)
    # A line that a kill cut short would spoil the next one.
    folder.rewind(int(resumed.rpartition("-")[2]) if resumed else 0)

    def first_rate() -> float:
        known = [line["emission_rate"] for line in folder.lines() if line["step"] == 0 and "emission_rate" in line]
        if not known:
            with eval_mode(parent):
                known = [emission_rate(placed(parent))]
            folder.log({"step": 0, "emission_rate": known[0]})
        return known[0]

    rate = folder.processes.by_first(first_rate)
    require_emission(rate, rate, recipe.guards)
    return rate


def pair_rows(rows: Sequence[TokenRow], batch_rows: int, seed: int) -> list[TokenRow]:
    """Rows in a seeded order whose last batch holds more than one: a row alone would be its own KL pair."""
    ordered = sorted(rows, key=lambda row: row.trace_id)
    random.Random(seed).shuffle(ordered)
    return ordered[:-1] if len(ordered) % batch_rows == 1 else ordered


def _dataset(rows: Sequence[TokenRow], batch_rows: int, *, is_filled: bool = False) -> Any:
    """The rows, the completions of each batch turned by one for its KL pairs; `is_filled` up to whole batches."""
    from datasets import Dataset

    made = []
    for start in range(0, len(rows), batch_rows):
        batch = rows[start : start + batch_rows]
        made += [_columns(row, other) for row, other in zip(batch, [batch[-1], *batch[:-1]], strict=True)]
    return Dataset.from_list(made + [_columns(_FILLER, _FILLER)] * (-len(rows) % batch_rows if is_filled else 0))


def _columns(row: TokenRow, other: TokenRow) -> dict[str, Any]:
    """What the engine reads of a row; `other` lends its completion to the KL pair."""
    return {
        "prompt_ids": list(row.token_ids[: row.prompt_length]),
        "completion_ids": list(row.token_ids[row.prompt_length :]),
        MASK: list(row.mask[row.prompt_length :]),
        "KL_completion_ids": list(other.token_ids[other.prompt_length :]),
        "KL_" + MASK: list(other.mask[other.prompt_length :]),
        "label": row.is_wanted,
    }


@dataclass
class _MaskedCollator(DataCollatorForUnpairedPreference):  # type: ignore[misc]
    """Puts the rows' own mask in place of the engine's, which marks every completion token."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super().torch_call(examples)
        for prefix in ("", "KL_"):
            masks = [torch.tensor([0] * len(one["prompt_ids"]) + one[prefix + MASK]) for one in examples]
            mask = pad(masks, padding_value=0, padding_side="right")
            if mask.shape != output[prefix + "completion_mask"].shape:
                raise ValueError(f"{prefix}{MASK} does not line up with its tokens")
            output[prefix + "completion_mask"] = mask
        return output


class _MaskedTrainer(KTOTrainer):  # type: ignore[misc]
    """KTO on rows that are tokens already. Several processes share out the rows of a batch: its z0, its loss.

    The engine takes means over the rows of a process, and of these over processes; fillers must not count in them.
    """

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return dataset

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        real = inputs["completion_mask"].any(dim=1)
        wanted = real & inputs["label"].bool()
        chosen, total = self.accelerator.reduce(torch.stack([wanted.sum(), real.sum()])).tolist()
        rows = len(real) * self.accelerator.num_processes
        self._weights = real * (rows / total)
        loss = super()._compute_loss(model, inputs, return_outputs)
        if rows == total:
            return loss
        metrics = self._metrics["train"]
        unlearnt = self.undesirable_weight * torch.sigmoid(torch.tensor(-self.beta * metrics["kl"][-1]))
        self._discount(metrics, chosen, total - chosen, rows - total)
        return (loss - unlearnt.to(loss) * (~real).sum() / len(real)) * (rows / total)

    def _discount(self, metrics: dict[str, list[float]], chosen: int, rejected: int, fillers: int) -> None:
        """Take the fillers out of what was logged of a batch: they were counted as rejected rows, with sums of 0."""
        for name in ("rewards/rejected", "logps/rejected"):
            mean = metrics[name].pop()
            if rejected:
                metrics[name].append(mean * (rejected + fillers) / rejected)
        if chosen:
            metrics["rewards/margins"].pop()
            if rejected:
                metrics["rewards/margins"].append(metrics["rewards/chosen"][-1] - metrics["rewards/rejected"][-1])

    def _compute_kl_logps(self, model: Any, batch: dict[str, Any]) -> Any:
        found = super()._compute_kl_logps(model, batch)
        return found * self._weights

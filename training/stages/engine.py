"""What every stage tells the engine, explicitly: optimisation, precision, checkpoints, logging; and what it watches.

What a result depends on is set from the recipe or here, with its reason, not left to a default of TRL or
transformers; the settings left alone are in a list that a test compares with those in force. A loss or gradient norm
that is NaN or infinite ends the run as a guard does.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from torch.distributed.tensor import DTensor
from transformers import PrinterCallback, TrainerCallback

from training.guards import GuardStopError, require_finite, require_small_kl
from training.recipe import Recipe
from training.run import ALONE, LOG, Outcome, Processes, RunFolder, newest_checkpoint


def engine_arguments(recipe: Recipe, engine: Path, *, lr: float, processes: Processes = ALONE) -> dict[str, Any]:
    """Arguments that SFTConfig, KTOConfig and GRPOConfig share. `engine`: where the engine keeps its checkpoints.

    The recipe's accumulation is that of all `processes` together.
    """
    optim = recipe.optim
    is_cuda = torch.cuda.is_available()
    return {
        "output_dir": str(engine),
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "learning_rate": lr,
        "lr_scheduler_type": optim.schedule,
        "warmup_steps": optim.warmup_share,  # below 1: a share of all steps
        "optim": "adamw_torch_fused",
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.grad_norm_max,
        "num_train_epochs": optim.epochs,
        "max_steps": optim.steps_max or -1,
        "per_device_train_batch_size": optim.batch_rows,
        "per_device_eval_batch_size": 1,  # every dev row counts the same, whatever it would be batched with
        "gradient_accumulation_steps": optim.accumulation // processes.count,
        "average_tokens_across_devices": True,  # a token counts the same, whichever process has its row
        "ddp_find_unused_parameters": False,
        "gradient_checkpointing": optim.is_checkpointing,
        "bf16": optim.is_bf16 and is_cuda,
        "use_cpu": not is_cuda,
        "save_strategy": "steps",
        "save_steps": optim.save_every_steps,
        "save_total_limit": 2,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would show the average in the place of a NaN loss
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": is_cuda,
    }


def quiet_engine() -> None:
    """No bars and notes of the libraries: progress is reported by the stage, once."""
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func is experimental; its contract has a test here
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated.*", category=FutureWarning)


class Watch(TrainerCallback):  # type: ignore[misc]
    """Logs each step to the run's folder and stops on NaN or inf. `stopped_by` names a guard that fired."""

    def __init__(self, folder: RunFolder, log: str = LOG) -> None:
        self._folder, self._log = folder, log
        self.stopped_by = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Lines of steps that a resumed run takes again are dropped from the log."""
        self._folder.rewind(int(state.global_step), self._log)
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> Any:
        """Keep the numbers of a step, and look at its loss and KL."""
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        self._folder.log({"step": state.global_step} | numbers, self._log)
        if "loss" in numbers:
            self.guard(control, lambda: require_finite("loss", numbers["loss"]))
        if "kl" in numbers:
            self.guard(control, lambda: require_small_kl(numbers["kl"], self._folder.recipe.guards))
        return control

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> Any:
        """A NaN gradient is thrown away before it gets into the weights."""
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if gradients:
            total = torch.nn.utils.get_total_norm(gradients)
            norm = float(total.full_tensor() if isinstance(total, DTensor) else total)  # spread over processes: whole
            self.guard(control, lambda: require_finite("gradient norm", norm))
            if not math.isfinite(norm):
                model.zero_grad(set_to_none=True)
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Report progress."""
        if self.stopped_by:
            control.should_save = False
        if self._folder.progress:
            self._folder.progress("train", int(state.global_step), int(state.max_steps))
        return control

    def guard(self, control: Any, check: Callable[[], None]) -> None:
        """Ask a guard; one that fires ends the training after this step."""
        try:
            check()
        except GuardStopError as stop:
            self.stopped_by = (
                self.stopped_by or stop.failure.detail
            )  # the first one; what follows may be its consequence
            control.should_training_stop = True
            control.should_save = False  # a run killed now would go on behind the guard


def run_trainer(
    trainer: Any, watch: Watch, engine: Path, parent_sha256: str, processes: Processes = ALONE, *, before: int
) -> Outcome:
    """Train from the newest checkpoint in `engine` on, `before` as `newest_checkpoint` has it.

    The engine's own printing is left out: standard output is the command's.
    """
    trainer.remove_callback(PrinterCallback)
    result = trainer.train(resume_from_checkpoint=newest_checkpoint(engine, processes, before=before))
    return Outcome(
        parent_sha256=parent_sha256,
        steps=int(result.global_step),
        losses=tuple(float(line["loss"]) for line in trainer.state.log_history if "loss" in line),
        stopped_by=watch.stopped_by,
    )

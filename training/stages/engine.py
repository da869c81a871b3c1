"""What every stage tells the engine, explicitly: optimisation, precision, checkpoints, logging; and what it watches.

What a result depends on is set from the recipe or here, with its reason, not left to a default of TRL or
transformers; the settings left alone are in a list that a test compares with those in force. A loss or gradient norm
that is NaN or infinite ends the run as a guard does.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from torch.distributed.tensor import DTensor
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations import TensorBoardCallback

from training.guards import GuardStopError, require_finite, require_small_kl
from training.recipe import Recipe
from training.run import ALONE, LOG, Outcome, PreemptionError, Processes, RunFolder, newest_checkpoint


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
        "optim": recipe.engine.optim,
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
        "report_to": list(recipe.engine.report_to),
        "run_name": recipe.name,
        "torch_compile": recipe.engine.torch_compile,
        "push_to_hub": bool(recipe.engine.push_to_hub),
        "hub_model_id": recipe.engine.push_to_hub or None,
        "hub_private_repo": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": is_cuda,
    }


def quiet_engine() -> None:
    """No bars and notes of the libraries: progress is reported by the stage, once."""
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # rollout_func is experimental; its contract has a test here
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated.*", category=FutureWarning)


@contextmanager
def scoring_what_is_learnt() -> Iterator[None]:
    """Inside, logits are computed of labelled tokens alone on every device; without it, the engine does so on a GPU.

    Elsewhere it computes those of all tokens and takes the others times 0: the losses are the same.
    """
    from trl.trainer import utils

    has_kernel = utils._use_triton  # this module of the engine asks it for nothing but that choice
    utils._use_triton = lambda device: True
    try:
        yield
    finally:
        utils._use_triton = has_kernel


class AllStepsDoneError(Exception):
    """A run was resumed behind its last step, where the engine would take one more."""


class Watch(TrainerCallback):  # type: ignore[misc]
    """Logs each step to the run's folder and stops on NaN or inf, and on SIGTERM once a batch is done.

    `stopped_by` names a guard that fired. All processes of a run end with the verdict of one.
    """

    def __init__(self, folder: RunFolder, log: str = LOG) -> None:
        self.folder, self.log = folder, log
        self.stopped_by = ""
        self.is_ending = False  # by SIGTERM, after a whole step
        self.is_cut = False  # in what follows that step
        self._saved = 0  # the step of the newest checkpoint
        self._after: tuple[Any, ...] | None = None  # what was drawn and counted up to the last whole step

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Lines of steps that a resumed run takes again are dropped from the log. Raises AllStepsDoneError."""
        self._saved = int(state.global_step)
        self.folder.rewind(self._saved, self.log)
        if self._saved >= state.max_steps:
            raise AllStepsDoneError
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> Any:
        """Keep the numbers of a step, and look at its loss and KL."""
        numbers = {name: float(value) for name, value in (logs or {}).items() if isinstance(value, int | float)}
        if self.is_ending and "train_runtime" in numbers:
            return control  # the engine's sum of a run that goes on
        self.folder.log({"step": state.global_step} | numbers, self.log)
        if "loss" in numbers:
            self.guard(control, lambda: require_finite("loss", numbers["loss"]))
        if "kl" in numbers:
            self.guard(control, lambda: require_small_kl(numbers["kl"], self.folder.recipe.guards))
        return control

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> Any:
        """A NaN gradient is thrown away before it gets into the weights."""
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if gradients:
            total = torch.nn.utils.get_total_norm(gradients)
            norm = float(total.full_tensor() if isinstance(total, DTensor) else total)  # spread over processes: whole
            if self.guard(control, lambda: require_finite("gradient norm", norm)):
                model.zero_grad(set_to_none=True)
        return control

    def on_substep_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Raises PreemptionError in all processes where SIGTERM has come to one."""
        if any(self.folder.processes.gather(self.folder.is_preempted)):
            self.folder.is_preempted = True
            self.folder.require_time()
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Report progress."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        self._after = (random.getstate(), torch.get_rng_state(), cuda, state.num_input_tokens_seen)
        if any(self.folder.processes.gather(self.folder.is_preempted)):
            self.end(control)
        if self.stopped_by:
            control.should_save = False
        if self.folder.progress:
            self.folder.progress("train", int(state.global_step), int(state.max_steps))
        return control

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
        """Remember which step is on disk."""
        self._saved = int(state.global_step)
        return control

    def end(self, control: Any) -> None:
        """End after this step, which is kept."""
        self.is_ending = control.should_training_stop = control.should_save = True

    def keep(self, trainer: Any) -> None:
        """Write a checkpoint of the last whole step, as it was when that ended, unless there is one."""
        if self._after is None or self._saved >= int(trainer.state.global_step):
            return
        drawn, torch_state, cuda, trainer.state.num_input_tokens_seen = self._after
        random.setstate(drawn)
        torch.set_rng_state(torch_state)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        trainer._save_checkpoint(trainer.model, trial=None)

    def guard(self, control: Any, check: Callable[[], None]) -> bool:
        """Ask a guard, in all processes; one that fires in any of them ends the training of all after this step."""
        detail = ""
        try:
            check()
        except GuardStopError as stop:
            detail = stop.failure.detail
        detail = next(filter(None, self.folder.processes.gather(detail)), "")
        if detail:
            self.stopped_by = self.stopped_by or detail  # the first one; what follows may be its consequence
            control.should_training_stop = True
            control.should_save = False  # a run killed now would go on behind the guard
        return bool(detail)


@contextmanager
def heeding_sigterm(folder: RunFolder) -> Iterator[None]:
    """Inside, SIGTERM asks the run to end where nothing is lost. Signals come to the main thread alone."""

    def ask(number: int, frame: Any) -> None:
        folder.is_preempted = True

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, ask) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


def run_trainer(trainer: Any, watch: Watch, engine: Path, parent_sha256: str) -> Outcome:
    """Train from the newest checkpoint in `engine` on.

    The engine's own printing is left out: standard output is the command's. Raises PreemptionError after SIGTERM.
    """
    folder = watch.folder
    trainer.remove_callback(PrinterCallback)
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback):  # the engine's own place goes when the run is finished
            callback.logging_dir = str(folder.path / "tensorboard" / Path(watch.log).stem)
    with heeding_sigterm(folder), scoring_what_is_learnt():
        try:
            trainer.train(resume_from_checkpoint=newest_checkpoint(engine, folder.processes))
        except AllStepsDoneError:
            trainer.is_in_train = False
        except PreemptionError:
            watch.keep(trainer)
            raise
        except GuardStopError as stop:
            said, steps = watch.stopped_by or stop.failure.detail, int(trainer.state.global_step)
            return Outcome(parent_sha256=parent_sha256, steps=steps, stopped_by=said)
    steps = int(trainer.state.global_step)
    if watch.is_ending and not watch.stopped_by and (watch.is_cut or steps < trainer.state.max_steps):
        folder.is_preempted = True
        folder.require_time()
    return Outcome(
        parent_sha256=parent_sha256,
        steps=steps,
        losses=tuple(float(line["loss"]) for line in trainer.state.log_history if "loss" in line),
        stopped_by=watch.stopped_by,
    )


def save_model(trainer: Any, folder: RunFolder) -> None:
    """Write what the run came to: the first process writes the whole, the others give their parts of it."""
    if folder.processes.count == 1:
        folder.save(trainer.model)
        return
    whole = trainer.accelerator.get_state_dict(trainer.model)
    if folder.processes.is_first:
        folder.save(trainer.accelerator.unwrap_model(trainer.model), state_dict=whole)
    folder.processes.wait()

"""Opening models: a base, the checkpoint of an earlier stage on top of it, and adapters for the next.

Adapters of earlier stages are merged, each onto the model it was trained on, before the next one trains; so
every run trains one adapter on one plain model. Full training keeps its weights in fp32, whatever is computed in bf16:
small updates would round away. Attention is SDPA (paper B.1) unless a recipe says another, without a mask where rows
are padded on the right: the same numbers for a quarter less work on CPU. Nothing is fetched: a model is a local folder,
of a finished run or with a config. Torch is imported by what computes, so that a missing model or engine is said
without it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foundation.errors import ArenaError
from training.recipe import LoraRules, Recipe
from training.run import CHECKPOINT, LINEAGE, RECIPE, copy_tokenizer, open_checkpoint, weights_sha256

if TYPE_CHECKING:
    import torch


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What is computed on. `warning` says what keeps torch from an NVIDIA device, and what to install or look at."""

    name: str
    torch: str
    warning: str = ""

    def describe(self) -> str:
        """One line, without the warning."""
        return f"{self.name} (torch {self.torch})" if self.torch else self.name


def find_device() -> Device:
    """What a stage would compute on, on this machine. Imports torch where it is installed."""
    try:
        import torch
    except ModuleNotFoundError:
        missing = "torch is not installed: `pip install -c constraints.txt -e '.[train]'` brings the engine"
        return Device(name="none", torch="", warning=missing)
    version = str(torch.__version__)
    if torch.cuda.is_available():
        return Device(name=torch.cuda.get_device_name(), torch=version)
    warning = ""
    if any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi"):  # two equals signs would take this build
        warning = (
            f"an NVIDIA device lies idle: torch {version} can't use it. Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, "
            "or install the build with CUDA: `pip install --force-reinstall -c constraints.txt "
            f"'torch==={version.partition('+')[0]}'` (three equals signs)"
        )
    return Device(name="cpu", torch=version, warning=warning)


CONFIG = "config.json"


def require_model(name: str) -> None:
    """Raises ArenaError V2120 for a model's folder that is not there, V2124 for no model's folder, with what to do."""
    folder = Path(name)
    if not folder.is_dir():
        raise ArenaError(
            "V2120",
            f"{name} is not a folder, and nothing is fetched: put the model there, as `hf download OWNER/{folder.name} "
            f"--local-dir {name}` does, or name the folder it is in; `--tiny-model` makes a random one there",
        )
    if not (folder / CONFIG).exists():
        raise ArenaError("V2124", f"{name} holds no {CONFIG}: it is not the folder of a model")


def require_candidate(name: str) -> None:
    """Raises ArenaError V2124 for what is the folder of neither a finished run nor a model, with what to do; V2120."""
    folder = Path(name)
    if (folder / LINEAGE).exists():
        return
    if (folder / RECIPE).exists():
        raise ArenaError(
            "V2124",
            f"{name} is a run that is not finished; go on: `arena train STAGE --recipe {folder / RECIPE} --out {name}`",
        )
    require_model(name)


def open_parent(recipe: Recipe) -> tuple[Any, str]:
    """(model, sha256 of what it comes from: the parent's lineage, or the base's weights).

    Dtype and attention are those that the recipe trains with. Raises ArenaError V2124 when either can't be opened,
    V2166 when a parent was changed.
    """
    import torch

    found, sha256 = _open_below(recipe, torch.bfloat16 if recipe.optim.is_bf16 and recipe.lora.r else torch.float32)
    try:
        found.set_attn_implementation(recipe.engine.attn_implementation)
    except (ImportError, ValueError) as error:
        raise ArenaError("V2124", f"attn_implementation: {error}") from error
    return found, sha256


def _open_below(recipe: Recipe, dtype: torch.dtype) -> tuple[Any, str]:
    if not recipe.parent:
        return open_model(recipe.model, dtype), weights_sha256(Path(recipe.model))
    return open_run(Path(recipe.parent), dtype), open_checkpoint(Path(recipe.parent)).sha256


def open_run(folder: Path, dtype: torch.dtype) -> Any:
    """The model a finished run came to, adapters of all its stages merged. Raises ArenaError V2124, V2166."""
    lineage, weights = open_checkpoint(folder), folder / CHECKPOINT
    if not (weights / "adapter_config.json").exists():
        return open_model(str(weights), dtype)
    from peft import PeftModel

    below, found = _open_below(lineage.recipe, dtype)
    if found != lineage.parent_sha256:
        raise ArenaError("V2166", f"what lies under {folder} is not what it was trained on")
    merged = PeftModel.from_pretrained(below, str(weights)).merge_and_unload()
    return merged.requires_grad_(True)  # the adapter had frozen what is now a plain model, to be trained whole or not


def open_model(name: str, dtype: torch.dtype) -> Any:
    """A causal language model from a folder. Raises ArenaError V2124, at once for a name that is not a folder."""
    require_model(name)
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ArenaError("V2124", f"{name}: {error}") from error
    model.register_forward_pre_hook(_without_right_padding, with_kwargs=True)
    return model


def _without_right_padding(module: Any, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A whole pass over rows that are padded on the right alone asks for no mask.

    Attention looks back only, so no token of a row sees what stands behind its end, and nothing there is learnt. Told
    of no mask, the engine attends causally and leaves out the half that a mask has it compute and throw away.
    """
    import torch

    mask = named.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2 and named.get("past_key_values") is None:
        is_padded_on_the_left = bool((mask[:, 1:] > mask[:, :-1]).any())
        if not is_padded_on_the_left:
            named["attention_mask"] = None
    return given, named


def save_served(run: Path, target: Path, *, is_bf16: bool) -> str:
    """Write what a server loads of a finished run: all adapters merged, and the tokenizer. The weights' sha256.

    Raises ArenaError V2124 for a run that can't be opened or a target that exists.
    """
    if target.exists():
        raise ArenaError("V2124", f"{target} exists; served weights are written once")
    import torch

    model = open_run(run, torch.bfloat16 if is_bf16 else torch.float32)
    target.mkdir(parents=True)
    model.save_pretrained(str(target))
    copy_tokenizer(run / CHECKPOINT, target)
    return weights_sha256(target)


def placed(model: Any) -> Any:
    """The model where it is to compute: on the GPU where there is one. A trainer moves its model by itself."""
    import torch

    return model.to("cuda") if torch.cuda.is_available() else model


def lora_config(rules: LoraRules) -> Any:
    """The adapter to train, or None for all weights."""
    if rules.r == 0:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=rules.r,
        lora_alpha=rules.alpha,
        lora_dropout=rules.dropout,
        target_modules=list(rules.targets),
        task_type="CAUSAL_LM",
    )

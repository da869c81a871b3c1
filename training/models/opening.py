"""Opening models: a base, the checkpoint of an earlier stage on top of it, and adapters for the next.

Adapters of earlier stages are merged, each onto the model it was trained on, before the next one trains; so
every run trains one adapter on one plain model. Full training keeps its weights in fp32, whatever is computed in bf16:
small updates would round away. Attention is SDPA (paper B.1), without a mask where rows are padded on the right: the
same numbers for a quarter less work on CPU. Nothing is fetched: a model is a local folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from foundation.errors import ArenaError
from training.models.model_folder import require_model
from training.recipe import LoraRules, Recipe
from training.run import CHECKPOINT, copy_tokenizer, open_checkpoint, weights_sha256


def open_parent(recipe: Recipe, dtype: torch.dtype | None = None) -> tuple[Any, str]:
    """(model, sha256 of what it comes from: the parent's lineage, or the base's weights).

    `dtype` None: as the recipe trains it. Raises ArenaError V2124 when either can't be opened, V2166 when a
    parent was changed.
    """
    if dtype is None:
        dtype = torch.bfloat16 if recipe.optim.is_bf16 and recipe.lora.r else torch.float32
    if not recipe.parent:
        return open_model(recipe.model, dtype), weights_sha256(Path(recipe.model))
    return open_run(Path(recipe.parent), dtype), open_checkpoint(Path(recipe.parent)).sha256


def open_run(folder: Path, dtype: torch.dtype) -> Any:
    """The model a finished run came to, adapters of all its stages merged. Raises ArenaError V2124, V2166."""
    lineage, weights = open_checkpoint(folder), folder / CHECKPOINT
    if not (weights / "adapter_config.json").exists():
        return open_model(str(weights), dtype)
    from peft import PeftModel

    below, found = open_parent(lineage.recipe, dtype)
    if found != lineage.parent_sha256:
        raise ArenaError("V2166", f"what lies under {folder} is not what it was trained on")
    merged = PeftModel.from_pretrained(below, str(weights)).merge_and_unload()
    return merged.requires_grad_(True)  # the adapter had frozen what is now a plain model, to be trained whole or not


def open_model(name: str, dtype: torch.dtype) -> Any:
    """A causal language model from a folder. Raises ArenaError V2124, for a name that is no folder at once."""
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
    model = open_run(run, torch.bfloat16 if is_bf16 else torch.float32)
    target.mkdir(parents=True)
    model.save_pretrained(str(target))
    copy_tokenizer(run / CHECKPOINT, target)
    return weights_sha256(target)


def placed(model: Any) -> Any:
    """The model where it is to compute: on the GPU where there is one. A trainer moves its model by itself."""
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


def device_name() -> str:
    """What the run computes on, for its lineage."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

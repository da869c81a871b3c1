"""Opening models: a base, the checkpoint of an earlier stage on top of it, and adapters for the next.

Promise: an adapter of an earlier stage is merged before the next one trains, so every run trains one adapter on one
plain model and a checkpoint's meaning does not depend on a stack. Attention is SDPA (paper B.1). Nothing is fetched: a
model is a local folder, or a name that the local cache holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from problems.errors import ArenaError
from training.recipe import LoraRules, Recipe
from training.stages.run import open_checkpoint, weights_sha256


def open_parent(recipe: Recipe) -> tuple[Any, str]:
    """(model, sha256 of what it comes from: the parent's lineage, or the base's weights).

    Raises ArenaError V2124 when either can't be opened.
    """
    dtype = torch.bfloat16 if recipe.optim.is_bf16 else torch.float32
    if not recipe.parent:
        return open_model(recipe.model, dtype), weights_sha256(Path(recipe.model))
    checkpoint, _ = open_checkpoint(Path(recipe.parent))
    if checkpoint.kind == "full":
        return open_model(checkpoint.folder, dtype), checkpoint.lineage_sha256
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(open_model(checkpoint.base, dtype), checkpoint.folder)
    return adapted.merge_and_unload(), checkpoint.lineage_sha256


def open_model(name: str, dtype: torch.dtype) -> Any:
    """A causal language model from a folder or the local cache. Raises ArenaError V2124."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ArenaError("V2124", f"{name}: {error}") from error


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

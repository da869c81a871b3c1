"""What a run would take, before it is started: memory and time, from sizes alone.

Promise: plain arithmetic with its assumptions named: bf16 weights (fp32 where all are trained), one adapter with its
optimiser in fp32, one layer's activations kept per checkpointed layer, 6 floating-point operations a parameter and
token (8 with recomputation), and a device that reaches 40 % of its peak. Rollout time is not in it: it depends on the
sampler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from problems.errors import ArenaError
from training.recipe import Recipe

EFFICIENCY = 0.4
PEAK_FLOPS = {"NVIDIA H100": 989e12, "NVIDIA H200": 989e12, "cpu": 0.1e12}


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and times of one training, without sampling."""

    parameters: int
    trained_parameters: int
    memory_gb: float
    tokens: int
    hours: dict[str, float]  # by device


def estimate_run(recipe: Recipe, tokens: int) -> Estimate:
    """The estimate for `tokens` training tokens in all. Raises ArenaError V2124 for a model without a config."""
    path = Path(recipe.model) / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2124", f"{path}: {error}") from error
    parameters = count_parameters(config)
    trained = parameters if recipe.lora.r == 0 else count_adapter(config, recipe)
    weight_bytes = 2 if recipe.optim.is_bf16 and recipe.lora.r else 4
    activations = _activation_bytes(config, recipe, weight_bytes)
    memory = parameters * weight_bytes + trained * (weight_bytes + 12) + activations  # gradient; Adam in fp32
    flops = (8 if recipe.optim.is_checkpointing else 6) * parameters * tokens * recipe.optim.epochs
    return Estimate(
        parameters=parameters,
        trained_parameters=trained,
        memory_gb=memory / 1e9,
        tokens=tokens,
        hours={name: flops / (peak * EFFICIENCY) / 3_600 for name, peak in PEAK_FLOPS.items()},
    )


def count_parameters(config: dict[str, Any]) -> int:
    """Parameters of a Qwen3 of this config (norms left out)."""
    hidden, layers, rows = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    embeddings = rows * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return int(embeddings + layers * sum(a * b for a, b in _matrices(config).values()))


def count_adapter(config: dict[str, Any], recipe: Recipe) -> int:
    """Parameters of the recipe's adapters: r x (in + out) of each target in each layer."""
    matrices = _matrices(config)
    per_layer = sum(recipe.lora.r * sum(matrices[name]) for name in recipe.lora.targets if name in matrices)
    return int(config["num_hidden_layers"] * per_layer)


def _matrices(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    return {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (queries, hidden),
        "gate_proj": (hidden, wide),
        "up_proj": (hidden, wide),
        "down_proj": (wide, hidden),
    }


def _activation_bytes(config: dict[str, Any], recipe: Recipe, weight_bytes: int) -> int:
    """Checkpointed: one hidden state a layer, one layer's own, and the logits with their gradient in fp32."""
    tokens = recipe.optim.batch_rows * recipe.data.tokens_max
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    one_layer = tokens * (8 * hidden + 3 * config["intermediate_size"]) * weight_bytes
    kept = tokens * hidden * layers * weight_bytes if recipe.optim.is_checkpointing else one_layer * layers
    return int(kept + one_layer + tokens * config["vocab_size"] * 8)

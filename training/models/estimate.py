"""What a run would take, before it is started: memory and time, from sizes alone.

Plain arithmetic with its assumptions named. Training: bf16 weights (fp32 where all are trained), one adapter with its
optimiser in fp32, one layer's activations kept per checkpointed layer, logits a tile at a time, passes of 2 operations
a parameter and token and of attention to what stands before it: three (four with recomputation), one more for each
further forward pass that KL asks for. Sampling: each turn's tokens read all weights once for the `parallel` rows that
decode together, and the row's own cache. A device reaches 40 % of its peak; lengths of episodes are assumed. Nothing
is measured: the truth may lie a factor of UNCERTAINTY away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foundation.errors import ArenaError
from training.recipe import Recipe

EFFICIENCY = 0.4
UNCERTAINTY = 3.0  # hours may be so many times as long, or as short
EPISODE_TOKENS = 5_000  # assumed
EPISODE_SAMPLED = 1_200  # of them, those the policy samples
STEPWISE = 2.5  # tokens of an episode's step-wise rows to those of its whole: four turns, each with all before it
PASSES = {"kto": 3, "grpo": 1}  # beside training: references, and what is paired for KTO's KL term
HEAD_TILE = 4_096 * 32_768  # logits that the engine holds at a time (TRL 1.16): rows x tokens x vocabulary never stand
DEVICES = {  # peaks: floating-point operations, and bytes of memory read, a second
    "NVIDIA H100": (989e12, 3.35e12),
    "NVIDIA H200": (989e12, 4.8e12),
    "cpu": (0.1e12, 20e9),
}
QWEN3_4B = {  # its config.json, as published
    "hidden_size": 2_560,
    "num_hidden_layers": 36,
    "vocab_size": 151_936,
    "intermediate_size": 9_728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a run works on. `taken`: episodes taken over from other runs; `dev`: problems that guards sample on."""

    corpus_tokens: int = 0
    problems: int = 0
    taken: int = 0
    dev: int = 0


class RunEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and times of one run, at one learning rate. `tokens` are trained on an epoch; `episodes` are sampled."""

    parameters: int
    trained_parameters: int
    memory_gb: float
    tokens: int
    episodes: int
    hours: dict[str, float]  # of training, by device
    sampling_hours: dict[str, float]
    uncertainty: float = UNCERTAINTY  # of hours: a factor in either direction


def estimate_run(recipe: Recipe, work: Work) -> RunEstimate:
    """The estimate. Raises ArenaError V2124 for a model that has no config here and is not Qwen3-4B by name."""
    shape = _read_shape(recipe.model)
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    head = shape.get("head_dim") or hidden // shape["num_attention_heads"]
    queries, keys = shape["num_attention_heads"] * head, shape["num_key_value_heads"] * head
    wide, optim = shape["intermediate_size"], recipe.optim
    matrices = {"q_proj": (hidden, queries), "k_proj": (hidden, keys), "v_proj": (hidden, keys)}
    matrices |= {"o_proj": (queries, hidden), "gate_proj": (hidden, wide), "up_proj": (hidden, wide)}
    matrices |= {"down_proj": (wide, hidden)}
    embeddings = shape["vocab_size"] * hidden * (1 if shape.get("tie_word_embeddings") else 2)
    parameters = embeddings + layers * sum(a * b for a, b in matrices.values())  # norms left out
    adapter = layers * sum(recipe.lora.r * sum(matrices[name]) for name in recipe.lora.targets)
    trained = adapter if recipe.lora.r else parameters
    more = 0 if recipe.stage == "grpo" and not recipe.grpo.beta else PASSES.get(recipe.stage, 0)

    weight_bytes = 2 if optim.is_bf16 and recipe.lora.r else 4
    copies = 1 if recipe.lora.r or not more else 2  # an adapter switched off is its own reference
    batch = optim.batch_rows * recipe.data.tokens_max
    a_layer = batch * (8 * hidden + 3 * wide) * weight_bytes
    kept = batch * hidden * layers * weight_bytes if optim.is_checkpointing else a_layer * layers
    activations = kept + a_layer + HEAD_TILE * weight_bytes + batch * hidden * 4
    memory = parameters * weight_bytes * copies + trained * (weight_bytes + 12) + activations  # gradient; Adam in fp32

    episodes, tokens = _counts(recipe, work)
    passes = (4 if optim.is_checkpointing else 3) + more
    a_token = 2 * parameters + 4 * layers * queries * EPISODE_TOKENS / 2  # operations of one pass
    trained_on = tokens * (1.0 if recipe.stage == "grpo" else optim.epochs)
    cache_bytes = 2 * 2 * layers * keys  # keys and values of a token, in bf16
    decoded = EPISODE_SAMPLED * (parameters * weight_bytes / recipe.parallel + EPISODE_TOKENS / 2 * cache_bytes)
    return RunEstimate(
        parameters=parameters,
        trained_parameters=trained,
        memory_gb=memory / 1e9,
        tokens=tokens,
        episodes=episodes,
        hours={
            name: passes * a_token * trained_on / (flops * EFFICIENCY) / 3_600 for name, (flops, _) in DEVICES.items()
        },
        sampling_hours={
            name: episodes * (decoded / read + a_token * EPISODE_TOKENS / flops) / EFFICIENCY / 3_600
            for name, (flops, read) in DEVICES.items()
        },
    )


def _read_shape(model: str) -> dict[str, Any]:
    path = Path(model) / "config.json"
    if path.parent.name == "Qwen3-4B" and not path.exists():
        return QWEN3_4B
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ArenaError("V2124", f"{path}: {error}; without it only the shape of Qwen3-4B is known") from error


def _counts(recipe: Recipe, work: Work) -> tuple[int, int]:
    """Episodes that the trained policy samples (a teacher's are sampled elsewhere), and tokens trained on in an epoch:
    at most, where successes are kept and shares are mixed."""
    optim, rules, taken = recipe.optim, recipe.grpo, work.taken or work.problems
    match recipe.stage:
        case "rejection":
            episodes = work.problems * recipe.samples
            return episodes, work.corpus_tokens + episodes * EPISODE_TOKENS
        case "grpo":
            steps = optim.steps_max or round(optim.epochs * work.problems / rules.problems_per_step)
            episodes = steps * rules.problems_per_step * rules.samples
            return episodes, episodes * EPISODE_TOKENS
        case "kto":
            steps = optim.steps_max or round(taken * optim.epochs / (optim.batch_rows * optim.accumulation))
            return steps // recipe.kto.emission_every_steps * work.dev, taken * EPISODE_TOKENS
        case "teacher":
            return 0, work.corpus_tokens + round(taken * EPISODE_TOKENS * STEPWISE)
        case _:
            return 0, work.corpus_tokens

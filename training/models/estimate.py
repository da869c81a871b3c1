"""What a run would take, before it is started: memory and time, from sizes alone.

Plain arithmetic with its assumptions named. Training: bf16 weights (fp32 where all are trained), one adapter
with its optimiser in fp32, one layer's activations kept per checkpointed layer, logits a tile at a time, passes of 2
floating-point operations a parameter and token and of attention to what stands before it: three (four with
recomputation), one more for each further forward pass that KL asks for, on a device that reaches 40 % of its peak.
Sampling: each turn's tokens read all weights once for the `parallel` rows that decode together, and the row's own cache
of keys and values; each token of a conversation is computed once, with a prefix cache. Lengths of episodes are assumed.

Will not do: measure. A cache that starts anew at each turn, a server's queue and the tools' own time are not in it, and
a device reaches anything from a seventh of its peak to more than 40 %: the truth may lie a factor of UNCERTAINTY away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foundation.errors import ArenaError
from training.recipe import Recipe

EFFICIENCY = 0.4
UNCERTAINTY = 3.0  # hours may be so many times as long, or as short
EPISODE_TOKENS = 5_000  # assumed: the study's expert has 4,681 on average
EPISODE_SAMPLED = 1_200  # of them, those the policy samples
STEPWISE = 2.5  # tokens of an episode's step-wise rows to those of its whole: four turns, each with all before it
KTO_PASSES = 3  # the reference on the rows, and policy and reference on those paired for the KL term
HEAD_TILE = 4_096 * 32_768  # logits that the engine holds at a time (TRL 1.16): rows x tokens x vocabulary never stand
GRPO_PASSES = 1  # the reference; the sampler's logprobs take the place of the old policy's


class DeviceSize(NamedTuple):
    """Peaks of a device: floating-point operations and bytes of memory read, a second."""

    flops: float
    bytes: float


DEVICES = {
    "NVIDIA H100": DeviceSize(989e12, 3.35e12),
    "NVIDIA H200": DeviceSize(989e12, 4.8e12),
    "cpu": DeviceSize(0.1e12, 20e9),
}
KNOWN_SHAPES: dict[str, dict[str, Any]] = {  # config.json of models that recipes name, as published
    "Qwen3-4B": {
        "hidden_size": 2_560,
        "num_hidden_layers": 36,
        "vocab_size": 151_936,
        "intermediate_size": 9_728,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
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
    """The estimate. Raises ArenaError V2124 for a model that has no config here and is not known by name."""
    config = read_shape(recipe.model)
    parameters = count_parameters(config)
    trained = parameters if recipe.lora.r == 0 else count_adapter(config, recipe)
    weight_bytes = 2 if recipe.optim.is_bf16 and recipe.lora.r else 4
    activations = _activation_bytes(config, recipe, weight_bytes)
    copies = 2 if recipe.lora.r == 0 and _passes(recipe) else 1  # an adapter switched off is its own reference
    memory = parameters * weight_bytes * copies + trained * (weight_bytes + 12) + activations  # gradient; Adam in fp32
    episodes, tokens = sampled_episodes(recipe, work), learnt_tokens(recipe, work)
    epochs = 1.0 if recipe.stage == "grpo" else recipe.optim.epochs
    passes = (4 if recipe.optim.is_checkpointing else 3) + _passes(recipe)
    a_token = 2 * parameters + _attention_flops(config)  # of one pass
    # Of one episode among `parallel` at once: bytes of weights and of its cache that decoding it reads, operations.
    decoded = EPISODE_SAMPLED * (parameters * weight_bytes / recipe.parallel + EPISODE_TOKENS / 2 * cache_bytes(config))
    read = a_token * EPISODE_TOKENS
    return RunEstimate(
        parameters=parameters,
        trained_parameters=trained,
        memory_gb=memory / 1e9,
        tokens=tokens,
        episodes=episodes,
        hours={
            name: passes * a_token * tokens * epochs / (device.flops * EFFICIENCY) / 3_600
            for name, device in DEVICES.items()
        },
        sampling_hours={
            name: episodes * (decoded / device.bytes + read / device.flops) / EFFICIENCY / 3_600
            for name, device in DEVICES.items()
        },
    )


def read_shape(model: str) -> dict[str, Any]:
    """The config of a model in a folder, or of one known by the last part of its name. Raises ArenaError V2124."""
    path = Path(model) / "config.json"
    known = KNOWN_SHAPES.get(Path(model).name)
    if known is not None and not path.exists():
        return known
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        names = ", ".join(KNOWN_SHAPES)
        raise ArenaError("V2124", f"{path}: {error}; without it only the shape of {names} is known") from error


def sampled_episodes(recipe: Recipe, work: Work) -> int:
    """Episodes that the trained policy samples. A teacher's are not: they are sampled elsewhere."""
    match recipe.stage:
        case "rejection":
            return work.problems * recipe.samples
        case "grpo":
            rules = recipe.grpo
            steps = recipe.optim.steps_max or round(recipe.optim.epochs * work.problems / rules.problems_per_step)
            return steps * rules.problems_per_step * rules.samples
        case "kto":
            rows = (work.taken or work.problems) * recipe.optim.epochs
            steps = recipe.optim.steps_max or round(rows / (recipe.optim.batch_rows * recipe.optim.accumulation))
            return steps // recipe.kto.emission_every_steps * work.dev
        case _:
            return 0


def learnt_tokens(recipe: Recipe, work: Work) -> int:
    """Tokens trained on in an epoch; at most, where successes are kept and shares are mixed."""
    episodes = work.taken or work.problems
    match recipe.stage:
        case "sft":
            return work.corpus_tokens
        case "rejection":
            return work.corpus_tokens + sampled_episodes(recipe, work) * EPISODE_TOKENS
        case "teacher":
            return work.corpus_tokens + round(episodes * EPISODE_TOKENS * STEPWISE)
        case "kto":
            return episodes * EPISODE_TOKENS
        case "grpo":
            return sampled_episodes(recipe, work) * EPISODE_TOKENS


def cache_bytes(config: dict[str, Any]) -> int:
    """Bytes of keys and values, in bf16, that a server keeps for one token."""
    return int(2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * _head_dim(config))


def _attention_flops(config: dict[str, Any]) -> float:
    """Operations of a token of an episode that attends to half of it, on average: scores, and sums of values."""
    width = config["num_attention_heads"] * _head_dim(config)
    return float(4 * config["num_hidden_layers"] * width * EPISODE_TOKENS / 2)


def _passes(recipe: Recipe) -> int:
    """Further forward passes over what is trained on."""
    if recipe.stage == "kto":
        return KTO_PASSES
    return GRPO_PASSES if recipe.stage == "grpo" and recipe.grpo.beta else 0


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


def _head_dim(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _matrices(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    head = _head_dim(config)
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
    """Checkpointed: one hidden state a layer, one layer's own, a tile of logits, the gradient below it in fp32.

    The evaluation takes one dev row at a time, without gradients: less than a step.
    """
    tokens = recipe.optim.batch_rows * recipe.data.tokens_max
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    one_layer = tokens * (8 * hidden + 3 * config["intermediate_size"]) * weight_bytes
    kept = tokens * hidden * layers * weight_bytes if recipe.optim.is_checkpointing else one_layer * layers
    head = HEAD_TILE * weight_bytes + tokens * hidden * 4
    return int(kept + one_layer + head)

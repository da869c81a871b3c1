"""Which sampler a recipe names: the model itself, the scripted model, or a vLLM server.

The choice is the recipe's alone. The samplers are in files of their own.
"""

from __future__ import annotations

from training.model import ChatCodec, Sampler
from training.recipe import Recipe
from training.samplers.scripted import ScriptedSampler
from training.samplers.vllm import VllmSampler

SCRIPTED = "scripted"


def outside_sampler(recipe: Recipe, codec: ChatCodec) -> Sampler | None:
    """The sampler of `recipe.sampler`; None where the run's own model samples. Raises ArenaError U3001."""
    if not recipe.sampler:
        return None
    if recipe.sampler == SCRIPTED:
        return ScriptedSampler(codec, recipe.sampler_model)
    return VllmSampler(recipe.sampler, recipe.sampler_model, codec)

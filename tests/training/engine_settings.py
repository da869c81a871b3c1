"""Every setting of the engine that may change a result, as it is in force for the paper's sft, kto and grpo recipes.

`python -m tests.training.engine_settings` writes `engine_settings.json` anew: to be done, and its difference read,
whenever the engine's version or what it is told changes.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.recipe import read_recipe
from training.stages.engine import engine_arguments
from training.stages.sft import sft_config

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_suffix(".json")
# where a run is logged and published, and what the machine decides
FREE = ("output_dir", "run_name", "project", "report_to", "disable_tqdm", "local_rank", "debug", "skip_memory_metrics")
FREE += ("bf16", "use_cpu", "dataloader_pin_memory", "deepspeed_plugin", "distributed_state")
FREE_PREFIXES = ("hub_", "push_", "trackio_", "log_", "logging_", "do_")


def settings_in_force() -> dict[str, dict[str, Any]]:
    """By stage; `kto` and `grpo` without what `sft` has too. What these two set besides stands at its default."""
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.kto_config import KTOConfig

    paper = ROOT / "training" / "recipes" / "paper"
    recipe, engine = read_recipe(paper / "sft.toml"), Path("engine")
    shared = engine_arguments(recipe, engine, lr=recipe.optim.lr)
    found = {
        "sft": _settings(sft_config(recipe, engine, recipe.optim.lr)),
        "kto": _settings(KTOConfig(**shared)),
        "grpo": _settings(GRPOConfig(**shared, num_generations=2)),
    }
    return {
        stage: {name: value for name, value in one.items() if stage == "sft" or name not in found["sft"]}
        for stage, one in found.items()
    }


def _settings(config: Any) -> dict[str, Any]:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {
        name: _plain(value)
        for name, value in sorted(values.items())
        if name not in FREE and not name.startswith(FREE_PREFIXES)
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value if isinstance(value, int | float | str | None) else str(value)


if __name__ == "__main__":
    KEPT.write_text(json.dumps(settings_in_force(), indent=1) + "\n", encoding="utf-8")

"""Every setting of the engine that may change a result, as it is in force for the paper's sft, kto and grpo recipes.

`python -m tests.training.engine_settings` writes `engine_settings.json` anew: to be done, and its difference read,
whenever the engine's version or what it is told changes.
"""

from __future__ import annotations

import json
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

    recipe, engine = read_recipe(ROOT / "training" / "recipes" / "paper" / "sft.toml"), Path("engine")
    shared = engine_arguments(recipe, engine, lr=recipe.optim.lr)
    configs = {
        "sft": sft_config(recipe, engine, recipe.optim.lr),
        "kto": KTOConfig(**shared),
        "grpo": GRPOConfig(**shared, num_generations=2),
    }
    found: dict[str, dict[str, Any]] = {}
    for stage, config in configs.items():
        found[stage] = {
            name: value
            for name, value in sorted(json.loads(config.to_json_string()).items())
            if name not in (*FREE, *found.get("sft", ())) and not name.startswith(FREE_PREFIXES)
        }
    return found


if __name__ == "__main__":
    KEPT.write_text(json.dumps(settings_in_force(), indent=1) + "\n", encoding="utf-8")

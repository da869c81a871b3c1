"""The study's own plan and recipes at a toy size: every line is as it ships but for sizes and one guard."""

from __future__ import annotations

import re
from pathlib import Path

from training.recipe import read_whole_text

SHIPPED = Path(__file__).parents[2] / "training" / "recipes" / "study"
TOKENIZER = SHIPPED.parent / "smoke" / "tokenizer"

_PLAN = {
    r"documents = \d+": "documents = 600",
    r"train_counts = .*": "train_counts = { product = 8 }",
    r"eval_counts = .*": "eval_counts = { product = 2 }",
    r"second_counts = .*": "second_counts = { product = 1 }",
    r"dev_counts = .*": "dev_counts = { product = 1 }",
    r"drawn = .*": "drawn = { rejection = 8, teacher = 4 }",
    r"(?m)^problems = \d+": "problems = 4",
    r"hidden = \d+": "hidden = 32",
    r"is_mimetic = true": "is_mimetic = false",
    r"drill_rows = \d+": "drill_rows = 24",
    r"layers = \d+": "layers = 1",
    r"transcripts = \d+": "transcripts = 1",
    r"turn_tokens_max = \d+": "turn_tokens_max = 8",
    r'sets = \["eval", "second"\]': 'sets = ["second"]',
    r"samples = 8": "samples = 2",
    r"(?s)\narms = \[.*?\]": '\narms = ["no_agentic_split", "mixed"]',
    r"(?m)^trained_arms = .*": "trained_arms = []",
    r"(?m)^headline_arms = .*": 'headline_arms = ["no_agentic_split"]',
    r"(?m)^recipes = .*": 'recipes = ["sft", "rejection", "teacher", "kto", "grpo_refresh"]',
    r"(?m)^headline_recipes = .*": "headline_recipes = []",
    r"epochs = \S+": "epochs = 0.5",
    r"(?m)^others = .*": 'others = ["subtask"]',
    r"others_problems = \d+": "others_problems = 8",
}
_RECIPE = {
    r"lr_sweep = \[[^]]*\]": "lr_sweep = [5e-4]",
    r"steps_max = \d+": "steps_max = 1",
    r"turn_tokens_max = 512": "turn_tokens_max = 8",
    r"turns_max = 8": "turns_max = 3",
    r"epochs = \S+": "epochs = 1.0",
    r"samples = \d+": "samples = 2",
    r"problems_per_step = \d+": "problems_per_step = 1",
    r"batch_rows = 6": "batch_rows = 2",
    r"accumulation = \d+": "accumulation = 1",
    r"refresh_every_steps = 2": "refresh_every_steps = 1",
    r"emission_min = 0.5.*": "emission_min = 0.0",  # a random model recommends nothing: there is nothing to watch
}


def write_toy_study(folder: Path) -> Path:
    """Plan and recipes in `folder`; the plan's path."""
    folder.mkdir(parents=True)
    for path in SHIPPED.glob("*.toml"):
        text = path.read_text("utf-8") if path.name == "study.toml" else read_whole_text(path)
        for pattern, small in (_PLAN if path.name == "study.toml" else _RECIPE).items():
            text = re.sub(pattern, small, text)
        if path.name == "teacher.toml":  # the teacher is scripted: let it finish
            text = text.replace("turns_max = 3", "turns_max = 12")
        if (
            path.name == "rejection.toml"
        ):  # a random model earns no full reward: a scripted one stands in, which fails as well
            text = text.replace(
                "parallel = 48", 'parallel = 48\nsampler = "scripted"\nsampler_model = "scripted-hasty"'
            )
            text = text.replace("turn_tokens_max = 8", "turn_tokens_max = 2048").replace(
                "turns_max = 3", "turns_max = 12"
            )
        (folder / path.name).write_text(text, "utf-8")
    return folder / "study.toml"

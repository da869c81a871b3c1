"""The study's own plan and recipes at a toy size: every line is as it ships but for sizes and one guard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "studies" / "shopping" / "recipes"
SEED = 11
ROWS = ("sft", "refresh", "sft@no_agentic_split")

_PLAN = {
    r"documents = \d+": "documents = 400",
    r"train_counts = .*": "train_counts = { product = 8 }",
    r"eval_counts = .*": "eval_counts = { product = 2 }",
    r"second_counts = .*": "second_counts = { product = 1 }",
    r"dev_counts = .*": "dev_counts = { product = 3 }",
    r"drawn = .*": "drawn = { teacher = 4 }",
    r"(?m)^problems = 300": "problems = 4",
    r"(?m)^problems = 600": "problems = 2",
    r"versions = \d+": "versions = 2",
    r"turn_tokens_max = \d+": "turn_tokens_max = 256",  # a random model writes until it is cut; no control is
    r"hidden = \d+": "hidden = 32",
    r"is_mimetic = true": "is_mimetic = false",
    r"drill_rows = \d+": "drill_rows = 24",
    r"layers = \d+": "layers = 1",
    r'sets = \["second", "eval"\]': 'sets = ["second"]',
    r"samples = 8": "samples = 2",
    r"(?ms)^arms = .*?\]$": 'arms = ["no_agentic_split"]',
    r"epochs = \S+": "epochs = 0.5",
}
_RECIPE = {
    r"steps_max = \d+": "steps_max = 1",
    r"turn_tokens_max = \d+": "turn_tokens_max = 8",
    r"turns_max = 8": "turns_max = 3",
    r"samples = \d+": "samples = 2",
    r"problems_per_step = \d+": "problems_per_step = 1",
    r"batch_rows = 8": "batch_rows = 2",
    r"save_every_steps = 5": "save_every_steps = 1",
}
_TESTS = {
    r"seeds = .*": f"seeds = [{SEED}]",
    r"sft@no_structural_filter": "sft@no_agentic_split",
    r"(?m)^control = .*": "",
}


def write_toy_study(folder: Path, rows: Sequence[str] = ROWS) -> Path:
    """Plan, recipes and tests in `folder`; the folder."""
    folder.mkdir(parents=True)
    named = ", ".join(f'"{row}"' for row in rows)
    plan = _PLAN | {
        r"(?s)\[\[blocks\]\].*\[market\]": f"[[blocks]]\nrows = [{named}]\nseeds = [{SEED}]\n\n[market]",
    }
    for path in SHIPPED.glob("*.toml"):
        small = {"study.toml": plan, "hypotheses.toml": _TESTS}.get(path.name, _RECIPE)
        text = path.read_text("utf-8")
        for pattern, value in small.items():
            text = re.sub(pattern, value, text)
        (folder / path.name).write_text(text, "utf-8")
    return folder

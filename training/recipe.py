"""A recipe: one TOML file that says everything a stage's run depends on.

Promise: every value has a name, a unit and its source; an unknown or misspelt key is an error that names its nearest;
its hash stands in the lineage. Defaults are the paper's (sections 6, B.1-B.6). A library's own defaults are never
relied on: what is not said here is said by the stage, explicitly.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec

from problems.errors import ArenaError
from training.model import Decode, Stage

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL_LINEAR = (*ATTENTION, "gate_proj", "up_proj", "down_proj")


class LoraRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters. `r` 0: all weights are trained (small models of `study/` and `smoke/`)."""

    r: int = 16
    alpha: int = 32
    dropout: float = 0.0  # live dropout would make the sampled and the scored policy differ
    targets: tuple[str, ...] = ALL_LINEAR


class OptimRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Optimisation. `lr_sweep`: each is tried and the least loss on `dev` is kept (B.1)."""

    lr: float = 3e-5
    lr_sweep: tuple[float, ...] = ()
    epochs: float = 1.0
    steps_max: int = 0  # 0: by epochs
    batch_rows: int = 1
    accumulation: int = 16
    warmup_share: float = 0.03
    weight_decay: float = 0.0
    grad_norm_max: float = 1.0
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    is_bf16: bool = True
    is_checkpointing: bool = True  # gradient checkpointing (B.1)
    save_every_steps: int = 50


class DataRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on. Shares are of rows; `voucher_times` repeats voucher rows (B.4)."""

    corpus: tuple[str, ...] = ()  # folders of `arena corpus build`
    rollouts: tuple[str, ...] = ()  # folders of rollouts made by a rejection or teacher stage
    rollout_share: float = 0.5  # B.3: 50/50, ablation 70/30
    voucher_times: int = 1
    dev: tuple[str, ...] = ()  # corpora of the `dev` pool: for sweeps, never learnt
    problems: str = ""  # problem file of the `train` pool to sample on
    dev_problems: str = ""  # problem file of the `dev` pool: what guards sample on
    tokens_max: int = 14_336


class KtoRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B.5."""

    beta: float = 0.02
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0
    emission_every_steps: int = 10


class GrpoRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B.6; the defaults are v18's. `refresh_every_steps` 0: the behaviour policy stays frozen, as in the paper.

    `preset` names the recipe in reports; `turn` and `refresh` are ours.
    """

    preset: Literal["v17", "v18", "v19", "turn", "refresh"] = "v18"
    problems_per_step: int = 8
    samples: int = 6
    beta: float = 0.2
    tool_weight: float = 0.0  # v19: 0.5, blended at reward level
    is_blended_per_turn: bool = False  # `turn`: each turn's own match, at that weight, in its advantage
    refresh_every_steps: int = 0
    completion_tokens_max: int = 8_192  # divides the loss in Dr. GRPO: part of the learning rate's meaning


class GuardRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a run stops instead of going on wrong (B.2, DESIGN 12)."""

    mask_drift_max: float = 0.01  # share of rows or rollouts whose mask does not decode to assistant text
    emission_min: float = 0.9  # share of `dev` episodes that recommend
    kl_max: float = 10.0  # of one step
    logprob_gap_max: float = 0.05  # mean |sampler - trainer|, before the first update


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of one stage."""

    name: str
    stage: Stage
    model: str  # folder or name of the base model
    tokenizer: str = ""  # folder; empty: the model's
    parent: str = ""  # folder of the parent checkpoint; empty: the base model
    seed: int = 0
    data: DataRules = DataRules()
    lora: LoraRules = LoraRules()
    optim: OptimRules = OptimRules()
    decode: Decode = Decode()
    samples: int = 8  # rejection: k (B.3)
    teacher: str = ""  # teacher: an OpenAI-compatible endpoint's URL, or `scripted`
    teacher_model: str = "scripted-expert"
    sampler: str = ""  # where rollouts are sampled: a vLLM endpoint's URL, `scripted`; empty: in this process
    sampler_model: str = ""  # its name there, and of the scripted model where `sampler` is `scripted`
    parallel: int = 8  # episodes at once
    sample_rows: int = 1  # turns sampled together in this process; above 1 rounding depends on other turns
    kto: KtoRules = KtoRules()
    grpo: GrpoRules = GrpoRules()
    guards: GuardRules = GuardRules()

    @property
    def recipe_sha256(self) -> str:
        """Identity of what the run is told to do."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file. Raises ArenaError V2120, naming the key and its nearest."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArenaError("V2120", f"{path}: {error}") from error
    return parse_recipe(text, str(path))


def parse_recipe(text: str, place: str = "recipe") -> Recipe:
    """The recipe in a TOML text from `place`. Raises ArenaError V2120, naming the key and its nearest."""
    try:
        return msgspec.convert(tomllib.loads(text), Recipe)
    except tomllib.TOMLDecodeError as error:
        raise ArenaError("V2120", f"{place}: {error}") from error
    except msgspec.ValidationError as error:
        raise ArenaError("V2120", f"{place}: {error}{_nearest(str(error))}") from error


def _nearest(message: str) -> str:
    """`; did you mean ...` for an unknown key."""
    unknown = re.search(r"unknown field `(\w+)`", message)
    rules = (Recipe, DataRules, LoraRules, OptimRules, Decode, KtoRules, GrpoRules, GuardRules)
    names = chain.from_iterable(rule.__struct_fields__ for rule in rules)
    close = difflib.get_close_matches(unknown.group(1), names, n=1) if unknown else []
    return f"; did you mean {close[0]!r}?" if close else ""

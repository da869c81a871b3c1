"""The plan of a study: one TOML file that says how large everything is. Its recipes, beside it, say what is trained.

Promise: an unknown key is an error; the plan is kept in the study's folder, which goes on with its own plan alone. A
plan names its recipes by file name, in the order they are run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from foundation.errors import ArenaError
from problems.model import Bucket
from training.corpus.building import FULL

MIXED = "mixed"  # the arm of agentic and lifted rows (`training.study.mixed`)
MIXED_PARTS = ("agentic", "lifted")  # its corpora

SetKey = Literal["eval", "second"]


class MarketRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The catalogue and its problems. Ids are short and titles bounded: pages fill a context."""

    documents: int = 2_000
    title_chars_max: int = 48
    options_max: int = 2  # options of a product, and attributes
    train_counts: dict[Bucket, int]
    eval_counts: dict[Bucket, int]
    second_counts: dict[Bucket, int]
    dev_counts: dict[Bucket, int]
    drawn: dict[str, int] = {}  # parts of the train problems, drawn by seed, that recipes name: problems/NAME.jsonl


class VocabularyRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tokenizer: `tokens` base tokens, learnt from the episodes of `problems` train problems."""

    tokens: int = 2_500
    problems: int = 300


class BaseRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base model: its shape, and what it learns before any stage: transcripts of the random tool-caller, whole."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    spread: float = 0.02  # of the random weights
    is_mimetic: bool = True  # `training.models.tiny_model`: shaped for quoting
    context: int = 4_096
    drill_rows: int = 0  # rows of repeated random tokens, learnt before anything else; 0: none
    drill_tokens: int = 64  # of a row
    drill_batch_rows: int = 12
    drill_lr: float = 3e-3
    transcripts: int = 1  # of each train problem
    tools_every: int = 8  # transcripts of which one shows the tools' schemas: they are most of its tokens, and alike
    lr: float = 1e-3
    epochs: float = 1.0
    batch_rows: int = 1
    accumulation: int = 16
    tokens_max: int = 4_096


class DecodeRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How evaluations are decoded, under a name. `sets`: where."""

    name: str
    sets: tuple[SetKey, ...]
    temperature: float
    top_p: float = 1.0
    samples: int = 1
    seeds: tuple[int, ...] = (0,)


class StudyPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One study."""

    name: str
    seed: int = 0
    tool_profile: Literal["paper4", "sn15", "extended"] = "paper4"
    market: MarketRules
    vocabulary: VocabularyRules = VocabularyRules()
    base: BaseRules = BaseRules()
    agents: tuple[str, ...]  # shipped agents whose episodes are the records
    others: tuple[str, ...] = ()  # more of them, raced on `others_problems` problems alone, for the ablations
    others_problems: int = 0
    recipes: tuple[str, ...]  # file stems, parents first
    decodes: tuple[DecodeRules, ...]
    turn_tokens_max: int = 512
    turns_max: int = 8
    parallel: int = 32
    corpus_tokens_max: int = 4_096
    coefficient_e4_min: int = 9_000
    arms: tuple[
        str, ...
    ] = ()  # ablations, by the names of `training.corpus.filter.ablations`, and `mixed`; `full` is always among them
    mixed_agentic_e4: Annotated[int, Meta(ge=0, le=10_000)] = (
        5_000  # share of `mixed` that is agentic; the rest is lifted
    )
    trained_arms: tuple[str, ...] = ()  # those that are trained; empty: all. Arms of equal rows need one training
    arm_recipes: tuple[str, ...] = ("sft",)  # what each arm trains
    arm_decodes: tuple[str, ...] = ("greedy",)  # how arms are measured, by the names of `decodes`
    headline_arms: tuple[str, ...] = ("full", "no_structural_filter")
    headline_recipes: tuple[str, ...] = ()  # what the headline pair trains beyond that: through GRPO

    def __post_init__(self) -> None:
        """Refuse a headline arm that has no corpus."""
        missing = {*self.headline_arms, *self.trained_arms} - {FULL, *self.arms}
        if self.arms and missing:
            raise ValueError(f"headline_arms, trained_arms: {min(missing)!r} is not among the arms")


def read_plan(path: Path) -> StudyPlan:
    """The plan in a TOML file. Raises ArenaError V2120."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), StudyPlan)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ArenaError("V2120", f"{path}: {error}") from error

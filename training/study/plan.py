"""The plan of a study: one TOML file that says how large everything is. Its recipes, beside it, say what is trained.

An unknown key is an error; the plan is kept in the study's folder, which goes on with its own plan alone. A
plan names its recipes by file name, in the order they are run.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from foundation.canonical import foreign_text, text_hash
from foundation.errors import ArenaError
from problems.model import Bucket

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


class AgentRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent whose episodes are records: on how many problems (0: all), and in how many versions of its source."""

    name: str
    problems: Annotated[int, Meta(ge=0)] = 0
    versions: Annotated[int, Meta(ge=1)] = 1  # `training.study.agent_versions`


class BlockRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of the table that are run together: for each seed, each of `rows` (`RECIPE` or `RECIPE@ARM`) in order."""

    rows: tuple[str, ...]
    seeds: tuple[int, ...]


class StudyPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One study."""

    name: str
    seed: int = 0
    tool_profile: Literal["paper4", "sn15", "extended", "compact"] = "paper4"
    market: MarketRules
    vocabulary: VocabularyRules = VocabularyRules()
    base: BaseRules = BaseRules()
    agents: tuple[AgentRules, ...]
    blocks: tuple[BlockRules, ...]  # in the order they are run; a row's parents stand in the same block or before it
    decodes: tuple[DecodeRules, ...]
    turn_tokens_max: int = 512
    turns_max: int = 8
    parallel: int = 32
    corpus_tokens_max: int = 4_096
    coefficient_e4_min: int = 9_000
    arms: tuple[str, ...] = ()  # corpora of equal rows, by the names of `training.corpus.filter.ablations`, and `mixed`
    mixed_agentic_e4: Annotated[int, Meta(ge=0, le=10_000)] = (
        5_000  # share of `mixed` that is agentic; the rest is lifted
    )

    @property
    def shared_sha256(self) -> str:
        """The hash of what every row shares. A plan may gain rows and arms while it runs, and lose those it has not
        begun: no other row is another one for it."""
        return text_hash(foreign_text(msgspec.to_builtins(msgspec.structs.replace(self, blocks=(), arms=()))))

    @property
    def trained(self) -> tuple[tuple[str, str, int], ...]:
        """(recipe, arm, seed) of every row, in the order of the blocks."""
        return tuple((*_named(row), seed) for block in self.blocks for seed in block.seeds for row in block.rows)

    def __post_init__(self) -> None:
        """Refuse a row of an arm that has no corpus, and one that stands twice."""
        missing = {arm for _, arm, _ in self.trained} - {"", *self.arms}
        if missing:
            raise ValueError(f"blocks: {min(missing)!r} is not among the arms")
        if len(set(self.trained)) != len(self.trained):
            raise ValueError("blocks: a row stands twice with one seed")


def read_plan(path: Path) -> StudyPlan:
    """The plan in a TOML file. Raises ArenaError V2120."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), StudyPlan)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ArenaError("V2120", f"{path}: {error}") from error


def _named(row: str) -> tuple[str, str]:
    recipe, _, arm = row.partition("@")
    return recipe, arm

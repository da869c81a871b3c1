"""The plan of a study: one TOML file that says how large everything is, and what its rows are.

Recipes, beside the plan, say what is trained. A row of the table is `RECIPE[@ARM]-SEED`: a recipe with a seed, on the
corpus `full` or that of an arm. Controls and the base are rows too.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from foundation.errors import ArenaError
from problems.model import Bucket
from training.recipe import Recipe

BASE, STUDY_MARK = "base", "{study}"
SCRIPTED = {f"scripted {name}": f"scripted-{name}" for name in ("concise", "expert")}
RANDOM_LABEL = "random tool-caller"
CONTROLS = (*SCRIPTED, RANDOM_LABEL)  # policies without weights

SetKey = Literal["eval", "second"]
SET_NAMES: dict[SetKey, str] = {"eval": "frozen eval", "second": "second set"}
ToolProfile = Literal["paper4", "sn15", "compact"]
_ROW = re.compile(r"(?P<recipe>\w+)(@(?P<arm>\w+))?-(?P<seed>\d+)")

Kind = TypeVar("Kind")


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a plan: an unknown key is an error."""


class MarketRules(Rules, frozen=True, kw_only=True):
    """The catalogue and its problems. Ids are short and titles bounded: pages fill a context."""

    documents: int
    title_chars_max: int
    options_max: int = 2  # options of a product, and attributes
    train_counts: dict[Bucket, int]
    eval_counts: dict[Bucket, int]
    second_counts: dict[Bucket, int]
    dev_counts: dict[Bucket, int]
    drawn: dict[str, int] = {}  # parts of the train problems, drawn by seed, that recipes name: problems/NAME.jsonl


class VocabularyRules(Rules, frozen=True, kw_only=True):
    """The tokenizer: `tokens` base tokens, learnt from the episodes of `problems` train problems."""

    tokens: int
    problems: int


class BaseRules(Rules, frozen=True, kw_only=True):
    """The base model: its shape, its drills, and the transcripts of the random tool-caller that it learns whole."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    spread: float  # of the random weights
    is_mimetic: bool  # `training.models.tiny_model`: shaped for quoting
    context: int
    drill_rows: int
    drill_tokens: int  # of a row
    drill_batch_rows: int
    drill_lr: float
    transcripts: int  # of each train problem
    tools_every: int  # transcripts of which one shows the tools' schemas: they are most of its tokens, and alike
    lr: float
    epochs: float
    batch_rows: int
    accumulation: int
    tokens_max: int


class DecodeRules(Rules, frozen=True, kw_only=True):
    """How evaluations are decoded, under a name. `sets`: where."""

    name: str
    sets: tuple[SetKey, ...]
    temperature: float
    top_p: float = 1.0
    samples: int = 1
    seeds: tuple[int, ...] = (0,)


class AgentRules(Rules, frozen=True, kw_only=True):
    """An agent whose episodes are records: on how many problems (0: all), and in how many versions of its source."""

    name: str
    problems: Annotated[int, Meta(ge=0)] = 0
    versions: Annotated[int, Meta(ge=1)] = 1


class BlockRules(Rules, frozen=True, kw_only=True):
    """Rows that are run together: for each seed, each of `rows` in order, without their seed."""

    rows: tuple[str, ...]
    seeds: tuple[int, ...]


class TrainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that is trained: a recipe with a seed, on the corpus of an arm ("": `full`)."""

    recipe: str
    seed: int
    arm: str = ""

    @property
    def name(self) -> str:
        """Of the row and of its run's folder."""
        return f"{self.recipe}{f'@{self.arm}' if self.arm else ''}-{self.seed}"


class StudyPlan(Rules, frozen=True, kw_only=True):
    """One study."""

    name: str
    seed: int
    tool_profile: ToolProfile
    market: MarketRules
    vocabulary: VocabularyRules
    base: BaseRules
    agents: tuple[AgentRules, ...]
    blocks: tuple[BlockRules, ...]
    decodes: tuple[DecodeRules, ...]
    turn_tokens_max: int
    turns_max: int
    parallel: int
    corpus_tokens_max: int
    coefficient_e4_min: int
    arms: tuple[str, ...] = ()  # corpora of equal rows, by the names of `training.corpus.selection`

    @property
    def plan_sha256(self) -> str:
        """Of what all rows share. A plan may gain rows and arms while it runs, and lose those not begun."""
        shared = replace(self, blocks=(), arms=())
        return hashlib.sha256(msgspec.json.encode(shared, order="sorted")).hexdigest()

    @property
    def trained(self) -> tuple[TrainedRow, ...]:
        """Every row that is trained, in the order of the blocks."""
        return tuple(row_named(f"{row}-{seed}") for block in self.blocks for seed in block.seeds for row in block.rows)

    @property
    def labels(self) -> tuple[str, ...]:
        """Every row of the table in the order they are made."""
        return (*CONTROLS, BASE, *(row.name for row in self.trained))


def read_toml(path: Path, kind: type[Kind]) -> Kind:
    """A plan, tests or limits from a TOML file. Raises ArenaError V2120."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), kind)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ArenaError("V2120", f"{path}: {error}") from error


def row_named(name: str) -> TrainedRow:
    """The trained row of that name. Raises ValueError for what names none."""
    found = _ROW.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r}: RECIPE[@ARM]-SEED is expected")
    return TrainedRow(recipe=found["recipe"], seed=int(found["seed"]), arm=found["arm"] or "")


def recipe_of(recipe: Recipe, folder: Path, row: TrainedRow) -> Recipe:
    """A recipe of the study with its folder and seed put in; of an arm: on that arm's corpus, and from its parents.

    Recipes write `{study}` for the folder, `{study}/corpora/full` for the corpus and `{study}/runs/RECIPE` for what
    they start from or learn from: runs of the same seed. Rollouts that are learnt from are the study's own, not an
    arm's.
    """
    runs = f"{STUDY_MARK}/runs/"
    data, parent = recipe.data, recipe.parent.removeprefix(runs)
    if row.arm:
        matched = f"{STUDY_MARK}/corpora/matched/{row.arm}"
        corpora = (one.replace(f"{STUDY_MARK}/corpora/full", matched) for one in data.corpus)
        data = replace(data, corpus=tuple(corpora))
        parent = "sft" if parent == "rejection" else parent  # arms skip rejection, which would sample anew
    if parent:
        parent = f"{runs}{replace(row, recipe=parent).name}"
    data = replace(data, rollouts=tuple(f"{one}-{row.seed}" for one in data.rollouts))
    found = msgspec.json.encode(replace(recipe, seed=row.seed, parent=parent, data=data))
    return msgspec.json.decode(found.replace(STUDY_MARK.encode(), str(folder).encode()), type=Recipe)


def parents_of(recipe: Recipe) -> set[str]:
    """The runs that a recipe, as `recipe_of` gives it, starts from or learns from, its base aside."""
    return {Path(name).name for name in (recipe.parent, *recipe.data.rollouts) if name}

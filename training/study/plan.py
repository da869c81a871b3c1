"""The plan of a study: one TOML file that says how large everything is. Its recipes, beside it, say what is trained.

An unknown key is an error; the plan is kept in the study's folder, which goes on with its own plan alone. A
plan names its recipes by file name, in the order they are run.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from foundation.canonical import foreign_text, text_hash
from foundation.errors import ArenaError
from problems.model import Bucket

ARM_START = "sft"  # the recipe that an arm begins with
MIXED = "mixed"  # the arm of agentic and lifted rows (`training.study.mixed`)
MIXED_PARTS = ("agentic", "lifted")  # its corpora

BASE_MARK, ARM_MARK, UNDER = (
    "~",
    "@",
    " under ",
)  # in a row's name: its base, its arm, and the harness it is asked under
GENERATION = "generation_"  # the arm of a generation, with its number behind
_LATER = (
    "bases",
    "harnesses",
    "generations",
    "measured_agents",
)  # of a plan: what came in after the first rows, and none of them needs
_BASE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BASE_OF, _GENERATION_OF = re.compile(rf"{BASE_MARK}(\w+)"), re.compile(rf"{ARM_MARK}{GENERATION}\d")

SetKey = Literal["eval", "second"]
ToolProfile = Literal["paper4", "sn15", "extended", "compact"]


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
    """Rows of the table that are run together: for each seed, each of `rows` in order.

    A row is `RECIPE[~BASE][@ARM]`: on another base than the plan's, on another corpus than `full`.
    """

    rows: tuple[str, ...]
    seeds: tuple[int, ...]


class HarnessRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another harness than a checkpoint learnt under, and the finished rows (with their seeds) that are asked under it.

    What it leaves out, tools or prompt, stays as they learnt it.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9-]+$")]
    rows: tuple[str, ...]
    decode: str = "greedy"  # of the plan's
    sets: tuple[SetKey, ...] = ("second",)
    tool_profile: ToolProfile | None = None
    prompt: str = ""


class GenerationRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rounds in which a distilled agent races and its records join the corpus: the arms `generation_1` on.

    The first one's agent is the checkpoint of the recipe `start`, a later one's that of the row before it.
    """

    rounds: Annotated[int, Meta(ge=1, le=9)] = 3
    start: str = "sft"
    problems: Annotated[int, Meta(ge=1)] = 600  # of the train pool that each races on, drawn anew for each


class TrainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table that is trained: a recipe with a seed, on a base ("": the plan's) and an arm ("": `full`)."""

    recipe: str
    seed: int
    base: str = ""
    arm: str = ""

    @property
    def name(self) -> str:
        """Of the row and of its run's folder: RECIPE[~BASE][@ARM]-SEED."""
        base = f"{BASE_MARK}{self.base}" if self.base else ""
        return f"{self.recipe}{base}{f'{ARM_MARK}{self.arm}' if self.arm else ''}-{self.seed}"

    @property
    def generation(self) -> int:
        """The number of the generation whose records it learns from, 0 for none."""
        return int(self.arm.removeprefix(GENERATION)) if self.arm.startswith(GENERATION) else 0


class StudyPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One study."""

    name: str
    seed: int = 0
    tool_profile: ToolProfile = "paper4"
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
    arms: tuple[str, ...] = ()  # corpora of equal rows, by the names of `training.corpus.building`, and `mixed`
    mixed_agentic_e4: Annotated[int, Meta(ge=0, le=10_000)] = (
        5_000  # share of `mixed` that is agentic; the rest is lifted
    )

    bases: dict[str, dict[str, int | float | bool]] = {}  # other bases, by name: what each changes of `base`
    harnesses: tuple[HarnessRules, ...] = ()  # asked after all rows
    generations: GenerationRules | None = None
    measured_agents: tuple[str, ...] = ()  # agent files on the same sets as the models, as `arena eval` runs one

    @property
    def shared_sha256(self) -> str:
        """The hash of what every row shares. A plan may gain rows and arms while it runs, and lose those it has not
        begun: no other row is another one for it."""
        told: dict[str, Any] = msgspec.to_builtins(self) | {"blocks": [], "arms": []}
        for name in _LATER:
            del told[name]
        return text_hash(foreign_text(told))

    def sha256_of(self, row: str) -> str:
        """The hash of what a row stands on: what all share, and the base, generations or harness that are its own.

        Raises KeyError for a base or harness that the plan lacks.
        """
        inner, _, under = row.partition(UNDER)
        if under:
            rules = {one.name: one for one in self.harnesses}[under]
            return _joined(self.sha256_of(inner), replace(rules, rows=()))
        found, base = self.shared_sha256, base_name(row)
        if base:
            found = _joined(found, self.base_of(base))
        if _GENERATION_OF.search(row) is not None:
            found = _joined(found, replace(self.generations or GenerationRules(), rounds=1))
        return found

    def goes_on_from(self, kept: StudyPlan) -> bool:
        """Whether what was made under `kept` holds under this plan: what all rows share, and what is under one name in
        both."""
        both = self.bases.keys() & kept.bases.keys()
        mine, other = (replace(one.generations or GenerationRules(), rounds=1) for one in (self, kept))
        return (
            self.shared_sha256 == kept.shared_sha256
            and all(self.base_of(name) == kept.base_of(name) for name in both)
            and (mine == other or None in (self.generations, kept.generations))
        )

    def base_of(self, name: str) -> BaseRules:
        """The base of that name, "" for the plan's own. Raises KeyError without one, ValidationError for one that has
        other keys or values than a base."""
        changed = msgspec.to_builtins(self.base) | (self.bases[name] if name else {})
        return msgspec.convert(changed, BaseRules)

    def racer_of(self, row: TrainedRow) -> TrainedRow:
        """Whose agent races for a generation's row: on the same base, of the same seed."""
        rules = self.generations or GenerationRules()
        recipe, arm = (rules.start, "") if row.generation == 1 else (ARM_START, f"{GENERATION}{row.generation - 1}")
        return replace(row, recipe=recipe, arm=arm)

    @property
    def trained(self) -> tuple[TrainedRow, ...]:
        """Every row that is trained, in the order of the blocks."""
        return tuple(
            replace(_named(row), seed=seed) for block in self.blocks for seed in block.seeds for row in block.rows
        )

    def __post_init__(self) -> None:
        """Refuse a row of an arm that has no corpus or of a base that has no rules, one that stands twice, and a
        harness of a row or decoding that there is not."""
        rows = self.trained
        rounds = self.generations.rounds if self.generations else 0
        arms = {"", *self.arms, *(f"{GENERATION}{number}" for number in range(1, rounds + 1))}
        if missing := {row.arm for row in rows} - arms:
            raise ValueError(f"blocks: {min(missing)!r} is not among the arms")
        if missing := {row.base for row in rows} - {"", *self.bases}:
            raise ValueError(f"blocks: {min(missing)!r} is not among the bases")
        for name in self.bases:
            if not _BASE_NAME.fullmatch(name):
                raise ValueError(f"bases: {name!r} is no name of small letters, digits and underscores")
            self.base_of(name)
        names = [row.name for row in rows]
        if len(set(names)) != len(names):
            raise ValueError("blocks: a row stands twice with one seed")
        for row in rows:
            if row.generation and (row.recipe != ARM_START or self.racer_of(row).name not in names):
                raise ValueError(f"blocks: {row.name} needs {self.racer_of(row).name}, and {ARM_START} as its recipe")
        for rules in self.harnesses:
            if missing := set(rules.rows) - set(names):
                raise ValueError(f"harnesses: {min(missing)!r} is no row of the plan")
            if rules.decode not in {one.name for one in self.decodes}:
                raise ValueError(f"harnesses: {rules.decode!r} is no decoding of the plan")
        if len({rules.name for rules in self.harnesses}) != len(self.harnesses):
            raise ValueError("harnesses: a name stands twice")


def read_plan(path: Path) -> StudyPlan:
    """The plan in a TOML file. Raises ArenaError V2120."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), StudyPlan)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ArenaError("V2120", f"{path}: {error}") from error


def _named(row: str) -> TrainedRow:
    """A row as blocks write it, without a seed."""
    name, _, arm = row.partition(ARM_MARK)
    recipe, _, base = name.partition(BASE_MARK)
    return TrainedRow(recipe=recipe, base=base, arm=arm, seed=0)


def base_name(row: str) -> str:
    """The base that a row's name says, "" for the plan's own."""
    found = _BASE_OF.search(row)
    return found[1] if found else ""


def _joined(sha256: str, own: msgspec.Struct) -> str:
    return text_hash(foreign_text([sha256, msgspec.to_builtins(own)]))

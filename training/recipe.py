"""A recipe: one TOML file, or one that extends another, that says everything a stage's run depends on.

Every value has a name, a unit, its bounds and its source; an unknown or misspelt key is an error that names
its nearest, a value out of bounds one that names key, value and bound, and keys that contradict each other are named
when the recipe is read, before anything is opened or sampled. It stands whole in the lineage. Defaults are the paper's
(sections 6, B.1-B.6). A library's own defaults are never relied on: what is not
said here is said by the stage.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from foundation.errors import ArenaError
from training.model import Decode, TrainingStage

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]  # of a Qwen3 layer

ATTENTION: tuple[Projection, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL_LINEAR: tuple[Projection, ...] = (*ATTENTION, "gate_proj", "up_proj", "down_proj")

_UNKNOWN = re.compile(r"unknown field `(\w+)`")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
SAMPLING_STAGES: tuple[TrainingStage, ...] = ("kto", "grpo")  # they sample from the policy that is being trained
EXTENDS = "extends"  # the key of an overlay: the file that it changes

Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Rate = Annotated[float, Meta(gt=0.0, le=1.0)]
Positive = Annotated[float, Meta(gt=0.0)]
Weight = Annotated[float, Meta(ge=0.0)]
Named = Annotated[str, Meta(min_length=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]  # what every generator of the engine takes


class LoraRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters. `r` 0: all weights are trained (small models of `study/` and `smoke/`)."""

    r: CountOrNone = 16
    alpha: Count = 32
    dropout: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0  # live, it makes the sampled and the scored policy differ
    targets: Annotated[tuple[Projection, ...], Meta(min_length=1)] = ALL_LINEAR


class OptimRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Optimisation. `lr_sweep`: each is tried and the least loss on `dev` is kept (B.1)."""

    lr: Rate = 3e-5
    lr_sweep: tuple[Rate, ...] = ()
    epochs: Positive = 1.0
    steps_max: CountOrNone = 0  # 0: by epochs
    batch_rows: Count = 1
    accumulation: Count = 16
    warmup_share: Share = 0.03
    weight_decay: Weight = 0.0
    grad_norm_max: Positive = 1.0
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    is_bf16: bool = True
    is_checkpointing: bool = True  # gradient checkpointing (B.1)
    save_every_steps: Count = 50


class DataRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on. Shares are of rows; `voucher_times` repeats voucher rows (B.4)."""

    corpus: tuple[str, ...] = ()  # folders of `arena corpus build`
    rollouts: tuple[str, ...] = ()  # folders of rollouts made by a rejection or teacher stage
    rollout_share: Share = 0.5  # B.3: 50/50, ablation 70/30
    voucher_times: Count = 1
    dev: tuple[str, ...] = ()  # corpora of the `dev` pool: for sweeps, never learnt
    problems: str = ""  # problem file of the `train` pool to sample on
    dev_problems: str = ""  # problem file of the `dev` pool: what guards sample on
    tokens_max: Count = 14_336


class KtoRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B.5."""

    beta: Positive = 0.02
    desirable_weight: Positive = 1.0
    undesirable_weight: Positive = 1.0
    emission_every_steps: Count = 10


class GrpoRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """B.6; the defaults are v18's. `refresh_every_steps` 0: the behaviour policy stays frozen, as in the paper.

    `preset` names the recipe in reports; `turn` and `refresh` are ours.
    """

    preset: Literal["v17", "v18", "v19", "turn", "refresh"] = "v18"
    problems_per_step: Count = 8
    samples: Annotated[int, Meta(ge=2)] = 6  # a group of one has no spread
    beta: Weight = 0.2
    tool_weight: Share = 0.0  # v19: 0.5, blended at reward level
    is_blended_per_turn: bool = False  # `turn`: each turn's own match, at that weight, in its advantage
    refresh_every_steps: CountOrNone = 0
    completion_tokens_max: Count = 8_192  # divides the loss in Dr. GRPO: part of the learning rate's meaning


class EngineRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is passed on to the engine under the names that transformers' TrainingArguments and `from_pretrained` have.

    A lineage's hash leaves it out where it says nothing: it came later than the first lineages.
    """

    report_to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()  # beside log.jsonl
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"  # B.1: SDPA
    torch_compile: bool = False  # sft, rejection, teacher
    optim: Literal["adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit"] = "adamw_torch_fused"
    push_to_hub: str = ""  # OWNER/NAME of a private repository that gets checkpoints; empty: nothing is sent

    def packages(self) -> tuple[str, ...]:
        """What has to be installed beyond the extra `train`."""
        attention = ("flash_attn",) if self.attn_implementation.startswith("flash") else ()
        adam = ("bitsandbytes",) if self.optim != "adamw_torch_fused" else ()
        return (*self.report_to, *attention, *adam)


class GuardRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a run stops instead of going on wrong (paper B.2; docs/architecture.md#training)."""

    mask_drift_max: Share = 0.01  # share of rows or rollouts whose mask does not decode to assistant text
    emission_min: Share = 0.9  # of the parent's rate of `dev` episodes that recommend; 0: not watched
    kl_max: Positive = 10.0  # of one step
    mixed_min: Share = 0.0  # of the groups of ten steps, those whose rewards differ; 0: not watched
    logprob_gap_max: Positive = 0.05  # mean |sampler - trainer|, before the first update


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of one stage."""

    name: Named
    stage: TrainingStage
    model: Named  # folder of the base model: nothing is fetched
    tokenizer: str = ""  # folder; empty: the model's
    parent: str = ""  # folder of the parent checkpoint; empty: the base model
    seed: Seed = 0
    data: DataRules = DataRules()
    lora: LoraRules = LoraRules()
    optim: OptimRules = OptimRules()
    decode: Decode = Decode()
    samples: Count = 8  # rejection: k (B.3)
    teacher: str = ""  # an OpenAI-compatible endpoint's URL, or `scripted`; rejection: samples it, not the parent
    teacher_model: str = "scripted-expert"
    sampler: str = ""  # where rollouts are sampled: a vLLM endpoint's URL; empty: in this process
    sampler_model: str = ""  # its name there
    parallel: Count = 8  # episodes at once
    sample_rows: Count = 1  # turns sampled together in this process; above 1 rounding depends on other turns
    kto: KtoRules = KtoRules()
    grpo: GrpoRules = GrpoRules()
    guards: GuardRules = GuardRules()
    engine: EngineRules = EngineRules()


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file, or the one that a run keeps (JSON).

    A file that extends another (`extends = "NAME.toml"`, from its own folder) is laid over it, value over value. Raises
    ArenaError V2120: for a file that can't be read, for files that extend each other in a circle, for an unknown key
    with its nearest, for a value out of bounds with key, value and bound, for keys that contradict each other with all
    of them.
    """
    layers: dict[Path, dict[str, Any]] = {}  # an overlay first, what it extends behind it
    place: Path | None = path.absolute()
    while place is not None:
        if place in layers:
            raise ArenaError("V2120", f"{path}: {EXTENDS} leads back to {place.name}")
        try:
            content = place.read_bytes()
            is_json = place.suffix == ".json"
            told = msgspec.json.decode(content) if is_json else tomllib.loads(content.decode(), parse_float=_finite)
        except (OSError, ValueError) as error:  # not UTF-8, TOML or JSON among them
            raise ArenaError("V2120", f"{place}: {error}") from error
        layers[place] = told
        base = told.pop(EXTENDS, None)
        place = None if base is None else (place.parent / str(base)).resolve()
    whole: dict[str, Any] = {}
    for told in reversed(layers.values()):
        for key, value in told.items():
            kept = whole.get(key)
            whole[key] = kept | value if isinstance(kept, dict) and isinstance(value, dict) else value
    try:
        recipe = msgspec.convert(whole, Recipe)
    except msgspec.ValidationError as error:
        raise ArenaError("V2120", f"{path}: {_describe(str(error), whole)}") from error
    if wrong := contradictions(recipe):
        raise ArenaError("V2120", f"{path}: {'; '.join(wrong)}")
    return recipe


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text}: a finite number is expected")
    return value


def _describe(message: str, told: Mapping[str, Any]) -> str:
    """`key = value: bound` for a value out of bounds, the nearest key for an unknown one. `message` is msgspec's."""
    if unknown := _UNKNOWN.search(message):
        close = difflib.get_close_matches(unknown[1], sorted(_names(msgspec.inspect.type_info(Recipe))), n=1)
        return message + (f"; did you mean {close[0]!r}?" if close else "")
    place = _PLACE.search(message)
    if place is None:
        return message
    value: Any = told
    for step in re.findall(r"\w+", place[1]):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return f"{place[1]} = {value!r}: {message[: place.start()]}"


def _names(found: msgspec.inspect.Type) -> Iterator[str]:
    """The keys of a struct and of the structs in it."""
    if isinstance(found, msgspec.inspect.StructType):
        for field in found.fields:
            yield field.name
            yield from _names(field.type)


def contradictions(recipe: Recipe) -> list[str]:
    """What no single key gets wrong: keys that can't stand together, a sentence each that names them."""
    optim, rules, decode, stage = recipe.optim, recipe.grpo, recipe.decode, recipe.stage
    rollouts = rules.problems_per_step * rules.samples
    always: dict[str, object] = {
        f"sampler = {recipe.sampler!r} is no URL": recipe.sampler and not is_url(recipe.sampler),
        f"teacher = {recipe.teacher!r} is neither a URL nor `scripted`": (
            recipe.teacher not in ("", "scripted") and not is_url(recipe.teacher)
        ),
        "sampler is a server: sampler_model has to name the model there": recipe.sampler and not recipe.sampler_model,
        f"engine.torch_compile: {stage} runs what it trains outside the compiled model, too": (
            recipe.engine.torch_compile and stage in SAMPLING_STAGES
        ),
    }
    by_stage: dict[TrainingStage, dict[str, object]] = {
        "kto": {
            f"optim.batch_rows = {optim.batch_rows}: KTO pairs the rows of a batch, at least 2": optim.batch_rows < 2,
            "optim.lr_sweep: kto sweeps no learning rates": optim.lr_sweep,
        },
        "grpo": {
            "optim.lr_sweep: grpo sweeps no learning rates": optim.lr_sweep,
            f"optim.batch_rows = {optim.batch_rows} has to divide {rollouts}, the rollouts of a step "
            "(grpo.problems_per_step x grpo.samples)": rollouts % optim.batch_rows,
            "a server takes adapters: grpo.refresh_every_steps needs lora.r above 0": (
                rules.refresh_every_steps and recipe.sampler and not recipe.lora.r
            ),
            "grpo.is_blended_per_turn needs grpo.tool_weight above 0": (
                rules.is_blended_per_turn and not rules.tool_weight
            ),
            "decode.temperature = 0.0: the rollouts of a group would be all alike": decode.temperature == 0,
            f"decode.top_p = {decode.top_p}: the trainer scores the whole distribution, so 1.0": decode.top_p != 1,
        },
    }
    swept = {
        "a sweep of learning rates (optim.lr_sweep) needs dev rows: data.dev names no corpus": (
            len(optim.lr_sweep) > 1 and not recipe.data.dev
        )
    }
    return [text for text, is_wrong in (always | by_stage.get(stage, swept)).items() if is_wrong]


def require_runnable(recipe: Recipe, place: str) -> None:
    """What a command needs beyond a recipe that reads: the problems it names, the packages that it asks the engine for.

    Raises ArenaError V2120. No part of reading: a study deals its problems itself.
    """
    wrong = ""
    absent = [name for name in recipe.engine.packages() if importlib.util.find_spec(name) is None]
    if absent:
        wrong = f"engine asks for {absent[0]}, which is not installed: `pip install {absent[0]}`"
    elif recipe.stage != "sft" and not recipe.data.problems:
        wrong = f"{recipe.stage} learns from problems of the train pool: name their file in data.problems"
    elif recipe.stage == "kto" and recipe.guards.emission_min and not recipe.data.dev_problems:
        wrong = "guards.emission_min watches episodes on problems of the dev pool: name their file in data.dev_problems"
    if wrong:
        raise ArenaError("V2120", f"{place}: {wrong}")


def is_url(value: str) -> bool:
    """Whether a text is the URL of an endpoint."""
    return value.startswith(("http://", "https://"))

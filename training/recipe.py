"""A recipe: one TOML file, or one that extends another, that says everything a stage's run depends on.

Every value has a name, a unit, its bounds and its source; an unknown or misspelt key is an error that names
its nearest, a value out of bounds one that names key, value and bound, and keys that contradict each other are named
when the recipe is read, before anything is opened or sampled. Its hash is in the lineage, and so is its text, written
out whole. Defaults are the paper's (sections 6, B.1-B.6). A library's own defaults are never relied on: what is not
said here is said by the stage.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from foundation.errors import ArenaError
from training.model import Decode, Stage

Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]  # of a Qwen3 layer

ATTENTION: tuple[Projection, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL_LINEAR: tuple[Projection, ...] = (*ATTENTION, "gate_proj", "up_proj", "down_proj")

_UNKNOWN = re.compile(r"unknown field `(\w+)`")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_STEP = re.compile(r"\w+")

EXTENDS = "extends"  # the key of an overlay: the file that it changes
_ABOVE = "../"  # before the name of a file of the folder above

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
    stage: Stage
    model: Named  # folder of the base model: nothing is fetched
    tokenizer: str = ""  # folder; empty: the model's
    parent: str = ""  # folder of the parent checkpoint; empty: the base model
    seed: Seed = 0
    data: DataRules = DataRules()
    lora: LoraRules = LoraRules()
    optim: OptimRules = OptimRules()
    decode: Decode = Decode()
    samples: Count = 8  # rejection: k (B.3)
    teacher: str = ""  # teacher: an OpenAI-compatible endpoint's URL, or `scripted`
    teacher_model: str = "scripted-expert"
    sampler: str = ""  # where rollouts are sampled: a vLLM endpoint's URL, `scripted`; empty: in this process
    sampler_model: str = ""  # its name there, and of the scripted model where `sampler` is `scripted`
    parallel: Count = 8  # episodes at once
    sample_rows: Count = 1  # turns sampled together in this process; above 1 rounding depends on other turns
    kto: KtoRules = KtoRules()
    grpo: GrpoRules = GrpoRules()
    guards: GuardRules = GuardRules()

    @property
    def recipe_sha256(self) -> str:
        """Identity of what the run is told to do."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def read_whole_text(path: Path) -> str:
    """The TOML text of a recipe's file that needs no other file.

    A file that extends another (`extends = "NAME.toml"` of the same folder, or `"../NAME.toml"` of the one above) is
    written out with it, value over value; one that extends none is returned as it is. Raises ArenaError V2120 for a
    file that is no TOML, or absent, and for files that extend each other in a circle.
    """
    layers: dict[Path, dict[str, Any]] = {}  # an overlay first, what it extends behind it
    place: Path | None = path
    while place is not None:
        if place in layers:
            raise ArenaError("V2120", f"{path}: {EXTENDS} leads back to {place.name}")
        try:
            text = place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ArenaError("V2120", f"{place}: {error}") from error
        layers[place] = _load(text, str(place))
        base = layers[place].pop(EXTENDS, None)
        if base is not None and (not isinstance(base, str) or base.removeprefix(_ABOVE) != Path(base).name):
            raise ArenaError("V2120", f"{place}: {EXTENDS} = {base!r}: a file beside it, or ../NAME, is expected")
        if base is None:
            place = None
        elif base.startswith(_ABOVE):
            place = place.absolute().parents[1] / base.removeprefix(_ABOVE)
        else:
            place = place.parent / base
    if len(layers) == 1:
        return text
    whole: dict[str, Any] = {}
    for told in reversed(layers.values()):
        for key, value in told.items():
            kept = whole.get(key)
            whole[key] = kept | value if isinstance(kept, dict) and isinstance(value, dict) else value
    lines = [f"# {' over '.join(layer.name for layer in layers)}, written out"]
    lines += [f"{key} = {_toml(value)}" for key, value in whole.items() if not isinstance(value, dict)]
    for key, table in whole.items():
        if isinstance(table, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_toml(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def parse_recipe(text: str, place: str = "recipe") -> Recipe:
    """The recipe in a whole TOML text from `place`.

    Raises ArenaError V2120: for an unknown key with its nearest, for a value out of bounds with key, value and bound,
    for keys that contradict each other with all of them.
    """
    told = _load(text, place)
    unbounded = non_finite(told)
    if unbounded:
        raise ArenaError("V2120", f"{place}: {unbounded}: a finite number is expected")
    try:
        recipe = msgspec.convert(told, Recipe)
    except msgspec.ValidationError as error:
        raise ArenaError("V2120", f"{place}: {describe_invalid(str(error), told, Recipe)}") from error
    wrong = contradictions(recipe)
    if wrong:
        raise ArenaError("V2120", f"{place}: {'; '.join(wrong)}")
    return recipe


def _load(text: str, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArenaError("V2120", f"{place}: {error}") from error


def _toml(value: Any) -> str:
    """A value as TOML writes it."""
    match value:
        case bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{key} = {_toml(one)}' for key, one in value.items())}}}"
        case _:
            return str(value)


def describe_invalid(message: str, told: Mapping[str, Any], rules: type) -> str:
    """`key = value: bound` for a value that `rules` don't take, `; did you mean ...` for a key they don't know.

    `message` is msgspec's own, `told` what it was asked to read.
    """
    unknown = _UNKNOWN.search(message)
    if unknown:
        return message + _nearest(unknown.group(1), set(_names(msgspec.inspect.type_info(rules))))
    place = _PLACE.search(message)
    if place is None:
        return message
    steps = _STEP.findall(place.group(1))
    value: Any = told
    found = msgspec.inspect.type_info(rules)
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
        if isinstance(found, msgspec.inspect.StructType):
            found = next(field.type for field in found.fields if field.name == step)
        elif isinstance(found, msgspec.inspect.VarTupleType):
            found = found.item_type
    bound = message[: place.start()]
    if isinstance(found, msgspec.inspect.LiteralType):
        known = [str(one) for one in found.values]
        bound = f"one of {', '.join(known)} is expected{_nearest(str(value), known)}"
    return f"{place.group(1)} = {value!r}: {bound}"


def non_finite(told: Any, place: str = "") -> str:
    """`key = value` of the first number that is infinite or none, "" without one."""
    if isinstance(told, float):
        return "" if math.isfinite(told) else f"{place} = {told}"
    pairs: Iterator[tuple[str, Any]] = iter(())
    if isinstance(told, dict):
        pairs = ((f"{place}.{key}" if place else str(key), value) for key, value in told.items())
    elif isinstance(told, list):
        pairs = ((f"{place}[{number}]", value) for number, value in enumerate(told))
    return next((found for key, value in pairs if (found := non_finite(value, key))), "")


def _nearest(given: str, known: Sequence[str] | set[str]) -> str:
    close = difflib.get_close_matches(given, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _names(found: msgspec.inspect.Type) -> Iterator[str]:
    """The keys of a struct and of the structs in it."""
    if isinstance(found, msgspec.inspect.StructType):
        for field in found.fields:
            yield field.name
            yield from _names(field.type)


def contradictions(recipe: Recipe) -> list[str]:
    """What no single key gets wrong: keys that can't stand together, a sentence each that names them."""
    wrong = [
        f"{key} = {value!r} is neither a URL nor `scripted`"
        for key, value in (("sampler", recipe.sampler), ("teacher", recipe.teacher))
        if value and value != "scripted" and not _is_url(value)
    ]
    if _is_url(recipe.sampler) and not recipe.sampler_model:
        wrong.append("sampler is a server: sampler_model has to name the model there")
    match recipe.stage:
        case "sft" | "rejection" | "teacher":
            if len(recipe.optim.lr_sweep) > 1 and not recipe.data.dev:
                wrong.append("a sweep of learning rates (optim.lr_sweep) needs dev rows: data.dev names no corpus")
        case "kto":
            wrong += _unswept(recipe)
            if recipe.optim.batch_rows < 2:
                wrong.append(f"optim.batch_rows = {recipe.optim.batch_rows}: KTO pairs the rows of a batch, at least 2")
        case "grpo":
            wrong += _unswept(recipe) + _grpo_contradictions(recipe)
    return wrong


def require_runnable(recipe: Recipe, place: str) -> None:
    """What a command needs beyond a recipe that reads: the problems it names, and steps it can resume at.

    Raises ArenaError V2120. No part of reading: a study deals its problems itself.
    """
    refresh, save = recipe.grpo.refresh_every_steps, recipe.optim.save_every_steps
    if recipe.stage != "sft" and not recipe.data.problems:
        raise ArenaError(
            "V2120", f"{place}: {recipe.stage} learns from problems of the train pool: name their file in data.problems"
        )
    if recipe.stage == "kto" and recipe.guards.emission_min and not recipe.data.dev_problems:
        raise ArenaError(
            "V2120",
            f"{place}: guards.emission_min watches episodes on problems of the dev pool: name their file in "
            "data.dev_problems",
        )
    if recipe.stage == "grpo" and refresh and save % refresh:
        raise ArenaError(
            "V2120",
            f"{place}: optim.save_every_steps = {save} has to be a multiple of "
            f"grpo.refresh_every_steps = {refresh}: a killed run resumes there",
        )


def _is_url(value: str) -> bool:
    return value.startswith(("http://", "https://"))


def _unswept(recipe: Recipe) -> list[str]:
    return [f"optim.lr_sweep: {recipe.stage} sweeps no learning rates"] if recipe.optim.lr_sweep else []


def _grpo_contradictions(recipe: Recipe) -> list[str]:
    rules, optim, wrong = recipe.grpo, recipe.optim, list[str]()
    rollouts = rules.problems_per_step * rules.samples
    if rollouts % optim.batch_rows:
        wrong.append(
            f"optim.batch_rows = {optim.batch_rows} has to divide {rollouts}, the rollouts of a step "
            "(grpo.problems_per_step x grpo.samples)"
        )
    if rules.refresh_every_steps and recipe.sampler and not recipe.lora.r:
        wrong.append("a server takes adapters: grpo.refresh_every_steps needs lora.r above 0")
    if rules.is_blended_per_turn and not rules.tool_weight:
        wrong.append("grpo.is_blended_per_turn needs grpo.tool_weight above 0")
    if recipe.sampler == "scripted":
        wrong.append("sampler = 'scripted': grpo samples from its own policy, or a server of it")
    if recipe.decode.temperature == 0:
        wrong.append("decode.temperature = 0.0: the rollouts of a group would be all alike")
    if recipe.decode.top_p != 1:
        wrong.append(f"decode.top_p = {recipe.decode.top_p}: the trainer scores the whole distribution, so 1.0")
    return wrong

"""What the parts of a study take, before any is run: minutes of one processor core, from counts alone.

Plain arithmetic, its assumptions named: rates measured on the shipped shape (hidden 128, three layers), mean
lengths of the market's own episodes, half of the rejection stage's rollouts kept. It says how parts compare and whether
a study fits an evening; it does not know the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from foundation.errors import ArenaError
from training.models.estimate import count_parameters
from training.recipe import Recipe, read_recipe
from training.study.parts import Part
from training.study.plan import GenerationRules, StudyPlan, TrainedRow, base_name

TRAIN_TOKENS_S = 4_000  # trained with gradient, one thread
EPISODE_TOKENS, TRANSCRIPT_TOKENS = 1_000, 900  # a transcript without the tools' schemas
STEP_ROWS, STEP_SHARE = 4, 0.75  # step-wise: rows of an episode, and their tokens to the whole
SAMPLED_S, ASKED_S = 0.2, 0.02  # an episode of the model, and of a policy without weights
SERVED_S = 1.0  # an episode of the model behind our own server, turn after turn
KEPT = 0.5  # rollouts with full reward
KTO_PASSES, GRPO_PASSES = 2.3, 1.8  # to a training pass: the reference, the KL term, scores of each row by itself
_UNSEEDED = re.compile(r"-\d+(?=-|$)")  # in a part's name: the seed of its row
_FILTER_KEEPS = 1.1  # rows to problems: nearly one of the concise model, and some of the careful one
_DOCUMENT_S, _RECORDED_S, _FILTERED_S = 0.005, 0.03, 0.03
_FULL_SHARE = 0.5  # of filtering: one corpus in the place of `full`, `dev` and the arms


def estimate_minutes(part: Part, plan: StudyPlan, recipes: Mapping[str, Recipe], took_s: Mapping[str, float]) -> float:
    """Minutes of one core for a part of `plan`; `recipes` by file stem.

    `took_s` holds the seconds of parts that ran: a part that is among them takes those, and one that differs from some
    by its seed alone their mean.
    """
    alike = [took for name, took in took_s.items() if _UNSEEDED.sub("", name) == _UNSEEDED.sub("", part.name)]
    if alike:
        return took_s.get(part.name, sum(alike) / len(alike)) / 60
    rules = plan.market
    train = sum(rules.train_counts.values())
    match part.kind:
        case "market":
            seconds = rules.documents * _DOCUMENT_S
        case "tokenizer":
            seconds = plan.vocabulary.problems * 2 * ASKED_S
        case "records":
            seconds = _evaluations(plan) * _RECORDED_S
        case "corpora":
            seconds = _evaluations(plan) * _FILTERED_S
        case "base":
            base = plan.base_of(part.base)
            tokens = train * base.transcripts * TRANSCRIPT_TOKENS
            seconds = train * ASKED_S + _dearer(plan, part.base) * base.epochs * tokens / TRAIN_TOKENS_S
        case "generation":
            raced = (plan.generations or GenerationRules()).problems
            filtered = _FULL_SHARE * took_s.get("corpora", _evaluations(plan) * _FILTERED_S) + raced * _FILTERED_S
            seconds = raced * (SERVED_S * _dearer(plan, base_name(part.row)) + _RECORDED_S) + filtered
        case "stage":
            assert part.trained is not None
            seconds = _stage_seconds(recipes[part.trained.recipe], plan, part.trained)
        case "measure":
            assert part.measurement is not None
            counts = rules.eval_counts if part.measurement.set == "eval" else rules.second_counts
            decode = part.measurement.decode
            episodes = sum(counts.values()) * decode.samples * len(decode.seeds)
            sampled_s = SAMPLED_S * _dearer(plan, base_name(part.row))
            seconds = episodes * (ASKED_S if part.measurement.run is None else sampled_s)
        case "result" | "report":
            seconds = 0.0
    return seconds / 60


class RowCost(msgspec.Struct, frozen=True, kw_only=True):
    """Minutes of one core that a row takes, and those that are left."""

    row: str
    left: float
    whole: float
    is_open: bool


def row_costs(parts: Sequence[tuple[Part, float, bool]]) -> tuple[RowCost, ...]:
    """The rows of (part, minutes, whether it is done), in their order; a part of no row stands under its own name."""
    rows: dict[str, list[tuple[float, bool]]] = {}
    for part, minutes, is_done in parts:
        rows.setdefault(part.row or part.name, []).append((minutes, is_done))
    return tuple(
        RowCost(
            row=row,
            left=sum(minutes for minutes, is_done in costs if not is_done),
            whole=sum(minutes for minutes, _ in costs),
            is_open=not all(is_done for _, is_done in costs),
        )
        for row, costs in rows.items()
    )


def read_recipes(plan: StudyPlan, folder: Path) -> dict[str, Recipe]:
    """The plan's recipes by file stem. Raises ArenaError V2120."""
    names = {row.recipe for row in plan.trained}
    return {name: read_recipe(folder / f"{name}.toml") for name in sorted(names)}


def _evaluations(plan: StudyPlan) -> int:
    rules = plan.market
    raced = sum(sum(counts.values()) for counts in (rules.train_counts, rules.eval_counts, rules.dev_counts))
    return sum((min(raced, agent.problems) if agent.problems else raced) * agent.versions for agent in plan.agents)


def _dearer(plan: StudyPlan, base: str) -> float:
    """How many times the plan's own base's parameters another has: what its tokens cost more."""
    own, other = (
        count_parameters(
            {
                "hidden_size": rules.hidden,
                "intermediate_size": 3 * rules.hidden,
                "num_hidden_layers": rules.layers,
                "num_attention_heads": rules.heads,
                "num_key_value_heads": rules.kv_heads,
                "head_dim": rules.head_dim,
                "vocab_size": plan.vocabulary.tokens,
                "tie_word_embeddings": True,
            }
        )
        for rules in (plan.base, plan.base_of(base))
    )
    return other / own


def _stage_seconds(recipe: Recipe, plan: StudyPlan, row: TrainedRow) -> float:
    dearer = _dearer(plan, row.base)
    train = sum(plan.market.train_counts.values())
    named = plan.market.drawn.get(Path(recipe.data.problems).stem, train)
    optim = recipe.optim
    sampled = 0.0
    match recipe.stage:
        case "sft":
            raced = row.generation * (plan.generations or GenerationRules()).problems
            rows, passes = train * _FILTER_KEEPS + raced * KEPT, float(len(optim.lr_sweep) or 1)
        case "rejection":
            sampled = named * recipe.samples * SAMPLED_S
            rows, passes = named * recipe.samples * KEPT / recipe.data.rollout_share, 1.0
        case "teacher":
            sampled, rows, passes = named * ASKED_S, named * STEP_ROWS * STEP_SHARE, 1.0
        case "kto":
            rows, passes = float(train), KTO_PASSES
        case "grpo":
            rows = float(optim.steps_max * recipe.grpo.problems_per_step * recipe.grpo.samples)
            return dearer * rows * (SAMPLED_S + GRPO_PASSES * EPISODE_TOKENS / TRAIN_TOKENS_S)
        case _:
            raise ArenaError("V2120", f"{recipe.stage} is no stage of a study")
    rows *= optim.epochs
    if optim.steps_max:
        rows = min(rows, optim.steps_max * optim.batch_rows * optim.accumulation)
    return dearer * (sampled + passes * rows * EPISODE_TOKENS / TRAIN_TOKENS_S)

"""Values of a calibration: families of traces, recipes that make them, and traces with their true quality."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.trace import EvaluationBody

SET_VERSION = 3
Split = Literal["tune", "held"]
Answer = Literal["picked", "other", "reward"]
Style = Literal["plain", "upper", "think", "json"]  # capitals; inside a think block; the value of a JSON object
Trait = Literal["outcome", "length", "position", "form"]  # what a quality must not depend on


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to mutate a run, and the quality that the rubric gives it.

    `plan`, `then` and `last` are the kinds of phrases that the model says before the search, after it, and after it has
    looked at the details. From step `copies_from` on the program writes the words first and has them repeated.
    """

    name: str
    quality_e4: int
    round: int = 1  # in which it was written; each round has runs of its own, and the last one is held out
    plan: str = "plan"
    then: str
    last: str
    language: str = ""
    answer: Answer = "picked"
    is_by_code: bool = False  # the program calls; the model says a word
    is_react: bool = False  # calls are written as text, and the program reads them
    is_reasoning: bool = False  # the words stand in the reasoning field
    style: Style = "plain"
    pages: int = 1  # of results, each in a step
    fillers: int = 0  # sentences that say nothing, in each step
    copies_from: int = 0
    pair: str = ""  # the family that it shares its wording with, but for what it varies
    varies: Trait | None = None


class TraceRecipe(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What makes one trace: the family, the run it mutates and the seed of its wording. No text of it is stored."""

    family: str
    problem: int  # of the generated problems
    seed: int


class LabelledTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace and the quality it was made for. `cluster` is its problem's leak cluster, which lies in one split."""

    recipe: TraceRecipe
    cluster: str
    split: Split
    quality_e4: int
    body: EvaluationBody

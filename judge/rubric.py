"""The rubric: the five-step decision tree and the coefficient, as data and pure functions.

Tree (docs/architecture.md#the-judge): 0.1 no inference, 0.3 results not analysed, 0.5 no datum cited,
0.7 candidates not compared, 0.9 compared with a reason. Coefficient (paper section 4; SN15): 3000 + 8750 q, at most
10000, reached from q = 0.8; in ten-thousandths.
"""

from __future__ import annotations

import functools
import importlib.resources
from typing import Literal

import msgspec

from foundation.canonical import text_hash

QUALITY_LEVELS_E4: tuple[int, ...] = (1_000, 3_000, 5_000, 7_000, 9_000)

Gate = Literal["inference_present", "results_analysed", "data_cited", "candidates_compared"]
GATES: tuple[Gate, ...] = ("inference_present", "results_analysed", "data_cited", "candidates_compared")


# sha256 of reasoning_1.txt: a constant, so that policies pin the prompt without reading a file
REASONING_1_PROMPT_SHA256 = "9c11596ee11f69645fe312fc7fcf8434fc60db53a03089dda90053895c1d8e62"


class Rubric(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's slice of the policy: rubric id, panel and prompt, all pinned by hash."""

    rubric_id: str = "reasoning/1"
    models: tuple[str, ...]
    prompt_sha256: str
    attempts_per_model: int = 3
    inference_tokens_min: int = 30
    calibration_sha256: str = ""  # of the measured error that the policy relies on


@functools.cache
def prompt_text(rubric_id: str) -> str:
    """The system prompt of a rubric, package data. Raises KeyError for a rubric this package does not ship."""
    file = {"reasoning/1": "reasoning_1.txt"}[rubric_id]
    return importlib.resources.files("judge").joinpath(file).read_text(encoding="utf-8")


def prompt_sha256(rubric_id: str) -> str:
    """sha256 hex of the prompt's UTF-8 bytes. Raises KeyError for a rubric this package does not ship."""
    return text_hash(prompt_text(rubric_id))


def coefficient_e4(quality_e4: int) -> int:
    """Reasoning coefficient for a quality in ten-thousandths. Raises ValueError outside 0..10000."""
    if not 0 <= quality_e4 <= 10_000:
        raise ValueError(f"quality_e4 must lie in 0..10000, not {quality_e4}")
    if quality_e4 >= 8_000:
        return 10_000
    return 3_000 + 8_750 * quality_e4 // 10_000


def quality_of(passed: int) -> int:
    """Quality in ten-thousandths after `passed` leading gates (0..4) held. Raises IndexError outside that range."""
    return QUALITY_LEVELS_E4[passed]

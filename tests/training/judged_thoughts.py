"""Eighty thoughts over two runs, forty honest and forty faulty, to measure the checks of a thought by.

Each run has as many of each. They were written before the checks were measured on them; then the checks were mended by
what those of `kettle` showed, and those of `runner` were only counted.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from training.rewriting.model import CallTimeline

_HERE = Path(__file__).parent
RUNS = msgspec.json.decode((_HERE / "judged_runs.json").read_bytes(), type=dict[str, CallTimeline])


class JudgedThought(msgspec.Struct, frozen=True):
    """A thought before a step of a run, from 0; `fault` says what is wrong with it, "" for nothing."""

    run: str
    step: int
    fault: str
    thought: str


def judged_thoughts() -> list[JudgedThought]:
    """All of them."""
    return msgspec.json.Decoder(JudgedThought).decode_lines((_HERE / "judged_thoughts.jsonl").read_bytes())

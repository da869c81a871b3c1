"""A hundred and ten thoughts over three runs, honest and faulty ones, to measure the checks of a thought by.

They were written before the checks were measured on them. Then the checks were mended by what those of `kettle` and
`runner` showed; those of `train` were written after that, by the same hand.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from training.rewriting.known_facts import CallTimeline

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

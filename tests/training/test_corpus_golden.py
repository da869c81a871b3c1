"""Which rows of a small export a corpus keeps, and why the others are out: the selection is a contract.

`corpus_golden.json` holds it for two sets of rules over sixty recorded trajectories. Only a deliberate change of the
filter may change it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from arena.chain.keys import verify
from training.corpus.building import arms_of, filter_sources, open_sources
from training.corpus.leak_guard import Guard
from training.corpus.model import Rules
from training.corpus.selection import Appraisal, Decision, Task

GOLDEN = json.loads(Path(__file__).with_name("corpus_golden.json").read_text("utf-8"))


def told(traces: Sequence[Appraisal], decision: Decision) -> dict[str, str]:
    """Rank or codes of each trace by its place, without the log it is of."""
    pairs = zip(traces, decision.ranks, decision.codes, strict=True)
    return {one.place.rpartition(":")[2]: str(rank) if rank else " ".join(codes) for one, rank, codes in pairs}


@pytest.mark.parametrize("name", ["paper", "loose"])
def test_the_same_export_gives_the_same_selection(day: Path, name: str) -> None:
    rules = Rules() if name == "paper" else Rules(coefficient_e4_min=0, off=("subtask", "ranked_out"))
    found = filter_sources(open_sources([day], [], verify), Task(arms=(rules,)), arms_of(rules, ()), Guard())
    assert told(found.appraised, found.decisions[0]) == GOLDEN[name]

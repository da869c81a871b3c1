"""Structure fingerprints: copies are found whatever they call things, and nobody is rejected for likeness."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import arena.gate.naming
import arena.gate.tables
from arena.gate.inspection import inspect
from arena.gate.knowledge import make_knowledge
from arena.gate.similarity import Neighbour, containment_e4, fingerprint
from tests.arena.gate_stand import END, RULES, knowledge, rules_met
from tests.benchmarks.bench_gate import honest_agent

GOLDEN = 13211411567021916750  # all shingles of the source below, folded by exclusive or
NOTHING = np.zeros(0, dtype=np.uint64)
AGENT = (
    "\n".join(
        f"def step_{index}(state, words):\n    found = [word for word in words if word.{method}()]\n"
        f"    if len(found) > {index}:\n        state['{method}'] = sorted(found{', reverse=True' * (index % 2)})\n"
        f"    return state\n"
        for index, method in enumerate(["isupper", "islower", "isdigit", "istitle", "isalpha"])
    )
    + END
)


def _renamed(source: str) -> str:
    for old, new in (
        ("state", "memory"),
        ("words", "tokens"),
        ("found", "kept"),
        ("step_", "phase_"),
        ("isupper", "x"),
    ):
        source = source.replace(old, new)
    return source


def test_names_and_values_do_not_change_a_fingerprint() -> None:
    assert np.array_equal(fingerprint(AGENT), fingerprint(_renamed(AGENT)))


def test_a_renamed_and_reordered_copy_is_looked_at_and_never_rejected() -> None:
    parts = _renamed(AGENT).split("\n\n")
    copy = "\n\n".join([*reversed(parts[:-2]), *parts[-2:]])
    report = inspect(copy, RULES, knowledge(), [Neighbour(agent_version_id="ab12", shingles=fingerprint(AGENT))])
    assert rules_met(report) == {"similarity"}
    assert report.outcome == "review"
    assert "ab12" in report.findings[0].detail


def test_the_closest_neighbour_is_named() -> None:
    others = [
        Neighbour(agent_version_id="far", shingles=fingerprint(honest_agent(120, random.Random(1)))),
        Neighbour(agent_version_id="near", shingles=fingerprint(AGENT)),
    ]
    report = inspect(AGENT, RULES, knowledge(), others)
    assert "near" in report.findings[0].detail


def test_unrelated_files_share_little() -> None:
    first, second = (
        fingerprint(Path(str(module.__file__)).read_text()) for module in (arena.gate.naming, arena.gate.tables)
    )
    assert containment_e4(first, second, NOTHING) < 2_000


def test_what_the_published_agents_share_does_not_count() -> None:
    published = make_knowledge([], [], [AGENT], RULES)
    neighbours = [Neighbour(agent_version_id="ab12", shingles=fingerprint(AGENT))]
    assert inspect(AGENT, RULES, published, neighbours).outcome == "accept"


def test_containment_is_symmetric_and_complete_for_equal_sets() -> None:
    first, second = fingerprint(AGENT), fingerprint(AGENT + "\nx = [i * 2 for i in range(9) if i > 3]\n" * 5)
    assert containment_e4(first, second, NOTHING) == containment_e4(second, first, NOTHING)
    assert containment_e4(first, first, NOTHING) == 10_000
    assert containment_e4(first, NOTHING, NOTHING) == 0


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert int(np.bitwise_xor.reduce(fingerprint("def f(x):\n    return [i for i in x if i]\n" * 3))) == GOLDEN


def test_a_source_that_does_not_parse_has_no_fingerprint() -> None:
    with pytest.raises(ValueError, match="not a parsable source"):
        fingerprint("def f(:")

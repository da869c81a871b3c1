"""A small gate: five thousand ids, three known texts, and a check that reads like the rule it tests."""

from __future__ import annotations

import functools

from arena.gate.inspection import inspect
from arena.gate.knowledge import GateKnowledge, make_knowledge
from arena.gate.likeness import Author, Neighbour, make_sketch
from arena.gate.rules import GateReport, GateRules

RULES = GateRules(version="gate/1", similarity_review_e4=7_500, remnant_phrases=100)
IDS = tuple(str(2_100_000_001 + 1_048_583 * index) for index in range(5_000))
TABLE = IDS[100:106]
TEXTS = (
    "I need a lamp with three legs and a blue linen shade under 500 pesos",
    "looking for a stainless steel water bottle that keeps drinks cold for a whole day",
    "find me one shop that sells both a yoga mat and a matching carrying strap",
)
END = "\n\ndef agent_main(problem):\n    return None\n"


@functools.cache
def knowledge() -> GateKnowledge:
    """What the small gate knows."""
    return make_knowledge(IDS, TEXTS, [], RULES)


def gate(body: str | bytes, end: str = END) -> GateReport:
    """The report on a body followed by an entry function."""
    source = body + end.encode() if isinstance(body, bytes) else body + end
    return inspect(source, RULES, knowledge())


def rules_met(report: GateReport) -> set[str]:
    """Names of the rules that a report's findings name."""
    return {finding.rule for finding in report.findings}


def make_neighbour(author: Author, source: str, *, is_winner: bool = False) -> Neighbour:
    """A neighbour from its source. Raises ValueError when the source does not parse."""
    revealed_block = author.commitment_block + 1 if is_winner else 0
    return Neighbour(author=author, sketch=make_sketch(source), revealed_block=revealed_block)

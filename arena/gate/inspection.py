"""The gate: one pure function from source and published rules to a report. Nothing of the source is executed.

It raises the price of cheating and saves evaluation time; it is not a boundary. The sandbox contains, and the run-time
rule on surfaced ids makes answer tables worthless. Hostile source can exhaust a parser: validators call
`arena.gate.isolation.inspect_isolated`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from arena.gate.knowledge import GateKnowledge
from arena.gate.likeness import Author, Neighbour, inputs_hash, similarity_findings, sketch_of
from arena.gate.literals import collect_literals, table_findings
from arena.gate.reach import reach_findings
from arena.gate.rules import FINDINGS_PER_RULE, RULES_VERSION, Finding, GateReport, finding, make_report
from arena.gate.source import parse, read_text
from arena.policy import GateRules
from arena.secrets import find_secrets


def inspect(
    source: bytes | str,
    rules: GateRules,
    knowledge: GateKnowledge,
    neighbours: Sequence[Neighbour] = (),
    author: Author | None = None,
) -> GateReport:
    """Check one agent file against the published rules (`arena.gate.rules.RULES`).

    `neighbours` are the other agents that were not rejected, `author` is who committed this one and when: with the same
    values every validator gets the same report. A file that can't be read or parsed gives a report with the one finding
    that says so; no input raises.
    """
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    return make_report(
        _findings(data, rules, knowledge, neighbours, author),
        rules_version=RULES_VERSION,
        source_sha256=hashlib.sha256(data).hexdigest(),
        inputs_sha256=inputs_hash(knowledge.inputs_sha256, author, neighbours),
    )


def _findings(
    data: bytes, rules: GateRules, knowledge: GateKnowledge, neighbours: Sequence[Neighbour], author: Author | None
) -> list[Finding]:
    text, found = read_text(data, rules)
    if found:
        return found
    found = [
        finding("secret", data.count(b"\n", 0, one.start) + 1, f"what looks like a credential ({one.kind})")
        for one in find_secrets(data)[:FINDINGS_PER_RULE]
    ]
    tree, parsed = parse(text, rules)
    found += parsed
    if tree is None:
        return found
    literals = collect_literals(tree)
    found += reach_findings(tree, literals)
    found += table_findings(tree, literals, rules, knowledge)
    sketch = sketch_of(tree)  # also without neighbours: what is accepted here can be a neighbour
    return found + similarity_findings(sketch, author, neighbours, knowledge.baseline, knowledge.baseline_texts, rules)

"""The gate: one pure function from source and published rules to a report. Nothing of the source is executed.

It raises the price of cheating and saves evaluation time; it is not a boundary. The sandbox contains, and the run-time
rule on surfaced ids makes answer tables worthless. Hostile source can exhaust a parser: validators call
`arena.gate.isolation.inspect_isolated`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from arena.gate.knowledge import GateKnowledge
from arena.gate.literals import collect_literals, literal_findings
from arena.gate.naming import naming_findings
from arena.gate.report import Finding, GateReport, make_report
from arena.gate.similarity import Neighbour, fingerprint_nodes, similarity_findings
from arena.gate.source import parse, read_text
from arena.gate.tables import table_findings
from arena.policy import GateRules


def inspect(
    source: bytes | str, rules: GateRules, knowledge: GateKnowledge, neighbours: Sequence[Neighbour] = ()
) -> GateReport:
    """Check one agent file against the published rules (`arena.gate.rules.RULES`).

    `neighbours` are agents submitted earlier by other hotkeys. A file that can't be read or parsed gives a report with
    the one finding that says so; no input raises.
    """
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    return make_report(
        _findings(data, rules, knowledge, neighbours),
        rules_version=rules.version,
        source_sha256=hashlib.sha256(data).hexdigest(),
        inputs_sha256=knowledge.inputs_sha256,
    )


def _findings(
    data: bytes, rules: GateRules, knowledge: GateKnowledge, neighbours: Sequence[Neighbour]
) -> list[Finding]:
    text, found = read_text(data, rules)
    if found:
        return found
    nodes, found = parse(text, rules)
    if not nodes:
        return found
    literals = collect_literals(nodes)
    found += naming_findings(nodes, is_ascii=text.isascii())
    found += literal_findings(nodes, literals, rules)
    found += table_findings(literals, rules, knowledge)
    if neighbours:
        shingles = fingerprint_nodes(nodes)
        found += similarity_findings(shingles, neighbours, knowledge.baseline, rules.similarity_review_e4)
    return found

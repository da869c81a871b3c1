"""What the gate says about one file: findings with rule and line, one outcome, and what it was checked against.

A report can be repeated. It names the rules' version, the source by hash and the input lists by hash, so an
old verdict can be checked and appealed even after the rules have moved on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from arena.gate.rules import RULES, FindingOutcome, Severity
from foundation.errors import Failure

GateOutcome = Literal["accept", "review", "reject"]

FINDINGS_PER_RULE = 20  # a hostile file must not make a hostile report
LIKENESS = frozenset({"similarity"})  # rules that hold an agent for likeness to another's; all others are heuristics
_SEVERITY_ORDER: tuple[Severity, ...] = ("integrity", "security", "form")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule met at one line (0: the file as a whole)."""

    rule: str
    outcome: FindingOutcome
    severity: Severity
    line: int
    detail: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "file"
        return f"{self.outcome}: {self.rule}, {where}" + (f": {self.detail}" if self.detail else "")


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one source. `outcome` is the worst of its findings."""

    outcome: GateOutcome
    findings: tuple[Finding, ...]
    rules_version: str
    source_sha256: str
    inputs_sha256: str

    @property
    def rejections(self) -> tuple[Finding, ...]:
        """The findings that reject, by line."""
        return tuple(finding for finding in self.findings if finding.outcome == "reject")

    @property
    def severity(self) -> Severity | None:
        """The costliest class among the rejections, or None when nothing rejects."""
        classes = {finding.severity for finding in self.rejections}
        return next((severity for severity in _SEVERITY_ORDER if severity in classes), None)

    @property
    def failure(self) -> Failure | None:
        """The first rejection as a coded failure of the agent, or None."""
        if not self.rejections:
            return None
        first = self.rejections[0]
        return Failure(code=RULES[first.rule].code, detail=f"{first.rule}, line {first.line}: {first.detail}")


def finding(rule: str, line: int, detail: str = "") -> Finding:
    """A finding with the outcome and class its rule is published with. Raises KeyError for an unpublished rule."""
    entry = RULES[rule]
    return Finding(rule=rule, outcome=entry.outcome, severity=entry.severity, line=line, detail=detail[:300])


def make_report(
    findings: Iterable[Finding], *, rules_version: str, source_sha256: str, inputs_sha256: str
) -> GateReport:
    """The report over `findings`: sorted by line, without duplicates, at most `FINDINGS_PER_RULE` of each rule."""
    unique: list[Finding] = []
    counts: Counter[str] = Counter()
    for found in sorted(set(findings), key=lambda found: (found.line, found.outcome, found.rule, found.detail)):
        counts[found.rule] += 1
        if counts[found.rule] <= FINDINGS_PER_RULE:
            unique.append(found)
    outcomes = {found.outcome for found in unique}
    return GateReport(
        outcome="reject" if "reject" in outcomes else "review" if outcomes else "accept",
        findings=tuple(unique),
        rules_version=rules_version,
        source_sha256=source_sha256,
        inputs_sha256=inputs_sha256,
    )

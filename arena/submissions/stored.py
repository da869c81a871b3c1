"""What a stored submission says: its gate report, and what it costs its hotkey."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from arena.gate.report import GateReport
from arena.store.port import StoredSubmission
from arena.submissions.admission import PastSubmission, cooldown_class

_FIRST_RULES = "gate/1"  # whose findings named the agent that another is like
LIKENESS = frozenset({"similarity"})  # rules that hold an agent for likeness to another's; all others are heuristics


def read_report(submission: StoredSubmission) -> GateReport | None:
    """The gate's report as it is stored, or None."""
    return msgspec.json.decode(submission.report, type=GateReport) if submission.report else None


def shown_report(report: GateReport) -> GateReport:
    """A report as its miner sees it. These rules say nothing about another agent before both are public; of a report
    under the first ones, whom the agent is like, how much and where stays closed."""
    if report.rules_version != _FIRST_RULES:
        return report
    findings = (replace(each, line=0, detail="") if each.rule in LIKENESS else each for each in report.findings)
    return replace(report, findings=tuple(findings))


def past_submissions(stored: Iterable[StoredSubmission], hotkey: str) -> tuple[PastSubmission, ...]:
    """A hotkey's submissions as the cooldown counts them."""
    return tuple(
        PastSubmission(block=each.submitted_block, ended=cooldown_class(read_report(each)))
        for each in stored
        if each.subject.miner_hotkey == hotkey
    )

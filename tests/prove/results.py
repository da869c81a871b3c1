"""What `make prove` keeps of each proof between runs, and the two tables that it makes of it.

The state is one JSON file, replaced whole after every proof: a run that is killed loses the proof under way and no
other. Outcomes are read from the JUnit file that pytest writes; without one, the process died, and that is a failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import msgspec

Outcome = Literal["passed", "failed", "timed out", "skipped"]
_NOTE_CHARACTERS = 160
_COLUMNS = 6  # of the summary's table
_TIME_LIMITS = ("Timeout", "TimeoutExpired", "timed out")  # of asyncio, subprocess and the tests' own waits


class Result(msgspec.Struct, frozen=True):
    """How one proof ended: a test function with all its cases, in a process of its own."""

    outcome: Outcome
    seconds: float
    commit: str  # "+" behind it: files were changed since
    day: str  # UTC, ISO 8601
    cases: dict[str, int]  # outcome of a case -> how many
    note: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether it counts against the run."""
        return self.outcome in ("failed", "timed out")


def read_state(path: Path) -> dict[str, Result]:
    """What earlier runs found, by test; nothing where there was none. Raises msgspec's errors for a damaged file."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Result]) if path.exists() else {}


def write_state(path: Path, results: Mapping[str, Result]) -> None:
    """Replace the state in one step."""
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    part.replace(path)


def read_outcome(report: Path, exit_status: int) -> tuple[Outcome, dict[str, int], str]:
    """(outcome, cases by outcome, why it isn't a plain pass) of a finished process."""
    cases, notes = Counter[str](), []
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            told = [part for part in case if part.tag in ("failure", "error", "skipped")]
            cases[{"failure": "failed", "error": "failed"}.get(told[0].tag, told[0].tag) if told else "passed"] += 1
            notes += [(part.tag != "skipped", part.get("message") or part.text or "") for part in told]
    note = next((text for is_bad, text in sorted(notes, key=lambda one: not one[0])), "")
    note = " ".join(note.split())[:_NOTE_CHARACTERS]
    if exit_status != 0 or not cases:
        is_late = any(words in note for words in _TIME_LIMITS)
        return ("timed out" if is_late else "failed"), dict(cases), note or f"pytest ended with status {exit_status}"
    return ("passed" if cases["passed"] else "skipped"), dict(cases), note


def show_result(test: str, result: Result) -> str:
    """The line printed when a proof has ended."""
    return f"{result.outcome:9} {result.seconds / 60:6.1f} min  {test}" + (f"  ({result.note})" if result.note else "")


def totals(tests: Sequence[str], results: Mapping[str, Result]) -> str:
    """One sentence: how many of each, and the minutes they took."""
    found = [results[test] for test in tests if test in results]
    counted = Counter(result.outcome for result in found)
    failed = counted["failed"] + counted["timed out"]
    late = f" ({counted['timed out']} of them at a time limit)" if counted["timed out"] else ""
    minutes = sum(result.seconds for result in found) / 60
    not_run = len(tests) - counted["passed"] - failed
    return (
        f"{len(tests)} proofs: {counted['passed']} passed, {failed} failed{late}, {not_run} not run; {minutes:.0f} min"
    )


def read_page(text: str) -> dict[str, Result]:
    """What an earlier summary says, by test: its figures as they are printed there, nothing of rows without a result.

    So a run on a new machine keeps, and may go on from, what was shown on another (`page` writes it).
    """
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)][1:-1]
        if len(cells) != _COLUMNS or not cells[0].startswith("`") or not cells[2]:
            continue
        test, told, minutes, commit, day, shown = cells
        cases, _, note = shown.partition("; ")
        outcome: Outcome = msgspec.convert("skipped" if told == "not run" else told, Outcome)
        found[test.strip("`")] = Result(
            outcome,
            float(minutes) * 60,
            commit,
            day,
            {name: int(count) for count, name in (case.split(" ", 1) for case in cases.split(", ") if case)},
            note.replace("\\|", "|").replace("\\<", "<"),
        )
    return found


def page(tests: Sequence[str], results: Mapping[str, Result], *, commit: str, day: str) -> str:
    """The summary as Markdown, one row for each proof there is, in their order."""
    rows = []
    for test in tests:
        found = results.get(test)
        if found is None:
            rows.append(f"| `{test}` | not run | | | | |")
            continue
        told = "not run" if found.outcome == "skipped" else found.outcome
        shown = ", ".join(f"{count} {name}" for name, count in sorted(found.cases.items()))
        note = found.note.replace("|", "\\|").replace("<", "\\<").replace("`", "'")
        cells = (
            f"`{test}`",
            told,
            f"{found.seconds / 60:.1f}",
            found.commit,
            found.day,
            f"{shown}; {note}".strip("; "),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        (
            "# What `make prove` showed",
            "",
            "Written by `make prove`: each long proof in a process of its own, with the commit it ran at; `+` behind a",
            'commit: files were changed since. "Not run" with a reason: what the proof needs was not there.',
            "",
            f"Last run on {day} at {commit}. {totals(tests, results)}.",
            "",
            "| proof | result | minutes | commit | day | cases |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        )
    )

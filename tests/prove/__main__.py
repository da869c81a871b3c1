"""`make prove`: every long proof, each in a process of its own; a run that was stopped goes on.

What has a result in `build/prove/state.json` isn't run again, whatever the commit: `--again` forgets it first, of all
proofs or of those whose names contain one of the words given. A proof that takes longer than `--limit-min` is ended and
counts as failed. docs/prove.md gets a row for each proof of this run; what it says of others stays. Exit code 1 where a
proof failed or never ran, 130 after an interruption.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import msgspec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "prove.md"
FOLDER = ROOT / "build" / "prove"
LIMIT_MIN = 120.0
_CLEAN_UP_S = 60.0
_NOTE_CHARACTERS = 160


class Result(msgspec.Struct, frozen=True):
    """How one proof ended: a test function with all its cases."""

    outcome: str  # passed, failed, or not run with a note that says what was missing
    minutes: float
    commit: str  # "+" behind it: files were changed since
    day: str  # UTC, ISO 8601
    cases: int
    note: str = ""


def collect() -> list[str]:
    """Every test function that is marked as a long proof, in pytest's order. Exits with pytest's words where it can't
    read the tests."""
    words = ("-m", "pytest", "-m", "prove", "--collect-only", "-q", "-o", "addopts=--import-mode=importlib")
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pytest could not collect the proofs:\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}")
    return list(dict.fromkeys(line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line))


def commit_here() -> str:
    """The short hash of the checkout, with "+" where anything but the page was changed."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":(exclude)docs/prove.md")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def run_one(test: str, limit_s: float) -> Result:
    """Run one proof; its output stands in `build/prove`. It is interrupted after `limit_s`, so that it cleans up as
    after Ctrl-C, and its process group killed a minute later."""
    name = test.replace("/", ".").replace("::", "-")
    report, log = FOLDER / f"{name}.xml", FOLDER / f"{name}.txt"
    report.unlink(missing_ok=True)
    commit, started = commit_here(), time.monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "prove", test, f"--junitxml={report}"]
    with log.open("wb") as output:
        proof = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            proof.wait(limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
            proof.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                proof.wait(_CLEAN_UP_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(proof.pid, signal.SIGKILL)
            proof.wait()
            if isinstance(stop, KeyboardInterrupt):
                raise
    outcome, cases, note = _read_report(report, proof.returncode)
    note = note.replace(str(ROOT), ".").replace(str(Path.home()), "~")
    minutes = round((time.monotonic() - started) / 60, 1)
    return Result(outcome, minutes, commit, f"{datetime.now(UTC):%Y-%m-%d}", cases, note)


def _read_report(report: Path, status: int) -> tuple[str, int, str]:
    """(outcome, cases that passed, why it isn't a plain pass), from the file that pytest leaves."""
    found = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    told = [part for case in found for part in case if part.tag in ("failure", "error", "skipped")]
    told.sort(key=lambda part: part.tag == "skipped")
    note = " ".join((told[0].get("message") or told[0].text or "").split())[:_NOTE_CHARACTERS] if told else ""
    passed = sum(not any(part in told for part in case) for case in found)
    if status != 0 or not found:
        return "failed", passed, note or f"pytest ended with status {status}"
    return ("passed" if passed else "not run"), passed, note


def renewed(text: str, tests: Sequence[str], results: dict[str, Result]) -> str:
    """The page with the rows of these results; rows of proofs that there are no more go, other text stays."""
    kept = {found[1]: found[0] for found in re.finditer(r"^\| `([^`]+)` \|.*$", text, re.MULTILINE)}
    for test, one in results.items():
        note = re.sub(r"([|<])", r"\\\1", one.note.replace("`", "'"))
        cells = (f"`{test}`", one.outcome, f"{one.minutes:g}", one.commit, one.day, f"{one.cases} passed; {note}")
        kept[test] = f"| {' | '.join(cells).rstrip('; ')} |"
    head = text[: text.index("| proof |")] if "| proof |" in text else text
    rows = (kept.get(test, f"| `{test}` | not run | | | | |") for test in tests)
    table = "| proof | result | minutes | commit | day | cases |\n|---|---|---|---|---|---|\n"
    return head + table + "\n".join(rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no result yet, and renew the page."""
    parser = argparse.ArgumentParser(prog="make prove", description="Run every long proof; go on where a run stopped.")
    parser.add_argument("words", nargs="*", help="only proofs whose name contains one of these")
    parser.add_argument("--again", action="store_true", help="forget their results and run them once more")
    parser.add_argument("--limit-min", type=float, default=LIMIT_MIN, help="minutes a proof may take (default: 120)")
    options = parser.parse_args(argv)
    tests = collect()
    wanted = [test for test in tests if not options.words or any(word in test for word in options.words)]
    if not wanted:
        parser.error(f"no such proof; there are {len(tests)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    state = FOLDER / "state.json"
    results = msgspec.json.decode(state.read_bytes(), type=dict[str, Result]) if state.exists() else {}
    if options.again:
        results = {test: result for test, result in results.items() if test not in wanted}
    status = 0
    try:
        for test in [test for test in wanted if test not in results]:
            print(f"{time.strftime('%H:%M')}  {test} ...", flush=True)
            results[test] = found = run_one(test, 60 * options.limit_min)
            state.with_suffix(".part").write_bytes(msgspec.json.encode(results))
            state.with_suffix(".part").replace(state)
            print(f"       {found.outcome} in {found.minutes:g} min {found.note}", flush=True)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
        print("interrupted: the same command goes on from here", flush=True)
    PAGE.write_text(renewed(PAGE.read_text("utf-8"), tests, results), encoding="utf-8")
    bad = [test for test in wanted if test not in results or results[test].outcome == "failed"]
    print(f"{len(wanted)} proofs, {len(bad)} failed or never run", *bad, sep="\n  ", flush=True)
    return status or int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

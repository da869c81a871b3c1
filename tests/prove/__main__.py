"""`make prove`: every long proof, those of a file in one process of their own; a run that was stopped goes on.

docs/prove.md has a row for each proof. What has one of this commit isn't run again unless `--again` is given; words
choose proofs by name. Those of a file are ended after `--limit-min` each, and have failed where there is no result.
Exit code 1 where a proof failed, 130 after an interruption.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "prove.md"
FOLDER = ROOT / "build" / "prove"
LIMIT_MIN = 120.0
_CLEAN_UP_S = 60.0
_NOTE_CHARACTERS = 160


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


def run_file(tests: Sequence[str], commit: str, limit_s: float) -> tuple[dict[str, str], bool]:
    """Run proofs of one file; their rows of the page, and whether Ctrl-C ended it, after which those without a result
    have no row. The output stands in `build/prove`. The process is interrupted after `limit_s`, so that it cleans up as
    after Ctrl-C, and its process group killed a minute later."""
    name = tests[0].partition("::")[0].replace("/", ".")
    report, log = FOLDER / f"{name}.xml", FOLDER / f"{name}.txt"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-m", "prove", *tests, f"--junitxml={report}"]
    is_interrupted = False
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
            is_interrupted = isinstance(stop, KeyboardInterrupt)
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    rows: dict[str, str] = {}
    for test in tests:
        found = [case for case in cases if case.get("name", "").partition("[")[0] == test.partition("::")[2]]
        if is_interrupted and not found:
            continue
        outcome, note = _read_cases(found, proof.returncode)
        note = re.sub(r"([|<])", r"\\\1", note.replace(str(ROOT), ".").replace(str(Path.home()), "~").replace("`", "'"))
        rows[test] = f"| `{test}` | {outcome}{note and f': {note}'} | {commit} |"
    return rows, is_interrupted


def _read_cases(found: Sequence[ElementTree.Element], status: int) -> tuple[str, str]:
    """(outcome, why it isn't a plain pass) of a proof, from its part of the file that pytest leaves."""
    told = [part for case in found for part in case if part.tag in ("failure", "error", "skipped")]
    told.sort(key=lambda part: part.tag == "skipped")
    note = " ".join((told[0].get("message") or told[0].text or "").split())[:_NOTE_CHARACTERS] if told else ""
    if not found or (told and told[0].tag != "skipped"):
        return "failed", note or f"pytest ended with status {status}"
    has_passed = any(not any(part in told for part in case) for case in found)
    return ("passed" if has_passed else "not run"), note


def rows_of(text: str) -> dict[str, str]:
    """The page's rows by the name of their proof."""
    return {found[1]: found[0] for found in re.finditer(r"^\| `([^`]+)` \|.*$", text, re.MULTILINE)}


def write_page(rows: dict[str, str], tests: Sequence[str]) -> None:
    """Renew the page's table: a row for each proof there is. Other text stays."""
    text = PAGE.read_text("utf-8")
    head = text[: text.index("| proof |")] if "| proof |" in text else text
    table = "| proof | result | commit |\n|---|---|---|\n"
    body = "\n".join(rows.get(test, f"| `{test}` | not run | |") for test in tests)
    PAGE.write_text(f"{head}{table}{body}\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no result at this commit, and renew the page after each."""
    parser = argparse.ArgumentParser(prog="make prove", description="Run every long proof; go on where a run stopped.")
    parser.add_argument("words", nargs="*", help="only proofs whose name contains one of these")
    parser.add_argument("--again", action="store_true", help="also those that have a result at this commit")
    parser.add_argument("--limit-min", type=float, default=LIMIT_MIN, help="minutes a proof may take (default: 120)")
    options = parser.parse_args(argv)
    tests, commit = collect(), commit_here()
    wanted = [test for test in tests if not options.words or any(word in test for word in options.words)]
    if not wanted:
        parser.error(f"no such proof; there are {len(tests)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = rows_of(PAGE.read_text("utf-8"))
    known = {test for test in wanted if f"| {commit} |" in rows.get(test, "") and not options.again}
    left = [test for test in wanted if test not in known]
    for file, group in itertools.groupby(left, key=lambda test: test.partition("::")[0]):
        print(f"{time.strftime('%H:%M')}  {file} ...", flush=True)
        done, is_interrupted = run_file(of_file := list(group), commit, 60 * options.limit_min * len(of_file))
        print(*done.values(), sep="\n", flush=True)
        write_page(rows := rows | done, tests)
        if is_interrupted:
            print("interrupted: the same command goes on from here", flush=True)
            return 128 + signal.SIGINT
    bad = [test for test in wanted if "| failed" in rows[test]]
    print(f"{len(wanted)} proofs, {len(bad)} failed", *bad, sep="\n  ", flush=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())

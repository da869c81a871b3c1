"""`make prove`: every long proof, each in a process of its own, with a summary; a run that was stopped goes on.

What has a result in `build/prove/state.json` isn't run again, whatever the commit: `--again` forgets it first, of all
proofs or of those whose names contain one of the words given. Proofs that were run before go first, by how long they
took. The summary keeps what it said of proofs that this checkout has not run; `--adopt` goes on from there, as from
results of this checkout: hours that were spent on another machine need not be spent again. A proof that takes longer
than `--limit-min` is ended, counts as timed out, and the next one is run. Exit code 1 where a proof failed or never
ran, 130 after an interruption.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests.prove.results import Result, page, read_outcome, read_page, read_state, show_result, totals, write_state

ROOT = Path(__file__).parents[2]
SUMMARY = Path("docs") / "prove.md"
_PR_SET_PDEATHSIG = 1
_LOCK_WAIT_S = 60.0
LIMIT_MIN = 120.0
_CLEAN_UP_S = 60.0
_LIBC = ctypes.CDLL(None)


def collect(root: Path) -> list[str]:
    """Every test function that is marked as a long proof, in pytest's order. Exits with pytest's words where it can't
    read the tests."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "prove",
        "--collect-only",
        "-q",
        "-o",
        "addopts=--import-mode=importlib",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pytest could not collect the proofs:\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}")
    named = (line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line)
    return list(dict.fromkeys(named))


def commit_of(root: Path) -> str:
    """The short hash of the checkout, with "+" where anything but the summary was changed; "none" outside of git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--", ".", f":(exclude){SUMMARY}")
    return f"{git('rev-parse', '--short=12', 'HEAD') or 'none'}{'+' if changed else ''}"


def _end_with_the_runner() -> None:
    """A killed runner takes its proof along, as Ctrl-C would: what the proof started is ended too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def end_late(proof: subprocess.Popen[bytes], clean_up_s: float) -> None:
    """End a proof and everything it started. It is interrupted first, so that it cleans up as after Ctrl-C; what is
    left after `clean_up_s` is killed: its process group, and what it started in groups of their own, by their ids."""
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(proof.pid).children(recursive=True)
        proof.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            proof.wait(clean_up_s)
        with contextlib.suppress(ProcessLookupError):  # its id is its group's: it began a session
            os.killpg(proof.pid, signal.SIGKILL)
        for one in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()  # psutil looks whether the id is still that process's
    proof.wait()


def run_one(test: str, root: Path, folder: Path, lock: int, limit_s: float) -> Result:
    """Run one proof, which holds the lock too, and end it after `limit_s`. Its output stands in `folder/logs`.

    Raises KeyboardInterrupt after the proof was interrupted.
    """
    name = test.replace("/", ".").replace("::", "-")
    report, log = folder / "reports" / f"{name}.xml", folder / "logs" / f"{name}.txt"
    for path in (report, log):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-m", "prove", test, f"--junitxml={report}"]
    commit, day, started = commit_of(root), f"{datetime.now(UTC):%Y-%m-%d}", time.monotonic()
    with log.open("wb") as output:
        proof = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C reaches it once, through this process
            preexec_fn=_end_with_the_runner,
            pass_fds=(lock,),  # where the runner is killed, the next waits until this one has cleaned up
        )
        is_late = False
        try:
            status = proof.wait(limit_s)
        except subprocess.TimeoutExpired:
            end_late(proof, min(_CLEAN_UP_S, limit_s))
            status, is_late = proof.returncode, True
        except KeyboardInterrupt:
            proof.send_signal(signal.SIGINT)
            proof.wait()
            raise
    outcome, cases, note = read_outcome(report, status)
    if is_late:
        outcome, note = "timed out", f"ended at the limit of {limit_s / 60:g} min"
    for place, shown in ((str(root), "."), (str(root.parent), ".."), (str(Path.home()), "~")):
        note = note.replace(place, shown)
    return Result(outcome, round(time.monotonic() - started, 1), commit, day, cases, note)


def hold(folder: Path) -> int:
    """The one place of a runner in this checkout, until the process ends. Exits where another run has it."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise SystemExit(f"another `make prove` runs in {folder}") from None
            time.sleep(0.1)
        else:
            return handle


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no result yet, print the table and write the summary."""
    parser = argparse.ArgumentParser(prog="make prove", description="Run every long proof; go on where a run stopped.")
    parser.add_argument("words", nargs="*", help="only proofs whose name contains one of these")
    parser.add_argument("--again", action="store_true", help="forget their results and run them once more")
    parser.add_argument("--adopt", action="store_true", help=f"what passed by {SUMMARY} counts as run in this checkout")
    parser.add_argument("--list", action="store_true", help="show what is known and run nothing")
    parser.add_argument("--limit-min", type=float, default=LIMIT_MIN, help="minutes a proof may take (default: 120)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    root: Path = options.root.resolve()
    folder = root / "build" / "prove"
    folder.mkdir(parents=True, exist_ok=True)
    lock = hold(folder)
    tests = collect(root)
    wanted = [test for test in tests if not options.words or any(word in test for word in options.words)]
    if not wanted:
        parser.error(f"no such proof; there are {len(tests)}, see --list")
    state = folder / "state.json"
    results, summary = read_state(state), root / SUMMARY
    before = read_page(summary.read_text("utf-8")) if summary.exists() else {}
    if options.adopt:
        passed = {test: result for test, result in before.items() if result.outcome == "passed" and test in tests}
        results = {**passed, **results}
        write_state(state, results)
    took = {test: result.seconds for test, result in results.items()}
    if options.again and not options.list:
        results = {test: result for test, result in results.items() if test not in wanted}
        write_state(state, results)
    waiting = sorted((test for test in wanted if test not in results), key=lambda test: took.get(test, float("inf")))
    print(f"{len(wanted)} proofs, {len(wanted) - len(waiting)} have a result", flush=True)
    status = 0
    try:
        for test in () if options.list else waiting:
            print(f"{time.strftime('%H:%M')}  {test} ...", flush=True)
            results[test] = run_one(test, root, folder, lock, 60 * options.limit_min)
            write_state(state, results)
            print(f"       {show_result(test, results[test])}", flush=True)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
        print("interrupted: the same command goes on from here", flush=True)
    os.close(lock)
    for test in wanted:
        print(show_result(test, results[test]) if test in results else f"not run               {test}")
    print(totals(wanted, results), flush=True)
    if options.list:
        return 0
    summary.parent.mkdir(exist_ok=True)
    text = page(tests, {**before, **results}, commit=commit_of(root), day=f"{datetime.now(UTC):%Y-%m-%d}")
    summary.write_text(text, encoding="utf-8")
    return status or int(any(test not in results or results[test].is_bad for test in wanted))


if __name__ == "__main__":
    sys.exit(main())

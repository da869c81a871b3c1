"""Programs in virtual environments that whoever runs `make compat` made: where they are, and how they are called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

SECONDS = 180  # a command may take on a slow machine


class Outcome(NamedTuple):
    """How a command ended; `status` None where its time was over. `text` is both its streams."""

    status: int | None
    text: str


def environment_of(record: Path) -> Path:
    """The virtual environment that a distribution's RECORD lies in."""
    return record.parents[4]


def release_of(record: Path) -> str:
    """`name version` of a distribution by its RECORD's folder."""
    name, _, version = record.parent.name.removesuffix(".dist-info").rpartition("-")
    return f"{name.replace('_', '-')} {version}"


def run_command(command: list[str | Path], home: Path, **variables: str) -> Outcome:
    """Run a command whose home folder is `home`. It gets no terminal and none of this process's own variables."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    try:
        done = subprocess.run(
            list(map(str, command)),
            env=kept | {"HOME": str(home)} | variables,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, "")
    return Outcome(done.returncode, done.stdout)


def last_words(outcome: Outcome) -> str:
    """What a failed command said last, short enough for a cell."""
    if outcome.status is None:
        return f"no end within {SECONDS} s"
    lines = [line.strip() for line in outcome.text.splitlines() if line.strip()]
    return f"exit {outcome.status}: {' '.join(lines[-3:])[-240:]}"

"""A row per foreign thing, the kinds of things there are, and programs in virtual environments that somebody made.

A kind is one file in `tests/compat/kinds` with a `KIND`: the folder below FOREIGN that it reads, and a function that
examines one thing. `sources.json` in FOREIGN says where each file is from, by its path there:
`{"agents/a.py": {"source": "github.com/owner/name", "version": "commit", "date": "2026-05-04"}}`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.compat import kinds


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind says of one thing, or of one use of it, which `name` then names."""

    name: str = ""
    ran: str
    result: str
    is_red: bool


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one foreign thing, where it is from, and the sha256 of its bytes."""

    kind: str
    path: str
    source: dict[str, str]
    sha256: str
    found: Finding


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of foreign things. `examine` takes a thing's path; it never raises for what the thing is.

    `patterns` are those of its files below the folder; of an installed program the file is the RECORD of its
    distribution, in a virtual environment that is a folder there.
    """

    folder: str
    patterns: tuple[str, ...]
    examine: Callable[[Path], Sequence[Finding]]


def known_kinds() -> tuple[Kind, ...]:
    """Every kind that has a file, by folder."""
    names = sorted(each.name for each in pkgutil.iter_modules(kinds.__path__))
    return tuple(importlib.import_module(f"{kinds.__name__}.{name}").KIND for name in names)


def examine_all(foreign: Path, kind: Kind) -> Iterator[Row]:
    """A row per thing of a kind in a folder, or per use of it, by path; nothing where the folder isn't there."""
    listed = foreign / "sources.json"
    sources = json.loads(listed.read_text("utf-8")) if listed.exists() else {}
    paths = {path for pattern in kind.patterns for path in (foreign / kind.folder).glob(pattern)}
    for path in sorted(paths):
        place = str(path.relative_to(foreign))
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        for found in kind.examine(path):
            yield Row(kind=kind.folder, path=place, source=sources.get(place, {}), sha256=sha256, found=found)


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

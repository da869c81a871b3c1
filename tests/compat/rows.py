"""A row per foreign thing, and the kinds of things there are.

A kind is one file in `tests/compat/kinds` with a `KIND`: the folder below FOREIGN that it reads, and a function that
examines one thing. `sources.json` in FOREIGN says where each file is from, by its path there:
`{"agents/a.py": {"source": "github.com/owner/name", "version": "commit", "date": "2026-05-04"}}`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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

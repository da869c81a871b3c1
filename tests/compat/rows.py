"""A row per foreign thing, the kinds of things there are, and the page that holds the rows.

A kind is one file in `tests/compat/kinds` with a `KIND`: the folder below FOREIGN that it reads, what its rows are
about, and a function that examines one thing. `sources.json` in FOREIGN says where each file is from, by its path
there:
`{"agents/a.py": {"source": "github.com/owner/name", "version": "commit", "date": "2026-05-04"}}`.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.compat import kinds

COLUMNS = ("thing", "source", "commit or version", "its date", "sha256, its first half", "what was run", "result")
_RED = "**red** "


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one foreign thing. `sha256`: the first half of its bytes' hash."""

    kind: str
    name: str
    source: str
    version: str
    date: str
    sha256: str
    ran: str
    result: str
    is_red: bool


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind says of one thing, or of one use of it: `name` is then the row's."""

    name: str = ""
    ran: str
    result: str
    is_red: bool


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of foreign things. `examine` takes a thing's path; it never raises for what the thing is.

    `patterns` are those of its files below the folder; of an installed program the file is the RECORD of its
    distribution, in a virtual environment that is a folder there. `counted` says of a kind's rows what they hold
    together.
    """

    folder: str
    title: str
    about: str
    patterns: tuple[str, ...]
    examine: Callable[[Path], Sequence[Finding]]
    counted: Callable[[Sequence[Row]], str] | None = None


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
        known = sources.get(str(path.relative_to(foreign)), {})
        for found in kind.examine(path):
            yield Row(
                kind=kind.folder,
                name=found.name or "the file",
                source=known.get("source", "not given"),
                version=known.get("version", "not given"),
                date=known.get("date", "not given"),
                sha256=hashlib.sha256(path.read_bytes()).hexdigest()[:32],
                ran=found.ran,
                result=found.result,
                is_red=found.is_red,
            )


def write_page(rows: Sequence[Row], *, ran_on: str, version: str) -> str:
    """The page as Markdown."""
    parts = [
        "# Compatibility",
        "",
        "What was run of software that nobody here wrote, unmodified. `make compat FOREIGN=DIR` fetches nothing: it",
        "runs what lies in DIR and writes this page. Red rows stay until what they tell of is mended. An empty cell",
        "says what the one above it says.",
        "",
        f"Run on {ran_on} with the code of {version}.",
        "",
    ]
    for kind in known_kinds():
        mine = [row for row in rows if row.kind == kind.folder]
        red = sum(row.is_red for row in mine)
        held = f" {kind.counted(mine)}" if kind.counted else ""
        parts += [f"## {kind.title}", "", kind.about, "", f"{len(mine)} rows, {red} red.{held}", ""]
        if mine:
            table = [_cells(row) for row in mine]
            shorter = [
                ["" if cell == over else cell for cell, over in zip(cells, above, strict=True)]
                for above, cells in itertools.pairwise([[""] * len(COLUMNS), *table])
            ]
            parts += [_line(COLUMNS), _line(["---"] * len(COLUMNS)), *map(_line, shorter), ""]
    return "\n".join(parts)


def read_page(text: str) -> tuple[Row, ...]:
    """The rows of a page; an empty cell repeats the one above. Raises ValueError for another line of a table."""
    kind_of = {kind.title: kind.folder for kind in known_kinds()}
    rows: list[Row] = []
    kind, above = "", [""] * len(COLUMNS)
    for line in text.splitlines():
        if line.startswith("## "):
            kind, above = kind_of[line[3:]], [""] * len(COLUMNS)
        elif line.startswith("| ") and not line.startswith(("| thing ", "| --- ")):
            cells = [cell.strip() for cell in line[1:-1].split("|")]
            if len(cells) != len(COLUMNS):
                raise ValueError(f"not a row: {line}")
            above = [cell or over for cell, over in zip(cells, above, strict=True)]
            *named, result = above
            name, source, version, date, sha256, ran = named
            rows.append(
                Row(
                    kind=kind,
                    name=name,
                    source=source,
                    version=version,
                    date=date,
                    sha256=sha256,
                    ran=ran,
                    result=result.removeprefix(_RED),
                    is_red=result.startswith(_RED),
                )
            )
    return tuple(rows)


def _cells(row: Row) -> list[str]:
    result = (_RED if row.is_red else "") + row.result
    cells = [row.name, row.source, row.version, row.date, row.sha256, row.ran, result]
    return [cell.replace("|", "/").replace("\n", " ") for cell in cells]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

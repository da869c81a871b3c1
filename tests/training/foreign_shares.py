"""What share of published trajectories converts: `python -m tests.training.foreign_shares NAME=FILE,FILE ...`.

With one folder instead, a row per file below its `trajectories/`. The files are no part of the repository; the table of
training/corpus/README.md names where they are from.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from training.corpus.foreign import read_foreign
from training.corpus.gates import is_paired
from training.corpus.model import Trace


def shares(files: list[Path]) -> tuple[Counter[str], Counter[str]]:
    """Of all rows of the files: how many are traces (with calls, with every call answered), and the codes of the
    rest."""
    found, codes = Counter[str](), Counter[str]()
    for file in files:
        for row in read_foreign(file):
            found["rows"] += 1
            if isinstance(row, Trace):
                has_calls = any(message.calls for message in row.messages)
                found.update({"converted": 1, "calls": has_calls, "paired": has_calls and is_paired(row.messages)})
            else:
                codes[row.code] += 1
    return found, codes


class Conversion(NamedTuple):
    """What became of one file. `rows` of it, `converted`, with `calls`, and of these all answered (`paired`)."""

    name: str
    source: str
    version: str
    date: str
    sha256: str
    ran: str
    result: str
    is_red: bool
    rows: int
    converted: int


def conversions(foreign: Path) -> Iterator[Conversion]:
    """A row per file in `foreign/trajectories`, by name. `foreign/sources.json` says of each, by its path from
    `foreign`, `source`, `version` (or commit) and `date`. A file is red where any row of it is refused."""
    listed = foreign / "sources.json"
    sources = json.loads(listed.read_text("utf-8")) if listed.exists() else {}
    for path in sorted(one for one in (foreign / "trajectories").iterdir() if one.is_file()):
        ran, result, is_red, found = examined(path)
        known = sources.get(path.relative_to(foreign).as_posix(), {})
        origin = (known.get(key, "not given") for key in ("source", "version", "date"))
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        yield Conversion(path.name, *origin, sha256, ran, result, is_red, found["rows"], found["converted"])


def examined(path: Path) -> tuple[str, str, bool, Counter[str]]:
    """Of one file: what was run, what came of it, whether any row was refused, and the counts."""
    found, codes = shares([path])
    said = (
        f"{found['converted']} of {found['rows']} rows, {found['calls']} with calls, all answered in {found['paired']}"
    )
    refused = "".join(f"; {count} {code}" for code, count in sorted(codes.items()))
    return "every row converted as by `--foreign`", said + refused, bool(codes), found


if __name__ == "__main__":
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_dir():
        for row in conversions(Path(sys.argv[1])):
            print(f"{'red' if row.is_red else 'ok '}  {row.name}: {row.result}")
        raise SystemExit
    print("| source | n | converted | with calls | all calls answered | rest |\n|---|---|---|---|---|---|")
    for name, _, files in (argument.partition("=") for argument in sys.argv[1:]):
        found, codes = shares([Path(file) for file in files.split(",")])
        rest = ", ".join(f"{count} {code}" for code, count in sorted(codes.items()))
        print(f"| {name} | {found['rows']} | {found['converted']} | {found['calls']} | {found['paired']} | {rest} |")

"""Trajectories: every row of a published file converted as `--foreign` converts it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.compat.rows import Finding, Kind
from training.corpus.foreign import read_foreign
from training.corpus.gates import is_paired
from training.corpus.model import Trace


def examine(path: Path) -> Finding:
    """A file is red where any row of it is refused."""
    found, codes = Counter[str](), Counter[str]()
    for row in read_foreign(path):
        if isinstance(row, Trace):
            has_calls = any(message.calls for message in row.messages)
            found.update({"traces": 1, "with calls": has_calls, "paired": has_calls and is_paired(row.messages)})
        else:
            codes[row.code] += 1
    rows = f"{found['traces']} of {found['traces'] + codes.total()} rows"
    refused = "".join(f"; {count} {code}" for code, count in sorted(codes.items()))
    said = f"{rows}, {found['with calls']} with calls, all answered in {found['paired']}{refused}"
    return Finding(ran="every row converted as by `--foreign`", result=said, is_red=bool(codes))


KIND = Kind(folder="trajectories", patterns=("*",), examine=lambda path: (examine(path),))
